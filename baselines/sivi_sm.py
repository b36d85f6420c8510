"""Semi-implicit variational inference by score matching (SIVI-SM).

Yu & Zhang (2023), arXiv:2308.10014, Algorithm 1. Samples x = mu(z) + sigma xi as in SIVI. The Fisher
divergence between q and the target, written with an adversary f so that only the conditional's score
-xi / sigma is needed, gives

    min over (mu, sigma)  max over f   E [ 2 f(x) . ( s(x) + xi / sigma ) - ||f(x)||^2 ],  f* = s - grad log q

Each iteration: one step of Adam on the sampler at fixed f, through x, xi / sigma, f and s; then some on f
with fresh samples. The sampler's gradients at a batch of M, F = s + xi / sigma:

    dL/dF = 2 f / M,   dL/dx = (grad s) dL/dF + J_f^T 2 (F - f) / M

Trap: s must be differentiated in the sampler's step (the authors' scores are analytic, autograd runs through
them): M scores and M Hessian-vector products, and M scores per step of f. Departures: f is fitted at samples
without a graph to the sampler, where the code builds one and discards it; the code's variant for regression
f + psi s with decaying psi is left out; the task's initial distribution is not used.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from parvibench.core.algorithm import Algorithm, Presets, code, paper
from parvibench.core.streams import Streams
from parvibench.core.task import Problem
from parvibench.nn.mlp import MLP
from parvibench.nn.optim import Moments, adam, step_decay
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
    """Settings of SIVI-SM."""

    critic_hidden: int = Field(128, ge=1, description="units in each of f's two hidden layers; code's toys")
    critic_learning_rate: float = Field(2e-3, gt=0, description="of f's Adam; code's toys")
    critic_steps: int = Field(1, ge=1, description="steps on f per iteration; code")


class State(NamedTuple):
    """The sampler's state, then f's parameters and Adam's memory."""

    parameters: Tensor  # (R, P + D): the network's, then log sigma^2
    average: Tensor  # (R, P + D); (R, 0) without ema
    first: Tensor  # (R, P + D)
    second: Tensor  # (R, P + D)
    t: int
    horizon: int
    critic: Tensor  # (R, Q)
    critic_first: Tensor  # (R, Q)
    critic_second: Tensor  # (R, Q)

    @property
    def sampler(self) -> SamplerState:
        """What all semi-implicit samplers hold."""
        return SamplerState(*self[:6])


_TOY = {
    "step_size": code(1e-3),
    "critic_learning_rate": code(2e-3),
    "critic_hidden": code(128),
    "critic_steps": code(1),
    "batch": code(500),
    "log_var_init": code(0.0),
    "log_var_floor": code(-6.0),
    "decay": code(0.9),
    "decay_every": code(1000),
}


class SIVISM(Algorithm[Settings, State]):
    """Semi-implicit variational inference by score matching."""

    name = "sivi-sm"
    version = 2
    kind = "generator"
    needs = frozenset({"hvp", "score"})
    settings_type = Settings
    differentiates = True
    citation = "Yu & Zhang (2023), arXiv:2308.10014"
    summary = "semi-implicit variational inference by score matching"
    presets: ClassVar[Presets] = {
        "banana": _TOY,
        "multimodal": _TOY,
        "x-shaped": _TOY,
        # without the code's psi s in f
        "blr-waveform": {
            "critic_learning_rate": paper(2e-3), "critic_hidden": code(256), "batch": paper(100),
            "latent_dim": paper(10), "hidden": paper(100),
        },
        "diffusion": {
            "step_size": code(1e-4), "critic_learning_rate": code(1e-4), "critic_hidden": code(512),
            "batch": paper(128), "latent_dim": paper(100), "hidden": paper(128),
        },
        # without the code's pre-training
        "bnn-boston": {
            "step_size": code(2e-5), "critic_learning_rate": code(0.01), "critic_hidden": code(16),
            "batch": paper(100), "hidden": paper(10), "decay": code(0.9), "decay_every": code(1000),
        },
    }  # fmt: skip

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> State:
        """Random networks, constant sigma."""
        net = _critic(problem, settings)
        critic = net.initialise(streams.uniform("init", (net.n_parameters,), index=1))
        moments = Moments.start(critic)
        sampler = start(settings, problem.dim, streams, horizon)
        return State(*sampler, critic, moments.first, moments.second)

    @torch.no_grad()
    def step(self, problem: Problem, settings: Settings, state: State, streams: Streams) -> State:
        """One step on the sampler, then those on f."""
        temper = settings.temper(state.sampler)
        z, xi = _noise(problem, settings, streams, 0)
        grad = sampler_gradient(problem, settings, state.parameters, state.critic, z, xi, temper)
        sampler = descend(settings, state.sampler, grad, problem.dim)

        net, critic = _critic(problem, settings), state.critic
        moments = Moments(state.critic_first, state.critic_second, state.t * settings.critic_steps)
        rate = settings.critic_learning_rate * step_decay(state.t, settings.decay, settings.decay_every)
        for j in range(settings.critic_steps):
            made = draw(settings, sampler.parameters, *_noise(problem, settings, streams, j + 1))
            values = net.forward(critic, made.x)
            residual = values[-1] - temper * problem.score(made.x) - made.noise
            grad = net.backward(critic, values, residual.mul_(2 / settings.batch))
            critic, moments = adam(critic, grad, moments, rate, (settings.beta1, settings.beta2))
        return State(*sampler, critic, moments.first, moments.second)

    @torch.no_grad()
    def output(self, problem: Problem, settings: Settings, state: State, n: int, streams: Streams) -> Tensor:
        """Fresh draws from the sampler."""
        return sample(settings, state.sampler, problem.dim, n, streams)


def sampler_gradient(
    problem: Problem,
    settings: Settings,
    parameters: Tensor,
    critic: Tensor,
    z: Tensor,
    xi: Tensor,
    temper: float,
) -> Tensor:
    """Gradient of the objective in the sampler's parameters, f held fixed: (R, P + D).

    Args:
        problem: the target.
        settings: shapes of the networks.
        parameters: the sampler's, (R, P + D).
        critic: f's, (R, Q).
        z: (R, M, latent_dim).
        xi: (R, M, D).
        temper: factor of the target's score.
    """
    made = draw(settings, parameters, z, xi)
    with torch.enable_grad():
        leaf = made.x.detach().requires_grad_()
        score = temper * problem.score(leaf)
    net = _critic(problem, settings)
    values = net.forward(critic, made.x)
    f, scale = values[-1], 2 / xi.shape[1]
    grad_f = scale * f
    grad_x = net.backward_input(critic, values, scale * (score.detach() + made.noise - f))
    grad_x += torch.autograd.grad(score, leaf, grad_outputs=grad_f)[0]
    return pull_back(settings, parameters, made, grad_x, grad_noise=grad_f)


def _critic(problem: Problem, settings: Settings) -> MLP:
    return MLP((problem.dim, settings.critic_hidden, settings.critic_hidden, problem.dim), "relu")


def _noise(problem: Problem, settings: Settings, streams: Streams, index: int) -> tuple[Tensor, Tensor]:
    """Fresh z and xi of a batch."""
    z = streams.normal("algorithm", (settings.batch, settings.latent_dim), index)
    return z, streams.normal("noise", (settings.batch, problem.dim), index)
