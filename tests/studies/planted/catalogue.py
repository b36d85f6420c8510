"""Planted bugs: what one is, and the catalogue.

A bug is a piece of source text and what takes its place. All are quiet: the code still runs, and gives something
else. They were chosen from what people get wrong (signs and factors that papers print, departures of released codes,
slips that reviews find), before it was known which of them a check sees.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from parvibench.core.errors import InputError, UnknownNameError


@dataclass(frozen=True)
class Mutant:
    """A planted bug.

    Attributes:
        name: canonical name.
        family: part of the project it is in.
        summary: what a reader should know, one sentence.
        module: where it is planted, ``parvibench.`` left out.
        old: source text that it replaces; occurs once in the module.
        new: what stands there instead.
    """

    name: str
    family: str
    summary: str
    module: str
    old: str
    new: str

    @property
    def place(self) -> str:
        """Full name of the module."""
        return f"parvibench.{self.module}"

    def planted(self, source: str) -> str:
        """The module's source with the bug.

        Raises:
            InputError: the text to replace is not there, or more than once.
        """
        found = source.count(self.old)
        if found != 1:
            raise InputError(
                f"planted bug {self.name!r}: {self.place} must hold this text once, it does {found} times:\n{self.old}"
            )
        return source.replace(self.old, self.new)


@cache
def catalogue() -> tuple[Mutant, ...]:
    """All planted bugs, family by family."""
    from . import around as mutants_house
    from . import chains as mutants_chains
    from . import learning as mutants_learning
    from . import particles as mutants_particles
    from . import targets as mutants_tasks

    homes = (mutants_chains, mutants_particles, mutants_learning, mutants_tasks, mutants_house)
    return tuple(mutant for home in homes for mutant in home.MUTANTS)


def select(names: Iterable[str] = ()) -> tuple[Mutant, ...]:
    """The bugs of these names; all of them where none is given.

    Raises:
        UnknownNameError: with near names.
    """
    known = {mutant.name: mutant for mutant in catalogue()}
    for name in names:
        if name not in known:
            raise UnknownNameError("planted bug", name, known)
    return tuple(known[name] for name in names) or catalogue()
