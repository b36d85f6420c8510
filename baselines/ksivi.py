"""Kernel semi-implicit variational inference (KSIVI), vanilla estimator.

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
target and is booked as one evaluation per row: an iteration costs 2 M scores and 2 M products.

Traps: the paper calls the bandwidth "median of spacing", the / log(n + 1) is in the code only; the code's
Gaussian kernel lets gradients flow through the median, its other kernels do not. Departures: bandwidth
always held fixed; log sigma^2 is cut at its floor after each step; the task's initial distribution is not
used (nor is it in the paper): the sampler starts from the network's random weights.
"""

from __future__ import annotations

from typing import ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from parvibench.core.algorithm import Algorithm, Presets, SteppedSettings, code, paper
from parvibench.core.streams import Streams
from parvibench.core.task import Problem
from parvibench.kernels import radial, riesz
from parvibench.nn.mlp import MLP, Activation
from parvibench.nn.optim import Moments, adam, step_decay


class Settings(SteppedSettings):
    """Settings of KSIVI."""

    step_size: float = Field(1e-3, gt=0, description="Adam's learning rate, in parameters; paper's toys")
    kernel: Literal["gaussian", "imq", "riesz"] = Field("gaussian", description="k; paper's toys gaussian")
    batch: int = Field(100, ge=2, description="M, samples in each of two batches; paper 100, 500 on the toys")
    latent_dim: int = Field(3, ge=1, description="dimension of z; paper's toys")
    hidden: int = Field(50, ge=1, description="units in each of two hidden layers; paper's toys")
    activation: Activation = Field("relu", description="of the hidden layers; code")
    log_var_init: float = Field(0.0, description="initial log sigma^2; code: 0 toys, -8 to 0 elsewhere")
    log_var_floor: float = Field(-20.0, description="least log sigma^2; code")
    beta1: float = Field(0.9, ge=0, lt=1, description="Adam's decay of the gradient; code")
    beta2: float = Field(0.99, ge=0, lt=1, description="Adam's decay of its square; code's toys, else 0.999")
    decay: float = Field(0.9, gt=0, le=1, description="learning rate factor every decay_every steps; code")
    decay_every: int = Field(1000, ge=1, description="iterations between decays; code: 1000 toys, else 3000")
    clip_norm: float | None = Field(None, gt=0, description="largest gradient norm; code: 1 on networks")
    annealing: float = Field(
        0.0,
        ge=0,
        description="0: off; else s is multiplied by min(1, 0.1 + annealing t / horizon); code: 2 on multimodal",
    )


class State(NamedTuple):
    """The sampler's parameters and Adam's memory."""

    parameters: Tensor  # (R, P + D): the network's, then log sigma^2
    first: Tensor  # (R, P + D)
    second: Tensor  # (R, P + D)
    t: int
    horizon: int


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


class KSIVI(Algorithm[Settings, State]):
    """Kernel semi-implicit variational inference."""

    name = "ksivi"
    kind = "generator"
    needs = frozenset({"hvp", "score"})
    settings_type = Settings
    differentiates = True
    citation = "Cheng, Yu, Xie, Zhang & Zhang (2024), arXiv:2405.18997"
    summary = "kernel semi-implicit variational inference"
    presets: ClassVar[Presets] = {
        "banana": {**_TOY, "log_var_init": paper(-1.386)},
        "multimodal": {**_TOY, "log_var_init": paper(0.0), "annealing": code(2.0)},
        "x-shaped": {**_TOY, "log_var_init": paper(0.0)},
        # without the term of log p that the code adds in the first 20,000 iterations
        "student-t": {**_TOY, "kernel": paper("riesz"), "log_var_init": code(0.0), "annealing": code(2.0)},
        "blr-waveform": {
            "step_size": paper(1e-3), "batch": paper(100), "latent_dim": paper(10), "hidden": paper(100),
            "log_var_init": paper(-5.0), "beta2": code(0.999), "decay": code(0.9), "decay_every": code(3000),
        },
        "diffusion": {
            "step_size": paper(2e-4), "batch": paper(128), "latent_dim": paper(100), "hidden": paper(128),
            "log_var_init": paper(-2.0), "log_var_floor": code(-12.0), "beta2": code(0.999),
            "decay": code(0.9), "decay_every": code(10000),
        },
        # without the code's term of log p, pre-training on held-out rows and averaging of parameters
        "bnn-boston": {
            "step_size": code(1e-3), "batch": paper(100), "latent_dim": paper(3), "hidden": paper(10),
            "log_var_init": code(-8.0), "beta2": code(0.999), "decay": code(0.9),
            "decay_every": code(3000), "clip_norm": code(1.0),
        },
    }  # fmt: skip

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> State:
        """Random network, constant sigma."""
        net = _network(problem, settings)
        network = net.initialise(streams.uniform("init", (net.n_parameters,)))
        log_var = network.new_full((len(network), problem.dim), settings.log_var_init)
        parameters = torch.cat((network, log_var), 1)
        moments = Moments.start(parameters)
        return State(parameters, moments.first, moments.second, 0, horizon)

    @torch.no_grad()
    def step(self, problem: Problem, settings: Settings, state: State, streams: Streams) -> State:
        """One step of Adam on the kernel Stein discrepancy of two fresh batches."""
        z = streams.normal("algorithm", (2 * settings.batch, settings.latent_dim))
        xi = streams.normal("noise", (2 * settings.batch, problem.dim))
        grad = discrepancy_gradient(problem, settings, state.parameters, z, xi, _temper(settings, state))
        if settings.clip_norm is not None:
            norm = grad.norm(dim=1, keepdim=True)
            grad = grad * (settings.clip_norm / norm).clamp(max=1)
        rate = settings.step_size * step_decay(state.t, settings.decay, settings.decay_every)
        moments = Moments(state.first, state.second, state.t)
        betas = (settings.beta1, settings.beta2)
        parameters, moments = adam(state.parameters, grad, moments, rate, betas)
        parameters[:, -problem.dim :].clamp_(min=settings.log_var_floor)
        return State(parameters, *moments, state.horizon)

    @torch.no_grad()
    def output(self, problem: Problem, settings: Settings, state: State, n: int, streams: Streams) -> Tensor:
        """Fresh draws from the sampler."""
        z = streams.normal("output", (n, settings.latent_dim))
        xi = streams.normal("output", (n, problem.dim), index=1)
        network, log_var = _split(problem, state.parameters)
        return _network(problem, settings).forward(network, z)[-1] + (0.5 * log_var).exp() * xi

    def effective_step(self, settings: Settings) -> float | None:
        """None: the samples have no velocity of their own."""
        return None


def discrepancy_gradient(
    problem: Problem, settings: Settings, parameters: Tensor, z: Tensor, xi: Tensor, temper: float
) -> Tensor:
    """Gradient of L in the parameters, (R, P + D).

    Args:
        problem: the target.
        settings: kernel and network.
        parameters: (R, P + D).
        z: (R, 2 M, latent_dim), the second batch after the first.
        xi: (R, 2 M, D).
        temper: factor of the target's score.
    """
    net = _network(problem, settings)
    network, log_var = _split(problem, parameters)
    sigma = (0.5 * log_var).exp()
    values = net.forward(network, z)
    x = values[-1] + sigma * xi
    with torch.enable_grad():
        x.requires_grad_()
        score = temper * problem.score(x)
    noise = xi / sigma
    grad_f, grad_x = _kernel_gradients(settings, x.detach(), score.detach() + noise)
    grad_x = grad_x + torch.autograd.grad(score, x, grad_outputs=grad_f)[0]
    # d sigma / d log sigma^2 = sigma / 2
    grad_log_var = 0.5 * (grad_x * (sigma * xi) - grad_f * noise).sum(1)
    return torch.cat((net.backward(network, values, grad_x), grad_log_var), 1)


def _kernel_gradients(settings: Settings, x: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of L in F, and in x through the kernel alone: both (R, 2 M, D)."""
    x1, x2 = x.chunk(2, 1)
    f1, f2 = f.chunk(2, 1)
    scale = 1 / x1.shape[1] ** 2
    weights = scale * (f1 @ f2.mT)
    if settings.kernel == "riesz":
        k, grad_x1, grad_x2 = riesz.pull_back(x1, x2, weights)
    else:
        profile = radial.gaussian if settings.kernel == "gaussian" else radial.inverse_multiquadric
        k, grad_x1, grad_x2 = radial.pull_back(profile, x1, x2, weights)
    return scale * torch.cat((k @ f2, k.mT @ f1), 1), torch.cat((grad_x1, grad_x2), 1)


def _network(problem: Problem, settings: Settings) -> MLP:
    return MLP((settings.latent_dim, settings.hidden, settings.hidden, problem.dim), settings.activation)


def _split(problem: Problem, parameters: Tensor) -> tuple[Tensor, Tensor]:
    """The network's parameters (R, P) and log sigma^2 (R, 1, D)."""
    return parameters[:, : -problem.dim], parameters[:, None, -problem.dim :]


def _temper(settings: Settings, state: State) -> float:
    if settings.annealing == 0:
        return 1.0
    return min(1.0, 0.1 + settings.annealing * state.t / state.horizon)
