"""Stein variational gradient descent (SVGD).

Liu & Wang (2016), arXiv:1608.04471, Algorithm 1. Every particle moves by

    x_i <- x_i + eps phi(x_i)
    phi(x) = 1/n sum_j [ k(x_j, x) s(x_j) + grad_{x_j} k(x_j, x) ],   k(x, y) = exp(-||x - y||^2 / h)

with s = grad log pi and h = median(||x_i - x_j||^2) / log(n + 1) over all n^2 pairs, as in the authors' code,
recomputed at every step and fixed in the gradient. Since grad_{x_j} k(x_j, x_i) = (2/h) (x_i - x_j) k_ij, one matrix
product does both sums:

    n phi = K (s - 2x/h) + (2/h) diag(K 1) x

With ``kernel="imq"``, k(x, y) = (1 + ||x - y||^2 / h)^(-1/2) of the same h (Gorham & Mackey 2017, arXiv:1703.01717),

    n phi = K s + 2 (K' x - diag(K' 1) x),   K' = dk/d||x - y||^2

whose repulsion falls like 1/r^2 where the Gaussian kernel's vanishes. Bandwidth by the heat equation and accelerated
steps: Liu et al. (2019), ``_particle_flows``.

Departs from the code: the plain rule is the default; ``rule="adagrad"`` divides phi by its running root mean square as
the authors do. Trap: the rule then caps every coordinate's move at about eps per step, whatever the scale of the
target. ``rule="adam"`` does alike and keeps moving: its steps do not shrink with phi. The SIFG paper's scripts take the
plain rule; the one on ICA would stop where ||phi||_F < 1e-5, this does not.
"""

import math
from typing import ClassVar, Literal

import torch
from pydantic import Field, PositiveFloat
from torch import Tensor

from parvibench.core.algorithm import Example, Presets, code, paper
from parvibench.kernels.gram import exp_, median, median_bandwidth, sampled_pairs, self_distances, squared_distances
from parvibench.kernels.heat import heat_bandwidth
from parvibench.kernels.radial import inverse_multiquadric

from ._particle_flows import FlowSettings, ParticleFlow
from ._sifg_runs import POINTS, TOY_POINTS, on_networks

#: Particles beyond which the n x n kernel of 1 GB is not stored as a whole, where no exact median asks for it.
_IN_BLOCKS, _ENTRIES = 2**14, 2**24


class Settings(FlowSettings):
    """Settings of SVGD."""

    step_size: float = Field(0.1, gt=0, description="eps, in x^2 (plain) or x (adagrad); SIFG paper's toys, code 1e-3")
    bandwidth: Literal["median", "median-sampled", "he"] | PositiveFloat = Field(
        "median",
        description="h in x^2 of k: median heuristic (code), the same over 10,000 fixed pairs (ours; much cheaper for "
        "n >> 100, changes h by about 1%), heat equation (Liu et al. 2019), or a number",
    )
    kernel: Literal["gaussian", "imq"] = Field(
        "gaussian", description="k: exp(-||x-y||^2 / h) (paper) or (1 + ||x-y||^2 / h)^(-1/2)"
    )


_PLAIN = code(rule="plain") | paper(bandwidth="median")


class SVGD(ParticleFlow[Settings]):
    """Stein variational gradient descent."""

    name = "svgd"
    version = 2
    citation = "Liu & Wang (2016), arXiv:1608.04471"
    example = Example(settings={"step_size": 0.5})
    presets: ClassVar[Presets] = {
        # as baseline of the SIFG paper; on gmm5-2d its script starts from another run's last samples
        "gmm5-2d": TOY_POINTS | code(iterations=2300) | _PLAIN | code(step_size=0.1),
        # the text says median heuristic, the code fixes h; 0.01, 0.03 and 0.1 were tried
        "ica-meg-tempered": POINTS | _PLAIN | code(step_size=0.03, bandwidth=0.2),
        **on_networks(POINTS | _PLAIN | code(step_size=5e-4)),  # 1e-4 as a comment
        "bnn-liu-wang": code(step_size=1e-3, rule="adagrad"),
    }

    def velocity(self, settings: Settings, x: Tensor, score: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """Phi."""
        if settings.bandwidth != "he":
            return stein_direction(x, score, settings.bandwidth, settings.kernel), h
        d = self_distances(x)
        h = heat_bandwidth(x, d, h if h.dim() == 3 else median_bandwidth(d))
        return stein_direction(x, score, h, settings.kernel), h


def stein_direction(x: Tensor, score: Tensor, bandwidth: str | float | Tensor, kernel: str = "gaussian") -> Tensor:
    """Phi at every particle, (R, n, d); bandwidth: as in the settings, or (R, 1, 1)."""
    n = x.shape[1]
    if n > _IN_BLOCKS and kernel == "gaussian" and (bandwidth == "median-sampled" or not isinstance(bandwidth, str)):
        return _in_blocks(x, score, bandwidth)
    d = self_distances(x)
    if isinstance(bandwidth, str):
        index = sampled_pairs(n, x.device) if bandwidth == "median-sampled" else None
        h = median_bandwidth(d, index)
    else:
        h = bandwidth if isinstance(bandwidth, Tensor) else x.new_full((1, 1, 1), bandwidth)
    if kernel == "imq":
        k, slope = inverse_multiquadric(d, h)
        centred = x - x.mean(1, keepdim=True)
        repel = 2 * (slope @ centred - slope.sum(-1, keepdim=True) * centred)
        return (k @ score + repel).div_(n)
    k = exp_(d.div_(-h))
    spread = (2 / h) * x
    # K is symmetric. The last row of ones gives its sums; few rows times K is much faster than K times few columns.
    sums = (torch.cat((score - spread, torch.ones_like(x[..., :1])), -1).mT @ k).mT
    return torch.addcmul(sums[..., :-1], sums[..., -1:], spread).div_(n)


def _in_blocks(x: Tensor, score: Tensor, bandwidth: str | float | Tensor) -> Tensor:
    """The same for very many particles: memory grows like n instead of n^2."""
    n = x.shape[1]
    if isinstance(bandwidth, str):
        pairs = sampled_pairs(n, x.device)
        assert pairs is not None
        apart = x[:, pairs.div(n, rounding_mode="floor")] - x[:, pairs % n]
        bandwidth = (median(apart.square().sum(-1)) / math.log(n + 1)).view(-1, 1, 1)
    spread = (2 / bandwidth) * x
    left = torch.cat((score - spread, torch.ones_like(x[..., :1])), -1).mT
    sums = [
        (left @ exp_(squared_distances(x, part).div_(-bandwidth))).mT
        for part in torch.split(x, max(1, _ENTRIES // n), 1)
    ]
    total = torch.cat(sums, 1)
    return torch.addcmul(total[..., :-1], total[..., -1:], spread).div_(n)
