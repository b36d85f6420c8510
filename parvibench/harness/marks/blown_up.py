"""Replicates that stay finite and have blown up all the same.

A replicate r counts as diverged when, at its last checkpoint,

    RMSE_r > 10 sqrt(mean_t (y_t - m)^2),   m the mean of the training responses,          (networks, as they run)
    primary_r > 5 median(primary of the anchor ``initial``),   where that median is above zero  (as results are read)

and lower values of the primary metric are better. Such a replicate ranks worst; that samples are not exact draws it does not
prove, as one does that ends without finite samples (``n_lost``). The first rule needs the data, so the run applies it; the second
needs another cell, so reading a run applies it, to stores of any age. What a replicate had reached stays in the store.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from parvibench.core import registry
from parvibench.core.result import CellRecord, Status
from parvibench.core.task import PredictiveData

FACTOR_OF_MEAN = 10.0  #: Times the RMSE of predicting the mean of the training responses.
FACTOR_OF_INITIAL = 5.0  #: Times the median of the primary metric of ``initial``.


def rmse_limits(predictive: PredictiveData | None) -> list[float] | None:
    """RMSE of each replicate above which it has blown up; None where no mean of training responses is known."""
    mean: Tensor | None = getattr(predictive, "y_mean", None)
    if predictive is None or mean is None:
        return None
    y = predictive.y
    errors = (y - mean.reshape(-1, 1).to(y)).square().mean(1).sqrt()
    return [FACTOR_OF_MEAN * float(e) for e in errors]


def counted(cells: Sequence[CellRecord], primary: Callable[[str], str]) -> tuple[CellRecord, ...]:
    """The cells of one run, in order, with blown-up replicates counted as diverged: their values become null.

    ``primary`` names the metric that ranks a task; its worst finite value in a cell becomes ``worst``, the
    number of diverged replicates without one ``n_lost``.
    """
    limits = _limits(cells, primary)
    return tuple(_counted(cell, primary(cell.task), limits.get(cell.task, math.inf)) for cell in cells)


def _limits(cells: Sequence[CellRecord], primary: Callable[[str], str]) -> Mapping[str, float]:
    found = {}
    for cell in cells:
        metric = primary(cell.task)
        if cell.algorithm == "initial" and metric in cell.values and registry.direction(metric) == "lower":
            values = [v for v in cell.values[metric] if v is not None]
            median = float(np.median(values)) if values else math.nan
            if median > 0:
                found[cell.task] = FACTOR_OF_INITIAL * median
    return found


def _counted(cell: CellRecord, metric: str, limit: float) -> CellRecord:
    values = cell.values.get(metric)
    if not values or cell.status is not Status.OK:
        return cell
    ids = cell.spec.replicates
    pick = min if registry.direction(metric) == "higher" else max
    worst = pick((v for v in values if v is not None), default=None)
    n_lost = sum(v is None and r in cell.diverged for r, v in zip(ids, values, strict=False))
    seen = cell.model_copy(update={"worst": worst, "n_lost": n_lost})
    limit = math.inf if cell.kind == "anchor" else limit
    beyond = [r for r, v in zip(ids, values, strict=False) if v is not None and v > limit]
    lost = set(ids) & cell.diverged.keys() | set(beyond)
    if not lost:
        return seen
    diverged = dict.fromkeys(beyond, cell.iterations) | cell.diverged
    reason = f"{len(beyond)} of {len(ids)} replicates ended above {limit:.3g} in {metric}, {FACTOR_OF_INITIAL:g} times initial's"
    update = _without(cell, lost) | {
        "n_diverged": len(diverged),
        "diverged": diverged,
        "reason": "; ".join(r for r in (cell.reason, reason if beyond else "") if r),
        "status": Status.DIVERGED if len(diverged) >= len(ids) else Status.OK,
    }
    return seen.model_copy(update=update)


def _without(cell: CellRecord, lost: Collection[int]) -> dict[str, Any]:
    """The values of a cell, but for costs null where replicates are lost."""
    costs = {m for m, row in registry.metrics().items() if row.need == "cost"}

    def remaining(values: Sequence[float | None]) -> list[float | None]:
        return [None if r in lost else v for r, v in zip(cell.spec.replicates, values, strict=False)]

    return {
        "values": {m: v if m in costs else remaining(v) for m, v in cell.values.items()},
        "judged": {m: remaining(v) for m, v in cell.judged.items()},
    }
