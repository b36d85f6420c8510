"""The name by which another process finds an object."""

import importlib.util
import sys
from pathlib import Path

from parvibench.core.algorithm import Method

_MAIN = ("__main__", "__mp_main__", "builtins")  #: Modules that are other code, or none, in another process.
_FILE_PLUGIN = "parvibench_plugin_"


def importable(method: Method) -> str:
    """``module:attribute`` or ``file.py:attribute`` of an algorithm or of its class; empty where there is none.

    None have what is defined in a notebook, in the main program or within a function, and an object with attributes of
    its own that no module holds: its class alone would make another one.
    """
    owner = type(method)
    module = sys.modules.get(owner.__module__)
    if module is None or owner.__module__ in _MAIN:
        return ""
    place = _place(owner.__module__)
    for attribute, value in list(vars(module).items()):
        if value is method or (value is owner and not vars(method)):
            return f"{place}:{attribute}" if place else ""
    return ""


def _place(module: str) -> str:
    """How a module is named on the command line; empty where it cannot be imported again."""
    if module.startswith(_FILE_PLUGIN):
        return str(Path(str(sys.modules[module].__file__)).resolve())
    try:
        return module if importlib.util.find_spec(module) is not None else ""
    except (ImportError, ValueError):
        return ""
