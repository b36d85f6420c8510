"""Kernel semi-implicit variational inference (KSIVI): vanilla estimator and U-statistic.

Cheng, Yu, Xie, Zhang & Zhang (2024), arXiv:2405.18997, Algorithm 1. Samples x = mu(z) + sigma xi, z and xi
standard normal, mu a network, sigma one positive number per coordinate. With the residual

    F(x, xi) = s(x) + xi / sigma                    target score minus conditional score

two independent batches of M give the kernel Stein discrepancy between the sampler and the target,

    L = 1/M^2 sum_ij K_ij G_ij,   K_ij = k(x_i, x'_j),   G = F F'^T,

which Adam descends in (network, log sigma^2). Its gradient, the bandwidth of k held fixed:

    dL/dF  = K F' / M^2                             (and K^T F for the second batch)
    dL/dx  = (grad s)(x) dL/dF + 1/M^2 sum_j G_ij grad_{x_i} k(x_i, x'_j)
    dL/dsigma = sum_i [ xi_i dL/dx_i - xi_i / sigma^2 dL/dF_i ]

and dL/dx goes back through the network. The Hessian-vector product is the only use of autograd on the
target and is booked as one evaluation per row: an iteration costs 2 M scores and 2 M products. The
U-statistic (``ksivi-ustat``) takes the pairs of a single batch, L = 1/(M (M-1)) sum_{i != j} K_ij G_ij, at
half the cost. Both are unbiased when h is a number; the median makes h depend on the batch.

Options: ``regularisation`` w adds -w mean log p(x_i) to the loss (Benard et al. 2023, arXiv:2301.13528), its
gradient from the scores at hand; annealing of the score; samples from averaged parameters.

Traps: the paper calls the bandwidth "median of spacing", the / log(n + 1) is in the code only; the code's
Gaussian kernel lets gradients flow through the median, its other kernels do not; its U-statistic drops the
diagonal but divides by M^2. Departures: bandwidth always held fixed; log sigma^2 is cut at its floor after
each step; the task's initial distribution is not used (nor is it in the paper): the sampler starts from the
network's random weights.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field, PositiveFloat
from torch import Tensor

from parvibench.core.algorithm import Algorithm, Presets, code, paper
from parvibench.core.streams import Streams
from parvibench.core.task import Problem
from parvibench.kernels import laplace, radial, riesz
from parvibench.nn.semi_implicit import (
    SamplerState,
    SemiImplicitSettings,
    descend,
    draw,
    pull_back,
    sample,
    start,
)


class Settings(SemiImplicitSettings):
    """Settings of KSIVI."""

    kernel: Literal["gaussian", "imq", "riesz", "laplace"] = Field(
        "gaussian", description="k; paper's toys gaussian"
    )
    bandwidth: Literal["median"] | PositiveFloat = Field(
        "median",
        description="h, in x^2 (gaussian, imq) or x (riesz, laplace): median over pairs / log(n + 1) (code) "
        "or a number",
    )
    regularisation: float = Field(
        0.0,
        ge=0,
        description="w, weight of -log p in the loss (Benard et al. 2023); code: 0.05 student-t, 1 networks",
    )
    regularisation_until: float = Field(
        1.0, ge=0, le=1, description="share of the horizon after which w is 0; code: 0.4 student-t"
    )


_TOY = {
    "step_size": paper(1e-3),
    "kernel": paper("gaussian"),
    "batch": code(500),
    "latent_dim": paper(3),
    "hidden": paper(50),
    "beta2": code(0.99),
    "decay": code(0.9),
    "decay_every": code(1000),
}


class KSIVI(Algorithm[Settings, SamplerState]):
    """Kernel semi-implicit variational inference."""

    name = "ksivi"
    version = 2
    kind = "generator"
    needs = frozenset({"hvp", "score"})
    settings_type = Settings
    differentiates = True
    citation = "Cheng, Yu, Xie, Zhang & Zhang (2024), arXiv:2405.18997"
    summary = "kernel semi-implicit variational inference"
    batches: ClassVar[int] = 2
    presets: ClassVar[Presets] = {
        "banana": {**_TOY, "log_var_init": paper(-1.386)},
        "multimodal": {**_TOY, "log_var_init": paper(0.0), "annealing": code(2.0)},
        "x-shaped": {**_TOY, "log_var_init": paper(0.0)},
        # the term of log p acts in 20,000 of 50,000 iterations
        "student-t": {
            **_TOY, "kernel": paper("riesz"), "log_var_init": code(0.0), "annealing": code(2.0),
            "regularisation": code(0.05), "regularisation_until": code(0.4),
        },
        "blr-waveform": {
            "step_size": paper(1e-3), "batch": paper(100), "latent_dim": paper(10), "hidden": paper(100),
            "log_var_init": paper(-5.0), "beta2": code(0.999), "decay": code(0.9), "decay_every": code(3000),
        },
        "diffusion": {
            "step_size": paper(2e-4), "batch": paper(128), "latent_dim": paper(100), "hidden": paper(128),
            "log_var_init": paper(-2.0), "log_var_floor": code(-12.0), "beta2": code(0.99),
            "decay": code(0.9), "decay_every": code(10000),
        },
        # without the code's pre-training on held-out rows
        "bnn-boston": {
            "step_size": code(1e-3), "batch": paper(100), "latent_dim": paper(3), "hidden": paper(10),
            "log_var_init": code(-8.0), "beta2": code(0.999), "decay": code(0.9),
            "decay_every": code(3000), "clip_norm": code(1.0), "regularisation": code(1.0),
            "ema": code(0.999),
        },
    }  # fmt: skip

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> SamplerState:
        """Random network, constant sigma."""
        return start(settings, problem.dim, streams, horizon)

    @torch.no_grad()
    def step(
        self, problem: Problem, settings: Settings, state: SamplerState, streams: Streams
    ) -> SamplerState:
        """One step of Adam on the kernel Stein discrepancy of fresh samples."""
        samples = self.batches * settings.batch
        z = streams.normal("algorithm", (samples, settings.latent_dim))
        xi = streams.normal("noise", (samples, problem.dim))
        w = settings.regularisation
        if state.t >= settings.regularisation_until * state.horizon:
            w = 0.0
        temper = settings.temper(state)
        grad = discrepancy_gradient(problem, settings, state.parameters, z, xi, temper, w, self.batches)
        return descend(settings, state, grad, problem.dim)

    @torch.no_grad()
    def output(
        self, problem: Problem, settings: Settings, state: SamplerState, n: int, streams: Streams
    ) -> Tensor:
        """Fresh draws from the sampler."""
        return sample(settings, state, problem.dim, n, streams)


class KSIVIUStat(KSIVI):
    """KSIVI with the U-statistic of one batch: half the scores of the vanilla estimator."""

    name = "ksivi-ustat"
    batches = 1
    summary = "kernel semi-implicit variational inference, U-statistic"


def discrepancy_gradient(
    problem: Problem,
    settings: Settings,
    parameters: Tensor,
    z: Tensor,
    xi: Tensor,
    temper: float,
    regularisation: float = 0.0,
    batches: int = 2,
) -> Tensor:
    """Gradient of L - w mean log p in the parameters, (R, P + D).

    Args:
        problem: the target.
        settings: kernel and network.
        parameters: (R, P + D).
        z: (R, batches * M, latent_dim), the second batch after the first.
        xi: (R, batches * M, D).
        temper: factor of the target's score, in w too.
        regularisation: w.
        batches: 2 for the vanilla estimator, 1 for the U-statistic.
    """
    made = draw(settings, parameters, z, xi)
    x = made.x
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        score = temper * problem.score(leaf)
    s = score.detach()
    estimate = _vanilla if batches == 2 else _u_statistic
    grad_f, grad_x = estimate(settings, x, s + made.noise)
    grad_x = grad_x + torch.autograd.grad(score, leaf, grad_outputs=grad_f)[0]
    if regularisation:
        grad_x.sub_(s, alpha=regularisation / x.shape[1])
    return pull_back(settings, parameters, made, grad_x, grad_noise=grad_f)


def _vanilla(settings: Settings, x: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of L in F, and in x through the kernel alone: both (R, 2 M, D)."""
    x1, x2 = x.chunk(2, 1)
    f1, f2 = f.chunk(2, 1)
    scale = 1 / x1.shape[1] ** 2
    k, grad_x1, grad_x2 = _kernel(settings, x1, x2, scale * (f1 @ f2.mT))
    return scale * torch.cat((k @ f2, k.mT @ f1), 1), torch.cat((grad_x1, grad_x2), 1)


def _u_statistic(settings: Settings, x: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
    """The same for the pairs i != j of one batch: both (R, M, D)."""
    m = x.shape[1]
    scale = 1 / (m * (m - 1))
    weights = scale * (f @ f.mT)
    weights.diagonal(dim1=-2, dim2=-1).zero_()
    k, grad_first, grad_second = _kernel(settings, x, x, weights)
    k.diagonal(dim1=-2, dim2=-1).zero_()
    return 2 * scale * (k @ f), grad_first + grad_second


def _kernel(settings: Settings, x: Tensor, y: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Kernel matrix and gradients of its weighted sum."""
    h = None if settings.bandwidth == "median" else float(settings.bandwidth)
    match settings.kernel:
        case "gaussian":
            return radial.pull_back(radial.gaussian, x, y, weights, h)
        case "imq":
            return radial.pull_back(radial.inverse_multiquadric, x, y, weights, h)
        case "riesz":
            return riesz.pull_back(x, y, weights, h)
        case "laplace":
            return laplace.pull_back(x, y, weights, h)
