"""Start distributions, and the base of tasks with exact draws and no data."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from .target import Formula, FormulaTarget, InJax, Target
from .task import Task


class Start(ABC):
    """A start distribution with independent points."""

    @abstractmethod
    def sample(self, n: int, dim: int, generator: Generator) -> Tensor:
        """Independent draws, (n, dim) float64."""


@dataclass(frozen=True)
class Normal(Start):
    """N(mean, sd^2 I)."""

    mean: tuple[float, ...] = (0.0,)  #: one number per coordinate, or one for all
    sd: float = 1.0  #: standard deviation of every coordinate

    def sample(self, n: int, dim: int, generator: Generator) -> Tensor:
        """Independent draws, (n, dim) float64."""
        z = torch.randn(n, dim, generator=generator, dtype=torch.float64)
        return torch.tensor(self.mean, dtype=torch.float64) + self.sd * z


@dataclass(frozen=True)
class TruncatedNormal(Start):
    """Every coordinate from N(mean, 1) within two of it: the start in the code of Ye, Ren & Liu, arXiv:2002.09070."""

    mean: float = 2.0

    def sample(self, n: int, dim: int, generator: Generator) -> Tensor:
        """Independent draws, (n, dim) float64."""
        u = torch.rand(n, dim, generator=generator, dtype=torch.float64)
        low, high = torch.special.ndtr(torch.tensor([-2.0, 2.0], dtype=torch.float64))
        return self.mean + torch.special.ndtri(low + (high - low) * u)


@dataclass(frozen=True, kw_only=True)
class ExactTask(Task):
    """A target without data whose exact draws are known."""

    start: Start = Normal()  #: the start distribution
    provides: frozenset[str] = frozenset({"score", "hvp", "full-batch", "exact"})

    def initial(self, target: Target, n: int, generators: Sequence[Generator]) -> Tensor:
        """Draws from the start distribution, (R, n, D) float64."""
        return torch.stack([self.start.sample(n, self.dim, g) for g in generators])

    @abstractmethod
    def exact(self, n: int, generator: Generator) -> Tensor:
        """Independent exact draws, (n, D) float64."""


@dataclass(frozen=True, kw_only=True)
class FormulaTask(ExactTask):
    """A density that is a formula, the same for all replicates, with its exact draws."""

    formula: Formula
    constants: Callable[[], tuple[Tensor, ...]] = tuple  #: of the formula, float64; copied to the device once a target
    draws: Callable[[int, Generator], Tensor]  #: independent exact draws, (n, D) float64
    jax: InJax | None = None  #: the same in JAX, up to a constant

    def target(self, replicates: Sequence[int], device: torch.device | str, dtype: torch.dtype) -> Target:
        """The density."""
        return FormulaTarget(self.dim, self.formula, [c.to(device, dtype) for c in self.constants()], self.jax)

    def exact(self, n: int, generator: Generator) -> Tensor:
        """Independent exact draws, (n, D) float64."""
        return self.draws(n, generator)
