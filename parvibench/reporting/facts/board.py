"""The board of a run: one row per task and method, ranked by the task's primary metric.

Every requested cell has a row. The anchors ``exact`` and ``initial`` stand beside the methods and are not
ranked. Methods rank by their medians; those that lose significantly more replicates than the others rank behind these;
cells that diverged, timed out, ran out of memory or crashed share the last rank; cells that were
not run (unsupported, skipped, interrupted) have none, nor have methods whose own budget is beyond that of the others, nor
single points judged without reference samples. Among the best of a task are the ranked methods with a finite result,
converged or not, than which no other is significantly better, without those that ``Comparisons.best`` leaves out; where none
is better than ``initial``, nobody.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from parvibench import statistics
from parvibench.core import registry
from parvibench.core.reference import Floor
from parvibench.core.result import CellRecord, Status
from parvibench.data.splits import training_rows
from parvibench.harness.marks.convergence import UNFINISHED, convergence, finished, undiagnosed
from parvibench.harness.store.results import StoredRun, interval_of, metric_values, primary_metric
from parvibench.reporting.formatting import number
from parvibench.reporting.text import marks as words
from parvibench.reporting.text.marks import MORE, NO_BETTER, ONE_POINT, UNDIAGNOSED

from . import floor_comparison as floors
from .floor_comparison import compare_with_floor

#: How far a method's own budget may be beyond that of the others; where a budget ends within an iteration the last one counts.
_BEYOND = 1.1
NOT_RUN = (Status.UNSUPPORTED, Status.SKIPPED, Status.INTERRUPTED, Status.DAMAGED)
#: A row of ``table``.
Row = pd.Series | dict[Any, Any]
#: Task, label and metric -> columns that depend on the cell alone.
Measured = dict[tuple[str, str, str], dict[str, Any]]
#: A task's kind of target is that of the first of these tags that it has; shapes without data are split by dimension.
GROUPS = {
    "network": "neural networks", "bandit": "bandits", "hierarchical": "hierarchical models", "classification": "logistic regression",
    "unmixing": "unmixing", "path": "paths", "time series": "time series", "gaussian process": "Gaussian processes",
    "mixture": "mixture models", "regression": "linear regression", "multimodal": "separated modes", "curved": "curved",
    "heavy-tailed": "heavy tails", "correlated": "correlated", "log-concave": "log-concave",
}  # fmt: skip
#: Tag -> names of posteriordb's posteriors of that kind, whose tags no page has at hand.
_POSTERIORDB = {
    "hierarchical": "eight_schools-.*", "time series": "(arK|arma|garch|hmm_example|bball_drive_event_.)-.*",
    "gaussian process": "(gp_pois_regr|mcycle_gp)-.*", "mixture": "low_dim_gauss_mix-.*",
    "regression": r"(diamonds|earnings|kidiq.*|kilpisjarvi_mod|mesquite|nes\d{4}|sblr[ci])-.*",
}  # fmt: skip
_SHAPES = ("multimodal", "curved", "heavy-tailed", "correlated", "log-concave")
#: Columns of ``table`` before the medians of all metrics.
COLUMNS = (
    "task", "group", "rank", "label", "algorithm", "kind", "anchor", "status", "reason", "metric", "median", "low",
    "high", "floor_ratio", "verdict", "p_value", "p_exact", "verdict_basis", "equivalent", "equivalent_low", "equivalent_high", "n_diverged", "replicates", "samples", "score_evaluations", "with_tuning", "iteration", "seconds", "worst", "start", "convergence",
    "marks", "best", "beaten", "unreliable", "beats", "compared", "pairs",
)  # fmt: skip


def table(results: StoredRun, measured: Measured | None = None) -> pd.DataFrame:
    """The rankings of all tasks, anchors last, with a column for the median of every other metric.

    ``median`` is the primary metric's over replicates (failed replicates count as worst), ``low`` and
    ``high`` its 95% interval, ``floor_ratio`` the median over the floor's median; ``verdict`` to
    ``equivalent_high`` see ``FloorComparison``. ``score_evaluations`` and ``seconds`` are per replicate, ``with_tuning`` adds
    the score evaluations of the search for the step size. ``worst`` is the
    worst replicate that is finite, ``convergence`` see ``harness.marks``, ``marks`` warning flags, separated by commas.
    ``best``: whether a method is among the best; ``beaten``: whether it is significantly worse than another of ``compared``
    methods; ``unreliable``: whether it loses significantly more replicates than the others; how many it ``beats``; the comparisons (``pairs``) that share a level of 5%, those on all tasks of the group.

    ``measured`` holds what is known of single cells, and is added to: the tables of some cells of a run share it.
    """
    floors.look_again()
    measured = {} if measured is None else measured
    rows = []
    for place, (task, cells) in enumerate(results.by_task.items()):
        metric = primary_metric(cells, task)
        for cell, more in zip(cells, _beyond(cells), strict=True):
            key = task, cell.label, metric
            measured[key] = measured.get(key) or _measured(results, cell, metric)
            rows.append(measured[key] | {"place": place, "more": more})
    if not rows:
        return pd.DataFrame(columns=list(COLUMNS))
    frame = _ranked(pd.DataFrame(rows)).assign(best=False, beaten=False, unreliable=False, beats=0, compared=0, pairs=0)
    texts = [str(name) for name in frame if pd.api.types.is_string_dtype(frame[name])]
    frame = frame.astype(dict.fromkeys(texts, object))  # rows are taken out as dictionaries many times
    for _, group in frame.groupby("group", sort=False):
        _compare(results, frame, group)
    frame = frame.sort_values(["place", "anchor", "rank"], kind="stable")[list(COLUMNS)].reset_index(drop=True)
    cells_of = {(c.task, c.label): c for c in results.cells}
    own = [cells_of[key] for key in zip(frame["task"], frame["label"], strict=True)]
    wide = pd.DataFrame([{m: interval_of(cell, m)[0] for m in cell.values} for cell in own])
    return pd.concat([frame, wide.drop(columns=[m for m in wide if m in COLUMNS])], axis=1)


def _ranked(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of ``_measured`` with ``rank`` by their medians and all ``marks``: best first, then those without rank, then anchors."""
    task, ran = frame["task"], ~frame["anchor"] & ~frame["status"].isin([str(s) for s in NOT_RUN])
    sign = frame["metric"].map(lambda metric: -1 if higher_is_better(metric) else 1)
    score = (sign * frame["median"].astype(float)).mask(ran & (frame["status"] != Status.OK), math.inf)
    start = score.where(frame["anchor"] & (frame["algorithm"] == "initial")).groupby(task).transform("min")
    no_better = ran & np.isfinite(score) & (score >= start)
    ranked = ran & ~frame["marks"].map(lambda marks: ONE_POINT in marks) & ~frame["more"]
    finite = (ranked & np.isfinite(score)).groupby(task).transform("any")
    marks = [
        ", ".join([*own, *[NO_BETTER] * worse, *[MORE] * more])
        for own, worse, more in zip(frame["marks"], no_better, ran & frame["more"], strict=True)
    ]
    rank = score.where(ranked & finite).groupby(task).rank(method="min")
    found = frame.assign(marks=marks, rank=rank, score=score)
    return found.sort_values(["place", "anchor", "rank", "score"], kind="stable", ignore_index=True)


def _compare(results: StoredRun, frame: pd.DataFrame, rows: pd.DataFrame) -> None:
    """Fill the columns from ``best`` on for the tasks of one group; unreliable methods rank behind the others."""
    found = scores(results, rows)
    rows = rows[competing(rows)]
    tasks = [mine for _, mine in rows.groupby("task", sort=False)]
    values = []
    for mine in tasks:
        own = [found[key] for key in zip(mine["task"], mine["label"], strict=True)]
        shared = min(map(len, own))  # the replicates that all methods have
        values.append(np.array([v[:shared] for v in own]))
    overlaps = [overlap(str(mine["task"].iloc[0])) for mine in tasks]
    compared = statistics.all_pairs(values, overlaps, [mine["p_exact"].to_numpy(float) for mine in tasks])
    for i, mine in enumerate(tasks):
        better_than_start = not mine["marks"].map(lambda words: NO_BETTER in words).all()
        best = compared.best(i, mine["floor_ratio"], mine["verdict"] == "indistinguishable")
        last = mine["rank"].to_numpy(float) + len(mine) * compared.unreliable[i]
        frame.loc[mine.index, "rank"] = stats.rankdata(last, method="min")
        frame.loc[mine.index, "unreliable"] = compared.unreliable[i]
        frame.loc[mine.index, "best"] = best & better_than_start
        frame.loc[mine.index, "beaten"] = ~compared.unbeaten(i)
        frame.loc[mine.index, "beats"] = compared.better[i].sum(1)
        frame.loc[mine.index, "compared"] = len(mine)
        frame.loc[mine.index, "pairs"] = compared.pairs


def competing(board: pd.DataFrame) -> pd.Series[bool]:
    """Rows that can be among the best: ranked, with a finite median of replicates that did not all diverge."""
    return board["rank"].notna() & np.isfinite(board["median"].astype(float)) & (board["status"] == Status.OK)


def overlap(task: str) -> float:
    """Test rows over training rows where replicates are random splits of one data set, else 0."""
    row = registry.tasks().get(task)
    one_split = row is not None and {"variant", "srld"} & set(row.tags) == {"variant"}
    if row is None or "network" not in row.tags or "regression" not in row.tags or one_split:
        return 0.0
    return (10 - training_rows(10)) / training_rows(10)


def _measured(results: StoredRun, cell: CellRecord, metric: str) -> dict[str, Any]:
    """Columns of ``table`` from a cell's record and its floor; ``marks`` is a list."""
    median = dict(zip(("median", "low", "high"), interval_of(cell, metric), strict=True))
    known, compared = floor(cell.task, metric, cell.samples), compare_with_floor(cell, metric)
    state = convergence(results, cell, metric)
    if state == UNFINISHED[1] and compared.verdict == "indistinguishable":
        state = finished(cell)  # from exact draws: a fall of its metric is their noise
    one = cell.kind == "particles" and cell.particles == 1 and metric.startswith("ksd")
    first = UNDIAGNOSED if state and undiagnosed(results, cell) else state
    marks = [
        *[first] * (first in (*UNFINISHED, UNDIAGNOSED)),
        *[ONE_POINT] * one,
        *[words.LOST.format(n=cell.n_diverged, of=cell.n_replicates)] * bool(cell.n_diverged),
        *_step_marks(results.run.suite, cell),
    ]
    same = ("task", "label", "algorithm", "kind", "reason", "n_diverged", "samples", "score_evaluations", "start")
    return {name: getattr(cell, name) for name in same} | {
        "group": task_group(cell.task),
        "anchor": is_anchor(cell),
        "status": str(cell.status),
        "metric": metric,
        **median,
        "floor_ratio": median["median"] / known.median if known else math.nan,
        **compared._asdict(),
        "replicates": cell.n_replicates,
        "with_tuning": cell.score_evaluations + (tuning_cost(cell, results.run.suite) or 0.0),
        "iteration": cell.iterations,
        "seconds": math.nan if "seconds" in cell.absent else cell.seconds / max(1, cell.n_replicates),
        "worst": math.nan if cell.worst is None else cell.worst,
        "convergence": state,
        "marks": marks,
    }


def _step_marks(suite: Mapping[str, Any], cell: CellRecord) -> list[str]:
    """``edge`` and ``untuned``, in a suite that holds tuned values."""
    tuned = suite.get("tuned") or {}
    if not tuned or cell.settings.get("step_size") is None:
        return []
    if cell.tuned:
        return ["edge"] if f"{cell.task}/{cell.label}" in tuned.get("at_edge", ()) else []
    return [] if fixed_step(suite, cell) else ["untuned"]


def fixed_step(suite: Mapping[str, Any], cell: CellRecord) -> bool:
    """Whether the suite gives the step size of a cell's method: by its settings, a preset or that of another method."""
    own = suite_entry(suite, cell.label)
    return bool(own.get("preset") or own.get("step_from") or "step_size" in own.get("settings", {}))


def suite_entry(suite: Mapping[str, Any], label: str) -> dict[str, Any]:
    """A method's entry in a suite; empty where it has none."""
    return next((a for a in suite.get("algorithms", ()) if label == (a.get("label") or a["name"])), {})


def tuning_cost(cell: CellRecord, suite: Mapping[str, Any]) -> float | None:
    """Score evaluations spent on tuning a cell's step size; None where it was not tuned."""
    costs = (suite.get("tuned") or {}).get("score_evaluations", {})
    return costs.get(cell.task, {}).get(cell.label) if cell.tuned else None


def _beyond(cells: Sequence[CellRecord]) -> list[bool]:
    """Whether each cell has an individual budget and spent more scores than any cell with the common budget."""
    budgets = [repr(c.spec.budget) for c in cells]
    counts = Counter(sorted(budgets))  # of equally common ones the first in the alphabet
    common = max(counts, key=counts.__getitem__)
    if 2 * counts[common] <= len(cells):  # rows of a paper, say
        return [False] * len(cells)
    usual = max(c.score_evaluations for c, budget in zip(cells, budgets, strict=True) if budget == common)
    return [b != common and c.score_evaluations > _BEYOND * usual for c, b in zip(cells, budgets, strict=True)]


def higher_is_better(metric: str) -> bool:
    """Whether higher values of a metric are better."""
    return registry.direction(metric) == "higher"


def floor(task: str, metric: str, n: int) -> Floor | None:
    """The floor of a metric at sample size n where a ratio to it makes sense, else None."""
    row = registry.metrics().get(metric)
    return floors.floor_of(task, metric, n) if row is not None and row.floor_ratio else None


def scores(results: StoredRun, board: pd.DataFrame) -> dict[tuple[str, str], NDArray[np.float64]]:
    """Scores of every ranked cell's replicates, (task, label) -> (R,): lower is better, failures are +inf.

    Ratios to the floor where the board shows them, else the primary metric (its negative where higher is better).
    """
    cells = {(c.task, c.label): c for c in results.cells}
    found, floor_of = {}, cache(floor)
    ranked = board.loc[board["rank"].notna(), ["task", "label", "metric"]]
    for task, label, metric in ranked.itertuples(index=False):
        cell = cells[task, label]
        stored = cell.values.get(metric) or [None] * max(1, cell.n_replicates)
        values = np.array(metric_values(metric, stored)) * (-1 if higher_is_better(metric) else 1)
        known = floor_of(cell.task, metric, cell.samples)
        found[cell.task, cell.label] = values / (known.median if known else 1.0)
    return found


def shown(row: Row) -> float:
    """The number a leaderboard shows: the ratio to the floor where there is one, else the median."""
    return float(row["median"] if math.isnan(row["floor_ratio"]) else row["floor_ratio"])


def unit(row: Row) -> str:
    """The unit of ``shown``."""
    return str(row["metric"]) if math.isnan(row["floor_ratio"]) else "× floor"


def shown_interval(row: Row) -> tuple[float, float, float]:
    """``shown`` with the 95% interval of the median in the same unit; NaN of a ratio of 0, which has none."""
    unit = 1.0 if math.isnan(row["floor_ratio"]) else row["floor_ratio"] / (row["median"] or math.nan)
    return shown(row), float(row["low"]) * unit, float(row["high"]) * unit


def warnings(marks: str) -> list[str]:
    """The marks of a row that put a result in doubt."""
    return [mark for mark in marks.split(", ") if mark not in ("", "edge", "untuned")]


def entry(row: Row) -> str:
    """A leaderboard's text for a row: its number with its marks, or its status where it has none."""
    if row["status"] != Status.OK:
        return words.status_word(row["status"], row["reason"])
    exact, lost = "≈" * (row["verdict"] == "indistinguishable"), "*" * bool(row["n_diverged"])
    return f"{exact}{number(shown(row))}{lost}{words.symbols(row['marks'])}"


def unfinished(results: StoredRun) -> str:
    """That the run has not ended, and how many cells are missing; empty where it has."""
    missing, state = sum(c.status is Status.INTERRUPTED for c in results.cells), results.unfinished
    return state and words.UNFINISHED.format(state=state, missing=missing, cells=len(results.cells))


def marks_used(board: pd.DataFrame) -> list[str]:
    """The marks used in a board, with their meanings."""
    used = {mark for row in board.to_dict("records") if row["status"] == Status.OK for mark in entry(row)}
    return [f"{mark}: {meaning}" for mark, meaning in words.MARKS.items() if mark in used]


def groups(board: pd.DataFrame) -> list[Group]:
    """Tasks of ``table`` grouped by the quantity their leaderboards show."""
    found: dict[tuple[str, bool], list[str]] = {}
    for task, rows in board.groupby("task", sort=False):
        key = (str(rows["metric"].iloc[0]), bool(rows["floor_ratio"].notna().any()))
        found.setdefault(key, []).append(str(task))
    return [Group(metric, ratio, tuple(tasks)) for (metric, ratio), tasks in found.items()]


@dataclass(frozen=True)
class Group:
    """Tasks whose leaderboards show the same quantity."""

    metric: str  #: the primary metric
    ratio: bool  #: whether it is divided by the floor's median
    tasks: tuple[str, ...]  #: names, in the order of the run

    @property
    def title(self) -> str:
        """Name of the numbers, with the better direction."""
        if self.ratio:
            return words.OVER_FLOOR.format(metric=self.metric)
        row = registry.metrics().get(self.metric)
        return f"{self.metric or 'no metric'}{f' ({row.goal})' if row else ''}"


@cache
def task_group(task: str) -> str:
    """The group of a task by its kind of target, such as ``multimodal, 2-D``; every task has one."""
    row = registry.tasks().get(task)
    tags = row.tags if row else [tag for tag, names in _POSTERIORDB.items() if re.fullmatch(names, task)]
    found = [tag for tag in GROUPS if tag in tags]
    if not found:
        return "other"
    if row is None or found[0] not in _SHAPES:
        return GROUPS[found[0]]
    return f"{GROUPS[found[0]]}, {'2-D' if row.dim == 2 else 'higher dimension'}"


def is_anchor(cell: CellRecord) -> bool:
    """Whether a cell is an anchor: shown for comparison, not ranked."""
    row = registry.algorithms().get(cell.algorithm)
    return cell.kind == "anchor" or (row is not None and row.kind == "anchor")
