"""Terms of a board: how its suite, as it was run, specifies a cell; settings of a submission are free."""

from collections.abc import Iterable
from functools import cache
from typing import Any

from parvibench.core import registry
from parvibench.core.errors import InputError
from parvibench.core.result import CellSpec
from parvibench.harness.suite.cells import Cell, expand
from parvibench.harness.suite.entries import AlgorithmEntry
from parvibench.harness.suite.suite import Suite

#: Fields of a specification that say where a cell was computed, and those that belong to the method.
_PLACE = frozenset({"device", "chunk", "compiled", "trajectories"})
_METHOD = _PLACE | {"algorithm", "algorithm_version", "source", "settings", "particles", "burn_in", "thinning"}


class Terms:
    """The cells that a suite specifies, its profile applied."""

    def __init__(self, suite: Suite) -> None:
        self.suite = suite
        #: task -> the suite's cells
        self.own = cache(lambda task: expand(part) if (part := _part(suite, task)) else [])

    def again(self, spec: CellSpec) -> list[Cell]:
        """The suite's cells of a built-in method with these settings, one an entry; ``InputError`` for others than its own."""
        suite = _part(self.suite, spec.task, spec.algorithm)
        return [] if suite is None else expand(suite, settings={spec.algorithm: spec.settings})

    def departures(self, spec: CellSpec, *, frozen: bool = False) -> list[str]:
        """What of a cell differs from the terms, a line each.

        A built-in method has the specification that the suite gives it, but for its settings; where ``frozen``, with the
        settings of the suite's own rows. Other methods share the protocol of one of the suite's rows on the task.
        """
        own = self.own(spec.task)
        if not own:
            return ["no task of this board"]
        if not is_built_in(spec):
            return _nearest(spec, own, _METHOD)
        listed = [c for c in own if c.algorithm == spec.algorithm] if frozen else []
        try:
            return _nearest(spec, listed or self.again(spec), _PLACE)
        except InputError as error:
            return [str(error)]


def same(cell: Cell, spec: CellSpec) -> bool:
    """Whether a cell is specified so, wherever it was computed."""
    return not _nearest(spec, [cell], _PLACE)


def _part(suite: Suite, task: str, algorithm: str = "") -> Suite | None:
    """The suite on one task, with one method if named, added where the suite lacks it; None where it has nothing there."""
    if suite.rows:
        rows = tuple(r for r in suite.rows if r.task == task and algorithm in ("", r.name))
        return suite.model_copy(update={"rows": rows}) if rows else None
    tasks = tuple(t for t in suite.tasks if t.name == task)
    named = tuple(a for a in suite.algorithms if algorithm in ("", a.name)) or (AlgorithmEntry(name=algorithm),)
    return suite.model_copy(update={"tasks": tasks, "algorithms": named}) if tasks else None


def _nearest(spec: CellSpec, cells: Iterable[Cell], but: frozenset[str]) -> list[str]:
    """The fewest differences of a specification from one of these cells, in all fields ``but`` some."""

    def differing(cell: Cell) -> list[str]:
        values = ((name, getattr(spec, name), getattr(cell.spec, name)) for name in CellSpec.model_fields)
        return [
            f"{name} {_shown(name, a)}; the board has {_shown(name, b)}"
            for name, a, b in values if name not in but and a != b
        ]  # fmt: skip

    return min(map(differing, cells), key=len, default=["no row of this board"])


def _shown(name: str, value: Any) -> str:
    if name == "replicates" and value == tuple(range(len(value))):
        return str(len(value))
    if name == "budget":
        limits = value.model_dump(exclude_none=True)
        return ", ".join(f"{k} {v}"[:80] for k, v in limits.items())
    return f"{value}"[:80]


def is_built_in(spec: CellSpec) -> bool:
    """Whether the method is part of this installation's package."""
    row = registry.algorithms().get(spec.algorithm)
    return row is not None and row.built_in and not spec.source


def is_plugin(spec: CellSpec) -> bool:
    """Whether a method is named by its place, and the digest of its source is known."""
    return registry.is_elsewhere(spec.algorithm) and len(spec.source) == 64
