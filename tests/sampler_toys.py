"""Small targets and a way to run an algorithm on them."""

import contextlib
from collections.abc import Sequence
from itertools import islice
from typing import Any, Self

import torch
from torch import Generator, Tensor
from torch.nn import functional

from parvibench.core import registry
from parvibench.core.algorithm import take_steps
from parvibench.core.streams import Streams
from parvibench.core.target import Target
from parvibench.core.task import Problem

#: But for NUTS, which takes one replicate at a time and has a file of its own.
SAMPLERS = [
    name
    for name, row in registry.algorithms().items()
    if row.kind != "anchor" and registry.load_algorithm(name).max_chunk != 1
]
#: Settings that lead through other branches than the defaults do.
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("svgd", {"rule": "adagrad"}),
    ("svgd", {"bandwidth": "median-sampled"}),
    ("svgd", {"bandwidth": 0.5}),
    ("svgd", {"rule": "adam", "kernel": "imq", "acceleration": "wag"}),
    ("svgd", {"bandwidth": "he", "acceleration": "wnes"}),
    ("blob", {"bandwidth": "he"}),
    ("gfsd", {"acceleration": "wag", "rule": "adagrad"}),
    ("gfsf", {"acceleration": "wnes", "bandwidth": 0.7, "rule": "adam"}),
    ("spos", {"beta": 3.0, "bandwidth": "median-sampled"}),
    ("pathfinder", {"resampling": "none", "history": 1}),
    ("pathfinder", {"draws": 2, "longest": 2}),
    ("realnvp", {"flows": 1, "final_rate": 1.0}),
    ("laplace", {"starts": 2, "longest": 1}),
    ("sifg", {"score": "exact"}),
    ("sifg", {"particle_rule": "rms", "net_optimiser": "adam", "net_decay": 0.9}),
    ("ada-sifg", {"score": "exact"}),
    ("ada-sifg", {"sigma_rule": "dsm-code", "sigma_step_size": 1e-6}),
    ("ada-sifg", {"particle_rule": "rms", "net_optimiser": "adam", "activation": "leaky-relu"}),
    ("l2-gf", {"particle_rule": "adam", "net_optimiser": "sgd"}),
    ("l2-gf", {"particle_rule": "rms", "probe": "gaussian", "activation": "relu"}),
    ("ada-gwg", {"p": 3.0, "p_clip": 0.01, "velocity_divisor": 10.0}),
    ("ada-gwg", {"particle_rule": "rms", "probe": "gaussian"}),
    ("mied", {"mollifier": "gaussian"}),
    ("mied", {"mollifier": "laplace"}),
    ("ksdd", {"kernel": "imq", "bandwidth": "median"}),
    ("hmc", {"jitter": 0.2}),
    ("deep-ensemble", {"held": 1}),
    ("mclmc", {"integrator": "leapfrog", "length_rule": "size", "precondition": False}),
    ("adjusted-mclmc", {"integrator": "minimal-norm", "precondition": False, "target_acceptance": 0.8}),
    ("parallel-tempering", {"temperatures": 2, "base_sd": 1.0}),
    ("smc", {"moves": 2, "annealing": 0.0, "base_sd": 2.0}),
    ("lapd-decay", {"constant_steps": 2, "log_sobolev": 3.0}),
    ("ksivi", {"kernel": "imq", "clip_norm": 0.1}),
    ("ksivi", {"kernel": "riesz", "annealing": 20, "affine_invariant": True}),
    ("ksivi", {"fixed_median": True}),
    ("ksivi", {"kernel": "laplace", "ema": 0.9, "log_var_rate": 0.1}),
    ("ksivi", {"bandwidth": 1.5, "regularisation": 0.5}),
    ("ksivi-ustat", {"kernel": "riesz", "regularisation": 0.5, "regularisation_until": 2}),
    ("sivi", {"annealing": 20, "clip_norm": 0.1, "ema": 0.9}),
    ("sivi-sm", {"psi": 0.7, "psi_decay": 0.9}),
    ("sivi-sm", {"annealing": 20, "clip_norm": 0.1, "ema": 0.9}),
    ("uivi", {"annealing": 20, "clip_norm": 0.1, "ema": 0.9}),
]


class Gaussian(Target):
    """N(mean, diag(1 / precision))."""

    def __init__(self, precision: Sequence[float], mean: float = 0.0) -> None:
        self.precision, self.mean, self.dim = torch.tensor(precision), mean, len(precision)

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        return -0.5 * ((x - self.mean).square() * self.precision.to(x)).sum(-1)

    def score(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        return -(x - self.mean) * self.precision.to(x)


class Skewed(Target):
    """The law of the log-odds of Beta(1, 2) in every coordinate, score by autograd.

    Mean psi(1) - psi(2) = -1, variance psi'(1) + psi'(2) = pi^2 / 3 - 1; exponential tails.
    """

    def __init__(self, dim: int = 1) -> None:
        self.dim = dim

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        return (x - 3 * functional.softplus(x)).sum(-1)


class Bent(Target):
    """A bent, correlated density in two dimensions: its score has a full Jacobian."""

    dim = 2

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        a, b = x.unbind(-1)
        return -0.5 * a.square() - 0.5 * (b - a.square()).square() - 0.1 * (a * b).cos()


class Regression(Target):
    """Linear regression on ten rows with a unit Gaussian prior; four more rows for development."""

    dim, rows, development_rows, prior_precision = 3, 10, 4, 1.0

    def __init__(self) -> None:
        generator = Generator().manual_seed(5)
        self.design = torch.randn(10, 3, generator=generator)
        self.response = torch.randn(10, generator=generator)
        self.development = torch.randn(4, 3, generator=generator), torch.randn(4, generator=generator)

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        design, response = self._rows(x, batch)
        residual = response.unsqueeze(1) - x @ design.mT
        return -0.5 * (10 / response.shape[-1]) * residual.square().sum(-1) - 0.5 * x.square().sum(-1)

    def fit_gradient(self, x: Tensor, batch: Tensor | None = None, development: bool = False) -> Tensor:
        with torch.inference_mode(False), torch.enable_grad():
            leaf = x.detach().clone().requires_grad_()
            return torch.autograd.grad(self.fit(leaf, batch, development).sum(), leaf)[0]

    def fit(self, x: Tensor, batch: Tensor | None = None, development: bool = False) -> Tensor:
        """Mean squared error of the mean prediction, (R,)."""
        held = (v.to(x).expand(len(x), *v.shape) for v in self.development)
        design, response = held if development else self._rows(x, batch)
        return (response - (x @ design.mT).mean(1)).square().mean(1)

    def _rows(self, x: Tensor, batch: Tensor | None) -> tuple[Tensor, Tensor]:
        index = torch.arange(10).expand(x.shape[0], -1) if batch is None else batch
        return self.design.to(x)[index], self.response.to(x)[index]


def normal_start(target: Target, n: int, generators: Sequence[Generator]) -> Tensor:
    """Standard normal initial points."""
    return torch.stack([torch.randn(n, target.dim, generator=g, dtype=torch.float64) for g in generators])


def make_problem(
    target: Target, replicates: Sequence[int] = (0, 1, 2), *, particles: int = 8,
    dtype: torch.dtype = torch.float64, seed: int = 7, **options: Any,
) -> Problem:  # fmt: skip
    streams = Streams(seed, replicates, dtype=dtype)
    return Problem(target, streams, start=normal_start, particles=particles, **options)


def points(*shape: int, seed: int = 0) -> Tensor:
    """Standard normal numbers, float64."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Run:
    """An algorithm on a problem, driven as the harness does."""

    def __init__(self, name: str, problem: Problem, horizon: int = 1000, **settings: Any) -> None:
        self.algorithm = registry.load_algorithm(name)
        self.problem = problem
        quick = {} if "preset" in settings else self.algorithm.example.quick
        self.settings = self.algorithm.make_settings({**quick, **settings})
        with self.mode():
            self.state = self.algorithm.init(problem, self.settings, problem.streams, horizon)
        self.iteration, self.info, self.advance = 0, None, self.algorithm.step

    def mode(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext() if self.algorithm.differentiates else torch.inference_mode()

    def steps(self, count: int) -> Self:
        taken = take_steps(self.advance, self.problem, self.settings, self.state, self.iteration)
        with self.mode():
            for self.state, self.info in islice(taken, count):
                self.iteration += 1
        return self

    def output(self, n: int = 8) -> Tensor:
        self.problem.streams.step = self.iteration
        with self.mode():
            return self.algorithm.output(self.problem, self.settings, self.state, n, self.problem.streams)
