"""Metrics of a chunk at its checkpoints: as it runs, later where a plug-in's code never ran, or of stored samples."""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from parvibench.core import registry
from parvibench.core.metric import Context, Cost, Decisions
from parvibench.core.result import CellRecord, to_json_number
from parvibench.core.task import Task
from parvibench.harness.marks import blown_up
from parvibench.harness.suite.cells import Cell
from parvibench.metrics.compute import compute_guarded
from parvibench.metrics.floors import judged_size
from parvibench.metrics.own_floors import with_floors

from .chunks import ChunkResult, metrics_key, unpack

#: Calls of the density or its score one after the other: the second axis of a budget, in addition to the rows scored.
SEQUENTIAL = "sequential_steps"
AFTERWARDS = "counted afterwards: evaluations are charged after each block of an external program, not one by one"
#: What a metric may need besides the samples that is not stored.
_NOT_STORED = ("path", "cost", "motion", "decisions", "diagnostics")
_LOST = "needs what only a run has: ask for it with --fresh"


def context_maker(task: Task, replicates: Sequence[int], metrics: Sequence[str]) -> Callable[..., Context]:
    """``Context`` with all that does not change on the way: task, reference, target and predictive data."""
    needs = {registry.metrics()[m].need for m in metrics}
    target = task.target(replicates, "cpu", torch.float64) if "target" in needs else None
    predictive = task.predictive(replicates, "cpu", torch.float64) if "predictive" in needs else None
    return partial(Context, task, task.reference(), target, predictive)


def thinned_values(names: Sequence[str], samples: Tensor, context: Context) -> dict[str, list[float]]:
    """Metrics of evenly thinned samples (R, n, D), of the next smaller size with floors; none where n has floors."""
    reference = with_floors(context.task, context.task.floored(), samples.shape[1])
    n = judged_size(samples.shape[1], reference)
    if reference is None or n is None or n == samples.shape[1]:
        return {}
    rows = torch.arange(n) * samples.shape[1] // n
    found, _ = compute_guarded([m for m in names if m in reference.floors], samples[:, rows], context)
    return {metric: value.tolist() for metric, value in found.items()}


def is_reported(metric: str) -> bool:
    """Whether an algorithm may report this of its steps: a diagnostic, or a name that is no metric's."""
    row = registry.metrics().get(metric)
    return row is None or row.need == "diagnostics"


class Judge:
    """Computes these metrics of a chunk of a task."""

    def __init__(self, task: Task, metrics: Sequence[str], replicates: Sequence[int]) -> None:
        self._metrics, self._replicates = metrics, replicates
        self._context = context_maker(task, replicates, metrics)

    def add(
        self, result: ChunkResult, samples: Tensor, cost: Cost, *, last: bool, **known: Any
    ) -> Mapping[str, Tensor]:
        """Compute the metrics of samples (R, n, D) float64, with ``known`` of their ``Context``, into a result; (R,) each."""
        context = self._context(cost=cost, **known)
        with torch.inference_mode(False), torch.no_grad():
            values, absent = compute_guarded(self._metrics, samples.clone(), context, "last" if last else "every")
            result.judged = thinned_values(list(values), samples, context) if last else {}
            limits = blown_up.rmse_limits(context.predictive) if last and "rmse" in values else None
        for replicate, error, limit in zip(self._replicates, values.get("rmse", ()), limits or (), strict=False):
            if float(error) > limit:
                result.diverged.setdefault(replicate, cost.iterations)
        values |= context.diagnostics
        checkpoint = 1 + max((row[1] for row in result.curve), default=-1)
        spent = (checkpoint, cost.iterations, cost.score_evaluations, cost.seconds)
        for metric, per_replicate in values.items():
            for replicate, value in zip(self._replicates, per_replicate.tolist(), strict=True):
                result.curve.append((replicate, *spent, metric, value))
        if last:
            result.values = {m: v.tolist() for m, v in values.items()}
        result.absent = absent
        return values


def judged(cell: Cell, replicates: Sequence[int], content: bytes) -> ChunkResult:
    """The packed result with its metrics computed; the algorithm is not loaded."""
    result = ChunkResult.from_plain(unpack(content))
    start = time.perf_counter()
    judge = Judge(cell.load_task(), cell.metrics, replicates)
    for at in result.unmeasured:
        known = dict(at["known"])
        if known.get("decisions") is not None:
            known["decisions"] = Decisions(**known["decisions"])
        judge.add(result, at["samples"], Cost(**at["cost"]), last=at["last"], **known)
    result.unmeasured = []
    result.overheads["metrics"] = time.perf_counter() - start
    return result


def remeasure(
    cell: Cell, record: CellRecord, curve: pd.DataFrame, samples: NDArray[np.float32]
) -> tuple[CellRecord, pd.DataFrame]:
    """Record and curve with metrics recomputed from the last samples; those of paths, costs or earlier samples stay."""
    retained = {m for m in cell.metrics if registry.metrics()[m].need in _NOT_STORED}
    anew = [m for m in cell.metrics if m not in retained]
    values: dict[str, list[float]] = defaultdict(list)
    thinned: dict[str, list[float | None]] = defaultdict(list)
    absent = {m: record.absent.get(m, _LOST) for m in retained if m not in record.values}
    task = cell.load()[0]
    cost = Cost(record.iterations, record.score_evaluations, record.seconds / max(record.n_replicates, 1))
    parts = np.split(samples, range(cell.spec.chunk, len(samples), cell.spec.chunk))
    for ids, part in zip(cell.chunks, parts, strict=True):
        context = context_maker(task, ids, cell.metrics)(cost=cost)
        given = torch.from_numpy(part.astype(np.float64))  # a copy: what was read may not be written to
        found, missing = compute_guarded(anew, given, context)
        absent |= missing
        for metric, of_fewer in thinned_values(list(found), given, context).items():
            thinned[metric] += map(to_json_number, of_fewer)
        for metric, per_replicate in found.items():
            values[metric] += per_replicate.tolist()
    whole = record.values | {m: [to_json_number(x) for x in v] for m, v in values.items()}
    order = dict.fromkeys((*cell.metrics, *filter(is_reported, record.values)))
    update = {"values": {m: whole[m] for m in order if m in whole}, "absent": absent, "judged": dict(thinned)}
    update["metrics_key"] = metrics_key(cell)
    return record.model_copy(update=update), _replaced(curve, cell, values)


def _replaced(curve: pd.DataFrame, cell: Cell, values: dict[str, list[float]]) -> pd.DataFrame:
    """The curve with the last checkpoint's rows of ``values`` put in place."""
    last = curve[curve["checkpoint"] == curve.groupby("replicate")["checkpoint"].transform("max")]
    spent = last.drop_duplicates("replicate").set_index("replicate")
    costs = ["checkpoint", "iteration", "score_evaluations", "seconds"]
    rows = [
        {"replicate": r, **spent.loc[r, costs], "metric": m, "value": v}
        for m, per_replicate in values.items()
        for r, v in zip(cell.spec.replicates, per_replicate, strict=True)
    ]
    stale = curve.index.isin(last.index[last["metric"].isin(values)])
    fresh = pd.DataFrame(rows, columns=curve.columns).astype(curve.dtypes.to_dict())
    return pd.concat([curve[~stale], fresh], ignore_index=True)
