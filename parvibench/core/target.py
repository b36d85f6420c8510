"""Unnormalised densities on batches of states."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .errors import UnsupportedError


class InJax(NamedTuple):
    """A log density written in JAX."""

    log_density: Callable[[Any, Any], Any]  #: of data and a point (D,) -> scalar; the same object for the same formula
    data: Any  #: arrays and numbers, nested; of one replicate


class Target(ABC):
    """A density known up to a constant, evaluated on states of shape (R, N, D).

    Subclasses write ``log_density`` and, where the mathematics is easy, ``score``; a score must be
    differentiable by autograd when its input asks for it (Hessian-vector products), so in-place
    operations belong in branches that run without gradients.

    Targets with data (``rows`` set) take ``batch``, row indices of shape (R, B) into each
    replicate's training set, and scale the likelihood by ``rows / B``.
    """

    dim: int  #: D
    rows: int | None = None  #: number of data rows behind the likelihood, or None
    development_rows: int = 0  #: rows held back from training that are not test rows either, or 0
    native: Any = None  #: the compiled program behind the density, for samplers of its own language, or None
    prior_precision: float | None = None  #: m when the log prior is -(m/2)||x||^2 up to a constant, else None

    @abstractmethod
    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Unnormalised log density in nats: (R, N, D) -> (R, N)."""

    def score(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Gradient of the log density: (R, N, D) -> (R, N, D). By autograd unless overridden."""
        if x.requires_grad and torch.is_grad_enabled():
            total = self.log_density(x, batch).sum()
            return torch.autograd.grad(total, x, create_graph=True)[0]
        with torch.inference_mode(False), torch.enable_grad():
            leaf = x.detach().clone().requires_grad_()
            return torch.autograd.grad(self.log_density(leaf, batch).sum(), leaf)[0]

    def log_density_and_score(self, x: Tensor, batch: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Both at once; override where they share work."""
        return self.log_density(x, batch), self.score(x, batch)

    def both_by_autograd(self, x: Tensor, batch: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Both from one pass, for targets without a score of their own."""
        if x.requires_grad and torch.is_grad_enabled():
            return self.log_density(x, batch), self.score(x, batch)
        with torch.inference_mode(False), torch.enable_grad():
            leaf = x.detach().clone().requires_grad_()
            density = self.log_density(leaf, batch)
            return density.detach(), torch.autograd.grad(density.sum(), leaf)[0]

    def in_jax(self) -> InJax | None:
        """The same density in JAX, for samplers that are compiled with it; None where it is not written in JAX."""
        return None

    def fit_gradient(self, x: Tensor, batch: Tensor | None = None, development: bool = False) -> Tensor:
        """Gradient of the mean squared error of the N points' mean prediction: (R, N, D) -> (R, N, D).

        On training rows ``batch``, (R, B), or all, or on the development rows; ``UnsupportedError`` of no regression.
        """
        raise UnsupportedError(f"{type(self).__name__} predicts no responses that could be fitted")


class JointTarget(Target):
    """A target whose density and score come from one computation, ``log_density_and_score``."""

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Log density in nats: (R, N, D) -> (R, N)."""
        return self.log_density_and_score(x, batch)[0]

    def score(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Gradient: (R, N, D) -> (R, N, D)."""
        return self.log_density_and_score(x, batch)[1]

    @abstractmethod
    def log_density_and_score(self, x: Tensor, batch: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Both at once."""


#: Log density (R, N) in nats and score of states (R, N, D), given constants.
Formula = Callable[..., tuple[Tensor, Tensor]]


class FormulaTarget(JointTarget):
    """A density that is a formula, with its constants on the device, in the type of the states."""

    def __init__(self, dim: int, formula: Formula, constants: Sequence[Tensor] = (), jax: InJax | None = None) -> None:
        self.dim, self._formula, self._constants, self._jax = dim, formula, constants, jax

    def log_density_and_score(self, x: Tensor, batch: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Both at once."""
        return self._formula(x, *self._constants)

    def in_jax(self) -> InJax | None:
        """The same in JAX, where it is written."""
        return self._jax


#: The score at a point, (R, N, D), and the product of its Hessian there with a vector, (R, N, D) -> (R, N, D).
Linearised = tuple[Tensor, Callable[[Tensor], Tensor]]


def score_with_product(x: Tensor, linearise: Callable[[Tensor], Linearised]) -> Tensor:
    """A score that autograd differentiates, once, by the product that ``linearise`` gives with it at (R, N, D)."""
    return _ScoreWithProduct.apply(x, linearise)  # type: ignore[no-untyped-call]


class _ScoreWithProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, linearise: Callable[[Tensor], Linearised]) -> Tensor:
        score, ctx.product = linearise(x)
        return score

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, vector: Tensor) -> tuple[Tensor, None]:
        """The Hessian is symmetric: its transpose times a vector is its product."""
        return ctx.product(vector), None
