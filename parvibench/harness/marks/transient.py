"""Chains that are still on their way: ``transient``.

A chain's cell is transient when, in the median over replicates,

    R-hat > 1.05   or   bulk ESS of the path after burn-in < n / 4,

n the number of samples judged. R-hat is rank-normalised (Vehtari et al. 2021, arXiv:1903.08008), nested where a chain
has few kept states; networks are judged by what they predict (``metrics.chains``). A replicate without a finite R-hat
counts as not converged.
"""

from __future__ import annotations

from parvibench.core.result import CellRecord
from parvibench.harness.store.results import metric_values
from parvibench.statistics import median_interval

#: Rank-normalised R-hat above which a path has not converged.
MAX_RHAT = 1.05
#: Bulk ESS of the path over the number of samples judged, at least.
ESS_SHARE = 0.25


def transient(cell: CellRecord) -> bool | None:
    """Whether a cell of chains is transient; None where neither R-hat nor the ESS is known."""
    rhat, ess = _median(cell, "rhat"), _median(cell, "ess_bulk")
    if rhat is None and ess is None:
        return None
    return (rhat is not None and not rhat <= MAX_RHAT) or (ess is not None and not ess >= ESS_SHARE * cell.samples)


def undiagnosed(cell: CellRecord) -> bool:
    """Whether chains have neither R-hat nor ESS although both were wanted: no path was recorded, or a short one."""
    return cell.kind == "chains" and transient(cell) is None and bool({"rhat", "ess_bulk"} & set(cell.absent))


def _median(cell: CellRecord, metric: str) -> float | None:
    values = cell.values.get(metric)
    return median_interval(metric_values(metric, values))[0] if values else None
