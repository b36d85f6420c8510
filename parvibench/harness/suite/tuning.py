"""Step sizes chosen the same way for every algorithm, on replicates and rows that no benchmark run is judged by.

The procedure, the same for every (task, method) of a suite:

1. A log grid of ``points`` values (9), one grid for each unit of the step: ``x^2`` (it multiplies a score), ``x`` (a rule
   that rescales, such as Adam, moves x by it) and ``rate`` (Adam's, of the parameters of a generator). Options that the
   suite lists, such as SVGD's rule, are tried with a grid each.
2. All values run for ``SHARE`` (1/4) of the horizon on ``replicates`` (3). While the best value of a grid is at its
   end, two values are added beyond, at most ``EXTENSIONS`` (2) times.
3. The best ``FINALISTS`` (2) run for the whole horizon; the better median of the task's primary metric is chosen.
   While it is worse than the same step was after the share, the next smaller one runs too (particles that end in the
   posterior's mode, say, do so the sooner the larger the step), and while it is at the end of its grid the next one
   beyond, at most ``FURTHER`` (4) times.

Tuning replicates have ids and streams of their own. Where a task has test rows, they are trained on four fifths of a
split's training rows and judged by the last fifth (``data.splits``); a target without is tuned against its reference.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from parvibench.core import registry
from parvibench.core.algorithm import Method
from parvibench.core.budget import Budget
from parvibench.core.errors import InputError
from parvibench.core.result import CellRecord, Status
from parvibench.core.task import TUNING_REPLICATES, Task
from parvibench.data.splits import VALIDATION_SHARE
from parvibench.harness.store.results import StoredRun, metric_values

from .cells import Cell, expand
from .entries import Tuned, TuneSpec
from .suite import Suite

ADDED = 2  #: Values by which a grid grows beyond an end.


@dataclass
class Grid:
    """The values tried for one (task, label) under one choice of its options."""

    cell: Cell  #: of the suite, options set
    options: dict[str, Any]  #: chosen with the step, such as ``{"rule": "adagrad"}``
    steps: list[float]  #: ascending

    def named(self, step: float) -> str:
        """``task/label @ value``, with the options."""
        chosen = "".join(f" {k}={v}" for k, v in self.options.items())
        return f"{self.cell.task}/{self.cell.label} @ {step:g}{chosen}"

    def best(self, scores: Mapping[str, float]) -> float | None:
        """The value with the lowest score, the smallest of several; None where none was measured."""
        if not any(self.named(s) in scores for s in self.steps):
            return None
        return min(self.steps, key=lambda s: scores.get(self.named(s), np.inf))

    def beyond(self, step: float, values: int = 1) -> list[float]:
        """Values added beyond the one at an end; none for one inside."""
        end = -1 if step == self.steps[0] else 1 if step == self.steps[-1] else 0
        if not end:
            return []
        ratio = self.steps[1] / self.steps[0]
        added = [rounded(step * ratio ** (end * (i + 1))) for i in range(values)]
        self.steps = sorted({*self.steps, *added})
        return added

    def below(self, step: float) -> list[float]:
        """The next smaller value, added where there is none."""
        return [s for s in self.steps if s < step][-1:] or self.beyond(step)


def step_unit(algorithm: Method, settings: dict[str, Any]) -> str:
    """What a step size is measured in: ``x^2``, ``x`` or ``rate``."""
    if algorithm.kind == "generator":
        return "rate"
    made = algorithm.make_settings(settings)
    described = type(made).model_fields["step_size"].description or ""
    decays = "in x^2" in described and " or x" not in described  # no fixed step, yet one that multiplies a score
    return "x^2" if decays or algorithm.effective_step(made) is not None else "x"


def grid(spec: TuneSpec, unit: str) -> list[float]:
    """The log grid of a unit, rounded to three significant digits."""
    return [rounded(v) for v in np.geomspace(*spec.ends(unit), spec.points)]


def rounded(value: float) -> float:
    """To three significant digits."""
    return float(f"{value:.3g}")


def grids_of(spec: TuneSpec, cell: Cell) -> Iterator[Grid]:
    """The grids of a cell, one for every choice of its options."""
    own, algorithm = spec.options.get(cell.label, {}), cell.load()[1]
    for values in itertools.product(*own.values()):
        options = dict(zip(own, values, strict=True))
        settings = algorithm.make_settings({**cell.settings, **options}).model_dump(mode="json")
        yield Grid(cell.varied(settings=settings), options, grid(spec, step_unit(algorithm, settings)))


class Tried(NamedTuple):
    """One step size of a method on a task."""

    task: str
    label: str
    options: Mapping[str, Any]  #: chosen with the step
    step_size: float
    metric: str
    value: float | None  #: median over the tuning replicates after the share of the horizon; None: not measured
    whole: float | None  #: after the whole horizon; None: not among the finalists
    chosen: bool


def sign(metric: str) -> float:
    """-1 for a metric of which more is better: scores are minimised."""
    return -1.0 if registry.direction(metric) == "higher" else 1.0


def values_of(
    grids: Iterable[Grid], scores: Mapping[str, float], final: Mapping[str, float], metric: str, chosen: str
) -> list[Tried]:
    """What was tried on the grids of one method on one task; ``chosen`` is the name of the chosen value."""
    found = []
    for grid, step in ((g, s) for g in grids for s in g.steps):
        name = grid.named(step)
        share, whole = (sign(metric) * of[name] if name in of else None for of in (scores, final))
        if (share, whole) != (None, None):
            method = grid.cell.task, grid.cell.label, grid.options
            found.append(Tried(*method, step, metric, share, whole, name == chosen))
    return found


#: Times that a grid grows beyond an end, and best values of a method that run for the whole horizon.
EXTENSIONS, FINALISTS = 2, 2
SHARE = 0.25  #: Budget of the first runs, as a share of the suite's.
#: Times that another value is run for the whole horizon: the best one has become worse by then, or is at an end.
FURTHER = 4
_MEASURED = (Status.OK, Status.DIVERGED)

Run = Callable[[Sequence[Cell]], StoredRun]


@dataclass
class Tuner:
    """Chooses the step sizes of a suite; ``run`` measures cells and keeps what it has measured."""

    suite: Suite  #: its profile applied
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  #: as of ``expand``, like ``objects``
    objects: Sequence[Task | Method] = ()
    left_out: dict[str, str] = field(default_factory=dict)  #: ``task/label`` without a value -> why
    tried: list[Tried] = field(default_factory=list)  #: the values at all step sizes of the others

    def __post_init__(self) -> None:
        if self.suite.tune is None:
            raise InputError(
                f"suite {self.suite.name!r} has no 'tune' section; add for example: tune: {{step_size: [1.0e-4, 1.0]}}"
            )
        self.spec: TuneSpec = self.suite.tune
        self._grids: dict[tuple[str, str], list[Grid]] = {}
        followers = {a.display for _, a in self.suite.pairs if a.step_from}
        self._primary: dict[str, str] = {}
        suite = self.suite.model_copy(update={"tuned": None})
        for cell in expand(suite, settings=self.settings, objects=self.objects):
            self._primary[cell.task] = self.spec.metric or cell.load()[0].primary
            own = cell.untuned and cell.label not in followers and "step_size" in cell.settings
            if own and not cell.missing_needs():
                self._grids[cell.task, cell.label] = list(grids_of(self.spec, cell))

    @property
    def _all_grids(self) -> list[Grid]:
        return [g for grids in self._grids.values() for g in grids]

    def first_cells(self) -> list[Cell]:
        """The first round: every value of every grid at a share of the horizon."""
        return [self._cell(g, s) for g in self._all_grids for s in g.steps]

    def one_of_each(self) -> list[tuple[Cell, int]]:
        """The first round with one value of every grid, which cost alike, and the number of its values."""
        return [(self._cell(g, g.steps[0]), len(g.steps)) for g in self._all_grids]

    def tune(self, run: Run) -> Tuned:
        """Run all rounds; pairs without a measured value are in ``left_out``."""
        records = _measured(run, self.first_cells())
        for _ in range(EXTENSIONS):
            scores = self._scores(records)
            best = [(g, s) for g in self._all_grids if (s := g.best(scores)) is not None]
            records |= _measured(run, [self._cell(g, new) for g, s in best for new in g.beyond(s, ADDED)])
        scores, finals = self._scores(records), []
        for grids in self._grids.values():
            tried = [(g, s) for g in grids for s in g.steps if g.named(s) in scores]
            finals += sorted(tried, key=lambda t: scores[t[0].named(t[1])])[:FINALISTS]
        last: dict[str, CellRecord] = {}
        for _ in range(1 + FURTHER):
            records |= _measured(run, [self._cell(g, s) for g, s in finals if g.named(s) not in records])
            last |= _measured(run, [self._cell(g, s, whole=True) for g, s in finals])
            finals = self._further(self._scores(records), self._scores(last), set(last))
        return self._chosen(records, last)

    def _further(self, scores: dict[str, float], final: dict[str, float], tried: set[str]) -> list[tuple[Grid, float]]:
        """The next value of every grid whose best finalist is worse over the whole horizon than before, or is at an end."""
        found = []
        for grids in self._grids.values():
            names = {g.named(s): (g, s) for g in grids for s in g.steps if g.named(s) in tried}
            best = min(names, key=lambda n: (final.get(n, np.inf), names[n][1]), default="")
            if best not in final:
                continue
            chosen, step = names[best]
            worse = final[best] > scores.get(best, np.inf)
            following = chosen.below(step) if worse else chosen.beyond(step)
            found += [(chosen, s) for s in following if chosen.named(s) not in tried]
        return found

    def _chosen(self, records: dict[str, CellRecord], last: dict[str, CellRecord]) -> Tuned:
        scores, final = self._scores(records), self._scores(last)
        decided = final or scores
        steps: dict[str, dict[str, float]] = defaultdict(dict)
        settings: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
        spent: dict[str, dict[str, float]] = defaultdict(dict)
        at_edge = []
        for (task, label), grids in self._grids.items():
            names = {g.named(s): (g, s) for g in grids for s in g.steps}
            tried = [(decided[n], *names[n]) for n in names if n in decided]
            runs = [r for part in (last, records) for n in names if (r := part.get(n))]
            if not tried:
                lost = (f"{r.status}: {r.reason or 'no reason recorded'}" for r in runs if r.status not in _MEASURED)
                self.left_out[f"{task}/{label}"] = next(lost, "not measured")
                continue
            _, best, step = min(tried, key=lambda t: (t[0], t[2]))
            steps[task][label] = step
            self.tried += values_of(grids, scores, final, self._primary[task], best.named(step))
            if best.options:
                settings[task][label] = best.options
            measured = [s for s in best.steps if best.named(s) in scores | final]
            if step in (measured[0], measured[-1]):
                at_edge.append(f"{task}/{label}")
            spent[task][label] = round(sum(r.score_evaluations * r.n_replicates for r in runs), 1)
        by_unit: dict[str, list[float]] = {unit: grid(self.spec, unit) for unit in self.spec.units()}
        return Tuned(
            step_size=dict(steps), settings=dict(settings), at_edge=sorted(at_edge), score_evaluations=dict(spent),
            grid=by_unit or [], replicates=self.spec.replicates,
        )  # fmt: skip

    def _scores(self, records: Mapping[str, CellRecord]) -> dict[str, float]:
        """Median of the primary metric of what was measured, lower is better; a diverged cell counts as worst."""
        found = {}
        for name, record in records.items():
            if record.status in _MEASURED:
                metric = self._primary[record.task]
                values = metric_values(metric, record.values.get(metric) or [None])
                found[name] = sign(metric) * float(np.median(values))
        return found

    def _cell(self, grid: Grid, step: float, *, whole: bool = False) -> Cell:
        """One value of a grid, measured over the share of the horizon or the ``whole`` of it."""
        task, algorithm = grid.cell.load()
        share = 1.0 if whole else SHARE
        # Mini-batches are a larger share of the rows that are left: the horizon stays what it is.
        mini = task.batch_size is not None and "predictive" in task.provides and "full-batch" not in algorithm.needs
        rows, budget = 1 / (1 - VALIDATION_SHARE) if mini else 1.0, grid.cell.spec.budget
        varied = grid.cell.varied(
            settings={**grid.cell.settings, "step_size": step},
            budget=Budget(
                iterations=None if budget.iterations is None else max(1, int(budget.iterations * share)),
                score_evaluations=None if budget.score_evaluations is None else budget.score_evaluations * share * rows,
                seconds=None if budget.seconds is None else budget.seconds * share,
            ),
            replicates=tuple(range(TUNING_REPLICATES, TUNING_REPLICATES + self.spec.replicates)),
            chunk=min(grid.cell.spec.chunk, self.spec.replicates),
        )
        metrics = (self.spec.metric or task.primary, *(["rmse"] if "predictive" in task.provides else []))
        return replace(varied, label=grid.named(step).partition("/")[2], metrics=metrics)


def _measured(run: Run, cells: Sequence[Cell]) -> dict[str, CellRecord]:
    """Records by the cells' labels, ``task/label @ value``."""
    return {f"{c.task}/{c.label}": c for c in run(cells).cells} if cells else {}
