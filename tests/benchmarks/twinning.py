"""The textbook twin of one replicate of one of our samplers: same data, same start, same settings."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
import twin_densities
import twin_samplers as samplers
from plain_programs import modules
from stepping import Stepper
from torch import Tensor, nn
from twin_densities import LogDensity

from parvibench.data.loaders import load
from parvibench.data.splits import regression_split


def cycled_rows(rows: int, size: int) -> Callable[[], Tensor]:
    """Mini-batches without replacement, epoch after epoch."""

    def batches() -> Iterator[Tensor]:
        while True:
            shuffled = torch.randperm(rows)
            yield from (shuffled[i : i + size] for i in range(0, rows - size + 1, size))

    return batches().__next__


def log_density_of(stepper: Stepper, next_rows: Callable[[], Tensor] | None = None) -> LogDensity:
    """The task's density, from its definition and its raw data."""
    task: Any = stepper.task
    dtype, replicate = stepper.problem.dtype, stepper.problem.streams.replicates[0]
    if task.name.startswith(("gmm", "multimodal")):
        modes = task.facts.modes
        return twin_densities.mixture(modes.means.to(dtype), modes.sds.to(dtype))
    if task.name == "banana":
        return twin_densities.banana()
    if task.name.startswith("diffusion"):
        return twin_densities.diffusion(torch.tensor(task.y, dtype=dtype))
    table = load(task.table)
    if task.name.startswith("blr"):
        X = torch.from_numpy(table.X.copy())
        if task.standardise:
            X = (X - X.mean(0)) / X.std(0, correction=0)
        X = torch.cat([torch.ones(len(X), 1), X], dim=1)
        return twin_densities.logistic(X.to(dtype), torch.from_numpy(table.y.copy()).to(dtype))
    split = regression_split(table, replicate)
    X, y = (torch.from_numpy(a.copy()).to(dtype) for a in (split.X_train, split.y_train))
    return twin_densities.network_regression(X, y, next_rows or cycled_rows(len(X), task.batch_size))


def twin_of(stepper: Stepper, next_rows: Callable[[], Tensor] | None = None, **options: samplers.Draw) -> Any:
    """A twin at a fresh stepper's start, of one replicate; ``options`` may hold its sources of noise."""
    s, problem = stepper.settings, stepper.problem
    density = log_density_of(stepper, next_rows)
    x = problem.init(stepper.algorithm.n_particles)[0].clone()
    match stepper.algorithm.name:
        case "sgld" | "ula":
            return samplers.Langevin(density, x, s.step_size, **options)
        case "mala":
            return samplers.MALA(density, x, s.step_size, **options)
        case "srld":
            return samplers.SRLD(density, x, s.step_size, s.alpha, s.memory, s.spacing, **options)
        case "svgd":
            return samplers.SVGD(density, x, s.step_size)
        case "sifg" | "ada-sifg":
            network = _network(stepper)
            return samplers.SIFG(
                density, x, s.sigma, network, _refit_optimiser(s, network),
                samplers.Mover(s.step_size, s.particle_rule), s.inner_steps, s.warmup_inner_steps,
                getattr(s, "sigma_step_size", 0.0), **options,
            )  # fmt: skip
        case "ksivi":
            network = _network(stepper)
            log_var = torch.full((problem.dim,), s.log_var_init, dtype=problem.dtype, requires_grad=True)
            trained = [*network.parameters(), log_var]
            optimiser = torch.optim.Adam(trained, lr=s.step_size, betas=(s.beta1, s.beta2))
            return samplers.KSIVI(density, network, log_var, s.batch, s.latent_dim, optimiser, **options)
    raise ValueError(f"{stepper.algorithm.name} has no twin")


def _network(stepper: Stepper) -> nn.Sequential:
    shape, streams = stepper.settings.network(stepper.problem.dim), stepper.problem.streams
    return modules(shape, shape.initialise(streams.uniform("init", (shape.n_parameters,)))[0])


def _refit_optimiser(settings: Any, network: nn.Module) -> torch.optim.Optimizer:
    rate = settings.net_learning_rate
    if settings.net_optimiser == "adam":
        return torch.optim.Adam(network.parameters(), lr=rate)
    momentum = 0.9 if settings.net_optimiser == "sgd-nesterov" else 0.0
    return torch.optim.SGD(network.parameters(), lr=rate, momentum=momentum, nesterov=momentum > 0)
