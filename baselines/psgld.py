"""Preconditioned stochastic gradient Langevin dynamics (pSGLD).

Li, Chen, Carlson & Carin (2016), arXiv:1512.07666, Algorithm 1. The scale of RMSprop as a diagonal
preconditioner, each chain with its own V, all operations elementwise:

    V <- a V + (1 - a) s_B(x)^2,   V = 0 at the start
    G = 1 / (lambda + sqrt(V))
    x <- x + eta G s_B(x) + sqrt(2 eta G) xi,   xi ~ N(0, I)

The law is biased, and more so as eta -> 0: V follows the chain the closer the less it moves in a step, and the
correction Gamma_i = sum_j dG_ij / dx_j is dropped, as in the paper's own runs. In the limit the density is that of
the target over G, on N(0, 1) the one with variance 2. Measured there with the defaults (32 replicates of 4 chains
in 8 dimensions): 1.105 +- 0.003 at eta = 0.1, 1.33 +- 0.01 at 0.01, 1.75 +- 0.02 at 1e-3, 1.94 +- 0.04 at 1e-4.
The bias goes with 1 - a; a = 1 freezes G = 1 / lambda and is SGLD.

Departs from the paper: V holds squares of the whole score, prior included, scaled to all n rows, where the
paper takes the likelihood's mean per row. Its eps and lambda correspond to eta = n eps / 2 and n lambda.
Traps: the first G are longer by 1 / sqrt(1 - a), for V starts at zero; a coordinate without a score has
G = 1 / lambda, whose noise is enormous.
"""

import math
from typing import NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from parvibench.core.algorithm import Algorithm, Example, Problem, SteppedSettings, Streams


class Settings(SteppedSettings):
    """Settings of pSGLD."""

    step_size: float = Field(0.01, gt=0, description="eta, in x; ours")
    decay: float = Field(0.99, ge=0, le=1, description="a, memory of V; paper. 1 freezes V at zero")
    damping: float = Field(1e-5, gt=0, description="lambda, in 1/x, keeps G finite; paper")


class State(NamedTuple):
    """Chains with the running mean squares of their scores."""

    x: Tensor  # (R, N, D)
    mean_square: Tensor  # V, (R, N, D)


class PSGLD(Algorithm[Settings, State]):
    """Stochastic gradient Langevin dynamics, preconditioned by RMSprop; without the correction that makes it exact."""

    name = "psgld"
    kind = "chains"
    rescales = True
    citation = "Li, Chen, Carlson & Carin (2016), arXiv:1512.07666"
    example = Example(settings={"step_size": 0.03, "damping": 1.0}, steps=300)

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> State:
        """Chains at the task's initial points."""
        x = problem.init()
        return State(x, torch.zeros_like(x))

    def step(self, problem: Problem, settings: Settings, state: State, streams: Streams) -> State:
        """One preconditioned Langevin step of every chain."""
        x, eta, a = state.x, settings.step_size, settings.decay
        score = problem.score(x)
        v = (a * state.mean_square).addcmul_(score, score, value=1 - a)
        g = v.sqrt().add_(settings.damping).reciprocal_()
        noise = streams.normal("noise", x.shape[1:])
        x = x.addcmul(g, score, value=eta).addcmul_(g.sqrt(), noise, value=math.sqrt(2 * eta))
        return State(x, v)
