"""Mollified interaction energy descent (MIED).

Li, Liu, Korba, Yurochkin & Solomon (2023), arXiv:2210.13400. Particles descend, by Adam, the logarithm of
the energy

    E = 1/n^2 sum_ij phi(x_i - x_j) ( p(x_i) p(x_j) )^(-a),   a = 1/2

with a mollifier phi; for narrow phi it is the integral of mu^2 / p, least at mu = p. With the weights
P_ij = softmax over all pairs of log phi_ij - a (log p_i + log p_j),

    d log E / dx_i = sum_j 4 P_ij (d log phi / dD)_ij (x_i - x_j) - 2 a sum_j P_ij s(x_i), D = ||x_i - x_j||^2

so only logarithms and one matrix product appear, and unknown constants of p cancel.

Mollifiers: Riesz (D + 1e-8)^(-s/2) with s = 2 a d + 1e-4, Gaussian exp(-D / (2 eps)), Laplace
exp(-sqrt(D + 1e-10) / eps). Trap: Riesz is infinite at i = j; as in the code D_ii is replaced by the squared
distance to the nearest neighbour over (1.3 d)^(2/d), fixed. The others are finite there, D_ii = 0.
"""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from parvibench.core.algorithm import Algorithm, Example, Presets, Problem, SteppedSettings, Streams, code
from parvibench.kernels.gram import self_distances
from parvibench.nn.optim import AdamState, adam


class Settings(SteppedSettings):
    """Settings of MIED."""

    step_size: float = Field(0.01, gt=0, description="Adam's learning rate, in x; code")
    mollifier: Literal["riesz", "gaussian", "laplace"] = Field("riesz", description="phi; code riesz")
    width: float = Field(0.1, gt=0, description="eps of the Gaussian (x^2) and Laplace (x) mollifiers; ours")
    alpha: float = Field(0.5, gt=0, description="a, power of 1 / p; paper: 1/2 has its minimum at p")


class MIED(Algorithm[Settings, AdamState]):
    """Mollified interaction energy descent."""

    name = "mied"
    version = 2
    kind = "particles"
    needs = frozenset({"full-batch", "score"})
    rescales = True
    citation = "Li, Liu, Korba, Yurochkin & Solomon (2023), arXiv:2210.13400"
    example = Example(settings={"step_size": 0.05}, steps=150)
    presets: ClassVar[Presets] = {  # as KSIVI's Table 3 ran it
        "student-t": code(step_size=0.01, mollifier="riesz", iterations=2000, particles=1000, samples=1000)
    }

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> AdamState:
        """Particles at the task's initial points."""
        return AdamState.start(problem.init())

    def step(self, problem: Problem, settings: Settings, state: AdamState, streams: Streams) -> AdamState:
        """One step of Adam on log E."""
        log_density, score = problem.log_density_and_score(state.x)
        _, grad = log_energy(settings, state.x, log_density, score)
        return AdamState(*adam(state.x, grad, state.moments, settings.step_size))


def log_energy(settings: Settings, x: Tensor, log_density: Tensor, score: Tensor) -> tuple[Tensor, Tensor]:
    """Logarithm of the energy up to a constant, (R,), and gradient in x; log densities are (R, n), scores (R, n, d)."""
    x = x - x.mean(1, keepdim=True)  # the differences below cancel far from the origin
    d = self_distances(x)
    if settings.mollifier == "riesz":
        _fill_diagonal(d, x.shape[2])
    log_phi, slope = _mollifier(settings, d, x.shape[2])
    pull = -settings.alpha * log_density
    logits = log_phi.add_(pull.unsqueeze(-1)).add_(pull.unsqueeze(-2)).flatten(1)
    p = torch.softmax(logits, 1).view_as(d)
    share = p.sum(-1, keepdim=True)
    c = p.mul_(slope).mul_(4)
    c.diagonal(dim1=-2, dim2=-1).zero_()
    grad = c.sum(-1, keepdim=True) * x - c @ x
    return logits.logsumexp(1), grad.sub_(2 * settings.alpha * share * score)


def _fill_diagonal(d: Tensor, dim: int) -> None:
    """Replace D_ii at a particle by its nearest neighbour's distance, shrunk."""
    diagonal = d.diagonal(dim1=-2, dim2=-1)
    diagonal.fill_(torch.inf)
    diagonal.copy_(d.amin(-1) / (1.3 * dim) ** (2 / dim))


def _mollifier(settings: Settings, d: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Log phi and its derivative in D."""
    match settings.mollifier:
        case "riesz":
            s = 2 * settings.alpha * dim + 1e-4
            near = d + 1e-8
            return near.log().mul_(-s / 2), near.reciprocal_().mul_(-s / 2)
        case "gaussian":
            rate = -0.5 / settings.width
            return d * rate, torch.full_like(d, rate)
        case "laplace":
            root = (d + 1e-10).sqrt_()
            return root / -settings.width, root.reciprocal_().mul_(-0.5 / settings.width)
