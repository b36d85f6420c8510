"""The method to trust on a task without reference, by diagnostics, KSD and agreement of the methods with one another.

For two methods let z be the normal scores of the ranks of both their samples together, by coordinate. The gaps of the means
and of log s, s the standard deviations of z, have variances h s^2 / E + h' s'^2 / E' and h / (2 E) + h' / (2 E'): E the sum over
replicates of min(n, bulk ESS, tail ESS) (n without a path), h >= 1 the variance of the replicates' means over the one that E implies.
Methods differ where a gap exceeds its normal limit at 1% over all gaps of all pairs; else they agree, unless a limit exceeds 0.5.

The scale of KSD is the wild bootstrap's median: with signs w of two random halves A and B, mean_ij w_i w_j k_p is a quarter of the
squared Stein distance of A and B, whose mean is that of the squared KSD of as many independent draws of the target. The KSD of a half
is no scale: what is wrong with all the draws is wrong with a half of them.
"""

import math
import os
import shlex
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from parvibench.core import registry
from parvibench.core.errors import ParVIBenchError
from parvibench.core.result import CellRecord, Status
from parvibench.core.task import Task
from parvibench.harness.marks.convergence import in_doubt, transient
from parvibench.harness.store.results import StoredRun, median_of
from parvibench.metrics.common import thin
from parvibench.metrics.evaluate import evaluate_samples
from parvibench.reporting.text.trusting import Answer, Method
from parvibench.targets.generative import DOORS
from parvibench.targets.stan_models import StanTask

from . import floor_comparison as floors

#: Level over all gaps; largest gap that may stay unseen, in standard deviations; share of divergent transitions allowed.
LEVEL, RESOLVED, DIVERGENT = 0.01, 0.5, 0.001
_MOST = 20  # methods compared
#: Method -> other method -> whether they agree; None where samples are too few to tell.
Agreements = Mapping[str, Mapping[str, bool | None]]
#: Final samples (R, n, D), and the effective numbers of these, (R,).
Draws = tuple[NDArray[np.float64], NDArray[np.float64]]


def without_reference(results: StoredRun, task: str, place: str = "") -> Answer | None:
    """The methods of a task that only KSD ranks, and the one to trust; None of other tasks, and without samples.

    No file is imported: the density of a task from ``place`` is known where the process has loaded it, else KSD has no scale.
    """
    try:
        known = registry.load_task(task)
    except ParVIBenchError:
        known = None
    cells = [c for c in results.by_task[task] if c.status is Status.OK and c.kind != "anchor" and "ksd" in c.values]
    if not cells or (floors.floored_of(task) if known is None else known.floored()) is not None:
        return None
    draws = {c.label: found for c in cells[:_MOST] if (found := draws_of(results, c)) is not None}
    compared = [cell for cell in cells if cell.label in draws]
    ran = [c for c in results.by_task[task] if c.kind != "anchor" and c.status in (Status.OK, Status.DIVERGED)]
    lost = [c.label for c in ran if c.label not in draws and (c.status is Status.DIVERGED or c in cells[:_MOST])]
    agree = agreements(draws)
    passing = [cell.label for cell in compared if sound(results, cell)]
    chosen = trusted(compared, agree, passing)
    methods = [_method(c, draws[c.label], agree[c.label], known, passes=c.label in passing) for c in compared]
    if task in registry.tasks():
        place = task
    elif not registry.is_place(place):  # a suite file names its tasks by their own names
        place = registry.place_of(known) if known else ""
        file, colon, rest = place.partition(":")
        place = f"{os.path.relpath(file)}{colon}{rest}" if Path(file).is_absolute() else place or "FILE.py:OBJECT"
    commands = _settling(known, place, chosen)
    return Answer(methods, "" if chosen is None else chosen.label, commands, lost)


def _method(
    cell: CellRecord, draws: Draws, others: Mapping[str, bool | None], task: Task | None, *, passes: bool
) -> Method:
    def measured(metric: str) -> float:
        found = median_of(cell, metric)
        return math.nan if found is None else found

    work = 1000 / cell.score_evaluations if cell.score_evaluations else math.nan
    speed = cell.n_replicates / cell.seconds if cell.seconds else math.nan
    rhat, bulk, tail, diverged = map(measured, ("rhat", "ess_bulk", "ess_tail", "divergences"))
    agrees, differs = ([label for label, same in others.items() if same is wanted] for wanted in (True, False))
    ess = work * bulk, speed * bulk, work * tail, speed * tail
    return Method(cell.label, rhat, *ess, diverged, *_ksd(draws, task), agrees, differs, passes)


def _ksd(draws: Draws, task: Task | None) -> tuple[float, float, float]:
    """KSD of the first replicate, thinned to its effective size, its value by chance, and the p-value."""
    if task is None or task.dim != draws[0].shape[-1]:
        return (math.nan,) * 3
    x = thin(torch.from_numpy(draws[0][0]), max(2, int(draws[1][0])))
    row = evaluate_samples(task, x, metrics=["ksd"])["metrics"][0]
    found = row["judged"], (row["floor"] or {}).get("median"), row["p_value"]
    value, chance, p = (math.nan if v is None else float(v) for v in found)
    return value, chance, p


def _settling(task: Task | None, place: str, chosen: CellRecord | None) -> list[str]:
    """Commands that settle which method is right; calibration where the model draws data."""
    commands = [f"parvibench reference build {shlex.quote(place)}"]
    if isinstance(task, (StanTask, *DOORS)):
        algorithm = shlex.quote(chosen.algorithm if chosen else "nuts")
        simulator = " --simulator SIMULATOR.stan" if isinstance(task, StanTask) else ""
        commands.append(f"parvibench calibrate {shlex.quote(place)} -a {algorithm}{simulator}")
    return commands


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
