"""What ParVIBench does, as functions: one module a verb. The command line calls these and nothing else.

The verbs of everyday use are imported lazily as ``parvibench.NAME``; the others are called by their module, which is loaded
on first use: what a command does not need would cost its user seconds at every call.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import (  # fmt: skip
        certify,
        check,
        compare,
        describe,
        doctor,
        evaluate,
        listing,
        mirroring,
        report,
        run,
        stores,
        tune,
    )

__all__ = ["certify", "check", "compare", "describe", "doctor", "evaluate", "listing", "mirroring", "report", "run", "stores", "tune"]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'parvibench.api' has no attribute {name!r}")
    return importlib.import_module(f"parvibench.api.{name}")
