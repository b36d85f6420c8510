"""Cells that a longer run would still improve: ``still improving``.

With a_r and b_r the primary metric of replicate r at the last checkpoint but one and at the last (about twice the
budget), signed so that lower is better, a cell is still improving when

    median_r (a_r - b_r) > 0.05 |median_r a_r|   and the 95% interval of that median lies above zero.

A negative log likelihood has no zero of its own (units of y shift it): there the fall must exceed 0.05 nats, 5% of the
likelihood. The interval is that of order statistics (``statistics.median_interval``), below six replicates the range.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from parvibench.core import registry
from parvibench.statistics import median_interval

#: Least fall between the last two checkpoints, as a share of the value; of ``nll``, in nats.
LEAST_FALL = 0.05
_LOG_SCALE = ("nll",)


def still_improving(curve: pd.DataFrame, metric: str) -> bool | None:
    """Whether the metric of a cell's curve still falls (or rises, where higher is better); None with one checkpoint.

    Args:
        curve: of one cell, with the columns ``replicate``, ``checkpoint``, ``metric`` and ``value``.
        metric: the task's primary metric.
    """
    rows = curve[curve["metric"] == metric]
    wide = rows.pivot_table(index="replicate", columns="checkpoint", values="value", aggfunc="last")
    if wide.shape[1] < 2:
        return None
    row = registry.metrics().get(metric)
    sign = -1.0 if row is not None and row.direction == "higher" else 1.0
    pairs = sign * wide.iloc[:, -2:].to_numpy(dtype=float)
    pairs = pairs[np.isfinite(pairs).all(1)]
    if not len(pairs):
        return None
    least = LEAST_FALL * (1.0 if metric in _LOG_SCALE else abs(float(np.median(pairs[:, 0]))))
    median, low, _ = median_interval((pairs[:, 0] - pairs[:, 1]).tolist())
    return bool(median > least and low > 0)
