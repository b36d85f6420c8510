"""Squared distances by the Gram identity, bandwidths from their median, and mixtures centred at particles.

Everything is batched over the replicate axis, bandwidths included, and no array has more than one
dimension per point: ||x_i - y_j||^2 = ||x_i||^2 + ||y_j||^2 - 2 x_i . y_j.
"""

import math
from functools import lru_cache

import numpy as np
import torch
from torch import Generator, Tensor

#: Entries of a row from which NumPy selects its lower median on a CPU: several times as fast as PyTorch.
_SELECTED_FROM = 2**17


def squared_distances(x: Tensor, y: Tensor) -> Tensor:
    """Squared Euclidean distances, (R, n, d), (R, m, d) -> (R, n, m), never negative."""
    # The identity cancels when points lie far from the origin: measure from the centre of y.
    centre = y.mean(-2, keepdim=True)
    x, y = x - centre, y - centre
    x2, y2 = (x * x).sum(-1, keepdim=True), (y * y).sum(-1).unsqueeze(-2)
    return torch.baddbmm(y2, x, y.mT, alpha=-2).add_(x2).clamp_(min=0)


def self_distances(x: Tensor) -> Tensor:
    """Squared distances between points of one set, (R, n, d) -> (R, n, n), diagonal exactly zero."""
    d = squared_distances(x, x)
    d.diagonal(dim1=-2, dim2=-1).zero_()
    return d


def mixture_score(x: Tensor, z: Tensor, sigma: float | Tensor) -> Tensor:
    """Score at x (R, m, D) of (1/n) sum_j N(z_j, sigma^2 I), z (R, n, D): (R, m, D); sigma is a number or (R, 1, 1)."""
    p = torch.softmax(squared_distances(x, z) / (-2 * sigma**2), -1)
    return (p @ z - x) / sigma**2


def log_sum_exp(terms: Tensor, dim: int) -> Tensor:
    """``terms.logsumexp(dim)``, to the bit, with softmax as its derivative.

    PyTorch's derivative, exp(terms - result), sums to one only as far as the result has digits: of terms of -4.5e6 in
    single precision, which are half a unit apart, to 1.21.
    """
    top = terms.detach().amax(dim, keepdim=True)
    top = torch.where(top.isfinite(), top, 0.0)
    return top.squeeze(dim) + (terms - top).exp().sum(dim).log()


def exp_(exponent: Tensor) -> Tensor:
    """Kernel values exp(exponent), in place, at least 1e-34 in single precision: denormal numbers are slow."""
    return exponent.clamp_(min=0.9 * math.log(torch.finfo(exponent.dtype).tiny)).exp_()


def median(values: Tensor) -> Tensor:
    """Median of each row, (R, m) -> (R,): the mean of the two middle values, not, as PyTorch's, the lower."""
    m = values.shape[1]
    low, high = (m - 1) // 2, m // 2
    if values.device.type == "cpu":
        # NumPy's selection is vectorised: about six times as fast as torch's on a million entries.
        middle = np.partition(values.detach().numpy(), high, axis=1)[:, : high + 1]
        upper = torch.from_numpy(middle[:, high])
        lower = upper if low == high else torch.from_numpy(middle[:, :high].max(1))
    else:  # one block of threads would select from a row, all of them sort it
        ordered = values.sort(1).values
        lower, upper = ordered[:, low], ordered[:, high]
    return (lower + upper) / 2


def median_bandwidth(d: Tensor, index: Tensor | None = None) -> Tensor:
    """Bandwidth h of k = exp(-d / h) by the median heuristic, h = median(d) / log(n + 1): (R, n, m) -> (R, 1, 1).

    Liu & Wang (2016) in the form of their code: over all entries, zeros of the diagonal included, or those at the
    positions ``index`` of the flattened matrix.
    """
    values = d.flatten(1)
    if index is not None:
        values = values[:, index]
    return (median(values) / math.log(d.shape[1] + 1)).view(-1, 1, 1)


def lower_median(values: Tensor) -> tuple[Tensor, Tensor]:
    """The lower of the two middle values of each row (R, m) and its index, (R,) each, as ``torch.median``."""
    low = (values.shape[1] - 1) // 2
    if values.device.type == "cpu" and values.shape[1] < _SELECTED_FROM:
        found = values.median(1)
        return found.values, found.indices
    if values.device.type == "cpu":
        middle = torch.from_numpy(np.partition(values.detach().numpy(), low, axis=1)[:, low].copy())
        return middle, (values == middle[:, None]).to(torch.uint8).argmax(1)
    ordered = values.sort(1)
    return ordered.values[:, low], ordered.indices[:, low]


def lower_median_bandwidth(spread: Tensor) -> Tensor:
    """The bandwidth of KSIVI's kernels, (R, 1, 1): the lower median of (R, n, m) entries over log(n + 1)."""
    return (lower_median(spread.flatten(1))[0] / math.log(spread.shape[1] + 1)).view(-1, 1, 1)


@lru_cache(maxsize=32)
def sampled_pairs(n: int, device: torch.device, count: int = 10_000) -> Tensor | None:
    """Fixed random positions in a flattened n x n matrix, by n alone, or None (all of them) where it is no larger.

    A median over 10,000 pairs has a relative error of about 1% and costs next to nothing.
    """
    if n * n <= count:
        return None
    with torch.inference_mode(False):
        return torch.randint(n * n, (count,), generator=Generator().manual_seed(n)).to(device)
