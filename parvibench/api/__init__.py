"""What ParVIBench does, as functions: one module a verb. The command line calls these and nothing else.

The verbs of everyday use are imported lazily as ``parvibench.NAME``; the others are called by their module, which is loaded
on first use: what a command does not need would cost its user seconds at every call.
"""

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import certify as certify
    from . import check as check
    from . import compare as compare
    from . import describe as describe
    from . import doctor as doctor
    from . import evaluate as evaluate
    from . import listing as listing
    from . import mirroring as mirroring
    from . import report as report
    from . import run as run
    from . import shown as shown
    from . import stores as stores
    from . import tune as tune


def __getattr__(name: str) -> Any:
    if name.startswith("_") or find_spec(f"parvibench.api.{name}") is None:
        raise AttributeError(f"module 'parvibench.api' has no attribute {name!r}")
    return importlib.import_module(f"parvibench.api.{name}")
