"""Isokinetic dynamics: the speed is one, and the force turns the direction.

Robnik, De Luca, Silverstein & Seljak (2023), arXiv:2212.08549, Section 2 and Appendix B. In y = x / scale, with the
score s and a unit direction u,

    dy = u dt,   du = (I - u u^T) s / (D - 1) dt.

At a fixed point the force turns u within the plane of u and e = s / |s| (B); with a fixed direction y moves along u
(A). With d = eps |s| / (D - 1) and c = e.u, B is

    u <- (u + e (sinh d + c (cosh d - 1))) / (cosh d + c sinh d),
    kinetic energy <- kinetic energy + (D - 1) log(cosh d + c sinh d),

written below with exp(-d), which does not overflow. ``leapfrog`` is B(1/2) A B(1/2), one score a step;
``minimal-norm`` is B(lambda) A(1/2) B(1 - 2 lambda) A(1/2) B(lambda) with McLachlan's lambda, two scores a step, of
about a ninth of the leapfrog's energy error. On a line (D = 1) there is nothing to turn.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from parvibench.core.errors import UnsupportedError
from parvibench.core.task import Problem

Integrator = Literal["leapfrog", "minimal-norm"]
#: Scores of a step and chain.
SCORES = {"leapfrog": 1, "minimal-norm": 2}
#: Omelyan, Mryglod & Folk (2003): the least norm of the third-order error.
LAMBDA = 0.1931833275037836


class Point(NamedTuple):
    """Where chains are and where they are heading, with what is known there."""

    x: Tensor  # (R, N, D)
    direction: Tensor  # (R, N, D), unit vectors
    log_density: Tensor  # (R, N)
    score: Tensor  # (R, N, D)


def start(problem: Problem, method: str, noise: Tensor) -> Point:
    """The problem's initial points with random directions; ``UnsupportedError`` on a line."""
    if problem.dim < 2:
        raise UnsupportedError(f"{method} needs two dimensions or more: on a line no force turns a direction")
    x = problem.init()
    return Point(x, unit(noise), *problem.log_density_and_score(x))


def unit(v: Tensor) -> Tensor:
    """Vectors of length one: (..., D) -> (..., D)."""
    return v / v.norm(dim=-1, keepdim=True)


def turned(direction: Tensor, force: Tensor, eps: Tensor) -> tuple[Tensor, Tensor]:
    """B for a time eps: directions (R, N, D) and the change of kinetic energy (R, N)."""
    d = direction.shape[-1]
    size = force.norm(dim=-1, keepdim=True)
    e = force / size.clamp_min(torch.finfo(force.dtype).tiny)
    c = (e * direction).sum(-1, keepdim=True).clamp(-1, 1)
    turn = eps * size / (d - 1)
    z = (-turn).exp()
    energy = (d - 1) * (turn - math.log(2) + (1 + c + (1 - c) * z.square()).log())
    return unit(e * ((1 - z) * (1 + z + c * (1 - z))) + 2 * z * direction), energy.squeeze(-1)


def moved(problem: Problem, point: Point, eps: Tensor, scale: Tensor, integrator: Integrator) -> tuple[Point, Tensor]:
    """One step of length eps (R, 1, 1) in units of scale (R, 1, D): the end and its energy error, (R, N)."""
    halved = integrator == "leapfrog"
    outer = 0.5 if halved else LAMBDA
    direction, energy = turned(point.direction, scale * point.score, outer * eps)
    x = point.x + (eps if halved else eps / 2) * scale * direction
    if not halved:
        direction, more = turned(direction, scale * problem.score(x), (1 - 2 * LAMBDA) * eps)
        energy = energy + more
        x = x + (eps / 2) * scale * direction
    log_density, score = problem.log_density_and_score(x)
    direction, more = turned(direction, scale * score, outer * eps)
    return Point(x, direction, log_density, score), energy + more - (log_density - point.log_density)


class Spread(NamedTuple):
    """Sums over chains and steps, from which the scales of the coordinates come."""

    n: Tensor  # (R,) how many
    total: Tensor  # (R, D)
    squares: Tensor  # (R, D)
    origin: Tensor  # (R, D): sums are of distances from here, which loses no digits far out

    @classmethod
    def none(cls, x: Tensor) -> Spread:
        """Sums over no points."""
        return cls(x.new_zeros(x.shape[:1]), x.new_zeros(x[:, 0].shape), x.new_zeros(x[:, 0].shape), x.mean(1))

    def add(self, x: Tensor) -> Spread:
        """The sums with the points (R, N, D) added."""
        apart = x - self.origin.unsqueeze(1)
        return Spread(self.n + x.shape[1], self.total + apart.sum(1), self.squares + apart.square().sum(1), self.origin)

    def variance(self) -> Tensor:
        """Variances of the coordinates, (R, D), at least a millionth of their mean."""
        variance = self.squares / self.n.unsqueeze(-1) - (self.total / self.n.unsqueeze(-1)).square()
        return variance.clamp_min(1e-6 * variance.mean(-1, keepdim=True))

    def mean(self) -> Tensor:
        """(R, D)."""
        return self.origin + self.total / self.n.unsqueeze(-1)
