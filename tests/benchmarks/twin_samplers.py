"""Samplers as one writes them from a paper: one replicate, autograd for every gradient, broadcasting, modules.

The twins of the fast paths, neither slowed down nor tuned. Each is a class with ``step()``; ``draw`` gives
standard normal noise of a shape, so that a test can hand in the noise of the other side.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from twin_densities import LogDensity

Draw = Callable[..., Tensor]


def score_of(log_density: LogDensity, x: Tensor, create_graph: bool = False) -> Tensor:
    """Gradient of a log density at (n, D)."""
    if not create_graph:
        x = x.detach().requires_grad_()
    return torch.autograd.grad(log_density(x).sum(), x, create_graph=create_graph)[0]


class Langevin:
    """Unadjusted Langevin, as SGLD and ULA."""

    def __init__(self, density: LogDensity, x: Tensor, step_size: float, draw: Draw = torch.randn) -> None:
        self.log_density, self.x, self.step_size, self.draw = density, x, step_size, draw

    def step(self) -> None:
        noise = self.draw(*self.x.shape)
        score = score_of(self.log_density, self.x)
        self.x = self.x + self.step_size * score + math.sqrt(2 * self.step_size) * noise


class MALA:
    """Langevin proposals with an accept step (Roberts & Tweedie 1996)."""

    def __init__(
        self, log_density: LogDensity, x: Tensor, step_size: float,
        draw: Draw = torch.randn, uniform: Draw = torch.rand,
    ) -> None:  # fmt: skip
        self.log_density, self.x, self.step_size = log_density, x, step_size
        self.draw, self.uniform = draw, uniform
        self.value, self.score = self._evaluate(x)

    def _evaluate(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = x.detach().requires_grad_()
        value = self.log_density(x)
        return value.detach(), torch.autograd.grad(value.sum(), x)[0]

    def step(self) -> None:
        eta = self.step_size
        y = self.x + eta * self.score + math.sqrt(2 * eta) * self.draw(*self.x.shape)
        value, score = self._evaluate(y)
        forward = -((y - self.x - eta * self.score) ** 2).sum(1) / (4 * eta)
        backward = -((self.x - y - eta * score) ** 2).sum(1) / (4 * eta)
        accept = torch.log(self.uniform(len(y))) < value - self.value + backward - forward
        self.x = torch.where(accept[:, None], y, self.x)
        self.value = torch.where(accept, value, self.value)
        self.score = torch.where(accept[:, None], score, self.score)


class SRLD:
    """A chain pushed away from its own past (Ye, Ren & Liu 2020, arXiv:2002.09070, Algorithm 1)."""

    def __init__(
        self, log_density: LogDensity, x: Tensor, step_size: float, alpha: float, memory: int, spacing: int,
        draw: Draw = torch.randn,
    ) -> None:  # fmt: skip
        self.log_density, self.x, self.step_size, self.alpha = log_density, x, step_size, alpha
        self.memory, self.spacing, self.draw = memory, spacing, draw
        self.past: list[Tensor] = []
        self.k = 0

    def step(self) -> None:
        noise = self.draw(*self.x.shape)
        drift = score_of(self.log_density, self.x)
        if len(self.past) == self.memory and self.k >= self.memory * self.spacing:
            past = torch.cat(self.past)
            scores = score_of(self.log_density, past)
            b = past.detach().requires_grad_()
            distance = ((b - self.x) ** 2).sum(1)
            kernel = torch.exp(-distance / (distance.detach().median() / math.log(self.memory)))
            by_kernel = torch.autograd.grad(kernel.sum(), b)[0]
            repulsion = (kernel.detach()[:, None] * scores + by_kernel).mean(0, keepdim=True)
            drift = drift + self.alpha * repulsion
        if self.k % self.spacing == 0:
            self.past = [*self.past, self.x][-self.memory :]
        self.k += 1
        self.x = self.x + self.step_size * drift + math.sqrt(2 * self.step_size) * noise


class SVGD:
    """Stein variational gradient descent with the median heuristic (Liu & Wang 2016, arXiv:1608.04471)."""

    def __init__(self, log_density: LogDensity, x: Tensor, step_size: float) -> None:
        self.log_density, self.x, self.step_size = log_density, x, step_size

    def step(self) -> None:
        x, n = self.x, len(self.x)
        score = score_of(self.log_density, x)
        apart = x[:, None, :] - x[None, :, :]
        distance = (apart**2).sum(-1)
        h = float(np.median(distance.numpy())) / math.log(n + 1)
        kernel = torch.exp(-distance / h)
        repel = 2 / h * (kernel[:, :, None] * apart).sum(1)
        self.x = x + self.step_size * (kernel @ score + repel) / n


class Mover:
    """Particles moved along a velocity, plainly or over its running root mean square."""

    def __init__(self, step_size: float, rule: str) -> None:
        self.step_size, self.rule = step_size, rule
        self.mean_square: Tensor | None = None

    def __call__(self, z: Tensor, velocity: Tensor) -> Tensor:
        if self.rule == "rms":
            old = velocity**2 if self.mean_square is None else self.mean_square
            self.mean_square = 0.9 * old + 0.1 * velocity**2
            velocity = velocity / (1e-6 + torch.sqrt(self.mean_square))
        return z + self.step_size * velocity


class SIFG:
    """Semi-implicit functional gradient flow (arXiv:2410.17935, Algorithm 1; Algorithm 2 with a sigma_step_size).

    As in its authors' program, every inner step takes the target's score again; without ``inner_scores`` the last
    one only.
    """

    def __init__(
        self, log_density: LogDensity, z: Tensor, sigma: float, network: nn.Module, optimiser: torch.optim.Optimizer,
        mover: Mover, inner_steps: int, warmup: int, sigma_step_size: float = 0.0, draw: Draw = torch.randn, inner_scores: bool = True,
    ) -> None:  # fmt: skip
        self.log_density, self.x, self.sigma, self.draw = log_density, z, sigma, draw
        self.network, self.optimiser, self.mover = network, optimiser, mover
        self.inner_steps, self.sigma_step_size, self.inner_scores = inner_steps, sigma_step_size, inner_scores
        w = self.draw(*z.shape)
        if warmup:
            self._fit(z + sigma * w, w, warmup)

    def _fit(self, x: Tensor, w: Tensor, steps: int) -> Tensor:
        """Fit the network; the target's score at x."""
        for i in range(steps):
            if self.inner_scores or i == steps - 1:
                score = score_of(self.log_density, x)
            loss = ((self.network(x) + w / self.sigma) ** 2).sum(1).mean()
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
        return score

    def step(self) -> None:
        w = self.draw(*self.x.shape)
        x = self.x + self.sigma * w
        score = self._fit(x, w, self.inner_steps)
        with torch.no_grad():
            velocity = score - self.network(x)
        if self.sigma_step_size:
            moved = self.sigma + self.sigma_step_size * float((velocity * w).sum(1).mean())
            self.sigma = min(max(moved, 1e-3), 1.0)
        self.x = self.mover(self.x, velocity)


class KSIVI:
    """Kernel semi-implicit VI, the vanilla estimator (arXiv:2405.18997, Algorithm 1) with a Gaussian kernel."""

    def __init__(
        self, log_density: LogDensity, network: nn.Module, log_var: Tensor, batch: int, latent_dim: int,
        optimiser: torch.optim.Optimizer, latent: Draw = torch.randn, draw: Draw = torch.randn,
    ) -> None:  # fmt: skip
        self.log_density, self.network, self.log_var = log_density, network, log_var
        self.batch, self.latent_dim, self.optimiser = batch, latent_dim, optimiser
        self.latent, self.draw = latent, draw

    def _sample(self, z: Tensor, xi: Tensor) -> tuple[Tensor, Tensor]:
        """Samples of one batch and their residuals."""
        sigma = torch.exp(0.5 * self.log_var)
        x = self.network(z) + sigma * xi
        return x, score_of(self.log_density, x, create_graph=True) + xi / sigma

    def step(self) -> None:
        z, xi = self.latent(2 * self.batch, self.latent_dim), self.draw(2 * self.batch, len(self.log_var))
        (x1, f1), (x2, f2) = (self._sample(*pair) for pair in zip(z.chunk(2), xi.chunk(2), strict=True))
        distance = ((x1[:, None, :] - x2[None, :, :]) ** 2).sum(-1)
        h = torch.median(distance) / math.log(self.batch + 1)
        loss = (torch.exp(-distance / h) * (f1 @ f2.T)).mean()
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
