"""Agreement of methods with one another on a task without reference, and the one to trust.

For two methods let z be the normal scores of the ranks of both their samples together, by coordinate. The gaps of the means
and of log s, s the standard deviations of z, have variances h s^2 / E + h' s'^2 / E' and h / (2 E) + h' / (2 E'): E the sum over
replicates of min(n, bulk ESS, tail ESS) (n without a path), h >= 1 the variance of the replicates' means over the one that E implies.
Methods differ where a gap exceeds its normal limit at 1% over all gaps of all pairs; else they agree, unless a limit exceeds 0.5.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations

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
#: Final samples (R, n, D), and the effective numbers of these, (R,).
Draws = tuple[NDArray[np.float64], NDArray[np.float64]]


def draws_of(results: StoredRun, cell: CellRecord) -> Draws | None:
    """Samples of the replicates that ended finite; None without any."""
    if (samples := results.samples(cell)) is None:
        return None
    finite = np.isfinite(samples).all((1, 2))
    known = [cell.values[size] for size in ("ess_bulk", "ess_tail") if size in cell.values]
    sizes = np.array([[v or 0.0 for v in values] for values in known] + [[samples.shape[1]] * len(samples)]).min(0)
    return (samples[finite].astype(float), sizes[finite]) if finite.any() else None


def agreements(draws: Mapping[str, Draws]) -> Agreements:
    """All pairs of methods of one task compared, by their labels."""
    found: dict[str, dict[str, bool | None]] = {label: {} for label in draws}
    pairs = list(combinations(draws, 2))
    for a, b in pairs:
        found[a][b] = found[b][a] = _agree(draws[a], draws[b], LEVEL / len(pairs))
    return found


def _agree(a: Draws, b: Draws, level: float) -> bool | None:
    dim = a[0].shape[-1]
    rows = np.concatenate([samples.reshape(-1, dim) for samples, _ in (a, b)])
    z = stats.norm.ppf((stats.rankdata(rows, axis=0) - 0.375) / (len(rows) + 0.25))
    parts = np.split(z, [a[0].size // dim])
    (at, var), (other, more) = (_summary(z.reshape(x[0].shape), x[1]) for z, x in zip(parts, (a, b), strict=True))
    limits = stats.norm.isf(level / (4 * dim)) * np.sqrt(var + more)
    return False if (np.abs(at - other) > limits).any() else True if limits.max() <= RESOLVED else None


def _summary(z: NDArray[np.float64], sizes: NDArray[np.float64]) -> Draws:
    """Means and log standard deviations of the coordinates, and the variances of both, each (2, D)."""
    total, sd = max(1.0, float(sizes.sum())), np.maximum(z.std((0, 1)), 1e-6)
    spread = z.mean(1).var(0, ddof=1) / len(z) if len(z) > 1 else 0.0
    excess = max(1.0, float(np.mean(spread * total / sd**2)))
    return np.stack([z.mean((0, 1)), np.log(sd)]), excess / total * np.stack([sd**2, np.full_like(sd, 0.5)])


def sound(results: StoredRun, cell: CellRecord) -> bool:
    """Whether R-hat and ESS of a cell pass as marked, hardly a transition diverges, and no replicate was lost; False without R-hat and ESS."""
    failed = cell.n_diverged or cell.n_lost or (median_of(cell, "divergences") or 0.0) > DIVERGENT
    return not failed and transient(cell) is False and not in_doubt(results, cell)


def trusted(cells: Sequence[CellRecord], found: Agreements, passing: Sequence[str]) -> CellRecord | None:
    """The passing method that agrees with most other algorithms, of several the cheapest, and differs from no passing method; or None."""
    ranked = []
    for cell in cells:
        others = found[cell.label]
        partners = sum(bool(others.get(o.label)) and o.algorithm != cell.algorithm for o in cells)
        if cell.label in passing and partners and not any(others.get(label) is False for label in passing):
            ranked.append((partners, median_of(cell, "ess_per_evaluation") or 0.0, cell))
    return max(ranked, key=lambda entry: entry[:2])[2] if ranked else None
