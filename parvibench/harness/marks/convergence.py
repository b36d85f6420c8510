"""How far a cell has come, in one word: chains still on their way, cells that a longer run would still improve.

A chain's cell is ``transient`` when, in the median over replicates,

    R-hat > 1.05   or   bulk ESS of the path after burn-in < n / 4,

n the number of samples judged; ``unknown`` where exact chains of as few draws exceed its R-hat in more than 5% of replicates
(``largest_rhat``). R-hat is rank-normalised, nested where a chain has few kept states (``metrics.chains``). A replicate
without a finite R-hat counts as not converged.

With a_r and b_r the primary metric of replicate r at the last checkpoint but one and at the last (about twice the
budget), signed so that lower is better, a cell is ``still improving`` when

    median_r (a_r - b_r) > 0.05 |median_r a_r|   and the 95% interval of that median is above zero.

A negative log likelihood has no zero of its own (units of y shift it): there the fall must exceed 0.05 nats, 5% of the
likelihood. A method that has ended its run itself does not improve. The interval is that of order statistics (``statistics.median_interval``), below six replicates the range.
"""

import math
from functools import cache

import numpy as np
from scipy import stats

from parvibench.core import registry
from parvibench.core.result import CellRecord, Status
from parvibench.harness.run.account import ENDED
from parvibench.harness.run.recorder import kept_states
from parvibench.harness.store.cell_files import CurveGrid
from parvibench.harness.store.results import StoredRun, median_of
from parvibench.metrics.chains import GROUPS, NESTED_BELOW, NESTED_FROM, PREDICTIONS
from parvibench.statistics import median_interval

#: Words for a cell that a longer run would change; shown wherever the method is named.
UNFINISHED = ("transient", "still improving")
MAX_RHAT = 1.05  #: Rank-normalised R-hat above which a path has not converged.
#: Share of replicates of exact chains whose R-hat may be called that of a path that has not converged.
ALPHA = 0.05
ESS_SHARE = 0.25  #: Bulk ESS of the path over the number of samples judged, at least.
LEAST_FALL = 0.05  #: Least fall between the last two checkpoints, as a share of the value; of ``nll``, in nats.
LOG_SCALE = ("nll",)  #: Metrics in nats.


def convergence(results: StoredRun, cell: CellRecord, metric: str) -> str:
    """``transient``, ``still improving``, ``converged`` (chains), ``flat`` (particles and generators) or ``unknown``.

    Empty for anchors and for cells without a result; ``metric`` ranks the task. Chains that are not transient must be
    flat as well.
    """
    if cell.status is not Status.OK or cell.kind == "anchor":
        return ""
    on_the_way = transient(cell) if cell.kind == "chains" or "rhat" in cell.values else False
    if on_the_way and in_doubt(results, cell):
        on_the_way = None
    if on_the_way:
        return "transient"
    improving = ENDED not in cell.flags and still_improving(results.curve_grid(cell), metric)
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


def undiagnosed(results: StoredRun, cell: CellRecord) -> bool:
    """Whether chains have neither R-hat nor ESS although both were wanted, or too few draws for their R-hat to tell."""
    missing = transient(cell) is None and bool({"rhat", "ess_bulk"} & set(cell.absent))
    return cell.kind == "chains" and (missing or in_doubt(results, cell))


def in_doubt(results: StoredRun, cell: CellRecord) -> bool:
    """Whether a cell is transient by an R-hat alone that exact chains of so few draws have in over ``ALPHA`` of replicates."""
    rhat, ess = median_of(cell, "rhat"), median_of(cell, "ess_bulk")
    if rhat is None or not MAX_RHAT < rhat < math.inf or (ess is not None and not ess >= ESS_SHARE * cell.samples):
        return False
    row, samples = registry.tasks().get(cell.task), None
    if row is None or row.dim is None:
        samples = results.samples(cell)
    dim = row.dim if row is not None and row.dim else 1 if samples is None else samples.shape[-1]
    compared = PREDICTIONS + 1 if row is not None and "network" in row.tags else dim
    return rhat <= largest_rhat(kept_states(cell.spec, cell.iterations, dim), cell.particles, compared)


@cache  # thousands of cells have few sizes
def largest_rhat(draws: int, chains: int, dim: int) -> float:
    """What the R-hat of independent normal draws exceeds with a probability of at most ``ALPHA``.

    A chain has 4 ``draws`` or more; a single one is cut into two, as ``metrics.chains.rhat`` does. The variance between the
    means of chains over that within is an F variable; bulk and folded R-hat of every coordinate share the level evenly.
    """
    level = ALPHA / (2 * dim)
    if 2 * 4 <= draws < NESTED_BELOW and chains >= NESTED_FROM:
        each = chains // GROUPS * (draws - draws // 2)
        return math.sqrt(1 + float(stats.f.isf(level, GROUPS - 1, GROUPS * (each - 1))) / each)
    parts, each = (2 * chains, draws // 2) if chains > 1 else (4, draws // 4)
    if each < 2:
        return math.inf
    return math.sqrt(1 - 1 / each + float(stats.f.isf(level, parts - 1, parts * (each - 1))) / each)


def still_improving(curves: CurveGrid, metric: str) -> bool | None:
    """Whether the primary metric of a curve still falls (or rises, where higher is better); None with one checkpoint."""
    values = curves.metric(metric).values
    last_two = values[~np.isnan(values).all(1)][-2:]
    if len(last_two) < 2:
        return None
    sign = -1.0 if registry.direction(metric) == "higher" else 1.0
    before, after = sign * last_two[:, np.isfinite(last_two).all(0)]
    if not len(before):
        return None
    least = LEAST_FALL * (1.0 if metric in LOG_SCALE else abs(float(np.median(before))))
    median, low, _ = median_interval((before - after).tolist())
    return bool(median > least and low > 0)
