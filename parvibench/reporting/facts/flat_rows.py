"""The facts of every cell as one flat table: ``results.parquet``, which pandas alone reads."""

import json
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parvibench.core import registry
from parvibench.core.result import CellRecord
from parvibench.harness.store.results import StoredRun

from . import board as lb

#: Version of the columns below; a reader of ``attrs["format"]`` can refuse another.
FORMAT = 3
#: Columns of the board that stand on every row of a cell.
SHOWN = (
    "group", "anchor", "status", "reason", "convergence", "marks", "verdict", "p_exact", "rank", "median", "low", "high",
    "floor_ratio", "equivalent", "best", "beaten", "unreliable", "beats", "compared", "pairs",
)  # fmt: skip
#: Types that columns have whatever their values.
_TYPES = {
    "metric": "string", "direction": "string", "primary": "boolean", "replicate": "Int64", "value": "float64",
    "reached": "float64", "floor": "float64", "p_exact": "float64", "seconds": "float64", "overhead_seconds": "float64",
    "step_size": "float64", "tuning_evaluations": "float64",
}  # fmt: skip


def values(
    results: StoredRun,
    boards: Mapping[str, pd.DataFrame],
    reached: Mapping[tuple[str, str], NDArray[np.float64]],
    most: int = sys.maxsize,
) -> Iterator[pd.DataFrame]:
    """All values in long form, in parts of at most ``most`` cells: one row per task, label, metric and replicate (null: not finite).

    What the sentences of the page are made of, repeated on every row of a cell: of the task ``group`` (kind of target),
    ``tags``, ``task_version`` and ``overlap`` (test rows over training rows of random splits); of the method ``algorithm``,
    ``algorithm_version``, ``kind``, ``anchor``; of the cell ``status``, ``convergence`` (converged, flat, transient, ...),
    ``marks``, ``verdict`` (against exact draws), ``p_exact`` (of the primary metric's rank test against them), ``seed``, ``replicates`` (ids), ``start``, ``budget``, ``samples``, ``particles``,
    ``n_diverged``, ``score_evaluations`` (per replicate), ``seconds`` and ``overhead_seconds`` (of all replicates; null
    where not measured), ``step_size``, its ``step_origin`` and ``tuning_evaluations``; of the metric its ``direction``,
    ``floor`` (median of exact draws, null without a ratio to it), and whether it is the ``primary`` one, which ranks the
    task; of a replicate by that one the score evaluations ``reached`` when it was first near the best (null: never). ``SHOWN`` are the columns of the board; ``ranks`` holds as JSON, for every view (all methods: empty, a kind, a
    division), the rank, null where there is none, and whether the cell is among the best. A cell without values has one row
    without metric, so that no requested cell is missing. The run's id, suite, profile and protocol, and the ``format``, are in
    ``attrs``. ``boards``: view -> ``board.table``; ``reached`` as of ``recommended.reached``.
    """
    of_board = {(r["task"], r["label"]): r for r in boards[""].to_dict("records")}
    ranks: dict[tuple[str, str], dict[str, Any]] = {}
    for view, board in boards.items():
        for task, label, rank, best in board[["task", "label", "rank", "best"]].itertuples(index=False):
            ranks.setdefault((task, label), {})[view] = [None if rank != rank else int(rank), bool(best)]
    suite, floor = results.run.suite, cache(lb.floor)
    protocol = {k: suite.get(k) for k in ("budget", "particles", "samples", "replicates")}
    attrs: dict[Any, Any] = {"run": results.run.id, "suite": suite.get("name"), "profile": results.run.profile}
    attrs |= {"format": FORMAT, "protocol": protocol, "unfinished": results.unfinished}
    for start in range(0, max(1, len(results.cells)), most):
        cells = results.cells[start : start + most]
        heads = pd.DataFrame([_columns(results, c, of_board[c.task, c.label]) for c in cells])
        heads["ranks"] = [json.dumps(ranks[c.task, c.label]) for c in cells]
        rows: list[tuple[Any, ...]] = []  # number of the cell, and its columns
        for i, c in enumerate(cells):
            for metric, stored in c.values.items():
                known = floor(c.task, metric, c.samples)
                primary = metric == of_board[c.task, c.label]["metric"]
                own = metric, registry.direction(metric), known.median if known else None, primary
                times = reached.get((c.task, c.label), ()) if primary else ()
                near = [*(t if np.isfinite(t) else None for t in times), *[None] * len(stored)]
                rows += [(i, *own, r, v, t) for r, v, t in zip(c.spec.replicates, stored, near, strict=False)]
            if not any(c.values.values()):
                rows.append((i, *(None,) * 7))
        columns = ["metric", "direction", "floor", "primary", "replicate", "value", "reached"]
        own_columns = pd.DataFrame([own for _, *own in rows], columns=columns)
        frame = pd.concat([heads.iloc[[i for i, *_ in rows]].reset_index(drop=True), own_columns], axis=1)
        frame = frame.astype({k: v for k, v in _TYPES.items() if k in frame})
        frame.attrs = attrs
        yield frame


def _columns(results: StoredRun, c: CellRecord, row: dict[Any, Any]) -> dict[str, object]:
    """What ``values`` says of a cell on each of its rows."""
    task = registry.tasks().get(c.task)
    same = ("task", "label", "algorithm", "kind", "samples", "particles", "start", "n_diverged", "score_evaluations")
    return {name: getattr(c, name) for name in same} | {
        **{name: row[name] for name in SHOWN},
        "tags": ", ".join(task.tags if task else ()),
        "task_version": c.spec.task_version,
        "algorithm_version": c.spec.algorithm_version,
        "seed": c.spec.seed,
        "replicates": json.dumps(c.spec.replicates),
        "budget": json.dumps(c.spec.budget.model_dump(mode="json", exclude_none=True), sort_keys=True),
        "overlap": lb.overlap(c.task),
        "seconds": c.seconds if results.timed else None,
        "overhead_seconds": sum(c.overheads.values()) if results.timed else None,
        "step_size": c.settings.get("step_size"),
        "step_origin": step_origin(c, results.run.suite),
        "tuning_evaluations": lb.tuning_cost(c, results.run.suite),
    }


def step_origin(cell: CellRecord, suite: Mapping[str, Any]) -> str:
    """Where a cell's step size comes from; empty where it has none or was not run."""
    if cell.settings.get("step_size") is None or cell.status in lb.NOT_RUN:
        return ""
    if cell.tuned:
        return "tuned"
    if lb.fixed_step(suite, cell):
        return "set"
    default = _default_step(cell.algorithm)
    if default == "not known":
        return default
    return "default" if default == cell.settings["step_size"] else "set"


@cache
def _default_step(algorithm: str) -> float | str | None:
    """A method's own step size; ``not known`` of a plug-in that is no longer installed."""
    try:
        return getattr(registry.load_method(algorithm).make_settings({}), "step_size", None)
    except Exception:
        return "not known"
