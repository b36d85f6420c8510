"""KSIVI and SIVI-SM as their papers' programs run them: one replicate, modules, optimisers and autograd of PyTorch."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from plain_programs import flattened, kernel_matrix, modules
from sampler_toys import Regression, Run, points
from torch import Tensor, nn

from parvibench.nn.mlp import MLP

Score = Callable[[Tensor], Tensor]


def discrepancy(settings: Any, x: Tensor, f: Tensor, batches: int) -> Tensor:
    """L of one replicate; with one batch the pairs i = j are left out."""
    (x1, x2), (f1, f2) = (x.chunk(2), f.chunk(2)) if batches == 2 else ((x, x), (f, f))
    inverse = torch.eye(x.shape[1], dtype=x.dtype)
    if settings.affine_invariant:
        inverse = torch.inverse(torch.cov(x1.detach().T) + 1e-8 * inverse)
    products = (f1 @ inverse) @ f2.T
    products = products * kernel_matrix(settings.kernel, x1, x2, settings.bandwidth, settings.fixed_median)
    if batches == 2:
        return products.mean()
    m = len(x)
    return (products.sum() - products.diagonal().sum()) / (m * (m - 1))


class Sampler:
    """The semi-implicit distribution and its optimiser: step decay, clipping, averaging."""

    def __init__(self, settings: Any, parameters: Tensor, dim: int) -> None:
        self.settings = settings
        self.network = modules(settings.network(dim), parameters[:-dim])
        self.log_var = parameters[-dim:].clone().requires_grad_()
        self.t = 0

    def draw(self, z: Tensor, xi: Tensor) -> tuple[Tensor, Tensor]:
        """Samples and xi / sigma."""
        sigma = (self.log_var / 2).exp()
        return self.network(z) + sigma * xi, xi / sigma

    def start(self) -> None:
        """A fresh optimiser, and the average at the parameters."""
        s = self.settings
        groups = [
            {"params": list(self.network.parameters())},
            {"params": [self.log_var], "lr": s.step_size * s.log_var_rate},
        ]
        self.optimiser = torch.optim.Adam(groups, lr=s.step_size, betas=(s.beta1, s.beta2))
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimiser, s.decay_every, s.decay)
        self.average = self.flat()

    def descend(self, loss: Tensor) -> None:
        """One step."""
        self.t += 1
        self.optimiser.zero_grad()
        loss.backward()
        if self.settings.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.parameters(), self.settings.clip_norm)
        self.optimiser.step()
        self.schedule.step()
        if self.settings.ema is not None:
            self.average = self.settings.ema * self.average + (1 - self.settings.ema) * self.flat()

    def temper(self) -> float:
        """The annealing factor of the iteration to come."""
        warm_up = self.settings.annealing
        return min(1.0, 0.1 + (self.t + 1) / warm_up) if warm_up else 1.0

    def flat(self) -> Tensor:
        """Parameters in our order."""
        return torch.cat((flattened(self.network.parameters()), self.log_var)).detach().clone()

    def parameters(self) -> list[Tensor]:
        """What is trained."""
        return [*self.network.parameters(), self.log_var]


def ksivi_step(sampler: Sampler, score: Score, log_density: Score, z: Tensor, xi: Tensor, batches: int) -> None:
    """One iteration; the term of log p looks at the first batch."""
    settings, temper = sampler.settings, sampler.temper()
    x, noise = sampler.draw(z, xi)
    loss = discrepancy(settings, x, temper * score(x) + noise, batches)
    until = settings.regularisation_until
    if until is None or sampler.t < until:
        loss = loss - settings.regularisation * temper * log_density(x[: len(x) // batches]).mean()
    sampler.descend(loss)


class Critic:
    """SIVI-SM's adversary and its optimiser."""

    def __init__(self, settings: Any, shape: MLP, parameters: Tensor) -> None:
        self.settings, self.network = settings, modules(shape, parameters)

    def start(self, rate: float) -> None:
        """A fresh optimiser."""
        s = self.settings
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=rate, betas=(s.beta1, s.critic_beta2))

    def objective(self, x: Tensor, s: Tensor, noise: Tensor, psi: float) -> Tensor:
        """E[2 g . (s + xi / sigma) - |g|^2], g = f + psi s."""
        g = self.network(x) + psi * s
        return (g * (2 * s + 2 * noise - g)).sum(-1).mean()

    def fit(self, sampler: Sampler, score: Score, z: Tensor, xi: Tensor, temper: float, psi: float) -> None:
        """One step on f."""
        x, noise = (v.detach() for v in sampler.draw(z, xi))
        loss = -self.objective(x, temper * score(x).detach(), noise, psi)
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()


#: Every option of the frame at work within ten iterations.
PROGRAM = {
    "hidden": 5, "batch": 6, "step_size": 0.01, "annealing": 5, "clip_norm": 0.7, "ema": 0.8, "decay": 0.5,
    "decay_every": 3, "log_var_rate": 0.3, "log_var_init": -1.0, "pretraining": 4, "pretraining_rate": 0.03,
}  # fmt: skip
ACTIVATION = pytest.mark.parametrize("activation", ["relu", "tanh", "leaky-relu"])


def z_scores(values: Tensor, expected: Tensor | float) -> Tensor:
    """Standard errors between the means over the first axis and what they should be."""
    return (values.mean(0) - expected) / (values.std(0) / math.sqrt(len(values)))


def sampler_parameters(settings: Any, dim: int = 2, seed: int = 0) -> Tensor:
    """Random parameters of two replicates, biases and weights of order one, sigma between 1/3 and 3."""
    return 0.7 * points(2, settings.network(dim).n_parameters + dim, seed=seed)


def by_autograd(
    settings: Any, parameters: Tensor, z: Tensor, xi: Tensor, loss: Callable[[int, Tensor, Tensor], Tensor]
) -> Tensor:
    """Gradient of ``loss(replicate, samples, xi / sigma)`` in the parameters of every replicate, (R, P + D)."""
    gradients = []
    for r, row in enumerate(parameters):
        sampler = Sampler(settings, row, xi.shape[2])
        loss(r, *sampler.draw(z[r], xi[r])).backward()  # type: ignore[no-untyped-call]
        gradients.append(flattened(p.grad for p in sampler.parameters()))
    return torch.stack(gradients)


def fitted_first(run: Run, settings: Any, parameters: Tensor) -> Sampler:
    """The program's sampler after pre-training with the run's noise, the run itself after as many steps."""
    problem, target = run.problem, Regression()
    sampler = Sampler(settings, parameters, 3)
    for t in range(settings.pretraining):
        problem.streams.step = t
        noise, batch = noise_of(run, 1), problem._batch()
        if t == 0:
            fit = torch.optim.Adam(sampler.parameters(), lr=settings.pretraining_rate)
        development = settings.pretraining_rows == "development"
        loss = target.fit(sampler.draw(*noise)[0][None], batch, development).sum()
        fit.zero_grad()
        loss.backward()
        fit.step()
    run.steps(settings.pretraining)
    sampler.start()
    return sampler


def noise_of(run: Run, batches: int, index: int = 0) -> tuple[Tensor, Tensor]:
    """z and xi of the current step, as the methods draw them."""
    n, streams = batches * run.settings.batch, run.problem.streams
    z = streams.normal("algorithm", (n, run.settings.latent_dim), index)
    return z[0], streams.normal("noise", (n, run.problem.dim), index)[0]
