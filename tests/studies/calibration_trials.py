"""Simulations of the calibration study: altered and exact draws against references and floors.

Targets are mixtures of two correlated Gaussians in 2, 22 and 100 dimensions, with references and floors made as
those of any task.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from interval_coverage import coverage_table
from numpy.typing import NDArray
from scipy import stats
from torch import Generator, Tensor

from parvibench.core.metric import Context
from parvibench.core.reference import Reference
from parvibench.core.streams import derive_seed
from parvibench.core.task import DENSITY_METRICS
from parvibench.metrics import floors
from parvibench.metrics.common import median_distance, thin
from parvibench.metrics.compute import compute
from parvibench.metrics.equivalent import V_STATISTICS, equivalent_sample_size, v_constants
from parvibench.metrics.floors import ALPHA, floor_tests, judged_metrics, judged_size, p_value, verdict_metrics
from parvibench.metrics.mmd import self_similarity
from parvibench.metrics.own_floors import pooled_floors
from parvibench.tasks.mixtures import Mixture, MixtureTask

#: Rows of the reference, sizes of the sets of its floors, and sets of exact draws that estimate gap and bias.
ROWS, SIZES = 10_000, (2, 5, 10, 25, 50, 100, 200, 500, 1000, 2000, 4000)
POOLS, POOL_SIZE = 50, 10_000
DIMENSIONS = (2, 22, 100)
#: Half the distance between the modes along the first coordinate, in sds of a mode.
SEPARATION = 2.0
#: Correlation of neighbouring coordinates within a mode.
CORRELATION = 0.5
N = 1000
LARGE = 10_000
LARGE_METRICS = ("sliced_w2", "mean_error", "sd_error", "correlation_error", "ks_marginal")
LARGE_SETS, LARGE_TRIALS = 200, 100
FALSE_ALARM_TRIALS = 400
COVERAGE_TRIALS = 600
#: Between the stored sizes: floors of single metrics are interpolated, the verdict is that of 200 evenly thinned draws.
BETWEEN = 250
#: Sets of exact draws behind a pooled equivalent sample size, and how many make one batch.
EQUIVALENT_SETS, BATCH = 4800, 400
EQUIVALENT_METRICS = ("sliced_w2", "mmd2")
#: Sets whose own intervals are looked at.
HELD = 1200
AR_CHAINS, AR_COEFFICIENT = 3000, 0.5
VERDICT = "verdict (Holm)"


@dataclass(frozen=True, kw_only=True)
class PairTask(MixtureTask):
    """Two Gaussians of equal weight, four sds apart, neighbouring coordinates correlated by a half."""

    def exact(self, n: int, generator: Generator) -> Tensor:
        """Independent draws, (n, D) float64."""
        return draw(self.dim, n, generator)


def draw(dim: int, n: int, g: Generator, *, weight: float = 0.5, correlation: float = CORRELATION) -> Tensor:
    """Draws of the target, or with another weight of the first mode or another correlation, (n, D) float64."""
    sign = torch.where(torch.rand(n, generator=g, dtype=torch.float64) < weight, -1.0, 1.0)
    z = torch.randn(n, dim, generator=g, dtype=torch.float64)
    x = z @ torch.linalg.cholesky(_covariance(dim, correlation)).T
    x[:, 0] += SEPARATION * sign
    return x


def _covariance(dim: int, correlation: float = CORRELATION) -> Tensor:
    steps = torch.arange(dim, dtype=torch.float64)
    return correlation ** (steps[:, None] - steps).abs()


def make_task(dim: int) -> PairTask:
    """The study's target in ``dim`` dimensions."""
    means = torch.zeros(2, dim, dtype=torch.float64)
    means[:, 0] = torch.tensor([-SEPARATION, SEPARATION])
    half = torch.full((2,), 0.5, dtype=torch.float64)
    mixture = Mixture(means, half, _covariance(dim).expand(2, -1, -1))
    return PairTask(
        name=f"pair-{dim}d", summary="two correlated Gaussians", dim=dim, tags=frozenset(), citation="",
        metrics=(*DENSITY_METRICS, "modes_found", "mode_weight_tv"), mixture=mixture,
        facts=mixture.facts(with_modes=True),
    )  # fmt: skip


Alter = Callable[[int, int, Generator], Tensor]


def _shifted(dim: int, n: int, g: Generator, *, by: float) -> Tensor:
    return draw(dim, n, g) + by * make_task(dim).facts.sd


def _shrunk(dim: int, n: int, g: Generator, *, to: float) -> Tensor:
    return to * draw(dim, n, g)  # the mean is zero


#: What is wrong with the samples -> (dim, n, generator) -> samples. Shifts and scales are of every coordinate.
ALTERATIONS: dict[str, Alter] = {
    "exact": draw,
    "shift 0.02 sd": partial(_shifted, by=0.02),
    "shift 0.05 sd": partial(_shifted, by=0.05),
    "shift 0.1 sd": partial(_shifted, by=0.1),
    "shift 0.25 sd": partial(_shifted, by=0.25),
    "sd 5% small": partial(_shrunk, to=0.95),
    "sd 10% small": partial(_shrunk, to=0.9),
    "sd 20% small": partial(_shrunk, to=0.8),
    "one mode missing": partial(draw, weight=1.0),
    "weights 60:40": partial(draw, weight=0.6),
    "correlation lost": partial(draw, correlation=0.0),
}


def make_reference(dim: int, folder: Path) -> Path:
    """Reference and floors of the study's target, the file they are written to; an existing one is used again."""
    file = folder / f"pair-{dim}d.pt"
    if file.exists():
        return file
    task = make_task(dim)

    def generator(purpose: str) -> Generator:
        return Generator().manual_seed(derive_seed("calibration", task.name, purpose))

    def sets(n: int, count: int) -> Iterator[Tensor]:
        g = generator(f"floor-{n}")
        return (task.exact(n, g) for _ in range(count))

    rows = task.exact(ROWS, generator("rows")).float().double()
    mean, sd = task.facts.mean.tolist(), task.facts.sd.tolist()
    certificate = {"mean": mean, "sd": sd, "bandwidth": (h := median_distance(rows))}
    found = Reference(rows, True, certificate | {"self_similarity": self_similarity(rows, h)})
    context = Context(task, found)
    at_large = [compute(LARGE_METRICS, x[None], context)[0] for x in sets(LARGE, LARGE_SETS)]
    names = list(dict.fromkeys((*floors.NEEDED, *verdict_metrics(task), *LARGE_METRICS, *EQUIVALENT_METRICS)))
    constants = v_constants(task, found, sets(POOL_SIZE, POOLS), [m for m in V_STATISTICS if m in names])
    found = replace(found, certificate=found.certificate | {"v_statistics": constants})
    tables = simulated(task, found, names, cache(lambda n: generator(f"floor-{n}")))
    for metric in LARGE_METRICS:
        tables[metric][LARGE] = np.sort([float(values[metric][0]) for values in at_large])
    stored = {
        "draws": rows,
        "certificate": found.certificate,
        "floors": {m: {n: torch.from_numpy(v) for n, v in t.items()} for m, t in tables.items()},
    }
    torch.save(stored, file)
    return file


def simulated(
    task: PairTask, reference: Reference, names: Sequence[str], generator: Callable[[int], Generator]
) -> dict[str, dict[int, NDArray[Any]]]:
    """Floors of fresh draws, each size from a generator of its own; of the sliced distance at more sizes."""
    plan = [
        (n, names if n in floors.SIZES else ["sliced_w2"]) for n in SIZES if n in floors.SIZES or "sliced_w2" in names
    ]
    return pooled_floors(task, [(reference, lambda n: task.exact(n, generator(n)))], plan)


@cache
def _load(file: Path) -> Reference:
    stored = torch.load(file, weights_only=True)
    tables = {m: {n: v.numpy() for n, v in t.items()} for m, t in stored["floors"].items()}
    return Reference(stored["draws"], True, stored["certificate"], tables)


def power_of(dim: int, file: Path, alteration: str, n: int, metrics: Sequence[str], trials: int) -> pd.DataFrame:
    """How often an alteration is detected, by each metric and by the combined verdict.

    Returns:
        Columns ``dim``, ``n``, ``alteration``, ``metric``, ``trials``, ``found``.
    """
    torch.set_num_threads(1)
    task, reference = make_task(dim), _load(file)
    context = Context(task, reference, task.target([0], "cpu", torch.float64))
    g = Generator().manual_seed(derive_seed("calibration", task.name, alteration, n, "trials"))
    floors_at_n = {metric: floor for metric in metrics if (floor := reference.floor(metric, n)) is not None}
    judged, judging = judged_size(n, reference), verdict_metrics(task)  # what a user gets by default
    found: Counter[str] = Counter()
    for _ in range(trials):
        x = ALTERATIONS[alteration](dim, n, g)
        values, _absent = compute(metrics, x[None], context)
        p = {m: p_value(m, v.numpy(), floors_at_n[m]) for m, v in values.items() if m in floors_at_n}
        found.update({m: int(v <= ALPHA) for m, v in p.items()})
        if judged is not None:
            if judged < n or not set(judging) <= set(metrics):
                values, _absent = compute(judging, thin(x, judged)[None], context)
            tested = {m: v.numpy() for m, v in values.items() if m in judging}
            found[VERDICT] += floor_tests(tested, judged, reference, task.metrics).verdict == "distinguishable"
    rows = [(dim, n, alteration, metric, trials, count) for metric, count in found.items()]
    return pd.DataFrame(rows, columns=["dim", "n", "alteration", "metric", "trials", "found"])


def equivalent_of(dim: int, file: Path, n: int) -> pd.DataFrame:
    """Pooled equivalent sample sizes of exact draws, and how often the interval of one set holds n.

    The standard error joins the spread over batches and what the reference knows no better: the floor's medians of
    the sliced distance, the bias of V-statistics, both simulated from as many draws as for any task.

    Returns:
        Columns ``target``, ``n``, ``metric``, ``sets``, ``truth``, ``size``, ``error``, ``covered``.
    """
    torch.set_num_threads(1)
    task, reference = make_task(dim), _load(file)
    context = Context(task, reference)
    g = Generator().manual_seed(derive_seed("calibration", task.name, n, "equivalent"))
    batches = []
    for _ in range(EQUIVALENT_SETS // BATCH):
        x = torch.stack([task.exact(n, g) for _ in range(BATCH)])
        batches.append({m: v.numpy() for m, v in compute(EQUIVALENT_METRICS, x, context)[0].items()})
    pooled = {m: np.stack([b[m] for b in batches]) for m in EQUIVALENT_METRICS}  # (batches, sets)
    rows = [(task.name, n, m, *_pooled(m, values, n, n, reference)) for m, values in pooled.items()]
    return pd.DataFrame(rows, columns=EQUIVALENT_COLUMNS)


EQUIVALENT_COLUMNS = ["target", "n", "metric", "sets", "truth", "size", "error", "covered"]


def _pooled(
    metric: str, values: NDArray[Any], n: int, truth: float, reference: Reference
) -> tuple[int, float, float, float, float]:
    size = equivalent_sample_size(metric, values.ravel(), n, reference)[0] or math.nan
    each = [equivalent_sample_size(metric, batch, n, reference)[0] or math.nan for batch in values]
    intervals = [equivalent_sample_size(metric, v, n, reference)[1] for v in values.ravel()[:HELD]]
    held = [i is not None and i[0] <= truth <= i[1] for i in intervals]
    spread = float(np.std(each, ddof=1) / math.sqrt(len(each)))
    one = spread * math.sqrt(values.size)  # of a single set
    known = one / math.sqrt(len(reference.floors[metric][n]))
    if metric in V_STATISTICS:
        known = one * truth / POOL_SIZE / math.sqrt(POOLS)
    return values.size, truth, size, math.hypot(spread, known), float(np.mean(held))


def autoregressive() -> pd.DataFrame:
    """AR(1) Gaussian chains of n = 1000 steps: the Gaussian kernel gives n over the autocorrelation time that it sees.

    ``x_t = a x_{t-1} + sqrt(1 - a^2) e_t``; with ``K(r) = E k(x, y)`` at correlation r the time is
    ``1 + 2 sum_l (K(a^l) - K(0)) / gap``.
    """
    task = make_task(1)
    a, g = AR_COEFFICIENT, Generator().manual_seed(derive_seed("calibration", "autoregressive"))
    rows = torch.randn(ROWS, 1, generator=g, dtype=torch.float64)
    certificate = {"mean": [0.0], "sd": [1.0], "bandwidth": median_distance(rows)}
    reference = Reference(rows, True, certificate)

    names = ("mmd2",)
    pools = (torch.randn(POOL_SIZE, 1, generator=g, dtype=torch.float64) for _ in range(POOLS))
    constants = v_constants(task, reference, pools, names)
    plan = [(n, names) for n in floors.SIZES]
    normal = (reference, lambda n: torch.randn(n, 1, generator=g, dtype=torch.float64))
    tables = pooled_floors(task, [normal], plan)
    reference = Reference(rows, True, certificate | {"v_statistics": constants}, tables)
    e = torch.randn(AR_CHAINS, N, generator=g, dtype=torch.float64)
    x = e.clone()
    for t in range(1, N):
        x[:, t] = a * x[:, t - 1] + math.sqrt(1 - a * a) * e[:, t]
    values = compute(names, x[..., None], Context(task, reference))[0]
    truths = {"mmd2": N / gaussian_kernel_time(a, reference.bandwidth)}
    found = [
        ("AR(1), 1-d", N, m, *_pooled(m, values[m].numpy().reshape(12, -1), N, truths[m], reference)) for m in names
    ]
    return pd.DataFrame(found, columns=EQUIVALENT_COLUMNS)


def gaussian_kernel_time(a: float, h: float) -> float:
    """Autocorrelation time that a Gaussian kernel of bandwidth h sees in a unit AR(1) chain of coefficient a."""

    def mean_kernel(correlation: float) -> float:
        return h / math.sqrt(h**2 + 2 * (1 - correlation))

    apart = mean_kernel(0.0)
    return 1 + 2 * sum(mean_kernel(a**lag) - apart for lag in range(1, 60)) / (1 - apart)


@dataclass(frozen=True)
class Study:
    """The tables of ``power_of`` (``exact`` is the false-alarm rate), ``equivalent_of`` and ``coverage_table``."""

    power: pd.DataFrame
    equivalent: pd.DataFrame
    coverage: pd.DataFrame


def run_study(trials: int, workers: int, cache_folder: Path, dimensions: Sequence[int] = DIMENSIONS) -> Study:
    """Everything; ``trials`` sets for every alteration."""
    cache_folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        coverage: Future[pd.DataFrame] = pool.submit(coverage_table, COVERAGE_TRIALS)
        chains = pool.submit(autoregressive)
        made = [pool.submit(make_reference, dim, cache_folder) for dim in sorted(dimensions, reverse=True)]
        files = dict(zip(sorted(dimensions, reverse=True), [f.result() for f in made], strict=True))
        names = judged_metrics()
        power, equivalent = [], []
        for dim, file in files.items():
            for alteration in ALTERATIONS:
                count = FALSE_ALARM_TRIALS if alteration == "exact" else trials
                power.append(pool.submit(power_of, dim, file, alteration, N, names, count))
            sizes = (100, BETWEEN) if dim == min(files) else (100,)
            power += [pool.submit(power_of, dim, file, "exact", n, names, FALSE_ALARM_TRIALS) for n in sizes]
            power += [
                pool.submit(power_of, dim, file, alteration, LARGE, LARGE_METRICS, LARGE_TRIALS)
                for alteration in ("exact", "shift 0.05 sd")
            ]
            equivalent += [pool.submit(equivalent_of, dim, file, n) for n in (100, N)]
        return Study(_joined(power), _joined([*equivalent, chains]), coverage.result())


def _joined(parts: Sequence[Future[pd.DataFrame]]) -> pd.DataFrame:
    return pd.concat([part.result() for part in parts], ignore_index=True)


def limit(trials: int) -> int:
    """Most false alarms that chance explains at the 99.9% level."""
    return int(stats.binom.ppf(0.999, trials, ALPHA))
