"""Metrics beside the same numbers as one writes them from the formula, by broadcasting or with another library."""

import math
from collections.abc import Callable
from functools import cache

import ot
import torch
from scipy import stats
from torch import Tensor

from parvibench.core.metric import Context
from parvibench.core.reference import Reference
from parvibench.core.registry import load_metric, load_task
from parvibench.metrics.pairwise import median_distance
from parvibench.metrics.transport import projections

DIM, SAMPLES, ROWS = 8, 1000, 2000


@cache
def context(rows: int = ROWS) -> Context:
    """The mixture of two Gaussians in 8 dimensions with ``rows`` exact draws as reference."""
    task = load_task(f"lapd-mixture-{DIM}")
    draws = task.exact(rows, torch.Generator().manual_seed(1))
    reference = Reference(draws, True, {"bandwidth": median_distance(draws)})
    return Context(task, reference, task.target((0,), "cpu", torch.float64))


@cache
def samples(n: int = SAMPLES) -> Tensor:
    """Draws that are not quite right, (1, n, D)."""
    return context().task.exact(n, torch.Generator().manual_seed(2)).mul(1.1).unsqueeze(0)


def ours(metric: str) -> Tensor:
    """The metric of the one replicate, (1,)."""
    return load_metric(metric).compute(samples(), context())


def twin(metric: str) -> float:
    """Its twin on the same samples."""
    return TWINS[metric](samples()[0], context())


def _squares(x: Tensor, y: Tensor) -> Tensor:
    return ((x[:, None, :] - y[None, :, :]) ** 2).sum(-1)


def mmd2(x: Tensor, context: Context) -> float:
    y, h = context.reference.draws, context.reference.bandwidth
    kxx, kxy, kyy = (torch.exp(-_squares(a, b) / (2 * h**2)) for a, b in ((x, x), (x, y), (y, y)))
    return float(kxx.mean() - 2 * kxy.mean() + kyy.mean())


def energy_distance(x: Tensor, context: Context) -> float:
    y = context.reference_rows(0)
    return float(2 * torch.cdist(x, y).mean() - torch.cdist(x, x).mean() - torch.cdist(y, y).mean())


def ksd(x: Tensor, context: Context) -> float:
    c2 = context.reference.bandwidth**2
    s = context.target.score(x[None])[0]
    apart = x[:, None, :] - x[None, :, :]
    base = 1 + (apart**2).sum(-1) / c2
    cross = ((s[:, None, :] - s[None, :, :]) * apart).sum(-1)
    stein = (s @ s.T) * base**-0.5 + (cross + x.shape[1]) * base**-1.5 / c2
    stein = stein - 3 * (apart**2).sum(-1) * base**-2.5 / c2**2
    return math.sqrt(float(stein.mean()))


def sliced_w2(x: Tensor, context: Context) -> float:
    directions = projections(x.shape[1]).numpy()
    if directions.shape[0] != x.shape[1]:
        directions = directions.T
    y = context.reference_rows(0)
    return float(ot.sliced_wasserstein_distance(x.numpy(), y.numpy(), projections=directions))


def kl_knn(x: Tensor, context: Context, k: int = 3) -> float:
    y = context.reference_rows(0)
    own = torch.cdist(x, x).topk(k + 1, largest=False).values[:, -1]
    other = torch.cdist(x, y).topk(k, largest=False).values[:, -1]
    return float(x.shape[1] * torch.log(other / own).mean() + math.log(len(y) / (len(x) - 1)))


def ks_marginal(x: Tensor, context: Context) -> float:
    a, b = x.numpy(), context.reference_rows(0).numpy()
    pairs = zip(a.T, b.T, strict=True)
    return float(max(stats.ks_2samp(*pair, method="asymp").statistic for pair in pairs))


TWINS: dict[str, Callable[[Tensor, Context], float]] = {
    "mmd2": mmd2, "ksd": ksd, "energy_distance": energy_distance, "sliced_w2": sliced_w2, "kl_knn": kl_knn,
    "ks_marginal": ks_marginal,
}  # fmt: skip
