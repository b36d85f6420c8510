"""Run the study by its folder; see ``command``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from papers.command import main

main()
