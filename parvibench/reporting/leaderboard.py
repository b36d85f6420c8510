"""Tables of a run: per task, and over tasks.

Every requested cell has a row. The anchors ``exact`` and ``initial`` stand beside the methods and are not
ranked. Cells that diverged, timed out, ran out of memory or crashed share the last rank; cells that were
not run (unsupported, skipped, interrupted) have none, nor have generators that are still improving or no better than
``initial``, nor methods whose own budget is beyond that of the others. The best of a task has converged and is better than
``initial``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parvibench.core import registry
from parvibench.core.reference import Floor
from parvibench.core.result import CellRecord, Status
from parvibench.harness.marks.convergence import UNFINISHED, convergence, finished
from parvibench.harness.store import results as stored_results
from parvibench.harness.store.results import StoredRun, metric_values
from parvibench.statistics import median_interval

from .floor_comparison import compare_with_floor, floor_of

#: Mark of a cell that is no better than the start.
NO_BETTER = "no better than initial"
#: Of a point mass judged by a discrepancy that needs no reference samples: at a mode that can be small.
ONE_POINT = "one point"
#: Of a method with a budget of its own that buys more than the others have.
MORE = "beyond the budget"
#: How far beyond; where a budget ends within an iteration the last one counts.
_BEYOND = 1.1
NOT_RUN = (Status.UNSUPPORTED, Status.SKIPPED, Status.INTERRUPTED, Status.DAMAGED)
#: A row of ``table``.
Row = pd.Series | dict[Any, Any]
#: A task's group is the first of these tags that it has, split by dimension except for ``_ANY_DIMENSION``.
GROUPS = (
    "regression", "classification", "unmixing", "path", "bandit", "multimodal", "curved", "heavy-tailed", "correlated",
    "log-concave",
)  # fmt: skip
_ANY_DIMENSION = GROUPS[:5]
#: Columns of ``table`` before the medians of all metrics.
COLUMNS = (
    "task", "group", "rank", "label", "algorithm", "kind", "anchor", "status", "reason", "metric", "median", "low",
    "high", "floor_ratio", "verdict", "p_value", "verdict_basis", "equivalent", "equivalent_low", "equivalent_high", "n_diverged", "replicates", "samples", "score_evaluations", "iteration", "seconds", "worst", "start", "convergence",
    "marks", "best",
)  # fmt: skip
#: Kind of methods that are not ranked while they train.
_TRAINED = "generator"


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
            return f"{self.metric} over its floor (1: as good as exact draws)"
        row = registry.metrics().get(self.metric)
        direction = f" ({row.goal})" if row is not None else ""
        return f"{self.metric or 'no metric'}{direction}"


def task_names(results: StoredRun) -> list[str]:
    """The tasks of a run, in its order."""
    return list(dict.fromkeys(c.task for c in results.cells))


@cache
def task_group(task: str) -> str:
    """The group of a task by its kind of target, such as ``multimodal, 2-D``; every task has one."""
    row = registry.tasks().get(task)
    found = [] if row is None else [g for g in GROUPS if g in row.tags]
    if row is None or not found:
        return "other"
    if found[0] in _ANY_DIMENSION:
        return found[0]
    return f"{found[0]}, {'2-D' if row.dim == 2 else 'higher dimension'}"


def is_anchor(cell: CellRecord) -> bool:
    """Whether a cell is an anchor: shown for comparison, not ranked."""
    row = registry.algorithms().get(cell.algorithm)
    return cell.kind == "anchor" or (row is not None and row.kind == "anchor")


def method_kinds(results: StoredRun) -> dict[str, str]:
    """Label -> kind of the method: as it ran, else as registered."""
    found = {}
    for cell in sorted(results.cells, key=lambda c: c.kind != ""):
        row = registry.algorithms().get(cell.algorithm)
        registered = "" if row is None else row.kind
        found[cell.label] = "anchor" if is_anchor(cell) else cell.kind or registered or "not run"
    return found


def direction(metric: str) -> str:
    """Which values of a metric are better: ``lower`` (also of unknown ones), ``higher`` or ``neutral``."""
    row = registry.metrics().get(metric)
    return "lower" if row is None else row.direction


def higher_is_better(metric: str) -> bool:
    """Whether higher values of a metric are better."""
    return direction(metric) == "higher"


def primary_metric(results: StoredRun, task: str) -> str:
    """The metric that ranks a task: its declared one, else the first recorded; empty without any."""
    return stored_results.primary_metric(results.cells, task)


def floor(task: str, metric: str, n: int) -> Floor | None:
    """The floor of a metric at sample size n where a ratio to it makes sense, else None."""
    row = registry.metrics().get(metric)
    return floor_of(task, metric, n) if row is not None and row.floor_ratio else None


def ranking(results: StoredRun, task: str) -> pd.DataFrame:
    """One row per cell of a task, best first, then unranked ones, then anchors; columns ``COLUMNS``.

    ``median`` is the primary metric's over replicates (failed replicates count as worst), ``low`` and
    ``high`` its 95% interval, ``floor_ratio`` the median over the floor's median; ``verdict`` to
    ``equivalent_high`` see ``FloorComparison``. ``score_evaluations`` and ``seconds`` are per replicate. ``worst`` is the
    worst replicate that is finite, ``convergence`` see ``harness.marks``, ``marks`` words for what a reader should know,
    with commas; ``best`` is true where a row has the best median of all that have converged and beat ``initial``.
    """
    metric = primary_metric(results, task)
    sign = -1 if higher_is_better(metric) else 1
    cells = [c for c in results.cells if c.task == task]
    rows = [row | _standing(results, c, metric, str(row["verdict"])) for c in cells for row in [_row(c, metric)]]
    frame = pd.DataFrame(rows, columns=[c for c in COLUMNS if c not in ("rank", "best")])
    ran = ~frame["anchor"] & ~frame["status"].isin([str(s) for s in NOT_RUN])
    score = sign * frame["median"].astype(float)
    score[ran & (frame["status"] != Status.OK)] = math.inf
    start = score[frame["anchor"] & (frame["algorithm"] == "initial")]
    no_better = ran & np.isfinite(score) & bool(len(start)) & ~(score < start.min())
    unfinished = frame["convergence"].isin(UNFINISHED)
    more = ran & _beyond(cells)
    frame["marks"] = _joined(frame["marks"], no_better, NO_BETTER)
    frame["marks"] = _joined(frame["marks"], more, MORE)
    ranked = (
        ran & score.notna() & ~((frame["kind"] == _TRAINED) & ((frame["convergence"] == UNFINISHED[1]) | no_better))
    )
    ranked &= ~frame["marks"].map(lambda marks: ONE_POINT in str(marks).split(", ")).astype(bool) & ~more
    ranked &= bool(np.isfinite(score[ranked]).any())  # where nobody has a result, nobody is first
    frame.insert(2, "rank", score.where(ranked).rank(method="min"))
    crowned = score.where(ranked & np.isfinite(score) & ~unfinished & ~no_better)
    frame["best"] = crowned.notna() & (crowned == crowned.min())
    order = frame.assign(score=score).sort_values(["anchor", "rank", "score"], kind="stable").index
    return frame.loc[order].reset_index(drop=True)


def _joined(marks: pd.Series, told: pd.Series, word: str) -> list[str]:
    return [", ".join(filter(None, (m, word if t else ""))) for m, t in zip(marks, told, strict=True)]


def _beyond(cells: Sequence[CellRecord]) -> pd.Series:
    """Whether each cell has a budget of its own that bought more scores than any bought with the one that most cells have."""
    budgets = pd.Series([repr(c.spec.budget) for c in cells])
    usual = budgets == budgets.mode().iloc[0]
    if 2 * usual.sum() <= len(cells):  # rows of a paper, say
        return pd.Series(False, index=budgets.index)
    spent = pd.Series([c.score_evaluations for c in cells], dtype=float)
    return ~usual & (spent > _BEYOND * spent[usual].max())


def _standing(results: StoredRun, cell: CellRecord, metric: str, verdict: str) -> dict[str, object]:
    """Convergence of a cell, and the words for it and for its step size.

    What cannot be told from exact draws cannot be seen to improve either: a fall of its metric is their noise.
    """
    found = convergence(results, cell, metric)
    if found == UNFINISHED[1] and verdict == "indistinguishable":
        found = finished(cell)
    one = cell.kind == "particles" and cell.particles == 1 and metric.startswith("ksd")
    words = [found if found in UNFINISHED else "", ONE_POINT if one else "", *_step_marks(results.run.suite, cell)]
    return {"convergence": found, "marks": ", ".join(filter(None, words))}


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
    entries = suite.get("algorithms", ())
    own: dict[str, Any] = next((a for a in entries if cell.label == (a.get("label") or a["name"])), {})
    return bool(own.get("preset") or own.get("step_from") or "step_size" in own.get("settings", {}))


def _row(cell: CellRecord, metric: str) -> dict[str, object]:
    median, low, high = median_interval(metric_values(metric, cell.values.get(metric, [])))
    found = floor(cell.task, metric, cell.samples)
    compared = compare_with_floor(cell, metric)
    same = ("task", "label", "algorithm", "kind", "reason", "n_diverged", "samples", "score_evaluations")
    return {name: getattr(cell, name) for name in same} | {
        "group": task_group(cell.task),
        "anchor": is_anchor(cell),
        "status": str(cell.status),
        "metric": metric,
        "median": median,
        "low": low,
        "high": high,
        "floor_ratio": median / found.median if found else math.nan,
        "verdict": compared.verdict,
        "p_value": compared.p_value,
        "verdict_basis": compared.basis,
        "equivalent": compared.equivalent,
        "equivalent_low": compared.low,
        "equivalent_high": compared.high,
        "replicates": cell.n_replicates,
        "iteration": cell.iterations,
        "seconds": math.nan if "seconds" in cell.absent else cell.seconds / max(1, cell.n_replicates),
        "worst": math.nan if cell.worst is None else cell.worst,
        "start": cell.start,
    }


def table(results: StoredRun) -> pd.DataFrame:
    """All rankings in one table, with a column for the median of every other metric."""
    medians = {
        (c.task, c.label): {m: median_interval(metric_values(m, v))[0] for m, v in c.values.items()}
        for c in results.cells
    }
    rankings = [ranking(results, task) for task in task_names(results)]
    if not rankings:
        return pd.DataFrame(columns=list(COLUMNS))
    frame = pd.concat(rankings, ignore_index=True)
    wide = pd.DataFrame([medians[key] for key in zip(frame["task"], frame["label"], strict=True)])
    return pd.concat([frame, wide.drop(columns=[m for m in wide if m in COLUMNS])], axis=1)


def scores(results: StoredRun, board: pd.DataFrame) -> dict[tuple[str, str], NDArray[np.float64]]:
    """Scores of every ranked cell's replicates, (task, label) -> (R,): lower is better, failures are +inf.

    Ratios to the floor where the board shows them, else the primary metric (its negative where higher is better).
    """
    cells = {(c.task, c.label): c for c in results.cells}
    found = {}
    for row in board[board["rank"].notna()].to_dict("records"):
        cell, metric = cells[row["task"], row["label"]], row["metric"]
        stored = cell.values.get(metric) or [None] * max(1, cell.n_replicates)
        values = np.array(metric_values(metric, stored)) * (-1 if higher_is_better(metric) else 1)
        known = floor(cell.task, metric, cell.samples)
        found[cell.task, cell.label] = values / (known.median if known else 1.0)
    return found


def disqualifies(marks: object) -> bool:
    """Whether a row with these words in its column ``marks`` cannot be the best of its task."""
    return any(word in str(marks).split(", ") for word in (*UNFINISHED, NO_BETTER, ONE_POINT, MORE))


def shown(row: Row) -> float:
    """The number a leaderboard shows: the ratio to the floor where there is one, else the median."""
    return float(row["median"] if math.isnan(row["floor_ratio"]) else row["floor_ratio"])


def is_best(row: Row) -> bool:
    """Whether a row is the best of its task, which tables show in bold: it has converged, too."""
    return bool(row["best"])


def shown_interval(row: Row) -> tuple[float, float, float]:
    """``shown`` with the 95% interval of the median in the same unit."""
    unit = 1.0 if math.isnan(row["floor_ratio"]) else row["floor_ratio"] / row["median"]
    return shown(row), float(row["low"]) * unit, float(row["high"]) * unit


def groups(board: pd.DataFrame) -> list[Group]:
    """Tasks of ``table`` grouped by the quantity their leaderboards show."""
    found: dict[tuple[str, bool], list[str]] = {}
    for task, rows in board.groupby("task", sort=False):
        key = (str(rows["metric"].iloc[0]), bool(rows["floor_ratio"].notna().any()))
        found.setdefault(key, []).append(str(task))
    return [Group(metric, ratio, tuple(tasks)) for (metric, ratio), tasks in found.items()]


def common_tasks(board: pd.DataFrame, tasks: Sequence[str] = ()) -> list[str]:
    """Tasks on which methods are compared by their ranks: those that all methods ran on that ran on half of them.

    Args:
        board: of ``table``.
        tasks: to choose from; default all of the board.

    Returns:
        The tasks, in the board's order. Averages over them are of the same tasks for all methods: a method that loses to
        another on all of them cannot be listed above it.
    """
    rows = board[~board["anchor"].astype(bool) & ~board["status"].isin([str(s) for s in NOT_RUN])]
    if len(tasks):
        rows = rows[rows["task"].isin(tasks)]
    ran = {str(label): set(mine["task"]) for label, mine in rows.groupby("label", sort=False)}
    names = [str(t) for t in dict.fromkeys(rows["task"])]
    counted = [mine for mine in ran.values() if 2 * len(mine) >= len(names)]
    return [t for t in names if all(t in mine for mine in counted)]


def average_ranks(board: pd.DataFrame) -> pd.DataFrame:
    """Rank of every method averaged over the common tasks of ``table``; best first, anchors last.

    Index label; columns ``anchor``, ``average_rank`` (over ``common_tasks``, where ties share the mean of their ranks;
    NaN for a method without a rank on one of them), ``n_tasks`` (that rank the method), ``n_failed`` (of these, without
    a result) and ``share``: of the other methods of a task, how many are better, mean over the tasks that rank it. The
    methods without an average rank follow in the order of their shares.
    """
    rows = board[["task", "label", "anchor", "status", "rank"]].copy()
    # ``rank`` gives ties the best of their places; an average needs the middle.
    places = rows.groupby("task")["rank"]
    rows["rank"] = places.rank(method="average")
    rows["share"] = (rows["rank"] - 1) / (places.transform("count") - 1).clip(lower=1)
    common = common_tasks(board)
    rows["common"] = rows["rank"].where(rows["task"].isin(common))
    failed = rows["rank"].notna() & (rows["status"] != Status.OK)
    by_label = rows.assign(failed=failed).groupby("label", sort=False)
    frame = by_label.agg(
        anchor=("anchor", "first"), average_rank=("common", "mean"), n_common=("common", "count"), n_tasks=("rank", "count"), n_failed=("failed", "sum"), share=("share", "mean"),
    )  # fmt: skip
    frame.loc[frame["n_common"] < len(common), "average_rank"] = math.nan
    return frame.drop(columns="n_common").sort_values(["anchor", "average_rank", "share"], kind="stable")


def values(results: StoredRun) -> pd.DataFrame:
    """All values in long form: one row per task, label, metric and replicate (null: not finite).

    A cell without values has one row without metric, so that no requested cell is missing.
    """
    columns = ["task", "label", "algorithm", "status", "metric", "replicate", "value"]
    rows: list[tuple[object, ...]] = []
    for c in results.cells:
        head = (c.task, c.label, c.algorithm, str(c.status))
        found = [(*head, m, r, v) for m, stored in c.values.items() for r, v in enumerate(stored)]
        rows.extend(found or [(*head, None, None, None)])
    types = {"metric": "string", "replicate": "Int64", "value": "float64"}
    return pd.DataFrame(rows, columns=columns).astype(types)
