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
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor
from torch.nn.functional import softplus

from parvibench.core.exact import ExactTask, Normal
from parvibench.core.registry import load_task
from parvibench.core.target import InJax, Target
from parvibench.core.task import Facts, Task

from .summaries import generator_of

#: Draws behind the energy and correlations of a target.
_DRAWS = 100_000


class _Coordinates(Target):
    """A density that is standard normal in coordinates z(x); ``unit`` is the unit of x."""

    def __init__(self, dim: int, unit: float) -> None:
        self.dim, self.unit = dim, unit

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """(R, N, D) -> (R, N)."""
        return -0.5 * self._standard(x / self.unit).square().sum(-1)

    @abstractmethod
    def _standard(self, x: Tensor) -> Tensor:
        """The coordinates z, (..., D)."""


class _Gaussian(_Coordinates):
    def __init__(self, mean: Tensor, root: Tensor, unit: float) -> None:
        super().__init__(len(mean), unit)
        self._mean, self._inverse = mean, torch.linalg.inv(root)

    def _standard(self, x: Tensor) -> Tensor:
        return (x - self._mean.to(x)) @ self._inverse.to(x).T

    def score(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """-P (x - m), in the unit of x."""
        return -(self._standard(x / self.unit) @ self._inverse.to(x)) / self.unit

    def in_jax(self) -> InJax:
        """The same density."""
        return InJax(_gaussian_in_jax, (self.unit, self._mean.numpy(), self._inverse.numpy()))


def _gaussian_in_jax(data: Any, x: Any) -> Any:
    unit, mean, inverse = data
    return -0.5 * ((inverse @ (x / unit - mean)) ** 2).sum()


class _Bent(_Coordinates):
    def _standard(self, x: Tensor) -> Tensor:
        first, second = x.unbind(-1)
        return torch.stack([first / _ALONG, (second - _HEIGHT * torch.cos(_WAVES * first)) / _ACROSS], -1)

    def score(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """By the chain rule through z."""
        x = x / self.unit
        z1, z2 = self._standard(x).unbind(-1)
        slope = _HEIGHT * _WAVES * torch.sin(_WAVES * x[..., 0]) / _ACROSS
        return torch.stack([-z1 / _ALONG - z2 * slope, -z2 / _ACROSS], -1) / self.unit

    def in_jax(self) -> InJax:
        """The same density."""
        return InJax(_bent_in_jax, self.unit)


def _bent_in_jax(unit: Any, x: Any) -> Any:
    import jax.numpy as jnp

    first, second = x[0] / unit, x[1] / unit
    return -0.5 * ((first / _ALONG) ** 2 + ((second - _HEIGHT * jnp.cos(_WAVES * first)) / _ACROSS) ** 2)


class _Skewed(Target):
    """Densities b e^-u / (1 + e^-u)^(b + 1) of u = x / scale: type I of the generalised logistic laws."""

    def __init__(self, unit: float) -> None:
        self.dim, self._scale = len(_SHAPES), _SCALES * unit

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """(R, N, D) -> (R, N)."""
        u = x / self._scale.to(x)
        return (-u - (_SHAPES.to(x) + 1) * softplus(-u)).sum(-1)

    def score(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Bounded, (R, N, D)."""
        scale = self._scale.to(x)
        return ((_SHAPES.to(x) + 1) * torch.sigmoid(-x / scale) - 1) / scale

    def in_jax(self) -> InJax:
        """The same density."""
        return InJax(_skewed_in_jax, (self._scale.numpy(), _SHAPES.numpy()))


def _skewed_in_jax(data: Any, x: Any) -> Any:
    import jax.numpy as jnp

    scale, shapes = data
    return (-x / scale - (shapes + 1) * jnp.logaddexp(0, -x / scale)).sum()


class _Parted(Target):
    """A mixture of two spherical normal laws."""

    def __init__(self, unit: float) -> None:
        self.dim, self.unit = _CENTRES.shape[1], unit

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """(R, N, D) -> (R, N)."""
        return self._parts(x)[1].logsumexp(-1)

    def score(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Of the parts, weighted by their shares at the point."""
        pull, log_parts = self._parts(x)
        return (log_parts.softmax(-1).unsqueeze(-1) * pull).sum(-2) / self.unit

    def _parts(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Scores (R, N, K, D), and log densities (R, N, K), in units."""
        away, spread = _CENTRES.to(x) - x.unsqueeze(-2) / self.unit, _SPREADS.to(x)
        heights = _WEIGHTS.to(x).log() - self.dim * spread.log()
        return away / spread.unsqueeze(-1).square(), heights - 0.5 * away.square().sum(-1) / spread.square()

    def in_jax(self) -> InJax:
        """The same density."""
        return InJax(_parted_in_jax, (self.unit, _WEIGHTS.numpy(), _CENTRES.numpy(), _SPREADS.numpy()))


def _parted_in_jax(data: Any, x: Any) -> Any:
    import jax.numpy as jnp
    from jax.scipy.special import logsumexp

    unit, weights, centres, spread = data
    distances = ((x / unit - centres) ** 2).sum(1)
    return logsumexp(jnp.log(weights) - x.size * jnp.log(spread) - 0.5 * distances / spread**2)


#: Weights, centres and sds of ``parted``.
_WEIGHTS = torch.tensor([0.6, 0.4], dtype=torch.float64)
_CENTRES = torch.tensor([[-0.8, 0.3], [0.8, -0.3]], dtype=torch.float64)
_SPREADS = torch.tensor([0.3, 0.45], dtype=torch.float64)
#: b of ``skewed``, and the scales that make its sds 1/2: var u = psi'(b) + psi'(1), E u = psi(b) - psi(1).
_SHAPES = torch.tensor([4.0, 0.5], dtype=torch.float64)
_SCALES = 0.5 / (torch.polygamma(1, _SHAPES) + math.pi**2 / 6).sqrt()
#: sd of x1, amplitude and wave number of the bend, sd of x2 about it.
_ALONG, _HEIGHT, _WAVES, _ACROSS = 0.6, 0.6, 2.0, 0.4


@dataclass(frozen=True, kw_only=True)
class StableTask(ExactTask):
    """A target with exact draws that is no task of the benchmark."""

    tags: frozenset[str] = frozenset({"exact"})
    citation: str = ""
    unit: float = 1.0  #: of x: all lengths are multiples of it
    density: Callable[[float], Target]  #: in a unit
    draw: Callable[[int, Generator], Tensor]  #: independent exact draws in units, (n, D) float64
    log_normaliser: float = math.nan  #: logarithm of the integral of the density in the unit 1

    def in_units(self, unit: float) -> StableTask:
        """The same with other units of x."""
        return replace(self, unit=unit)

    def target(self, replicates: Sequence[int], device: torch.device | str, dtype: torch.dtype) -> Target:
        """The density, the same for all replicates."""
        return self.density(self.unit)

    def exact(self, n: int, generator: Generator) -> Tensor:
        """Independent exact draws, (n, D) float64."""
        return self.unit * self.draw(n, generator)


def _gaussian(name: str, summary: str, mean: tuple[float, ...], root: Tensor) -> StableTask:
    m, dim = torch.tensor(mean, dtype=torch.float64), len(mean)
    return StableTask(
        name=name, summary=summary, dim=dim, facts=Facts(m, root.square().sum(1).sqrt()), start=Normal((0.0,), 0.5),
        density=lambda unit: _Gaussian(m, root, unit),
        draw=lambda n, g: m + torch.randn(n, dim, generator=g, dtype=torch.float64) @ root.T,
        log_normaliser=float(torch.logdet(root)) + dim / 2 * math.log(2 * math.pi),
    )  # fmt: skip


def _bent() -> StableTask:
    """E cos(k x) = exp(-k^2 s^2 / 2) and E cos^2(k x) = (1 + exp(-2 k^2 s^2)) / 2 for x ~ N(0, s^2)."""
    phase = (_WAVES * _ALONG) ** 2
    height = _HEIGHT * math.exp(-phase / 2)
    variance = _ACROSS**2 + _HEIGHT**2 * (1 + math.exp(-2 * phase)) / 2 - height**2
    facts = Facts(torch.tensor([0.0, height]).double(), torch.tensor([_ALONG, math.sqrt(variance)]).double())

    def draw(n: int, generator: Generator) -> Tensor:
        z1, z2 = torch.randn(2, n, generator=generator, dtype=torch.float64)
        first = _ALONG * z1
        return torch.stack([first, _HEIGHT * torch.cos(_WAVES * first) + _ACROSS * z2], -1)

    return StableTask(
        name="bent", summary="a normal law bent along a cosine", dim=2, facts=facts, start=Normal((-0.3, 0.0), 0.5),
        density=lambda unit: _Bent(2, unit), draw=draw,
    )  # fmt: skip


def _skewed() -> StableTask:
    """Drawn by the inverse cdf."""
    mean = _SCALES * (torch.digamma(_SHAPES) - torch.digamma(torch.ones_like(_SHAPES)))

    def draw(n: int, generator: Generator) -> Tensor:
        p = torch.rand(n, len(_SHAPES), generator=generator, dtype=torch.float64)
        return -_SCALES * torch.expm1(-p.log() / _SHAPES).log()

    return StableTask(
        name="skewed", summary="two independent coordinates, skewed in opposite directions", dim=2,
        facts=Facts(mean, torch.full_like(mean, 0.5)), start=Normal((0.0,), 0.5), density=_Skewed, draw=draw,
    )  # fmt: skip


def _parted() -> StableTask:
    """Mean and variance of a mixture."""
    mean = _WEIGHTS @ _CENTRES
    variance = _WEIGHTS @ (_SPREADS.square().unsqueeze(-1) + _CENTRES.square()) - mean.square()

    def draw(n: int, generator: Generator) -> Tensor:
        part = (torch.rand(n, generator=generator, dtype=torch.float64) > _WEIGHTS[0]).long()
        z = torch.randn(n, len(mean), generator=generator, dtype=torch.float64)
        return _CENTRES[part] + _SPREADS[part].unsqueeze(-1) * z

    return StableTask(
        name="parted", summary="two normal laws, apart", dim=len(mean), facts=Facts(mean, variance.sqrt()),
        start=Normal((0.0,), 0.8), density=_Parted, draw=draw,
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
