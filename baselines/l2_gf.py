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

from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from parvibench.core.algorithm import Algorithm, Presets, code, paper
from parvibench.core.streams import Streams
from parvibench.core.task import Problem
from parvibench.nn.mlp import MLP
from parvibench.nn.optim import Moments
from parvibench.nn.refit import FunctionalFlowSettings


class Settings(FunctionalFlowSettings):
    """Settings of L2-GF."""


class State(NamedTuple):
    """Particles, the velocity network and the optimisers' memories."""

    x: Tensor  # (R, N, D)
    moved: Tensor  # running average of the velocity, (R, N, D); (R, 0) but with the adam rule
    moved_square: Tensor  # of its square; (R, 0) with the plain rule
    network: Tensor  # (R, P)
    first: Tensor  # (R, P)
    second: Tensor  # (R, P); (R, 0) with sgd-nesterov
    inner: int  # optimiser steps so far
    t: int


#: As baseline of the SIFG paper.
TOY = {
    "hidden": paper(32),
    "activation": paper("tanh"),
    "inner_steps": paper(5),
    "net_optimiser": paper("sgd-nesterov"),
    "net_learning_rate": paper(1e-3),
    "particle_rule": paper("plain"),
    "probe": code("rademacher"),
}
NETWORK = {
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
MONOMIAL_GAMMA = {
    **TOY,
    "step_size": paper(1e-3),
    "particle_rule": code("adam"),
    "warmup_inner_steps": code(100),
}
ICA = {
    **TOY,
    "step_size": code(1e-3),
    "hidden": paper(120),
    "inner_steps": paper(20),
    "net_optimiser": code("sgd"),
    "probe": code("gaussian"),
}


class L2GF(Algorithm[Settings, State]):
    """L2 functional gradient flow."""

    name = "l2-gf"
    version = 2
    kind = "particles"
    needs = frozenset({"score"})
    settings_type = Settings
    citation = "di Langosco, Fortuin & Strathmann (2021), arXiv:2107.10731"
    summary = "L2 functional gradient flow with a neural network"
    # As baseline of the SIFG paper. Its text gives 0.1 for the mixtures and is silent on the division by n.
    presets: ClassVar[Presets] = {
        "gmm5-2d": {**TOY, "step_size": paper(0.1)},
        "gmm5-2d-code": {**TOY, "step_size": code(0.5), "velocity_divisor": code(1000.0)},
        "gmm5-10d": {**TOY, "step_size": paper(0.1)},
        "gmm5-10d-code": {**TOY, "step_size": code(0.1), "velocity_divisor": code(1000.0)},
        "monomial-gamma": MONOMIAL_GAMMA,
        "ica-meg": ICA,
        "bnn-boston": NETWORK,
    }

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> State:
        """Particles at the task's initial points, f untrained."""
        x = problem.init()
        moved, moved_square = settings.memory(x)
        net = settings.network(problem.dim)
        network = net.initialise(streams.uniform("init", (net.n_parameters,)))
        return State(x, moved, moved_square, network, *settings.start(network), 0)

    def step(self, problem: Problem, settings: Settings, state: State, streams: Streams) -> State:
        """Fit f, move along it. The warm-up of f belongs to the first step: it needs the score too."""
        x, moved, moved_square, network, first, second, inner, t = state
        score = problem.score(x)
        moments = Moments(first, second, inner)
        net = settings.network(problem.dim)
        steps = settings.inner_steps + (settings.warmup_inner_steps if t == 0 else 0)
        for e in settings.probes(streams, steps, x):
            grad = functional_gradient(net, network, x, score, e)
            network, moments = settings.descend(network, grad, moments)

        velocity = net.forward(network, x)[-1]
        x, moved, moved_square = settings.move(x, velocity, moved, moved_square, t)
        return State(x, moved, moved_square, network, *moments, t + 1)

    def effective_step(self, settings: Settings) -> float | None:
        """H, over its divisor if there is one; None with a rule that rescales the velocity."""
        return settings.effective_step()


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
