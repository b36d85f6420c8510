"""Everything that is known of a run, computed once: what all renderers read, and nothing else."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from parvibench.core import registry
from parvibench.core.errors import InputError
from parvibench.core.result import to_json_number
from parvibench.harness.marks.convergence import MAX_RHAT as MAX_RHAT
from parvibench.harness.run.judging import SEQUENTIAL as SEQUENTIAL
from parvibench.harness.store.cell_files import dense
from parvibench.harness.store.results import StoredRun
from parvibench.harness.store.results import interval_of as interval_of
from parvibench.harness.store.results import median_of as median_of
from parvibench.metrics.power import detected_alterations
from parvibench.reporting.text import leaders
from parvibench.reporting.text.trusting import Answer
from parvibench.statistics import FAR as FAR
from parvibench.statistics import FAR_SPREAD as FAR_SPREAD

from . import agreement
from . import board as lb
from . import flat_rows as flat
from .findings import View
from .floor_comparison import floored_of
from .recommended import Recommendations, headline

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

#: Step sizes searched on the suite's grid for every task; one setting for all tasks, whose adaptation the budget pays.
DIVISIONS = ("tuned", "self-tuning")
#: Rows of ``values`` that are in memory at once when they are written.
_PART = 2**17
#: Budget axes: column of the curves -> title.
AXES = {"score_evaluations": "score evaluations", "iteration": "iterations", "seconds": "seconds"}


@dataclass(frozen=True, repr=False)
class Facts(StoredRun):
    """The cells of one run, in the requested order, and all that follows from them."""

    _measured: lb.Measured = field(default_factory=dict, repr=False, compare=False)
    #: Name of a figure of samples -> its numbers in long form: of a board's archive, or of the figures drawn so far.
    points: dict[str, pd.DataFrame] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, results: StoredRun) -> Self:
        """Of a stored run."""
        return cls(results.store, results.run, results.cells, results.unfinished, results.marks)

    @property
    def suite(self) -> dict[str, Any]:
        """The suite as it was asked for."""
        return self.run.suite

    @cached_property
    def all(self) -> View:
        """Outcomes among all methods."""
        return View.of(self, self._measured)

    @property
    def board(self) -> pd.DataFrame:
        """One row per task and method, as of ``board.table``."""
        return self.all.board

    @cached_property
    def views(self) -> dict[str, View]:
        """Outcomes among all methods (key empty), among those of each kind, and of each division."""
        found = {"": self.all}
        for part in (*dict.fromkeys(k for k in self.kinds.values() if k != "anchor"), *self.parts):
            mine = {k for k, kind in self.kinds.items() if part in (kind, self.divisions.get(k)) or kind == "anchor"}
            cells = tuple(c for c in self.cells if c.label in mine)
            whole = len(cells) == len(self.cells)
            found[part] = self.all if whole else View.of(replace(self, cells=cells), self._measured)
        return found

    @cached_property
    def recommendations(self) -> Recommendations:
        """All resamples by which methods are recommended."""
        return Recommendations(self, self.board)

    @cached_property
    def recommended(self) -> dict[str, tuple[leaders.Kind, ...]]:
        """View -> what to use of its methods: over all tasks, then for each kind of target; empty without any task."""
        groups = self.board.drop_duplicates("task").groupby("group", sort=False)["task"]
        tasks = {"": tuple(self.by_task)} | {str(group): tuple(names) for group, names in groups}
        warm = {c.label for c in self.cells if c.start == "warm"}  # at a reference draw, which users have not
        found, of = {}, self.recommendations.of
        for part, view in self.views.items():
            methods = view.board.loc[~view.board["anchor"].astype(bool), "label"]
            labels = [label for label in dict.fromkeys(methods) if label not in warm]
            found[part] = tuple(of(where, names, labels) for where, names in tasks.items() if names)
        return found

    def headline(self, part: str = "") -> str:
        """What to use, by number and name; ``part`` of the views; empty where nothing was requested."""
        kind = headline(self.recommended[part])
        return "" if kind is None else leaders.recommended(kind)

    @cached_property
    def kinds(self) -> dict[str, str]:
        """Label -> kind of the method: as it ran, else as registered."""
        found = {}
        for cell in sorted(self.cells, key=lambda c: c.kind != ""):
            row = registry.algorithms().get(cell.algorithm)
            registered = "" if row is None else row.kind
            found[cell.label] = "anchor" if lb.is_anchor(cell) else cell.kind or registered or "not run"
        return found

    @cached_property
    def divisions(self) -> dict[str, str]:
        """Label -> one of ``DIVISIONS``: whether a method has a step size of the suite's grid on some task; empty where all are in one."""
        tuned = {c.label for c in self.cells if c.tuned and c.status not in lb.NOT_RUN}
        found = {k: DIVISIONS[k not in tuned] for k, kind in self.kinds.items() if kind != "anchor"}
        return found if len(set(found.values())) > 1 else {}

    @property
    def parts(self) -> tuple[str, ...]:
        """The divisions; none where all methods are in one."""
        return DIVISIONS if self.divisions else ()

    @property
    def axes(self) -> dict[str, str]:
        """The budget axes that can be compared -> their titles."""
        return {a: title for a, title in AXES.items() if self.timed or a != "seconds"}

    @property
    def cost_axes(self) -> dict[str, str]:
        """The axes of costs of whole cells -> titles: the budget axes, and with tuning where step sizes were tuned."""
        tuned = any(c.tuned for c in self.cells)
        return self.axes | ({"with_tuning": "score evaluations with tuning"} if tuned else {})

    @cached_property
    def without_reference(self) -> dict[str, Answer]:
        """Task without a reference -> its methods, and the one to trust."""
        places = [str(row["name"]) for row in self.suite.get("tasks", ())]
        typed = dict(zip(self.by_task, places, strict=True)) if len(places) == len(self.by_task) else {}
        found = {task: agreement.without_reference(self, task, typed.get(task, "")) for task in self.by_task}
        return {task: answer for task, answer in found.items() if answer is not None}

    def document(self, report: str = "") -> dict[str, Any]:
        """The ``run --json`` document: that of ``StoredRun``, and ``without_reference``."""
        answers = {task: asdict(answer, dict_factory=_plain) for task, answer in self.without_reference.items()}
        return super().document(report) | {"without_reference": answers}

    @cached_property
    def lost_references(self) -> list[str]:
        """The user's own tasks whose references, by which cells were judged, cannot be read from here."""
        needing = {metric for metric, row in registry.metrics().items() if row.need == "reference"}
        own = dict.fromkeys(c.task for c in self.cells if c.task not in registry.tasks() and needing & c.values.keys())
        return [task for task in own if floored_of(task) is None]

    @cached_property
    def powers(self) -> dict[str, str]:
        """Registered metric that some cell was measured by, or should have been -> the alterations that it detects."""
        used = {m for c in self.cells for m in (*c.values, *c.absent)}
        return {metric: detected_alterations(metric) for metric in registry.metrics() if metric in used}

    def values(self) -> pd.DataFrame:
        """All facts of cells as one flat table, as of ``flat_rows.values``."""
        return next(self._values())

    def _values(self, most: int = sys.maxsize) -> Iterator[pd.DataFrame]:
        boards = {kind: view.board for kind, view in self.views.items()}
        return flat.values(self, boards, self.recommendations.reached, most)

    def write_values(self, file: Path) -> None:
        """Write ``values`` as Parquet, as pandas would, in parts: the whole table of thousands of cells takes a gigabyte."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        widest = max((sum(map(len, c.values.values())) for c in self.cells), default=0)
        frames = self._values(max(1, _PART // max(1, widest)))
        schema = pa.Schema.from_pandas(first := next(frames), preserve_index=False)
        schema = schema.with_metadata({**schema.metadata, "PANDAS_ATTRS": json.dumps(first.attrs)})
        with pq.ParquetWriter(file, schema, **dense(first.columns)) as writer:
            for frame in itertools.chain([first], frames):
                writer.write_table(pa.Table.from_pandas(frame, schema, preserve_index=False).cast(schema))

    def of_tasks(self, tasks: Sequence[str]) -> Self:
        """With the cells of these tasks only; ``InputError`` where the run has no such task."""
        for task in tasks:
            if task not in self.by_task:
                raise InputError(f"--task {task}: not in run {self.run.id}, which has {', '.join(self.by_task)}")
        return replace(self, cells=tuple(c for c in self.cells if c.task in tasks))


def _plain(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    return {key: to_json_number(value) if isinstance(value, float) else value for key, value in pairs}
