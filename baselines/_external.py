"""External libraries: imported when a sampler of theirs starts, with the line that installs an absent one."""

from __future__ import annotations

import importlib
from typing import Any

from parvibench.core.errors import LibraryMissingError, ShapeError, install_hint
from parvibench.core.streams import Streams, derive_seed
from parvibench.core.task import Problem


def library(module: str, name: str = "") -> Any:
    """A module of a library, by default of its own name; ``LibraryMissingError`` where it is not installed."""
    top = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in (top, name):
            raise
        raise LibraryMissingError(f"{top} is not installed; {install_hint(name or top)}") from None


def require_one_replicate(problem: Problem, name: str) -> None:
    """Refuse a batch of replicates: ``ShapeError``."""
    if problem.replicates != 1:
        raise ShapeError(f"{name} takes one replicate at a time, got {problem.replicates}")


def seed_of(streams: Streams, *address: object) -> int:
    """A seed of 31 bits for draws of a library's own generator, by the replicate and an address."""
    return derive_seed(streams.seed, "algorithm", streams.replicates[0], *address) >> 32
