"""The catalogue of planted bugs, read from ``catalogue.yaml`` or the file of this folder that ``PLANTED_CATALOGUE`` names."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from parvibench.core.errors import InputError, UnknownNameError


@dataclass(frozen=True)
class PlantedBug:
    """A piece of source text and what takes its place."""

    name: str
    family: str
    summary: str  # what is wrong, one sentence
    module: str  # where it is planted, ``parvibench.`` left out
    old: str  # stands once in the module
    new: str
    aside: bool = False  # measured only: never looked at to extend the check

    @property
    def full_module(self) -> str:
        """Full name of the module."""
        return f"parvibench.{self.module}"

    def planted(self, source: str) -> str:
        """The module's source with the bug; an InputError where the text is not there once."""
        found = source.count(self.old)
        if found != 1:
            raise InputError(
                f"planted bug {self.name!r}: {self.full_module} must hold this text once, "
                f"it does {found} times:\n{self.old}"
            )
        return source.replace(self.old, self.new)


def _file() -> str:
    return os.environ.get("PLANTED_CATALOGUE", "catalogue.yaml")


@cache
def catalogue() -> tuple[PlantedBug, ...]:
    """All planted bugs, family by family."""
    families = yaml.safe_load(Path(__file__).with_name(_file()).read_text(encoding="utf-8"))
    return tuple(PlantedBug(name, family, **texts) for family, bugs in families.items() for name, texts in bugs.items())


def bugs_named(names: Iterable[str] = (), aside: bool | None = None) -> tuple[PlantedBug, ...]:
    """The bugs of these names; where none is given all of them, or those that were put aside, or the others."""
    known = {bug.name: bug for bug in catalogue()}
    for name in names:
        if name not in known:
            raise UnknownNameError("planted bug", name, known)
    chosen = tuple(bug for bug in catalogue() if aside is None or bug.aside == aside)
    return tuple(known[name] for name in names) or chosen
