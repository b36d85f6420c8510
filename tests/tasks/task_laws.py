"""Comparing exact draws with densities and closed forms."""

from functools import cache

import torch
from torch import Tensor

from parvibench.core.registry import load_task
from parvibench.core.target import Target


@cache
def draws(name: str, n: int = 5000) -> Tensor:
    """Exact draws of a task from a fixed seed, (n, D), of the promised shape and type."""
    task = load_task(name)
    x = task.exact(n, torch.Generator().manual_seed(20250801))
    assert (x.shape, x.dtype) == ((n, task.dim), torch.float64)
    return x


def directions(name: str) -> Tensor:
    """Three random unit vectors and, where there are modes, the one between the first two, (4, D)."""
    task = load_task(name)
    u = torch.randn(4, task.dim, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    if task.facts.modes is not None:
        u[3] = task.facts.modes.means[1] - task.facts.modes.means[0]
    return u / u.norm(dim=1, keepdim=True)


def z_scores(values: Tensor, expected: Tensor | float) -> Tensor:
    """Means of independent rows minus what they should be, in standard errors."""
    return (values.mean(0) - expected) / (values.std(0) / values.shape[0] ** 0.5)


def moment_z_scores(name: str, x: Tensor) -> Tensor:
    """z-scores of the means and variances of draws (n, D) of a task against its facts, (2, D)."""
    facts = load_task(name).facts
    return torch.stack([z_scores(x, facts.mean), z_scores((x - facts.mean) ** 2, facts.sd**2)])


def stein_z_scores(name: str, x: Tensor) -> Tensor:
    """z-scores of E u.s(x) = 0 and E (u.x)(w.s(x)) = -u.w along four directions, (20,)."""
    u = directions(name)
    score = load_task(name).target((0,), "cpu", torch.float64).score(x.unsqueeze(0))[0] @ u.T
    products = ((x @ u.T).unsqueeze(-1) * score.unsqueeze(-2)).flatten(1)
    return torch.cat([z_scores(score, 0.0), z_scores(products, -(u @ u.T).flatten())])


def assert_score_is_gradient(target: Target, x: Tensor, batch: Tensor | None = None, tolerance: float = 1e-9) -> None:
    """The score is the gradient of the density, together with it or alone, and has the density's Hessian."""
    v = torch.randn(x.shape, generator=torch.Generator().manual_seed(5), dtype=x.dtype)
    leaf = x.clone().requires_grad_()
    gradient = torch.autograd.grad(target.log_density(leaf, batch).sum(), leaf, create_graph=True)[0]
    score = target.score(x, batch)
    torch.testing.assert_close(score, gradient.detach(), rtol=1e-9, atol=1e-9)
    both = target.log_density_and_score(x, batch)
    torch.testing.assert_close(both, (target.log_density(x, batch), score), rtol=1e-12, atol=1e-12)
    through_score = torch.autograd.grad((target.score(leaf, batch) * v).sum(), leaf)[0]
    through_density = torch.autograd.grad((gradient * v).sum(), leaf)[0]
    torch.testing.assert_close(through_score, through_density, rtol=tolerance, atol=tolerance)


def hmc(target: Target, start: Tensor, trajectories: int, step: float, leaps: int) -> Tensor:
    """Plain HMC from (chains, D) float64: positions after the first fifth, (trajectories kept, chains, D).

    The leapfrog step is drawn within 20% of ``step`` for every chain and trajectory.
    """
    generator = torch.Generator().manual_seed(6)
    x = start.unsqueeze(0)
    log_p, score = target.log_density_and_score(x)
    kept = []
    for i in range(trajectories):
        p = torch.randn(x.shape, generator=generator, dtype=x.dtype)
        eps = step * (0.8 + 0.4 * torch.rand(*x.shape[:2], 1, generator=generator, dtype=x.dtype))
        energy = log_p - p.square().sum(-1) / 2
        y, y_score = x, score
        for _ in range(leaps):
            p = p + eps / 2 * y_score
            y = y + eps * p
            y_log_p, y_score = target.log_density_and_score(y)
            p = p + eps / 2 * y_score
        chance = y_log_p - p.square().sum(-1) / 2 - energy
        accepted = torch.rand(x.shape[:2], generator=generator, dtype=x.dtype).log() < chance
        x = torch.where(accepted.unsqueeze(-1), y, x)
        score = torch.where(accepted.unsqueeze(-1), y_score, score)
        log_p = torch.where(accepted, y_log_p, log_p)
        if i >= trajectories // 5:
            kept.append(x[0])
    return torch.stack(kept)
