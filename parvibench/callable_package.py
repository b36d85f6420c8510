"""Packages that can be called: ``pb.check(...)`` and ``pb.report(...)`` share their names with packages of ours."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """A package whose call is that of a function, ``module:function``, imported when it is called."""

    _function: str

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        module, _, name = self._function.partition(":")
        return getattr(importlib.import_module(module), name)(*arguments, **options)


def call_through(package: str, function: str) -> None:
    """Make an imported package callable."""
    module = sys.modules[package]
    module.__class__ = _Callable
    module._function = function  # type: ignore[attr-defined]
