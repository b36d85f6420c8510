"""Posteriors with simulated data: parameters from the prior, data from the likelihood, both written here again.

The parameters are then one exact draw from the posterior given those data, so that prior, likelihood and change of
variables in the target's code must agree with the simulation. Two consequences are tested. Stein's identity, averaged
over data sets: ``E[phi s + dphi] = 0`` for the score s and functions phi
that are bounded where tails are heavy. And simulation-based calibration (Talts et al. 2018, arXiv:1804.06788) in
the form for Markov chains: the parameters' rank in a chain through them is uniform (Gandy & Scott 2020,
arXiv:2001.06465).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from asking import assert_right
from law_tools import ranks_along
from torch import Generator, Tensor

from parvibench.checks.question import Bound, Expected, Fixed, Question, Values
from parvibench.checks.questions.density import is_gradient
from parvibench.checks.summaries import (
    Settings,
    as_values,
    generator_of,
    rank_functions,
    rank_statistics,
    settings_of,
    uniform_ranks,
)
from parvibench.core import registry
from parvibench.core.target import Target

_LINEAR_ROWS, _LOGISTIC_ROWS, _NETWORK_ROWS = 12, 20, 10
#: Inputs, intercept included.
_COEFFICIENTS = 3
_FEATURES, _HIDDEN = 2, 3
#: Data sets whose scores are compared with autograd.
_FEW = 10
#: Gamma(1, rate) prior of both precisions of a network.
_GAMMA_RATE = 0.1


class Simulated(NamedTuple):
    """Data sets and the parameters behind them."""

    target: Target  #: the posteriors, one per data set
    truth: Tensor  #: (M, 1, D) float64


class OneEach(Target):
    """A posterior of its own, of one dimension, for every row of the batch."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self._targets, self.dim = targets, targets[0].dim

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """(R, N, D) -> (R, N)."""
        return torch.cat([t.log_density(x[i : i + 1]) for i, t in enumerate(self._targets)])

    def score(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """(R, N, D) -> (R, N, D)."""
        return torch.cat([t.score(x[i : i + 1]) for i, t in enumerate(self._targets)])


def simulated_linear(sets: int, g: Generator) -> Simulated:
    """``y = X w + N(0, 1/4)``, ``w ~ N(0, I)``."""
    model, target = (_of_task("linear-regression", name) for name in ("LinearModel", "LinearTarget"))
    w, X = _normal(g, sets, _COEFFICIENTS), _normal(g, sets, _LINEAR_ROWS, _COEFFICIENTS)
    y = (X @ w[..., None])[..., 0] + 0.5 * _normal(g, sets, _LINEAR_ROWS)
    data = zip(X, y, strict=True)
    models = [model(*rows, noise_sd=0.5, prior_precision=1.0) for rows in data]
    posteriors = [target(m, "cpu", torch.float64) for m in models]
    return Simulated(OneEach(posteriors), w[:, None])


def simulated_logistic(sets: int, g: Generator) -> Simulated:
    """``P(y = 1) = 1 / (1 + exp(-x . b))``, ``b ~ N(0, I / 2)``; rows are stored negated where y = 0."""
    target, precision = _of_task("blr-breast-cancer", "LogisticTarget"), 2.0
    b, X = _normal(g, sets, _COEFFICIENTS) / precision**0.5, _normal(g, sets, _LOGISTIC_ROWS, _COEFFICIENTS)
    odds = torch.exp((X @ b[..., None])[..., 0])
    y = torch.rand(odds.shape, generator=g, dtype=torch.float64) < odds / (1 + odds)
    signed = torch.where(y[..., None], X, -X)
    return Simulated(OneEach([target(rows, precision) for rows in signed]), b[:, None])


def simulated_network(sets: int, g: Generator) -> Simulated:
    """One hidden layer of ReLUs: ``y ~ N(f_w(x), 1 / gamma)``, ``w ~ N(0, I / lambda)``.

    gamma and lambda ~ Gamma(1, rate 0.1); the state is (W1, b1, W2, b2, log gamma, log lambda), W1 by inputs.
    """
    network = _of_task("bnn-diabetes-sklearn", "Network")(features=_FEATURES, hidden=_HIDDEN)
    model = _of_task("bnn-diabetes-sklearn", "Model")(network)
    uniform = torch.rand(2, sets, 1, generator=g, dtype=torch.float64)
    gamma, lam = -torch.log1p(-uniform) / _GAMMA_RATE
    X = _normal(g, sets, _NETWORK_ROWS, _FEATURES)
    shapes = (_FEATURES, _HIDDEN), (1, _HIDDEN), (_HIDDEN, 1)
    W1, b1, W2 = (_normal(g, sets, *shape) / lam[..., None].sqrt() for shape in shapes)
    b2 = _normal(g, sets, 1) / lam.sqrt()
    f = ((X @ W1 + b1).clamp(min=0) @ W2)[..., 0] + b2
    y = f + _normal(g, sets, _NETWORK_ROWS) / gamma.sqrt()
    weights = [W1.flatten(1), b1.flatten(1), W2.flatten(1), b2]
    truth = torch.cat([*weights, gamma.log(), lam.log()], 1)[:, None]
    return Simulated(_of_task("bnn-diabetes-sklearn", "BNNTarget")(X, y, model), truth)


def _normal(g: Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=g, dtype=torch.float64)


def _of_task(task: str, name: str) -> Any:
    """Something from the module that the registry names for a task."""
    return getattr(importlib.import_module(registry.tasks()[task].target.partition(":")[0]), name)


def coefficient_identities(x: Tensor, s: Tensor) -> dict[str, Tensor]:
    """Of Gaussian priors: ``E s = 0`` and ``E x_i s_j = -[i = j]``, (M, D) each -> one value a data set."""
    found = {f"score[{d}]": s[:, d] for d in range(x.shape[1])}
    return found | {f"stein[{d}]": (x[:, d] * s[:, d]) + 1 for d in range(x.shape[1])}


def network_identities(x: Tensor, s: Tensor) -> dict[str, Tensor]:
    """Of both log precisions, ``E s = 0`` and ``E[phi s + phi'] = 0`` with phi a logistic function.

    Of the weights, ``E phi(lambda) (w . s + D_w) = 0``: phi takes away that 1 / lambda has no mean.
    """
    found = {}
    for name, at in (("gamma", -2), ("lambda", -1)):
        share = torch.sigmoid(x[:, at] - 2)
        found[f"score[{name}]"] = s[:, at]
        found[f"stein[{name}]"] = share * s[:, at] + share * (1 - share)
    w, s_w = x[:, :-2], s[:, :-2]
    damped = torch.sigmoid(2 * x[:, -1])
    found["stein[weights]"] = damped * ((w * s_w).sum(1) + w.shape[1])
    found["stein[biases]"] = damped * (w[:, -1] * s_w[:, -1] + 1)
    return found


@dataclass(frozen=True)
class Posterior:
    """Simulation of a model's data, and identities of its posteriors."""

    simulate: Callable[[int, Generator], Simulated]  #: (number of data sets, generator) -> data sets
    identities: Callable[[Tensor, Tensor], dict[str, Tensor]]  #: of truth and score, with mean zero over data sets
    dim: int  #: D


#: Task -> its model.
POSTERIORS = {
    "linear-regression": Posterior(simulated_linear, coefficient_identities, _COEFFICIENTS),
    "blr-breast-cancer": Posterior(simulated_logistic, coefficient_identities, _COEFFICIENTS),
    "bnn-diabetes-sklearn": Posterior(simulated_network, network_identities, (_FEATURES + 2) * _HIDDEN + 1 + 2),
}


@dataclass(frozen=True)
class PosteriorStein(Question):
    """Stein's identities of a posterior, over data sets made by its own model."""

    task: str  #: whose target is tested
    sets: int = 200  #: data sets in a replicate
    algorithm: str = "density"  #: label

    def measure(self, replicates: range, seed: int) -> Values:
        """Means over data sets."""
        posterior = POSTERIORS[self.task]
        target, truth = _simulated(self.task, self.sets, replicates, seed)
        found = posterior.identities(truth[:, 0], target.score(truth)[:, 0])
        few, at = _simulated(self.task, _FEW, replicates[:1], seed)
        away = at + _normal(generator_of(self.task, "away", seed), *at.shape)
        agrees = {"simulated.gradient": [float(is_gradient(few, away))] * len(replicates)}
        return agrees | {
            f"simulated.{name}": as_values(value.view(len(replicates), -1).mean(1)) for name, value in found.items()
        }

    def expected(self) -> Mapping[str, Expected]:
        """Zero on average; the score is the gradient on all data sets, away from the parameters behind them too."""
        posterior = POSTERIORS[self.task]
        nothing = torch.zeros(1, posterior.dim, dtype=torch.float64)
        identities = {f"simulated.{name}": Bound(0.0) for name in posterior.identities(nothing, nothing)}
        return identities | {"simulated.gradient": Fixed(1.0)}


@dataclass(frozen=True)
class PosteriorRanks(Question):
    """Ranks of the parameters behind simulated data in a reversible chain on the posterior."""

    task: str  #: whose target is tested
    algorithm: str  #: a registered reversible kernel
    settings: Settings  #: of the kernel
    sets: int  #: data sets in a replicate
    length: int = 9  #: of the chain

    def measure(self, replicates: range, seed: int) -> Values:
        """Mean and spread of ranks, for each function of the parameters."""
        target, truth = _simulated(self.task, self.sets, replicates, seed)
        ids = range(len(truth))
        ranks = ranks_along(target, truth, ids, seed, self.algorithm, self.settings, self.length)
        found = rank_statistics(ranks.view(len(ranks), len(replicates), self.sets), self.length)
        return {f"simulated.{name}": value for name, value in found.items()}

    def expected(self) -> Mapping[str, Expected]:
        """Uniform ranks."""
        dim = POSTERIORS[self.task].dim
        functions = len(rank_functions(torch.zeros(1, 1, dim), torch.zeros(1, 1)))
        uniform = uniform_ranks(self.length, self.sets, functions)
        return {f"simulated.{name}": law for name, law in uniform.items()}


def _simulated(task: str, sets: int, replicates: range, seed: int) -> Simulated:
    """Data sets of all replicates, in the order of replicates."""
    g = generator_of(task, "data", seed, replicates)
    return POSTERIORS[task].simulate(sets * len(replicates), g)


@pytest.mark.parametrize("task", POSTERIORS)
def test_steins_identities(task: str) -> None:
    assert_right(PosteriorStein(task))


RANKS = [
    PosteriorRanks("linear-regression", "mala", settings_of(step_size=0.02), sets=16),
    PosteriorRanks("blr-breast-cancer", "mala", settings_of(step_size=0.2), sets=16),
    PosteriorRanks("bnn-diabetes-sklearn", "hmc", settings_of(step_size=0.002, leapfrog_steps=6, jitter=0.3), sets=100),
]


@pytest.mark.parametrize("question", RANKS, ids=lambda q: f"{q.algorithm} on {q.task}")
def test_calibration(question: PosteriorRanks) -> None:
    assert_right(question)
