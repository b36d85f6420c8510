"""Metrics of a cell: the context they are computed in, and recomputing them for stored samples."""

import hashlib
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from parvibench.core import registry
from parvibench.core.metric import Context, Cost
from parvibench.core.result import CellRecord, to_json_number
from parvibench.core.task import Task
from parvibench.harness.suite.cells import Cell
from parvibench.metrics.compute import compute_guarded
from parvibench.metrics.floors import judged_size

#: Raised when a metric's values change for the same samples.
METRICS_VERSION = 5

#: What a metric may need besides the samples that is not stored.
_NOT_STORED = ("path", "cost", "motion", "decisions", "diagnostics")

_LOST = "needs what only a run has: ask for it with --fresh"


def metrics_key(cell: Cell) -> str:
    """Names the measurement: metrics, their version and the reference."""
    reference = cell.load()[0].floored()
    sha = reference.certificate.get("sha256", "") if reference else ""
    return hashlib.sha256(repr((METRICS_VERSION, cell.metrics, sha)).encode()).hexdigest()[:16]


def context_maker(task: Task, replicates: Sequence[int], metrics: Sequence[str]) -> Callable[..., Context]:
    """``Context`` with all that does not change on the way: task, reference, target and predictive data."""
    needs = {registry.metrics()[m].need for m in metrics}
    target = task.target(replicates, "cpu", torch.float64) if "target" in needs else None
    predictive = task.predictive(replicates, "cpu", torch.float64) if "predictive" in needs else None
    return partial(Context, task, task.reference(), target, predictive)


def thinned_values(names: Sequence[str], samples: Tensor, context: Context) -> dict[str, list[float]]:
    """Metrics of evenly thinned samples (R, n, D), of the next smaller size with floors; none where n has floors."""
    reference = context.task.floored()
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


def can_remeasure(record: CellRecord) -> bool:
    """Whether stored samples suffice: an anchor's may be rows of the reference, so it is drawn again."""
    return bool(record.values) and record.kind != "anchor"


def remeasure(
    cell: Cell, record: CellRecord, curve: pd.DataFrame, samples: NDArray[np.float32]
) -> tuple[CellRecord, pd.DataFrame]:
    """The record and the curve with the cell's metrics recomputed from the samples of its last checkpoint.

    Metrics of the whole path or of costs retain the values that the run measured, as does the curve at earlier
    checkpoints.
    """
    retained = {m for m in cell.metrics if registry.metrics()[m].need in _NOT_STORED}
    anew = [m for m in cell.metrics if m not in retained]
    values: dict[str, list[float]] = {m: [] for m in anew}
    judged: dict[str, list[float | None]] = {}
    absent = {m: record.absent.get(m, _LOST) for m in retained if m not in record.values}
    task = cell.load()[0]
    cost = Cost(record.iterations, record.score_evaluations, record.seconds / max(record.n_replicates, 1))
    for ids, part in zip(cell.chunks, _by_chunk(samples, cell.spec.chunk), strict=True):
        context = context_maker(task, ids, cell.metrics)(cost=cost)
        given = torch.from_numpy(part.astype(np.float64))  # a copy: what was read may not be written to
        found, missing = compute_guarded(anew, given, context)
        for metric, thinned in thinned_values(list(found), given, context).items():
            judged.setdefault(metric, []).extend(map(to_json_number, thinned))
        absent |= missing
        for metric, per_replicate in found.items():
            values[metric] += per_replicate.tolist()
    values = {m: v for m, v in values.items() if v}
    stored = {m: [to_json_number(x) for x in v] for m, v in values.items()}
    update = {
        "values": {
            m: stored.get(m, record.values.get(m, []))
            for m in dict.fromkeys((*cell.metrics, *filter(is_reported, record.values)))
            if m in stored or m in record.values
        },
        "absent": absent,
        "judged": judged,
        "metrics_key": metrics_key(cell),
    }
    return record.model_copy(update=update), _replaced(curve, cell, values)


def _by_chunk(samples: NDArray[np.float32], width: int) -> list[NDArray[np.float32]]:
    return [samples[i : i + width] for i in range(0, len(samples), width)]


def _replaced(curve: pd.DataFrame, cell: Cell, values: dict[str, list[float]]) -> pd.DataFrame:
    """The curve with the last checkpoint's rows of ``values`` put in place."""
    last = curve[curve["checkpoint"] == curve.groupby("replicate")["checkpoint"].transform("max")]
    spent = last.drop_duplicates("replicate").set_index("replicate")
    rows = [
        {
            "replicate": r,
            **spent.loc[r, ["checkpoint", "iteration", "score_evaluations", "seconds"]],
            "metric": m,
            "value": v,
        }
        for m, per_replicate in values.items()
        for r, v in zip(cell.spec.replicates, per_replicate, strict=True)
    ]
    stale = curve.index.isin(last.index[last["metric"].isin(values)])
    fresh = pd.DataFrame(rows, columns=curve.columns).astype(curve.dtypes.to_dict())
    return pd.concat([curve[~stale], fresh], ignore_index=True)
