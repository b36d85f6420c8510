"""A cell as it goes into the store: record, curve and samples, from the outcomes of its chunks."""

import datetime as dt
import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from parvibench.core.result import CellRecord, Status, to_json_number
from parvibench.harness.run.account import UNDEFINED
from parvibench.harness.run.chunks import ChunkResult, metrics_key
from parvibench.harness.store.environment import hardware
from parvibench.harness.store.store import CURVE_COLUMNS
from parvibench.harness.suite.cells import Cell
from parvibench.harness.workers.executors import Outcome


def finished(cell: Cell, outcomes: Sequence[Outcome[ChunkResult]]) -> tuple[CellRecord, *tuple[Any, ...]]:
    """What ``Store.write_cell`` takes, from the outcomes of a cell's chunks in order; a record alone where one has failed."""
    results = [o.result for o in outcomes if o.result is not None]
    record = CellRecord(
        spec=cell.spec, label=cell.label, kind=cell.load()[1].kind, tuned=cell.tuned, flags=list(cell.notes),
        status=Status.OK, seconds=sum(r.seconds for r in results), hardware=hardware(cell.spec.device), created=now(),
        metrics_key=metrics_key(cell),
    )  # fmt: skip
    for failed in (o for o in outcomes if o.result is None):
        update = {key: getattr(failed, key) for key in ("status", "reason", "traceback")}
        return (record.model_copy(update=update),)
    curve = pd.DataFrame([row for r in results for row in r.curve], columns=list(CURVE_COLUMNS))
    samples = [r.samples for r in results if r.samples is not None]
    followed = next((r.trajectories for r in results if r.trajectories), None)
    whole = np.concatenate(samples) if len(samples) == len(results) else None
    return record.model_copy(update=_merged(cell, results)), curve, whole, followed


def now() -> str:
    """The time, to the second, in UTC."""
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")


def _merged(cell: Cell, results: Sequence[ChunkResult]) -> dict[str, Any]:
    """Status, costs and metric values of all chunks together."""
    diverged = {k: v for r in results for k, v in r.diverged.items()}
    absent = {metric: reason for r in reversed(results) for metric, reason in r.absent.items()}
    stuck = _never_moved(results)
    flags = dict.fromkeys([*cell.notes, *(f for r in results for f in r.flags)])
    if at_rest := len(stuck - diverged.keys()):
        flags[f"{at_rest} of {cell.n_replicates} replicates never moved"] = None
    return {
        "status": Status.DIVERGED if len(diverged) == cell.n_replicates else Status.OK,
        "reason": _divergence(diverged, stuck, cell, defined=UNDEFINED not in flags),
        "n_diverged": len(diverged),
        "diverged": diverged,
        "effective_step": results[0].effective_step,
        "start": results[0].start,
        "flags": list(flags),
        "drift": max(r.drift for r in results),
        "process": results[0].process,
        "iterations": max(r.iterations for r in results),
        "score_evaluations": max(r.score_evaluations for r in results),
        "overheads": {k: sum(r.overheads.get(k, 0.0) for r in results) for r in results for k in r.overheads},
        "values": _of_metrics(cell, [r.values for r in results], absent),
        "judged": _of_metrics(cell, [r.judged for r in results], absent),
        "absent": absent,
    }


def _of_metrics(
    cell: Cell, chunks: Sequence[Mapping[str, list[float]]], absent: Collection[str]
) -> dict[str, list[float | None]]:
    """Values of every replicate by metric: None where a chunk's budget ended before a step reported it.

    A metric that does not apply to some replicates has no value for the cell.
    """
    names = [m for m in dict.fromkeys(m for values in chunks for m in values) if m not in absent]
    pairs = list(zip(cell.chunks, chunks, strict=True))
    return {m: [to_json_number(v) for ids, of in pairs for v in of.get(m, [math.nan] * len(ids))] for m in names}


def _never_moved(results: Sequence[ChunkResult]) -> set[int]:
    """Ids of the replicates that accepted no step, and were at rest at the end where that is measured."""
    seen: dict[int, dict[str, set[float]]] = defaultdict(lambda: defaultdict(set))
    for replicate, *_, metric, value in (row for r in results for row in r.curve):
        seen[replicate][metric].add(value)
    return {r for r, of in seen.items() if of["acceptance"] == {0.0} and of["displacement"] <= {0.0}}


_EARLY = ": {} is too large for the scale of the target at the start (a smaller step_size, or standardised coordinates)"
_FIRST_STEPS = 64  # a state is inspected that often at least


def _divergence(diverged: dict[int, int], stuck: set[int], cell: Cell, *, defined: bool) -> str:
    """How replicates were lost; one that never moved can be as far off as others that blew up.

    A density that is not ``defined`` everywhere says nothing about the step size.
    """
    moved = {r: iteration for r, iteration in diverged.items() if r not in stuck}
    step, replicates = cell.settings.get("step_size"), cell.n_replicates
    size = f"step_size {step:g}" if isinstance(step, float) else "the step size"
    reasons = []
    if moved:
        first = min(moved.values())
        reasons.append(
            f"{len(moved)} of {replicates} replicates stopped being finite or blew up, the first by iteration {first}"
            + (_EARLY.format(size) if first <= _FIRST_STEPS and defined else "")
        )
    if at_rest := len(diverged) - len(moved):
        reasons.append(f"{at_rest} of {replicates} replicates never moved from a start that is far off")
    return "; ".join(reasons)
