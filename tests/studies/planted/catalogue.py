"""The five catalogues of planted bugs, and a sixth of rewritings that are none."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml
from import_graph import module_files

from parvibench.core.errors import InputError, UnknownNameError

#: Of bugs; ``harmless`` has what must not be detected.
CATALOGUES = ("catalogue", "second", "third", "fourth", "fifth")
HARMLESS = "harmless"


@dataclass(frozen=True)
class PlantedBug:
    """A piece of source text and what takes its place."""

    name: str
    family: str
    summary: str  # what is wrong, one sentence
    module: str  # where it is planted, ``parvibench.`` left out
    old: str  # occurs once in the module
    new: str
    aside: bool = False  # measured only: never looked at to extend the tests
    catalogue: str = CATALOGUES[0]

    @property
    def id(self) -> str:
        """The name with its catalogue's: some names occur in two."""
        return f"{self.catalogue}:{self.name}"

    def planted(self, source: str) -> str:
        """The module's source with the bug; an InputError where the text is not there once."""
        count = source.count(self.old)
        if count != 1:
            raise InputError(
                f"planted bug {self.name!r}: {self.home()} must contain this text once, "
                f"it does {count} times:\n{self.old}"
            )
        return source.replace(self.old, self.new)

    def home(self) -> str:
        """Full name of the module; an InputError where there is none: an entry moves with its module."""
        full = self.module if self.module in sources() else f"parvibench.{self.module}"
        if full not in sources():
            raise InputError(f"planted bug {self.name!r}: there is no module {self.module}")
        return full


@cache
def sources() -> dict[str, Path]:
    """Where bugs are planted: the files of the package by module, and of the study of the papers."""
    papers = Path(__file__).parents[1] / "papers"
    return module_files() | {f"papers.{file.stem}": file for file in papers.glob("*.py")}


@cache
def catalogue(name: str = CATALOGUES[0]) -> tuple[PlantedBug, ...]:
    """All bugs of a catalogue, family by family."""
    families = yaml.safe_load(Path(__file__).with_name(f"{name}.yaml").read_text("utf-8"))
    return tuple(
        PlantedBug(bug, family, catalogue=name, **texts) for family, bugs in families.items() for bug, texts in bugs.items()
    )  # fmt: skip


def bugs_named(
    names: Sequence[str] = (), catalogues: Sequence[str] = CATALOGUES, aside: bool | None = None
) -> tuple[PlantedBug, ...]:
    """The bugs of some catalogues, or those named, ``BUG`` or ``CATALOGUE:BUG``; by ``aside`` those put aside or not."""
    for name in catalogues:
        if name not in (*CATALOGUES, HARMLESS):
            raise UnknownNameError("catalogue", name, (*CATALOGUES, HARMLESS))
    bugs = [bug for name in catalogues for bug in catalogue(name)]
    known = {bug.name for bug in bugs} | {bug.id for bug in bugs}
    for name in names:
        if name not in known:
            raise UnknownNameError("planted bug", name, known)
    chosen = [bug for bug in bugs if not names or bug.name in names or bug.id in names]
    return tuple(bug for bug in chosen if aside is None or bug.aside == aside)
