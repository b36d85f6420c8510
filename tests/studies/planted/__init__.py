"""Planted bugs: the catalogues, the private copy that one is planted in, and which tests are tried there."""

import sys
from pathlib import Path

# For what is shared by all tests, where no conftest has done it.
if (shared := str(Path(__file__).resolve().parents[2])) not in sys.path:
    sys.path.append(shared)
