"""Which file plug-ins a suite may name: those beside it that the caller names, too, or all of them."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Literal

from parvibench.core import registry
from parvibench.core.errors import InputError

#: Places of the command line, ``file.py:OBJECT``, whose files may be loaded; or every file beside the suite.
Allowed = Collection[str] | Literal["beside"]


def plugin_place(name: str, folder: Path, allowed: Allowed) -> str:
    """The place behind a task's or algorithm's name in a suite of ``folder``, as it is loaded from this directory.

    Raises:
        InputError: a file that is not allowed, not there, or not in the folder; a module that is no module's name.
    """
    if not (registry.is_place(name) or ":" in name) or name in registry.algorithms():
        return name
    file, colon, attribute = name.rpartition(":") if ":" in name else (name, "", "")
    if not file.endswith(".py"):
        if not all(part.isidentifier() for part in file.split(".")):
            raise InputError(f"{name}: neither installed code, 'module:OBJECT', nor a file, 'file.py:OBJECT'")
        return name
    path = (folder / file).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise InputError(f"{name}: a suite names only files in its own folder")
    spelled = (
        {} if allowed == "beside" else {Path(p.rpartition(":")[0]).resolve(): p.rpartition(":")[0] for p in allowed}
    )
    if allowed != "beside" and path not in spelled:
        raise InputError(
            f"{name}: a suite file is data and runs no code of its own; to run {file}, name it on the command line, "
            f"too ({name} by --algorithm or --task), or add --allow-plugins"
        )
    if not path.is_file():
        raise InputError(f"{name}: no such file beside the suite")
    return f"{spelled.get(path) or os.path.relpath(path)}{colon}{attribute}"
