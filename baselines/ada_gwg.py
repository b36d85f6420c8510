"""Adaptive generalised Wasserstein gradient flow (Ada-GWG).

Cheng, Zhang, Yu & Zhang (2023), arXiv:2310.16516. Steepest descent of KL(mu || pi) where velocities are
measured by ||v||_p^p / p instead of the Euclidean norm. With r = s - grad log mu and q = p / (p - 1),

    f* = sign(r) |r|^(q-1) = argmin_f E_mu [ -s . f - div f + ||f||_p^p / p ]

Each iteration: N' optimiser steps on that loss over the current particles (div f by e^T J_f e as in L2-GF,
which is p = 2), then

    x_i <- x_i + h f(x_i)
    p   <- clip( p + eta_p A'(p) ),   A(p) = 1/p E ||r||_q^q with r held fixed, so that |r| = |f|^(p-1):
    A'(p) = -E sum_j [ |f_j|^p / p^2 + |f_j|^p log|f_j| / (p (p-1)) ]

Every replicate has its own p.

Traps: (1) the released scripts hold three rules for p: this ascent in every inner step (toys; switched off
by an iteration bound in two of three), its negative with a sum over particles (ICA), and an ascent of
E ||f||_p^p / p through both exponents (networks). Here: ascent, mean over particles, once per iteration.
(2) As in L2-GF the SIFG paper's mixture scripts divide the velocity by n = 1000: ``velocity_divisor``.
(3) log|f| is -inf at f = 0, where |f|^p log|f| is 0.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor

from parvibench.core.algorithm import Algorithm, Presets, code, paper
from parvibench.core.streams import Streams
from parvibench.core.task import Problem
from parvibench.nn.mlp import MLP
from parvibench.nn.optim import Moments
from parvibench.nn.refit import FunctionalFlowSettings

from .l2_gf import ICA, MONOMIAL_GAMMA, NETWORK, TOY


class Settings(FunctionalFlowSettings):
    """Settings of Ada-GWG."""

    p: float = Field(2.0, gt=1, description="exponent at the start; paper")
    p_step_size: float = Field(5e-7, ge=0, description="eta_p; SIFG paper's mixtures, 1e-4 to 1 elsewhere")
    p_min: float = Field(1.1, gt=1, description="lower bound of p; code")
    p_max: float = Field(6.0, gt=1, description="upper bound of p; code on ICA, 4 on networks")
    p_clip: float | None = Field(
        None, gt=0, description="bound of |A'(p)|; code: none on toys, 0.1 on ICA, 0.2 on networks"
    )

    @model_validator(mode="after")
    def _in_bounds(self) -> Settings:
        if not self.p_min <= self.p <= self.p_max:
            raise ValueError("p must lie between p_min and p_max")
        return self


class State(NamedTuple):
    """Particles, exponent, the velocity network and the optimisers' memories."""

    x: Tensor  # (R, N, D)
    p: Tensor  # (R, 1, 1)
    moved: Tensor  # running average of the velocity, (R, N, D); (R, 0) but with the adam rule
    moved_square: Tensor  # of its square; (R, 0) with the plain rule
    network: Tensor  # (R, P)
    first: Tensor  # (R, P)
    second: Tensor  # (R, P); (R, 0) with sgd-nesterov
    inner: int  # optimiser steps so far
    t: int


class AdaGWG(Algorithm[Settings, State]):
    """Adaptive generalised Wasserstein gradient flow."""

    name = "ada-gwg"
    version = 2
    kind = "particles"
    needs = frozenset({"score"})
    settings_type = Settings
    citation = "Cheng, Zhang, Yu & Zhang (2023), arXiv:2310.16516"
    summary = "generalised Wasserstein gradient flow with adaptive exponent"
    # As baseline of the SIFG paper. The code moves p in every inner step: five or ten times as often.
    presets: ClassVar[Presets] = {
        "gmm5-2d": {**TOY, "step_size": paper(0.1), "p_step_size": paper(5e-7)},
        "gmm5-2d-code": {
            **TOY, "step_size": code(0.5), "velocity_divisor": code(1000.0), "p_step_size": code(1e-6),
        },
        "gmm5-10d": {**TOY, "step_size": paper(0.1), "p_step_size": paper(5e-7)},
        # adaptation is switched off by the script's iteration bound
        "gmm5-10d-code": {
            **TOY, "step_size": code(0.1), "velocity_divisor": code(1000.0), "p_step_size": code(0.0),
        },
        # the script's iteration bound switches adaptation off; the text has it on
        "monomial-gamma": {**MONOMIAL_GAMMA, "p_step_size": paper(1.0)},
        "ica-meg": {**ICA, "p_step_size": code(0.004), "p_clip": code(0.1), "p_max": code(6.0)},
        "bnn-boston": {**NETWORK, "p_step_size": paper(1e-4), "p_clip": code(0.2), "p_max": code(4.0)},
    }  # fmt: skip

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> State:
        """Particles at the task's initial points, f untrained."""
        x = problem.init()
        moved, moved_square = settings.memory(x)
        net = settings.network(problem.dim)
        network = net.initialise(streams.uniform("init", (net.n_parameters,)))
        p = x.new_full((len(x), 1, 1), settings.p)
        return State(x, p, moved, moved_square, network, *settings.start(network), 0)

    def step(self, problem: Problem, settings: Settings, state: State, streams: Streams) -> State:
        """Fit f, move p, move the particles. The warm-up of f belongs to the first step."""
        x, p, moved, moved_square, network, first, second, inner, t = state
        score = problem.score(x)
        moments = Moments(first, second, inner)
        net = settings.network(problem.dim)
        steps = settings.inner_steps + (settings.warmup_inner_steps if t == 0 else 0)
        for e in settings.probes(streams, steps, x):
            grad = functional_gradient(net, network, x, score, e, p)
            network, moments = settings.descend(network, grad, moments)

        velocity = net.forward(network, x)[-1]
        slope = exponent_gradient(velocity, p)
        if settings.p_clip is not None:
            slope = slope.clamp_(-settings.p_clip, settings.p_clip)
        p = p.add(slope, alpha=settings.p_step_size).clamp_(settings.p_min, settings.p_max)
        x, moved, moved_square = settings.move(x, velocity, moved, moved_square, t)
        return State(x, p, moved, moved_square, network, *moments, t + 1)

    def effective_step(self, settings: Settings) -> float | None:
        """H, over its divisor if there is one; None with a rule that rescales the velocity."""
        return settings.effective_step()


def functional_gradient(net: MLP, network: Tensor, x: Tensor, score: Tensor, e: Tensor, p: Tensor) -> Tensor:
    """Gradient in f's parameters of mean_i [ -s_i . f(x_i) - e_i . J_f(x_i) e_i + ||f(x_i)||_p^p / p ].

    Args:
        net: shape of f.
        network: its parameters, (R, P).
        x: (R, n, D).
        score: s, (R, n, D).
        e: directions of the divergence estimate, (R, n, D).
        p: exponent, (R, 1, 1).

    Returns:
        (R, P).
    """
    n = x.shape[1]
    values = net.forward_tangent(network, x, e)
    f = values[-1][:, :n]
    power = f.abs().pow_(p - 1).copysign_(f)
    return net.backward_tangent(network, values, torch.cat((power - score, -e), 1).div_(n))


def exponent_gradient(f: Tensor, p: Tensor) -> Tensor:
    """A'(p) from the velocities, (R, n, D) and (R, 1, 1) -> (R, 1, 1)."""
    size = f.abs()
    power = size.pow(p)
    logs = torch.xlogy(power, size)  # 0 where f = 0
    terms = power / p**2 + logs / (p * (p - 1))
    return -terms.sum(-1, keepdim=True).mean(1, keepdim=True)
