"""Metrics against their formulas, written out in NumPy for small sets: all pairs, assignments, all lags."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import optimize, spatial, stats

from parvibench.checks.summaries import generator_of
from parvibench.core.metric import Context
from parvibench.core.reference import Reference
from parvibench.core.registry import load_metric, load_task
from parvibench.metrics.equivalent import V_STATISTICS, equivalent_sample_size

Array = NDArray[np.float64]
#: (samples (n, D), reference rows (m, D), bandwidth) -> value.
Formula = Callable[[Array, Array, float], float]

#: Rows of either side; they differ, and neither divides the other.
_N, _M = 40, 60
#: Relative to the value, or absolute below one. Distances are computed in single precision: differences of their means
#: were off by up to 2.4e-6 in 1,200 draws of sets.
_AGREEMENT = 1e-5


def _distances(x: Array, y: Array) -> Array:
    return np.asarray(np.sqrt(((x[:, None] - y[None]) ** 2).sum(-1)))


def _discrepancy(k: Callable[[Array], Array], x: Array, y: Array, *, unbiased: bool) -> float:
    """Means over all pairs, or over those of different rows where both are of one set."""
    own, other = k(_distances(x, x)), k(_distances(y, y))
    if unbiased:
        own, other = (m[~np.eye(len(m), dtype=bool)] for m in (own, other))
    return float(own.mean() - 2 * k(_distances(x, y)).mean() + other.mean())


def _gaussian(h: float) -> Callable[[Array], Array]:
    return lambda d: np.exp(-(d**2) / (2 * h**2))


def _transport(x: Array, y: Array, power: float) -> float:
    """Least mean cost between n and m points: rows repeated until both sides have as many, then the best assignment."""
    common = math.lcm(len(x), len(y))
    cost = _distances(np.repeat(x, common // len(x), 0), np.repeat(y, common // len(y), 0)) ** power
    return float(cost[optimize.linear_sum_assignment(cost)].mean())


def _window(a: float) -> Formula:
    """Squared transport between the rows whose coordinates all lie within a."""
    return lambda x, y, h: _transport(x[(np.abs(x) < a).all(1)], y[(np.abs(y) < a).all(1)], 2)


def _neighbours(x: Array, y: Array, h: float) -> float:
    own = np.sort(_distances(x, x), 1)[:, 3]
    other = np.sort(_distances(x, y), 1)[:, 2]
    return float(x.shape[1] * np.log(other / own).mean() + math.log(len(y) / (len(x) - 1)))


def _correlations(x: Array, y: Array, h: float) -> float:
    pairs = np.triu_indices(x.shape[1], 1)
    errors = np.asarray(np.corrcoef(x.T) - np.corrcoef(y.T))
    return float(np.sqrt((errors[pairs] ** 2).mean()))


_OF_REFERENCE: Mapping[str, Formula] = {
    "mmd2": lambda x, y, h: _discrepancy(_gaussian(h), x, y, unbiased=False),
    "mmd2_u": lambda x, y, h: _discrepancy(_gaussian(h), x, y, unbiased=True),
    "mmd2_u_fixed": lambda x, y, h: _discrepancy(lambda d: np.exp(-(d**2) / 10), x, y, unbiased=True),
    "energy_distance": lambda x, y, h: -_discrepancy(lambda d: d, x, y, unbiased=False),
    "w1": lambda x, y, h: _transport(x, y, 1),
    "w2": lambda x, y, h: math.sqrt(_transport(x, y, 2)),
    "kl_knn": _neighbours,
    "correlation_error": _correlations,
    "ks_marginal": lambda x, y, h: max(float(stats.ks_2samp(a, b).statistic) for a, b in zip(x.T, y.T, strict=True)),
    "w1_marginal": lambda x, y, h: float(sum(stats.wasserstein_distance(a, b) for a, b in zip(x.T, y.T, strict=True))),
    "mean_error": lambda x, y, h: float(np.sqrt((((x.mean(0) - y.mean(0)) / y.std(0, ddof=1)) ** 2).mean())),
    "sd_error": lambda x, y, h: float(np.sqrt(((x.std(0, ddof=1) / y.std(0, ddof=1) - 1) ** 2).mean())),
}
_WINDOWS: Mapping[str, Formula] = {f"w2sq_window_{a}": _window(a) for a in (5, 8, 10)}


def _stein(profile: Callable[[Array], tuple[Array, Array, Array]]) -> Callable[[Array, Array, float], Array]:
    """Stein's kernel of all pairs from the radial profile g(q) and its first two derivatives, q = ||x - y||^2 / c^2."""

    def kernel(x: Array, s: Array, c: float) -> Array:
        apart = x[:, None] - x[None]
        q = (apart**2).sum(-1) / c**2
        g, g1, g2 = profile(q)
        slope = ((s[:, None] - s[None]) * apart).sum(-1)
        return np.asarray(s @ s.T * g - 2 * g1 / c**2 * slope - (2 * x.shape[1] * g1 + 4 * q * g2) / c**2)

    return kernel


_IMQ = _stein(lambda q: ((1 + q) ** -0.5, -0.5 * (1 + q) ** -1.5, 0.75 * (1 + q) ** -2.5))

_OF_SCORE: Mapping[str, Callable[[Array, Array, float], float]] = {
    "ksd": lambda x, s, c: math.sqrt(_IMQ(x, s, c).mean())
}


def _autocorrelation(path: Array) -> float:
    """Of (T, N, D), lag one, about the mean of all."""
    x = path - path.mean((0, 1))
    return float(((x[1:] * x[:-1]).mean((0, 1)) / (x**2).mean((0, 1))).mean())


def _ess_autocorrelation(path: Array) -> float:
    """Geyer's initial positive sequence, lag by lag."""
    times, chains, dim = path.shape
    x, found = path - path.mean((0, 1)), []
    for d in range(dim):
        covariance = [(x[t:, :, d] * x[: times - t, :, d]).sum(0).mean() / times for t in range(times)]
        total = 0.0
        for k in range(times // 2):
            pair = (covariance[2 * k] + covariance[2 * k + 1]) / covariance[0]
            if pair <= 0:
                break
            total += pair
        found.append(chains * times / max(2 * total - 1, 1 / (times * chains)))
    return float(np.mean(found))


def _nested_rhat(path: Array) -> float:
    """Of many short chains, (T, N, D): sqrt(1 + B / W) of their later halves' normal scores, in five groups by start."""
    times, chains, dim = path.shape
    late, worst = path[times // 2 :], 0.0
    for d in range(dim):
        order = np.argsort(path[0, :, d])
        x = late[:, order, d]
        for values in (x, np.abs(x - np.median(x))):
            flat = values.ravel()
            place = np.array([(flat < v).sum() + ((flat == v).sum() + 1) / 2 for v in flat]).reshape(x.shape)
            z = stats.norm.ppf((place - 3 / 8) / (flat.size + 1 / 4))
            size = chains // 5
            groups = [z[:, k * size : (k + 1) * size] for k in range(5)]
            between = np.var([g.mean() for g in groups], ddof=1)
            within = [g.mean(0).var(ddof=1) + np.mean([column.var(ddof=1) for column in g.T]) for g in groups]
            worst = max(worst, float(np.sqrt(1 + between / np.mean(within))))
    return worst


_OF_PATH: Mapping[str, Callable[[Array], float]] = {
    "autocorrelation": _autocorrelation,
    "ess_autocorrelation": _ess_autocorrelation,
}


SETS = {
    "sets": lambda seed, r: _of_sets(3, seed, r),
    "windows": lambda seed, r: _of_windows(seed, r),
    "modes": lambda seed, r: _of_modes(seed, r),
    "paths": lambda seed, r: _of_paths(seed, r),
    "sizes": lambda seed, r: _of_sizes(seed, r),
}
NAMES = {
    "sets": (*_OF_REFERENCE, *_OF_SCORE),
    "windows": tuple(_WINDOWS),
    "modes": ("mode_weight_tv", "modes_found"),
    "paths": (*_OF_PATH, "nested rhat"),
    "sizes": tuple(f"equivalent n by {metric}" for metric in (*V_STATISTICS, "sliced_w2")),
}
#: Random sets, each with sets of its own.
_REPLICATES = 20


@cache
def _both(of: str) -> list[dict[str, tuple[float, float]]]:
    """The metric's values and those of the formulas."""
    with torch.inference_mode():
        return [SETS[of](1, r) for r in range(_REPLICATES)]


@pytest.mark.parametrize(("of", "name"), [(of, name) for of, names in NAMES.items() for name in names])
def test_formula(of: str, name: str) -> None:
    """A metric of random sets is what its formula gives."""
    for ours, plain in (found[name] for found in _both(of)):
        assert abs(ours - plain) < _AGREEMENT * max(1.0, abs(plain))


def _drawn(*address: object, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.randn(shape, generator=generator_of("formulas", *address), dtype=torch.float64)


def _value(name: str, samples: torch.Tensor, context: Context) -> float:
    return float(load_metric(name).compute(samples[None], context))


def _of_sets(dim: int, seed: int, r: int) -> dict[str, tuple[float, float]]:
    """Correlated normal sets, one shifted, of different sizes."""
    mixing = _drawn("mixing", seed, r, shape=(dim, dim))
    y = _drawn("rows", seed, r, shape=(_M, dim)) @ mixing
    x = 1.3 * _drawn("samples", seed, r, shape=(_N, dim)) @ mixing + 0.5
    h = float(np.median(spatial.distance.pdist(y.numpy())))
    # Of a task whose moments are not known in closed form: those of the rows count.
    context = Context(load_task("ica-synthetic"), Reference(y, True, {"bandwidth": h}))
    found = {
        name: (_value(name, x, context), formula(x.numpy(), y.numpy(), h)) for name, formula in _OF_REFERENCE.items()
    }
    task = load_task("funnel-10d")
    target = task.target([0], "cpu", torch.float64)
    wide, rows = (_drawn(what, seed, r, shape=(_N, target.dim)) for what in ("wide", "others"))
    c = float(np.median(spatial.distance.pdist(rows.numpy())))
    scored = Context(task, Reference(rows, True, {"bandwidth": c}), target)
    score = target.score(wide[None])[0].numpy()
    return found | {n: (_value(n, wide, scored), formula(wide.numpy(), score, c)) for n, formula in _OF_SCORE.items()}


def _of_windows(seed: int, r: int) -> dict[str, tuple[float, float]]:
    """Sets that reach beyond the windows, with some points in each."""
    x, y = (5 * _drawn("window", name, seed, r, shape=(n, 2)) for name, n in (("samples", 12), ("rows", 18)))
    x[:3], y[:3] = 0.1 * x[:3], 0.1 * y[:3]
    context = Context(load_task("student-t"), Reference(y, True, {"bandwidth": 1.0}))
    return {n: (_value(n, x, context), formula(x.numpy(), y.numpy(), 1.0)) for n, formula in _WINDOWS.items()}


def _of_modes(seed: int, r: int) -> dict[str, tuple[float, float]]:
    """Points about some of five modes, and far from all."""
    task = load_task("gmm5-2d")
    modes = task.facts.modes
    assert modes is not None
    means, sds, weights = (t.double().numpy() for t in (modes.means, modes.sds, modes.weights))
    x = 2.5 * _drawn("modes", seed, r, shape=(_N, 2)).numpy() + means[0] / 2
    density = np.stack(
        [w * stats.multivariate_normal(m, s**2).pdf(x) for m, s, w in zip(means, sds, weights, strict=True)]
    )
    shares = (density / density.sum(0)).mean(1)
    nearest = density.argmax(0)
    inside = np.linalg.norm(x - means[nearest], axis=1) <= 3 * sds[nearest]
    held = [(inside & (nearest == k)).mean() >= 0.02 for k in range(len(means))]
    truth = {"mode_weight_tv": float(np.abs(shares - weights).sum() / 2), "modes_found": float(sum(held))}
    return {name: (_value(name, torch.from_numpy(x), Context(task)), value) for name, value in truth.items()}


def _of_sizes(seed: int, r: int) -> dict[str, tuple[float, float]]:
    """n draws that are as far as n exact ones are on average are worth n."""
    reference = load_task("banana").floored()
    assert reference is not None
    n = int(torch.randint(100, 2000, (), generator=generator_of("formulas", "size", seed, r)))
    at = {name: c["gap"] / n + c["bias"] for name, c in reference.certificate["v_statistics"].items()}
    found = {
        f"equivalent n by {name}": (equivalent_sample_size(name, value, n, reference)[0], float(n))
        for name, value in at.items()
    }
    table = reference.floors["sliced_w2"]
    known = sorted(table)[n % (len(table) - 1)]
    typical = float(np.median(table[known]))
    found["equivalent n by sliced_w2"] = (
        equivalent_sample_size("sliced_w2", typical, known, reference)[0],
        float(known),
    )
    return {name: (math.nan if ours is None else ours, plain) for name, (ours, plain) in found.items()}


def _of_paths(seed: int, r: int) -> dict[str, tuple[float, float]]:
    """Chains of slow and fast coordinates, and of one that swings."""
    path = _drawn("path", seed, r, shape=(30, 4, 3))
    for before, at in pairwise(path):
        at += torch.tensor([0.9, 0.3, -0.6], dtype=torch.float64) * before
    context = Context(load_task("banana"), path=path[None])
    found = {name: (_value(name, path[0], context), formula(path.numpy())) for name, formula in _OF_PATH.items()}
    short = _drawn("short", seed, r, shape=(12, 35, 2)).cumsum(0)
    nested = _value("rhat", short[0], Context(load_task("banana"), path=short[None]))
    return found | {"nested rhat": (nested, _nested_rhat(short.numpy()))}
