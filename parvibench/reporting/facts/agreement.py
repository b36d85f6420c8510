"""Agreement of methods with one another on a task without reference, and the one to trust.

For two methods with samples (R, n, D) let z be the normal scores of the ranks of both together, by coordinate: heavy tails
do not matter. The gaps of their means m and of their log standard deviations log s, over all replicates, have variances

    v = h s^2 / E + h' s'^2 / E'   and   v = h / (2 E) + h' / (2 E'),

E the sum over replicates of min(n, bulk ESS, tail ESS) (n where no path is recorded), h >= 1 the variance of the replicates'
means over the one that E implies, mean over coordinates. Two methods differ where a gap exceeds q sqrt(v), q the normal
quantile at 1% over all gaps of all pairs; else they agree, unless q sqrt(v) exceeds 0.5 anywhere: samples too few to tell.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from parvibench.core.result import CellRecord
from parvibench.harness.marks.convergence import in_doubt, transient
from parvibench.harness.store.results import StoredRun, median_of

#: Level over all gaps; largest gap that may stay unseen, in standard deviations; share of divergent transitions allowed.
LEVEL, RESOLVED, DIVERGENT = 0.01, 0.5, 0.001
#: Method -> other method -> whether they agree; None where samples are too few to tell.
Agreements = Mapping[str, Mapping[str, bool | None]]


class Draws(NamedTuple):
    """Final samples of a method."""

    samples: NDArray[np.float64]  # (R, n, D)
    sizes: NDArray[np.float64]  # (R,) effective number of these samples


def draws_of(results: StoredRun, cell: CellRecord) -> Draws | None:
    """Samples of the replicates that ended finite; None without any."""
    if (samples := results.samples(cell)) is None:
        return None
    finite = np.isfinite(samples).all((1, 2))
    known = [cell.values[size] for size in ("ess_bulk", "ess_tail") if size in cell.values]
    sizes = np.array([[v or 0.0 for v in values] for values in known] + [[samples.shape[1]] * len(samples)]).min(0)
    return Draws(samples[finite].astype(float), sizes[finite]) if finite.any() else None


def agreements(draws: Mapping[str, Draws]) -> Agreements:
    """All pairs of methods of one task compared, by their labels."""
    found: dict[str, dict[str, bool | None]] = {label: {} for label in draws}
    pairs = list(combinations(draws, 2))
    for a, b in pairs:
        found[a][b] = found[b][a] = _agree(draws[a], draws[b], LEVEL / len(pairs))
    return found


def _agree(a: Draws, b: Draws, level: float) -> bool | None:
    dim = a.samples.shape[-1]
    rows = np.concatenate([x.samples.reshape(-1, dim) for x in (a, b)])
    scores = stats.norm.ppf((stats.rankdata(rows, axis=0) - 0.375) / (len(rows) + 0.25))
    first, second = np.split(scores, [len(rows) - b.samples[..., 0].size])
    places, variances = zip(
        *(_summary(z.reshape(x.samples.shape), x.sizes) for z, x in ((first, a), (second, b))), strict=True
    )
    limits = stats.norm.isf(level / (4 * dim)) * np.sqrt(variances[0] + variances[1])
    if (np.abs(places[0] - places[1]) > limits).any():
        return False
    return True if limits.max() <= RESOLVED else None


def _summary(z: NDArray[np.float64], sizes: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Means and log standard deviations of the coordinates, and the variances of both, each (2, D)."""
    total, sd = max(1.0, float(sizes.sum())), np.maximum(z.std((0, 1)), 1e-6)
    spread = z.mean(1).var(0, ddof=1) / len(z) if len(z) > 1 else 0.0
    excess = max(1.0, float(np.mean(spread * total / sd**2)))
    return np.stack([z.mean((0, 1)), np.log(sd)]), excess / total * np.stack([sd**2, np.full_like(sd, 0.5)])


def sound(results: StoredRun, cell: CellRecord) -> bool:
    """Whether R-hat and ESS of a cell pass as marked, hardly a transition diverges, and no replicate was lost; False without R-hat and ESS."""
    lost = cell.n_diverged or cell.n_lost or (median_of(cell, "divergences") or 0.0) > DIVERGENT
    return not lost and transient(cell) is False and not in_doubt(results, cell)


def trusted(cells: Sequence[CellRecord], found: Agreements, passing: Sequence[str]) -> CellRecord | None:
    """The passing method that agrees with another algorithm and differs from no other passing method; None without one.

    Of several the one that agrees with most methods, then the one with most bulk ESS an evaluation.
    """
    ranked = []
    for cell in (c for c in cells if c.label in passing):
        others = found[cell.label]
        partners = sum(bool(others.get(o.label)) and o.algorithm != cell.algorithm for o in cells)
        if partners and not any(others.get(label) is False for label in passing):
            ranked.append((partners, median_of(cell, "ess_per_evaluation") or 0.0, cell))
    return max(ranked, key=lambda entry: entry[:2])[2] if ranked else None
