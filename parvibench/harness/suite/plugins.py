"""Plug-ins: which files a suite may name, those next to it that the caller names, too, or all; and digests of their source."""

import hashlib
import inspect
import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any, Literal

from parvibench.core import registry
from parvibench.core.algorithm import Method
from parvibench.core.errors import InputError
from parvibench.core.task import Task

#: Places of the command line, ``file.py:OBJECT``, whose files may be loaded; or every file next to the suite.
Allowed = Collection[str] | Literal["beside"]


def plugin_place(name: str, folder: Path, allowed: Allowed) -> str:
    """The place behind a task's or algorithm's name in a suite of ``folder``, as it is loaded from this directory.

    ``InputError`` for a file that is not allowed, not there, or not in the folder, and for what is no module's name.
    """
    if not (registry.is_place(name) or ":" in name) or name in registry.algorithms():
        return name
    file, colon, rest = _parts(name)
    if not file.endswith((".py", ".stan")):
        if not all(part.isidentifier() for part in file.split(".")):
            raise InputError(f"{name}: neither installed code, 'module:OBJECT', nor a file, 'file.py:OBJECT'")
        return name
    path = _within(folder, file, name)
    spelled = {} if allowed == "beside" else {Path(f).resolve(): f for f in (_parts(p)[0] for p in allowed)}
    if allowed != "beside" and path not in spelled:
        raise InputError(
            f"{name}: a suite file is data and runs no code of its own; to run {file}, name it on the command line, "
            f"too ({name} by --algorithm or --task), or add --allow-plugins"
        )
    named = [path]
    if rest and file.endswith(".stan"):
        named.append(_within(folder, rest, name))
        rest = os.path.relpath(named[1])
    if not all(p.is_file() for p in named):
        raise InputError(f"{name}: no such file beside the suite")
    return f"{spelled.get(path) or os.path.relpath(path)}{colon}{rest}"


def _parts(place: str) -> tuple[str, str, str]:
    """File, colon and object of ``file.py:OBJECT``; program, colon and data of ``model.stan:data.json``."""
    file, stan, data = place.partition(".stan:")
    if stan:
        return f"{file}.stan", ":", data
    return place.rpartition(":") if ":" in place else (place, "", "")


def _within(folder: Path, file: str, name: str) -> Path:
    """The path of a file that a suite of the folder names."""
    path = (folder / file).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise InputError(f"{name}: a suite names only files in its own folder")
    return path


def plugin_source(task: Task, algorithm: Method) -> str:
    """SHA-256 over the source files of plug-ins, which do not come with the package, else empty."""
    digest = hashlib.sha256()
    outside = [o for o in (task, algorithm) if not type(o).__module__.startswith("parvibench.")]
    for item in outside:
        try:
            digest.update(Path(inspect.getfile(type(item))).read_bytes())
        except (OSError, TypeError):  # defined interactively
            digest.update(repr((type(item), *_bytecode(vars(type(item)).values()))).encode())
        if isinstance(item, Method) and vars(item):  # made with arguments
            digest.update(repr(sorted(vars(item).items())).encode())
    if own := getattr(task, "source", ""):
        digest.update(own.encode())
    return digest.hexdigest() if outside or own else ""


def _bytecode(members: Iterable[Any]) -> Iterator[Any]:
    """Bytecode, defaults and closures of the functions among the members of a class."""
    for member in members:
        function = getattr(member, "__func__", member)
        if code := getattr(function, "__code__", None):
            around = [c.cell_contents for c in function.__closure__ or ()]
            yield _instructions(code), function.__defaults__, function.__kwdefaults__, [repr(a) for a in around]


def _instructions(code: CodeType) -> tuple[Any, ...]:
    inner = [_instructions(c) if isinstance(c, CodeType) else c for c in code.co_consts]
    return code.co_code.hex(), code.co_names, inner
