"""Digests of plug-ins: a change of their source changes the keys of their cells."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any

from parvibench.core.algorithm import Method
from parvibench.core.task import Task


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
