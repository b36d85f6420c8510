"""L2 functional gradient flow with a neural network (L2-GF, neural variational gradient descent).

di Langosco, Fortuin & Strathmann (2021), arXiv:2107.10731, Algorithm 1. The velocity of steepest descent
of KL(mu || pi) in L2(mu) is

    s - grad log mu = argmin_f E_mu [ -s . f - div f + ||f||^2 / 2 ]

Each iteration: N' optimiser steps on that loss over the current particles, f warm-started, then

    x_i <- x_i + h f(x_i)

div f is estimated by e^T (J_f e), one fresh Rademacher e per point and inner step; both the directional
derivative J_f e and its gradient in f's parameters are written by hand.

Traps: (1) the SIFG paper's mixture scripts divide this velocity by n = 1000 and multiply by 0.1 or 0.5: their
h is 1e-4 or 5e-4 where SIFG's is 1e-2. ``velocity_divisor=1000`` reproduces that; the effective step is
step_size / velocity_divisor. (2) ICA scripts and the original repository draw Gaussian e.
Departures: the original holds out particles to stop the inner steps early; as in the SIFG paper's
comparison there is no split and N' is fixed. The target's score is taken once per iteration.
"""

from __future__ import annotations

from typing import ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from parvibench.core.algorithm import Algorithm, Presets, code, ours, paper
from parvibench.core.streams import Streams
from parvibench.core.task import Problem
from parvibench.nn.mlp import MLP
from parvibench.nn.optim import Moments, rms_normalised
from parvibench.nn.refit import RefitSettings


class Settings(RefitSettings):
    """Settings of L2-GF."""

    step_size: float = Field(0.01, gt=0, description="h before the division, in x^2 (plain) or x (rms); ours")
    velocity_divisor: float = Field(
        1.0, gt=0, description="f is divided by it; 1 (papers), 1000 in the SIFG paper's mixture scripts"
    )
    probe: Literal["rademacher", "gaussian"] = Field(
        "rademacher", description="law of e in the divergence; SIFG code rademacher, original code gaussian"
    )
    particle_rule: Literal["plain", "rms"] = Field(
        "plain", description="plain: x + h f (paper); rms: f over its running rms (SIFG code on networks)"
    )


class State(NamedTuple):
    """Particles, the velocity network and the optimisers' memories."""

    x: Tensor  # (R, N, D)
    mean_square: Tensor  # of the rms rule, (R, N, D); (R, 0) with the plain rule
    network: Tensor  # (R, P)
    first: Tensor  # (R, P)
    second: Tensor  # (R, P); (R, 0) with sgd-nesterov
    inner: int  # optimiser steps so far
    t: int


_TOY = {
    "hidden": paper(32),
    "activation": paper("tanh"),
    "inner_steps": paper(5),
    "net_optimiser": paper("sgd-nesterov"),
    "net_learning_rate": paper(1e-3),
    "particle_rule": paper("plain"),
    "probe": code("rademacher"),
}
_NETWORK = {
    "step_size": code(5e-4),
    "particle_rule": code("rms"),
    "hidden": paper(300),
    "activation": paper("leaky-relu"),
    "inner_steps": paper(10),
    "net_optimiser": paper("adam"),
    "net_learning_rate": code(1e-4),
    "net_decay": code(0.9),
    "probe": code("rademacher"),
}
_ICA = {
    **_TOY,
    "step_size": code(1e-3),
    "hidden": paper(120),
    "inner_steps": paper(20),
    "net_optimiser": ours("sgd-nesterov"),
    "probe": code("gaussian"),
}


class L2GF(Algorithm[Settings, State]):
    """L2 functional gradient flow."""

    name = "l2-gf"
    kind = "particles"
    needs = frozenset({"score"})
    settings_type = Settings
    citation = "di Langosco, Fortuin & Strathmann (2021), arXiv:2107.10731"
    summary = "L2 functional gradient flow with a neural network"
    # As baseline of the SIFG paper. Its text gives 0.1 for the mixtures and is silent on the division by n.
    presets: ClassVar[Presets] = {
        "gmm5-2d": {**_TOY, "step_size": paper(0.1)},
        "gmm5-2d-code": {**_TOY, "step_size": code(0.5), "velocity_divisor": code(1000.0)},
        "gmm5-10d": {**_TOY, "step_size": paper(0.1)},
        "gmm5-10d-code": {**_TOY, "step_size": code(0.1), "velocity_divisor": code(1000.0)},
        "ica-meg": _ICA,
        "bnn-boston": _NETWORK,
    }

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> State:
        """Particles at the task's initial points, f untrained."""
        x = problem.init()
        net = settings.network(problem.dim)
        network = net.initialise(streams.uniform("init", (net.n_parameters,)))
        return State(x, x.new_zeros(len(x), 0), network, *settings.start(network), 0)

    def step(self, problem: Problem, settings: Settings, state: State, streams: Streams) -> State:
        """Fit f, move along it. The warm-up of f belongs to the first step: it needs the score too."""
        x, mean_square, network, first, second, inner, t = state
        score = problem.score(x)
        moments = Moments(first, second, inner)
        net = settings.network(problem.dim)
        steps = settings.inner_steps + (settings.warmup_inner_steps if t == 0 else 0)
        probes = streams.normal("algorithm", (steps, *x.shape[1:]))
        if settings.probe == "rademacher":
            probes = torch.ones_like(probes).copysign_(probes)
        for e in probes.unbind(1):
            grad = functional_gradient(net, network, x, score, e)
            network, moments = settings.descend(network, grad, moments)

        velocity = net.forward(network, x)[-1]
        if settings.particle_rule == "rms":
            velocity, mean_square = rms_normalised(velocity, mean_square, first=t == 0)
        x = x.add(velocity, alpha=settings.step_size / settings.velocity_divisor)
        return State(x, mean_square, network, *moments, t + 1)

    def output(self, problem: Problem, settings: Settings, state: State, n: int, streams: Streams) -> Tensor:
        """The particles themselves."""
        return state.x

    def effective_step(self, settings: Settings) -> float | None:
        """H over its divisor; None with the rms rule, which has no common factor."""
        return settings.step_size / settings.velocity_divisor if settings.particle_rule == "plain" else None


def functional_gradient(net: MLP, network: Tensor, x: Tensor, score: Tensor, e: Tensor) -> Tensor:
    """Gradient in f's parameters of mean_i [ -s_i . f(x_i) - e_i . J_f(x_i) e_i + ||f(x_i)||^2 / 2 ].

    Args:
        net: shape of f.
        network: its parameters, (R, P).
        x: (R, n, D).
        score: s, (R, n, D).
        e: directions of the divergence estimate, (R, n, D).

    Returns:
        (R, P).
    """
    n = x.shape[1]
    values = net.forward_tangent(network, x, e)
    grad = torch.cat((values[-1][:, :n] - score, -e), 1).div_(n)
    return net.backward_tangent(network, values, grad)
