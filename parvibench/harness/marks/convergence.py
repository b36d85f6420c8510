"""How far a cell has come, in one word: chains still on their way, cells that a longer run would still improve.

A chain's cell is ``transient`` when, in the median over replicates,

    R-hat > 1.05   or   bulk ESS of the path after burn-in < n / 4,

n the number of samples judged. R-hat is rank-normalised (Vehtari et al. 2021, arXiv:1903.08008), nested where a chain
has few kept states; networks are judged by what they predict (``metrics.chains``). A replicate without a finite R-hat
counts as not converged.

With a_r and b_r the primary metric of replicate r at the last checkpoint but one and at the last (about twice the
budget), signed so that lower is better, a cell is ``still improving`` when

    median_r (a_r - b_r) > 0.05 |median_r a_r|   and the 95% interval of that median lies above zero.

A negative log likelihood has no zero of its own (units of y shift it): there the fall must exceed 0.05 nats, 5% of the
likelihood. The interval is that of order statistics (``statistics.median_interval``), below six replicates the range.
"""

import numpy as np

from parvibench.core import registry
from parvibench.core.result import CellRecord, Status
from parvibench.harness.store.curve_grid import CurveGrid
from parvibench.harness.store.results import StoredRun, median_of
from parvibench.statistics import median_interval

#: Words for a cell that a longer run would change; shown wherever the method is named.
UNFINISHED = ("transient", "still improving")
#: Rank-normalised R-hat above which a path has not converged.
MAX_RHAT = 1.05
#: Bulk ESS of the path over the number of samples judged, at least.
ESS_SHARE = 0.25
#: Least fall between the last two checkpoints, as a share of the value; of ``nll``, in nats.
LEAST_FALL = 0.05
#: Metrics in nats.
LOG_SCALE = ("nll",)


def convergence(results: StoredRun, cell: CellRecord, metric: str) -> str:
    """``transient``, ``still improving``, ``converged`` (chains), ``flat`` (particles and generators) or ``unknown``.

    Empty for anchors and for cells without a result; ``metric`` ranks the task. Chains that are not transient must be
    flat as well.
    """
    if cell.status is not Status.OK or cell.kind == "anchor":
        return ""
    on_the_way = transient(cell) if cell.kind == "chains" or "rhat" in cell.values else False
    if on_the_way:
        return "transient"
    improving = still_improving(results.curve_grid(cell), metric)
    if improving:
        return "still improving"
    if improving is None or on_the_way is None:
        return "unknown"
    return finished(cell)


def finished(cell: CellRecord) -> str:
    """The word for a cell that more budget would not help."""
    return "converged" if cell.kind == "chains" else "flat"


def transient(cell: CellRecord) -> bool | None:
    """Whether a cell of chains is transient; None where neither R-hat nor the ESS is known."""
    rhat, ess = median_of(cell, "rhat"), median_of(cell, "ess_bulk")
    if rhat is None and ess is None:
        return None
    return (rhat is not None and not rhat <= MAX_RHAT) or (ess is not None and not ess >= ESS_SHARE * cell.samples)


def undiagnosed(cell: CellRecord) -> bool:
    """Whether chains have neither R-hat nor ESS although both were wanted: no path was recorded, or a short one."""
    return cell.kind == "chains" and transient(cell) is None and bool({"rhat", "ess_bulk"} & set(cell.absent))


def still_improving(curves: CurveGrid, metric: str) -> bool | None:
    """Whether the metric of a cell's curve still falls (or rises, where higher is better); None with one checkpoint.

    ``metric`` is the task's primary one.
    """
    values = curves.metric(metric).values
    last_two = values[~np.isnan(values).all(1)][-2:]
    if len(last_two) < 2:
        return None
    before, after = last_two[:, np.isfinite(last_two).all(0)] * (
        -1.0 if registry.direction(metric) == "higher" else 1.0
    )
    if not len(before):
        return None
    least = LEAST_FALL * (1.0 if metric in LOG_SCALE else abs(float(np.median(before))))
    median, low, _ = median_interval((before - after).tolist())
    return bool(median > least and low > 0)
