"""Wasserstein distances to the reference: sliced, exact by linear programming, and inside a window.

All but the windowed ones are distances (the root is taken), in the units of x, lower is better, and positive
even for exact draws: compare them with their floor.
"""

import importlib.util
import sys
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from parvibench.core.metric import Context, Metric, NotApplicable, metric
from parvibench.core.streams import derive_seed

from .common import against_reference, thin

PROJECTIONS = 500
#: Points on either side of the linear programme: 0.1 s at 1,000, 0.4 s at 2,000, 16 s and 4.8 GB at 10,000.
MOST_POINTS = 1000


@metric("lower", "x", "reference", "sliced 2-Wasserstein distance, 500 projections", floor_ratio=True)
def sliced_w2(samples: Tensor, context: Context) -> Tensor:
    """Sliced 2-Wasserstein distance to the reference.

    ``SW2^2 = mean_l W2^2(theta_l . samples, theta_l . reference)`` over 500 fixed directions theta_l,
    the same for every algorithm and replicate of a dimension (Bonneel et al. 2015, JMIV 51:22-45).
    In one dimension W2 compares quantile functions, exactly also for unequal sizes: with m_i the mean
    of the reference's quantile function over ((i-1)/n, i/n],
    ``W2^2 = mean_i (x_(i) - m_i)^2 + remainder``, where m and the remainder depend on n alone.

    (R,) distances in units of x. O(500 n log n) a replicate.

    >>> sliced_w2(x, context)
    tensor([0.9851], dtype=torch.float64)
    """
    return against_reference(samples, context, sliced_distance)


def sliced_distance(x: Tensor, rows: Tensor) -> Tensor:
    """Sliced 2-Wasserstein distance between (n, D) and (m, D)."""
    means, remainder = _quantile_means(rows, len(x))
    return ((_sorted_projections(x) - means).square().mean(1) + remainder).mean().sqrt()


@metric("lower", "x", "reference", "exact 2-Wasserstein distance", when="last", floor_ratio=True)
def w2(samples: Tensor, context: Context) -> Tensor:
    """2-Wasserstein distance to the reference with Euclidean ground cost, by POT's network simplex.

    At most 1,000 evenly spaced rows of either side are used, the same reference rows for all; the floor is simulated
    with the same number.

    (R,) distances in units of x. About 0.1 s a replicate at n = 1000.

    >>> w2(x, context)
    tensor([1.4142], dtype=torch.float64)
    """
    return against_reference(samples, context, partial(_transport_cost, ground="sqeuclidean")).sqrt()


@metric("lower", "x", "reference", "exact 1-Wasserstein distance", when="last", floor_ratio=True)
def w1(samples: Tensor, context: Context) -> Tensor:
    """1-Wasserstein distance to the reference with Euclidean ground cost: solver, rows, unit and cost as of ``w2``, (R,).

    >>> w1(x, context)
    tensor([1.4142], dtype=torch.float64)
    """
    return against_reference(samples, context, partial(_transport_cost, ground="euclidean"))


def w2sq_window(samples: Tensor, context: Context, half_width: float) -> Tensor:
    """Squared 2-Wasserstein distance between the parts of samples and reference inside a window.

    Only rows with every ``|x_d| < half_width`` enter, both parts with total weight one, and no root is
    taken: Table 3 of Cheng et al. (2024), arXiv:2405.18997, for targets without second moments. Where their
    code draws the reference afresh, ten rows for every sample used, ours are the shipped rows, at most 1,000.
    The mass outside the window has no effect.

    (R,) in units of x^2; lower is better; +inf when no sample is inside. About 0.1 s a replicate. Needs a task tagged
    ``heavy-tailed``; ``half_width`` is a, > 0, in units of x.

    >>> w2sq_window(x, Context(load_task("student-t"), context.reference), half_width=1.5)
    tensor([1.], dtype=torch.float64)
    """
    if "heavy-tailed" not in context.task.tags:
        raise NotApplicable("the window is for heavy-tailed targets; see w2")

    def inside(x: Tensor, rows: Tensor) -> float:
        kept, targets = (side[side.abs().amax(1) < half_width] for side in (x, rows))
        if not len(targets):
            raise NotApplicable(f"no reference row lies within {half_width:g} of the origin")
        return _transport_cost(kept, targets, "sqeuclidean") if len(kept) else np.inf

    return against_reference(samples, context, inside)


def _windowed(half_width: float) -> Metric:
    compute, window = partial(w2sq_window, half_width=half_width), f"(-{half_width:g}, {half_width:g})^D"
    summary = f"squared 2-Wasserstein distance inside {window}"
    return Metric(f"w2sq_window_{half_width:g}", compute, "lower", "x^2", "reference", summary, when="last")


w2sq_window_5 = _windowed(5.0)
w2sq_window_8 = _windowed(8.0)
w2sq_window_10 = _windowed(10.0)


@lru_cache(maxsize=8)
def projections(dim: int) -> Tensor:
    """The 500 fixed unit directions of a dimension, (500, D) float64, independent and uniform."""
    generator = Generator().manual_seed(derive_seed("metric", "projections", dim))
    directions = torch.randn(PROJECTIONS, dim, generator=generator, dtype=torch.float64)
    return directions / directions.norm(dim=1, keepdim=True)


def _transport_cost(x: Tensor, rows: Tensor, ground: str) -> float:
    """Least mean cost of moving (n, D) onto (m, D), both thinned; +inf where it overflows."""
    solver, utils = pot()
    centre = rows.mean(0)  # squared distances lose digits far from the origin
    points, targets = ((thin(side, MOST_POINTS) - centre).numpy() for side in (x, rows))
    cost = utils.dist(points, targets, metric=ground)
    if not np.isfinite(cost).all():
        return np.inf
    return max(0.0, float(solver.emd2([], [], cost, numItermax=10_000_000)))


@cache
def pot() -> tuple[Any, Any]:
    """POT's modules ``ot.lp`` and ``ot.utils``: the package as a whole imports scikit-learn and networkx, for 1.5 s.

    Its place is entered into ``sys.modules`` without its code, and taken out again, so that a later ``import ot`` works.
    """
    loaded, spec = "ot" in sys.modules, importlib.util.find_spec("ot")
    if not loaded and spec is not None:
        sys.modules["ot"] = importlib.util.module_from_spec(spec)
    try:
        return importlib.import_module("ot.lp"), importlib.import_module("ot.utils")
    finally:
        if not loaded:
            sys.modules.pop("ot", None)


def _sorted_projections(x: Tensor) -> Tensor:
    """(n, D) -> (500, n), each row ascending. NumPy's vectorised sort is ten times as fast as torch's."""
    projected = projections(x.shape[1]) @ x.T
    projected.numpy().sort(axis=1)  # in place
    return projected


_reference_projections = lru_cache(maxsize=2)(_sorted_projections)  # the cache's key is the tensor's identity


@lru_cache(maxsize=4)
def _quantile_means(rows: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Means of the projected quantile functions over n equal slices, (500, n), and what they miss, (500,).

    The integral of a step quantile function is the linear interpolation of the cumulative sum; where n divides the
    rows, slices are whole.
    """
    y = _reference_projections(rows)
    m = y.shape[1]
    if m % n == 0:
        slices = y.view(len(y), n, m // n)
        means = slices.mean(2)
        return means, (slices - means.unsqueeze(2)).square_().mean((1, 2))
    centre = y.mean(1, keepdim=True)
    y = y - centre  # the remainder is a difference of squares
    total = torch.nn.functional.pad(y.cumsum(1), (1, 0))
    ends = torch.arange(n + 1) * m
    whole, part = ends // n, ends % n / n
    integral = total[:, whole] + part * y[:, whole.clamp(max=m - 1)]
    means = integral.diff(dim=1) * (n / m)
    remainder = y.square().mean(1) - means.square().mean(1)
    return means + centre, remainder.clamp_(min=0)
