"""Kernel Stein discrepancy descent (KSDD).

Korba, Aubin-Frankowski, Majewski & Ablin (2021), arXiv:2105.09994. Particles descend, by Adam, the squared
kernel Stein discrepancy to the target, a V-statistic of the Stein kernel

    E = 1/n^2 sum_ij u(x_i, x_j)
    u = k s_i . s_j - 2 k' (x_i - x_j) . (s_i - s_j) - 2 d k' - 4 k'' D,   k = k(D), D = ||x_i - x_j||^2

with ' the derivative in D. Per particle, at fixed scores and through them,

    dE/ds_i = 2/n^2 sum_j [ k s_j - 2 k' (x_i - x_j) ]
    dE/dx_i = 4/n^2 sum_j [ c (x_i - x_j) - k' (s_i - s_j) ] + (grad s)(x_i) dE/ds_i
    c = k' s_i . s_j - 2 k'' (x_i - x_j) . (s_i - s_j) - 2 (d + 2) k'' - 4 k''' D

The Hessian-vector product is the only use of autograd and is booked as one evaluation per row.

Traps: on symmetric multimodal targets the flow stops at saddle points and between modes. MIED's program confines
particles to (-1, 1)^D by default, by x = tanh(y) with Adam on y (``confined``). The KSDD of KSIVI's
Table 3 comes out so and not without, though 15% of its target lie outside. Departures: the original runs L-BFGS,
which has no step size; Adam and bandwidth 1 are how MIED's authors run it in comparisons.
"""

from typing import ClassVar, Literal

import torch
from pydantic import Field, PositiveFloat
from torch import Tensor

from parvibench.core.algorithm import Algorithm, Example, Presets, Problem, SteppedSettings, Streams, code, ours
from parvibench.kernels.gram import median_bandwidth, self_distances
from parvibench.nn.optim import AdamState, adam

#: Of single precision's numbers below 1 the largest but one: its atanh is finite.
_EDGE = 1 - 2.0**-23


class Settings(SteppedSettings):
    """Settings of KSDD."""

    step_size: float = Field(0.01, gt=0, description="Adam's learning rate, in x; MIED's code")
    kernel: Literal["gaussian", "imq"] = Field("gaussian", description="k: exp(-D / h) (code) or (1 + D / h)^(-1/2)")
    bandwidth: Literal["median"] | PositiveFloat = Field(
        2.0, description="h in x^2; code: 2, 0.2 on ICA; median: median(D) / log(n + 1), held fixed"
    )
    confined: bool = Field(
        False,
        description="x = tanh(y), Adam on y, started uniform in the inner half of (-1, 1)^D; MIED's code by default",
    )


class KSDD(Algorithm[Settings, AdamState]):
    """Kernel Stein discrepancy descent."""

    name = "ksdd"
    version = 2
    kind = "particles"
    needs = frozenset({"hvp", "score"})
    rescales = True
    differentiates = True
    citation = "Korba, Aubin-Frankowski, Majewski & Ablin (2021), arXiv:2105.09994"
    example = Example(scores=2, settings={"step_size": 0.05}, both_modes=False)
    # as MIED's authors and then KSIVI's ran it
    presets: ClassVar[Presets] = {
        "student-t": code(step_size=0.01, bandwidth=2.0, iterations=2000, particles=1000, samples=1000),
        # KSDD's own example, there by L-BFGS
        "ica-synthetic": ours(step_size=0.01) | code(bandwidth=0.2),
    }

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> AdamState:
        """Particles at the task's initial points, or in the box."""
        if settings.confined:
            return AdamState.start(streams.uniform("init", (problem.particles, problem.dim)) - 0.5)
        return AdamState.start(problem.init())

    @torch.no_grad()
    def step(self, problem: Problem, settings: Settings, state: AdamState, streams: Streams) -> AdamState:
        """One step of Adam on E."""
        with torch.enable_grad():
            leaf = state.x.detach().requires_grad_()
            score = problem.score(leaf)
        _, grad_x, grad_s = discrepancy(settings, state.x, score.detach())
        grad = grad_x.add_(torch.autograd.grad(score, leaf, grad_outputs=grad_s)[0])
        if not settings.confined:
            return AdamState(*adam(state.x, grad, state.moments, settings.step_size))
        y, slope = state.x.clamp(-_EDGE, _EDGE).atanh(), 1 - state.x.square()
        y, moments = adam(y, slope * grad, state.moments, settings.step_size)
        return AdamState(y.tanh(), moments)


def discrepancy(settings: Settings, x: Tensor, s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """E, (R,), and its gradients in x at fixed scores and in the scores, (R, n, d) each; x and s are (R, n, d)."""
    n, dim = x.shape[1:]
    x = x - x.mean(1, keepdim=True)  # the differences below cancel far from the origin
    d = self_distances(x)
    h = median_bandwidth(d) if settings.bandwidth == "median" else x.new_full((1, 1, 1), float(settings.bandwidth))
    k, k1, k2, k3 = _derivatives(settings.kernel, d, h)
    g = s @ s.mT
    # (x_i - x_j) . (s_i - s_j)
    own, cross = (x * s).sum(-1, keepdim=True), x @ s.mT
    b = own + own.mT - cross - cross.mT

    energy = (k * g - 2 * k1 * (b + dim) - 4 * k2 * d).mean((1, 2))
    c = k1 * g - 2 * k2 * (b + dim + 2) - 4 * k3 * d
    scale = 2 / n**2
    grad_s = scale * (k @ s - 2 * _differences(k1, x))
    grad_x = 2 * scale * (_differences(c, x) - _differences(k1, s))
    return energy, grad_x, grad_s


def _differences(weights: Tensor, x: Tensor) -> Tensor:
    """sum_j w_ij (x_i - x_j): (R, n, n), (R, n, d) -> (R, n, d)."""
    return weights.sum(-1, keepdim=True) * x - weights @ x


def _derivatives(kernel: str, d: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """k and its first three derivatives in D."""
    if kernel == "gaussian":
        k = (d / -h).exp_()
        return k, k / -h, k / h**2, k / -(h**3)
    base = d / h + 1
    k = base.rsqrt()
    k1 = k / base / (-2 * h)
    k2 = k1 / base * (-1.5 / h)
    return k, k1, k2, k2 / base * (-2.5 / h)
