"""Ports of bugs in the noise of Langevin samplers: csgmcmc 1, edward 722, DiffEqFlux 695."""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

import parvibench as pb

from .common import Port, Stepped


class Small(Stepped):
    """A step short enough for a sampler without accept-reject step."""

    step_size: float = Field(0.02, gt=0, description="eta, in x^2")


class Points(NamedTuple):
    """Positions alone."""

    x: Tensor


class SGLD(Port):
    """Stochastic gradient Langevin dynamics: with learning rate r, x + (r/2) s + N(0, r).

    ``learning-rate``: the noise has standard deviation r in place of sqrt(r) (edward 722).
    ``loss-noise``: the noise is a term of the loss, of standard deviation 2 r sqrt(a), and is then multiplied by the
    learning rate r of a gradient step x + r s: 2 r^2 in place of sqrt(2 r) (csgmcmc 1; a = 1).
    """

    name, settings_type = "wild-sgld", Small
    needs: ClassVar[frozenset[str]] = frozenset({"score"})

    def init(self, problem: pb.Problem, settings: Stepped, streams: pb.Streams, horizon: int) -> Points:
        return Points(problem.init())

    def step(self, problem: pb.Problem, settings: Stepped, state: Points, streams: pb.Streams) -> Points:
        eta = settings.step_size
        spread = {"learning-rate": 2 * eta, "loss-noise": 2 * eta * eta}.get(self.bug, math.sqrt(2 * eta))
        noise = streams.normal("noise", state.x.shape[1:])
        return Points(state.x + eta * problem.score(state.x) + spread * noise)


class Preconditioned(NamedTuple):
    """Positions, and the running mean of squared scores."""

    x: Tensor
    squares: Tensor  # (R, 1, D)
    count: int


class PSGLD(Port):
    """SGLD preconditioned by RMSprop, frozen after 100 steps: x + eta G s + sqrt(2 eta G) noise.

    ``plain-noise``: the noise lacks the preconditioner (DiffEqFlux 695).
    """

    name, settings_type = "wild-psgld", Small
    needs: ClassVar[frozenset[str]] = frozenset({"score"})

    def init(self, problem: pb.Problem, settings: Stepped, streams: pb.Streams, horizon: int) -> Preconditioned:
        x = problem.init()
        return Preconditioned(x, torch.ones_like(x[:, :1]), 0)

    def step(
        self, problem: pb.Problem, settings: Stepped, state: Preconditioned, streams: pb.Streams
    ) -> Preconditioned:
        eta, score = settings.step_size, problem.score(state.x)
        squares = state.squares
        if state.count < 100:
            squares = 0.95 * squares + 0.05 * score.square().mean(1, keepdim=True)
        g = 1 / (0.1 + squares.sqrt())
        noise = streams.normal("noise", state.x.shape[1:])
        spread = (2 * eta * (torch.ones_like(g) if self.bug else g)).sqrt()
        return Preconditioned(state.x + eta * g * score + spread * noise, squares, state.count + 1)
