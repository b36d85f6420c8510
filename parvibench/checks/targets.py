"""Easy targets for unknown samplers: scores grow linearly, so that a stable sampler loses no chain.

Standard deviations are about 1/2, which steps of 0.01 cross within some hundred, at a bias of a few percent.

- ``normal``: three independent coordinates.
- ``unit``: the same nearer to where variational families start, which are fitted within some hundred short steps; all of
  them contain it.
- ``tilted``: two coordinates of correlation 0.7.
- ``bent``: x1 ~ N(0, 0.6^2), x2 ~ N(0.6 cos(2 x1), 0.4^2).
- ``skewed``: two independent coordinates of a generalised logistic law, of opposite skewness.
- ``parted``: two normal laws of other width, apart, between which intervals and levels have gaps; for chains from exact
  draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor
from torch.nn.functional import softplus

from parvibench.core.exact import FormulaTask, Normal
from parvibench.core.registry import load_task
from parvibench.core.target import InJax
from parvibench.core.task import Facts, Task

from .summaries import generator_of

#: Draws behind the energy and correlations of a target.
_DRAWS = 100_000


@dataclass(frozen=True, kw_only=True)
class StableTask(FormulaTask):
    """A target with exact draws that is no task of the benchmark."""

    tags: frozenset[str] = frozenset({"exact"})
    citation: str = ""
    unit: float = 1.0  #: of x: all lengths are multiples of it
    in_jax: Callable[[float], InJax]  #: the density of x in JAX, given the unit

    def __post_init__(self) -> None:
        object.__setattr__(self, "jax", self.in_jax(self.unit))

    def score(self, x: Tensor) -> Tensor:
        """The score, (R, N, D) -> (R, N, D)."""
        return self.formula(x)[1]

    def in_units(self, unit: float) -> StableTask:
        """The same with other units of x."""

        def formula(x: Tensor) -> tuple[Tensor, Tensor]:
            log_p, score = self.formula(x / unit)
            return log_p, score / unit

        return replace(self, unit=unit, formula=formula, draws=lambda n, g: unit * self.draws(n, g))


def _gaussian(name: str, summary: str, mean: tuple[float, ...], root: Tensor) -> StableTask:
    m, dim, inverse = torch.tensor(mean, dtype=torch.float64), len(mean), torch.linalg.inv(root)

    def formula(x: Tensor) -> tuple[Tensor, Tensor]:
        standard = (x - m.to(x)) @ inverse.to(x).T
        return -0.5 * standard.square().sum(-1), -(standard @ inverse.to(x))

    return StableTask(
        name=name, summary=summary, dim=dim, start=Normal((0.0,), 0.5),
        facts=Facts(m, root.square().sum(1).sqrt(), log_z=float(torch.logdet(root)) + dim / 2 * math.log(2 * math.pi)),
        formula=formula,
        in_jax=lambda unit: InJax(_gaussian_in_jax, (unit, m.numpy(), inverse.numpy())),
        draws=lambda n, g: m + torch.randn(n, dim, generator=g, dtype=torch.float64) @ root.T,
    )  # fmt: skip


def _gaussian_in_jax(data: Any, x: Any) -> Any:
    unit, mean, inverse = data
    return -0.5 * ((inverse @ (x / unit - mean)) ** 2).sum()


def _bent() -> StableTask:
    """E cos(k x) = exp(-k^2 s^2 / 2) and E cos^2(k x) = (1 + exp(-2 k^2 s^2)) / 2 for x ~ N(0, s^2)."""
    along, across = 0.6, 0.4  # sd of x1, and of x2 about the bend
    height, waves = 0.6, 2.0  # amplitude and wave number of the bend
    phase = (waves * along) ** 2
    mean = height * math.exp(-phase / 2)
    variance = across**2 + height**2 * (1 + math.exp(-2 * phase)) / 2 - mean**2

    def density(x: Tensor) -> tuple[Tensor, Tensor]:
        first, second = x.unbind(-1)
        z1, z2 = first / along, (second - height * torch.cos(waves * first)) / across
        slope = height * waves * torch.sin(waves * first) / across
        log_p = -0.5 * torch.stack([z1, z2], -1).square().sum(-1)
        return log_p, torch.stack([-z1 / along - z2 * slope, -z2 / across], -1)

    def formula(unit: Any, x: Any) -> Any:
        import jax.numpy as jnp

        first, second = x[0] / unit, x[1] / unit
        return -0.5 * ((first / along) ** 2 + ((second - height * jnp.cos(waves * first)) / across) ** 2)

    def draw(n: int, generator: Generator) -> Tensor:
        z1, z2 = torch.randn(2, n, generator=generator, dtype=torch.float64)
        first = along * z1
        return torch.stack([first, height * torch.cos(waves * first) + across * z2], -1)

    return StableTask(
        name="bent", summary="a normal law bent along a cosine", dim=2, start=Normal((-0.3, 0.0), 0.5),
        facts=Facts(torch.tensor([0.0, mean]).double(), torch.tensor([along, math.sqrt(variance)]).double()),
        formula=density, in_jax=lambda unit: InJax(formula, unit), draws=draw,
    )  # fmt: skip


def _skewed() -> StableTask:
    """Densities b e^-u / (1 + e^-u)^(b + 1) of u = x / scale: type I of the generalised logistic laws.

    E u = psi(b) - psi(1), and var u = psi'(b) + psi'(1): scales make the sds 1/2. Drawn by the inverse cdf.
    """
    shapes = torch.tensor([4.0, 0.5], dtype=torch.float64)  # b
    scales = 0.5 / (torch.polygamma(1, shapes) + math.pi**2 / 6).sqrt()
    mean = scales * (torch.digamma(shapes) - torch.digamma(torch.ones_like(shapes)))

    def density(x: Tensor) -> tuple[Tensor, Tensor]:
        scale, powers = scales.to(x), shapes.to(x) + 1
        u = x / scale
        return (-u - powers * softplus(-u)).sum(-1), (powers * torch.sigmoid(-x / scale) - 1) / scale

    def formula(scale: Any, x: Any) -> Any:
        import jax.numpy as jnp

        return (-x / scale - (shapes.numpy() + 1) * jnp.logaddexp(0, -x / scale)).sum()

    def draw(n: int, generator: Generator) -> Tensor:
        p = torch.rand(n, len(shapes), generator=generator, dtype=torch.float64)
        return -scales * torch.expm1(-p.log() / shapes).log()

    return StableTask(
        name="skewed", summary="two independent coordinates, skewed in opposite directions", dim=len(shapes),
        facts=Facts(mean, torch.full_like(mean, 0.5)), start=Normal((0.0,), 0.5), formula=density,
        in_jax=lambda unit: InJax(formula, (unit * scales).numpy()), draws=draw,
    )  # fmt: skip


def _parted() -> StableTask:
    """Two spherical normal laws of these weights, centres and sds."""
    weights, spreads = torch.tensor([[0.6, 0.4], [0.3, 0.45]], dtype=torch.float64)
    centres = torch.tensor([[-0.8, 0.3], [0.8, -0.3]], dtype=torch.float64)
    dim, mean = centres.shape[1], weights @ centres
    variance = weights @ (spreads.square().unsqueeze(-1) + centres.square()) - mean.square()

    def density(x: Tensor) -> tuple[Tensor, Tensor]:
        away, spread = centres.to(x) - x.unsqueeze(-2), spreads.to(x)
        heights = weights.to(x).log() - dim * spread.log()
        pull, log_parts = away / spread.unsqueeze(-1).square(), heights - 0.5 * away.square().sum(-1) / spread.square()
        return log_parts.logsumexp(-1), (log_parts.softmax(-1).unsqueeze(-1) * pull).sum(-2)

    def formula(data: Any, x: Any) -> Any:
        import jax.numpy as jnp
        from jax.scipy.special import logsumexp

        unit, weight, centre, spread = data
        distances = ((x / unit - centre) ** 2).sum(1)
        return logsumexp(jnp.log(weight) - dim * jnp.log(spread) - 0.5 * distances / spread**2)

    def draw(n: int, generator: Generator) -> Tensor:
        part = (torch.rand(n, generator=generator, dtype=torch.float64) > weights[0]).long()
        z = torch.randn(n, dim, generator=generator, dtype=torch.float64)
        return centres[part] + spreads[part].unsqueeze(-1) * z

    return StableTask(
        name="parted", summary="two normal laws, apart", dim=dim, facts=Facts(mean, variance.sqrt()),
        start=Normal((0.0,), 0.8), formula=density,
        in_jax=lambda unit: InJax(formula, (unit, weights.numpy(), centres.numpy(), spreads.numpy())), draws=draw,
    )  # fmt: skip


STABLE: dict[str, StableTask] = {
    task.name: task
    for task in (
        _gaussian("normal", "a normal law of independent coordinates", (0.4, -0.4, 0.8), torch.diag(torch.tensor([0.6, 0.4, 0.5], dtype=torch.float64))),
        _gaussian("unit", "a normal law near the standard one", (0.3, -0.2, 0.4), torch.diag(torch.tensor([0.7, 0.65, 0.75], dtype=torch.float64))),
        _gaussian("tilted", "a normal law of correlation 0.7", (0.5, -0.5), 0.5 * torch.tensor([[1.0, 0.0], [0.7, math.sqrt(0.51)]], dtype=torch.float64)),
        _bent(),
        _skewed(),
        _parted(),
    )
}  # fmt: skip


def task_named(name: str) -> Task:
    """An easy target, or a task of the benchmark."""
    return STABLE.get(name) or load_task(name)


class Moments(NamedTuple):
    """Moments with which the points of a sampler are compared."""

    mean: Tensor  #: (D,)
    sd: Tensor  #: (D,)
    correlation: Tensor  #: (D - 1,) of neighbouring coordinates
    energy: tuple[float, float]  #: mean and sd of the log density


@cache
def moments(name: str) -> Moments:
    """Stated means and sds; correlations and energy of many exact draws."""
    task = task_named(name)
    mean, sd = task.facts.mean, task.facts.sd
    assert mean is not None
    assert sd is not None
    x = task.exact(_DRAWS, generator_of("moments", name))
    z = (x - mean) / sd
    if isinstance(task, StableTask) and name not in ("skewed", "parted"):  # half of a chi-square variable
        energy = (-task.dim / 2, math.sqrt(task.dim / 2))
    else:
        density = task.target([0], "cpu", torch.float64).log_density(x[None])
        energy = float(density.mean()), float(density.std())
    return Moments(mean, sd, (z[:, :-1] * z[:, 1:]).mean(0), energy)
