"""Unnormalised densities on batches of states."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor


class Target(ABC):
    """A density known up to a constant, evaluated on states of shape (R, N, D).

    Subclasses write ``log_density`` and, where the mathematics is easy, ``score``; a score must be
    differentiable by autograd when its input asks for it (Hessian-vector products), so in-place
    operations belong in branches that run without gradients.

    Targets with data (``rows`` set) take ``batch``, row indices of shape (R, B) into each
    replicate's training set, and scale the likelihood by ``rows / B``.

    Attributes:
        dim: D.
        rows: number of data rows behind the likelihood, or None.
        prior_precision: m when the log prior is -(m/2)||x||^2 up to a constant, else None.
    """

    dim: int
    rows: int | None = None
    prior_precision: float | None = None

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
