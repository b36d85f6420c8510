"""Kernel Stein discrepancy: needs the target's score and no reference samples.

For a radial kernel ``k = g(q)``, ``q = ||x - y||^2 / c^2``, and s the target's score, the Stein kernel is::

    k_p(x, y) = s(x).s(y) g + (s(x) - s(y)).(x - y) (-2 g') / c^2 + D (-2 g') / c^2 - 4 q g'' / c^2

and the squared discrepancy is ``E k_p(x, x')`` over independent samples, zero for the target (Liu, Lee & Jordan
2016, arXiv:1602.03253; Gorham & Mackey 2017, arXiv:1703.01717). c is the reference's median distance, fixed
per task; sqrt(D) without a reference. The discrepancy is nearly insensitive to the weights of well
separated modes.

Its law under the target can be had without exact draws, by the wild bootstrap (Chwialkowski, Strathmann & Gretton 2016,
arXiv:1602.02964; Liu, Lee & Jordan 2016, Section 4.3): ``mean_ij w_i w_j k_p(x_i, x_j)`` with independent signs w.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from parvibench.core.metric import Context, metric
from parvibench.core.target import Target
from parvibench.kernels.gram import squared_distances

from .needs import given
from .pairwise import row_blocks

#: q -> (g, -2 g', 4 g''), with g(0) = -2 g'(0) = 1.
Kernel = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]
#: Points a side of a tile of pairs, whose dozen arrays stay in a core's cache: three times as fast as rows of 10^4 pairs.
_TILE = 256


def inverse_multiquadric(q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """``g = (1 + q)^(-1/2)``."""
    v = (1 + q).rsqrt()
    cube = v**3
    return v, cube, 3 * cube * v.square()


def gaussian(q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """``g = exp(-q / 2)``."""
    g = (-0.5 * q).exp()
    return g, g, g


@metric("lower", "1", "target", "kernel Stein discrepancy, V-statistic, IMQ kernel")
def ksd(samples: Tensor, context: Context) -> Tensor:
    """Kernel Stein discrepancy: root of the V-statistic, inverse multiquadric kernel.

    ``sqrt(mean_ij k_p(x_i, x_j))``, pairs i = j included, ``g = (1 + q)^(-1/2)``.

    (R,) in units of 1/x; lower is better, of order n^(-1/2) for exact draws. O(n^2 D), in blocks.

    >>> ksd(x, context)
    tensor([73.8027], dtype=torch.float64)
    """
    return _v_statistic(samples, context, inverse_multiquadric)


@metric("lower", "1", "target", "kernel Stein discrepancy, V-statistic, RBF kernel", when="last")
def ksd_rbf(samples: Tensor, context: Context) -> Tensor:
    """Kernel Stein discrepancy: root of the V-statistic, Gaussian kernel ``g = exp(-q / 2)``.

    In high dimension it can fall to zero for samples that do not converge (Gorham & Mackey 2017, Theorem 6).

    (R,) in units of 1/x; lower is better, of order n^(-1/2) for exact draws. O(n^2 D), in blocks.

    >>> ksd_rbf(x, context)
    tensor([70.1780], dtype=torch.float64)
    """
    return _v_statistic(samples, context, gaussian)


@metric("lower", "1", "target", "kernel Stein discrepancy, signed root of the U-statistic, IMQ kernel", when="last")
def ksd_u(samples: Tensor, context: Context) -> Tensor:
    """Kernel Stein discrepancy: signed root of the U-statistic, inverse multiquadric kernel.

    With ``u = mean_{i != j} k_p(x_i, x_j)``, zero in expectation for exact draws, the value is
    ``sign(u) sqrt(|u|)``: it keeps the sign of u, and its size is comparable with ``ksd``.

    (R,) in units of 1/x; zero is best. Below zero it varies about zero for exact draws, or a few points lie far out, whose
    own terms the pairs i != j leave out: a large negative value is no merit, and ``ksd`` shows what is wrong.
    O(n^2 D), in blocks.

    >>> ksd_u(x, context)
    tensor([61.5986], dtype=torch.float64)
    """
    u = _means(samples, context, inverse_multiquadric, own_pairs=False)
    return u.sign() * u.abs().sqrt()


def bootstrapped_ksd(x: Tensor, target: Target, draws: int, generator: Generator) -> tuple[float, NDArray[np.float64]]:
    """``ksd`` of independent samples (n, D), float64, without a reference; and its law by the wild bootstrap.

    The value, and others under the target, sorted, (draws,), by signs of the generator. O(n^2 (D + draws)), in blocks.
    """
    n, dim = x.shape
    s, c = target.score(x[None])[0].to(x), math.sqrt(dim)
    x = x - x.mean(0)
    signs = torch.randint(0, 2, (n, draws), generator=generator).to(x) * 2 - 1
    signs = torch.cat([torch.ones(n, 1, dtype=x.dtype), signs], 1)
    total = x.new_zeros(draws + 1)
    for b in row_blocks(n, n):
        total += (signs[b] * (_stein_kernel((x[b], s[b]), (x, s), c, inverse_multiquadric) @ signs)).sum(0)
    values = (total / n**2).clamp(min=0).sqrt().numpy()
    return float(values[0]), np.sort(values[1:])


def _v_statistic(samples: Tensor, context: Context, kernel: Kernel) -> Tensor:
    return _means(samples, context, kernel).clamp(min=0).sqrt()


def _means(samples: Tensor, context: Context, kernel: Kernel, own_pairs: bool = True) -> Tensor:
    scores, c = _scores(samples, context), _scale(context, samples.shape[2])
    return torch.stack([_stein_mean(x, s, c, kernel, own_pairs) for x, s in zip(samples, scores, strict=True)])


def _scores(samples: Tensor, context: Context) -> Tensor:
    return given(context.target, "the density is not available").score(samples).to(samples)


def _scale(context: Context, dim: int) -> float:
    return math.sqrt(dim) if context.reference is None else context.reference.bandwidth


def _stein_mean(x: Tensor, s: Tensor, c: float, kernel: Kernel, own_pairs: bool) -> Tensor:
    """Mean of the Stein kernel over the pairs of (n, D) points with scores (n, D), with or without i = j; it is symmetric."""
    x = x - x.median(0).values  # Gram products lose digits far from the origin
    tiles = list(zip(torch.split(x, _TILE), torch.split(s, _TILE), strict=True))
    total = x.new_zeros(())
    for i, one in enumerate(tiles):
        square = _stein_kernel(one, one, c, kernel)
        total = total + (square if own_pairs else square.fill_diagonal_(0)).sum()
        for other in tiles[i + 1 :]:
            total = total + 2 * _stein_kernel(one, other, c, kernel).sum()
    return total / (len(x) * (len(x) - (not own_pairs)))


def _stein_kernel(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor], c: float, kernel: Kernel) -> Tensor:
    """The Stein kernel between (n, D) and (m, D) points, centred, each with their scores: (n, m)."""
    (x, s), (y, t) = one, other
    q = squared_distances(x[None], y[None])[0] / c**2
    g, slope, curvature = kernel(q)
    # (s_i - t_j).(x_i - y_j) without an (n, m, D) array
    cross = (s * x).sum(1)[:, None] + (t * y).sum(1) - s @ y.T - x @ t.T
    return g * (s @ t.T) + (slope * (cross + x.shape[1]) - q * curvature) / c**2
