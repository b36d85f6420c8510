"""Linear changes of variables that whiten a posterior.

Chains run on z with ``x = centre + L z``. The map is linear, so the law sampled is exactly the target's; only
its conditioning changes. L comes first from Laplace's approximation at the mode, then from a pilot run's
covariance: a posterior may be wider than the curvature at its mode suggests, and centred elsewhere.
"""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from parvibench.core.target import Target


class Whitened(Target):
    """A target, float64, in coordinates z with x = centre + L z: centre (D,), factor L (D, D)."""

    def __init__(self, base: Target, centre: Tensor, factor: Tensor) -> None:
        self.base, self.centre, self.factor = base, centre, factor
        self.dim = base.dim

    @classmethod
    def from_draws(cls, base: Target, draws: Tensor) -> Whitened:
        """Whiten by the mean and covariance of draws (n, D)."""
        return cls(base, draws.mean(0), torch.linalg.cholesky(torch.cov(draws.T)))

    @classmethod
    def at_mode(cls, base: Target, start: Tensor) -> Whitened:
        """Find a mode by a trust-region Newton method, beginning at ``start`` (D,), and factor the Hessian there."""
        from scipy.optimize import minimize

        def negative(x: NDArray[Any]) -> float:
            return -float(base.log_density(_state(x)))

        def gradient(x: NDArray[Any]) -> NDArray[Any]:
            return -base.score(_state(x)).numpy().ravel()

        def hessian(x: NDArray[Any]) -> NDArray[Any]:
            return -_hessian(base, torch.from_numpy(x)).numpy()

        found = minimize(negative, start.numpy(), jac=gradient, hess=hessian, method="trust-exact", tol=1e-10)
        mode = torch.from_numpy(found.x)
        # H = C C^T gives H^-1 = C^-T C^-1, so L = C^-T.
        cholesky = torch.linalg.cholesky(-_hessian(base, mode))
        return cls(base, mode, torch.linalg.inv(cholesky).T)

    def to_base(self, z: Tensor) -> Tensor:
        """Points x = centre + L z, (..., D)."""
        return self.centre + z @ self.factor.T

    def from_base(self, x: Tensor) -> Tensor:
        """Points z = L^-1 (x - centre), (n, D)."""
        return torch.linalg.solve(self.factor, (x - self.centre).T).T

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Up to the constant log |det L|: (R, N, D) -> (R, N)."""
        return self.base.log_density(self.to_base(x), batch)

    def score(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Gradient in z: (R, N, D) -> (R, N, D)."""
        return self.base.score(self.to_base(x), batch) @ self.factor

    def log_density_and_score(self, x: Tensor, batch: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Both at once, sharing the target's computation."""
        log_density, score = self.base.log_density_and_score(self.to_base(x), batch)
        return log_density, score @ self.factor


def _state(x: NDArray[Any]) -> Tensor:
    return torch.from_numpy(x)[None, None]


def _hessian(base: Target, x: Tensor) -> Tensor:
    """Second derivatives of the log density at one point, (D,) -> (D, D)."""
    leaf = x.clone().requires_grad_()
    score = base.score(leaf[None, None]).flatten()
    return torch.stack([torch.autograd.grad(s, leaf, retain_graph=True)[0] for s in score])
