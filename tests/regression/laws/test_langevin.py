"""Biased Langevin methods on Gaussian targets, where their law after any number of steps is known.

Targets: Bayesian linear regression, 60 rows y = X w + N(0, 1/4) with prior w ~ N(0, I); and two independent normal
coordinates of unit scale, on which steps can be long. Full-batch scores, or batches of 12 rows, each epoch a fresh
shuffle: given the batches the law is Gaussian, and the batches' law is simulated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from affine_laws import METHODS, WITH_VELOCITY, Gaussian
from asking import assert_right
from law_tools import Normal, problem_at, run, summaries
from numpy.typing import NDArray
from plain_langevin import TWINS

from parvibench.checks.question import Expected, Question, Values
from parvibench.checks.summaries import SETS, Settings, generator_of, laws, per_replicate, settings_of
from parvibench.core.registry import load_algorithm, load_task
from parvibench.core.target import Target
from parvibench.core.task import Problem

_TASK, _NORMAL = "linear-regression", "two-normals"
#: Means and log variances of the two normal coordinates.
_MEANS, _LOG_VARS = (1.0, -0.5), (-1.4, 0.8)
_NOISE_VARIANCE, _PRIOR_PRECISION = 0.25, 1.0
#: Every coordinate of the start is from N(_START_MEAN, _START_SD^2): about the posterior, wider.
_START_MEAN, _START_SD = 0.5, 0.5

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LangevinLaw(Question):
    """Whether the points after some steps have the law of theory, or of a plain program."""

    algorithm: str  #: a registered method
    settings: Settings  #: of it
    steps: int  #: taken
    batch: int | None = None  #: rows in a mini-batch, or None for all
    chains: int = 400  #: in a replicate; they share its mini-batches
    task: str = _TASK  #: the regression, or ``two-normals``

    def measure(self, replicates: range, seed: int) -> Values:
        """Summaries of the last positions."""
        algorithm = load_algorithm(self.algorithm)
        settings = algorithm.make_settings(dict(self.settings))
        single = algorithm.n_particles == 1
        # An algorithm of one chain is run as that many replicates.
        ids = [r * self.chains + i for r in replicates for i in range(self.chains if single else 1)]
        ends = []
        for chunk in per_replicate(ids, algorithm.max_chunk):
            problem = self._problem(chunk, seed, 1 if single else self.chains)
            ends.append(run(algorithm, settings, problem, self.steps).path[-1])
        x = torch.cat(ends).reshape(len(replicates), self.chains, -1)
        return summaries(x, prefix="batches." if self.batch else "law.")

    def expected(self) -> Mapping[str, Expected]:
        """Summaries of draws from the law."""
        return _law(self)

    def _problem(self, ids: tuple[int, ...], seed: int, chains: int) -> Problem:
        target: Target = Normal(torch.tensor(_MEANS).double(), torch.tensor(_LOG_VARS).double())
        if self.task != _NORMAL:
            target = load_task(self.task).target(ids, "cpu", torch.float64)
        shape = (chains, target.dim)
        z = [torch.randn(shape, generator=generator_of("start", seed, i), dtype=torch.float64) for i in ids]
        return problem_at(target, _START_MEAN + _START_SD * torch.stack(z), ids, seed, self.batch)


@cache
def _law(question: LangevinLaw) -> Mapping[str, Expected]:
    rng = np.random.default_rng(20)
    settings = load_algorithm(question.algorithm).make_settings(dict(question.settings)).model_dump()
    simulate = _twin_draws if _is_nonlinear(question) else _affine_draws
    x = torch.from_numpy(simulate(question, settings, rng))
    return laws(summaries(x, prefix="batches." if question.batch else "law."))


def _is_nonlinear(question: LangevinLaw) -> bool:
    return question.algorithm not in METHODS or dict(question.settings).get("decay", 1.0) < 1.0


def _affine_draws(question: LangevinLaw, settings: dict[str, Any], rng: np.random.Generator) -> Array:
    """Sets of draws from the Gaussian law, (SETS, chains, D); each set has its own mini-batches."""
    P, b = _score(question)
    dim = len(b)
    mean, variance = np.full(dim, _START_MEAN), np.full(dim, _START_SD**2)
    if question.algorithm in WITH_VELOCITY:
        mean = np.concatenate([mean, np.zeros(dim)])
        variance = np.concatenate([variance, np.full(dim, settings["step_size"])])
    law = Gaussian(np.tile(mean, (SETS, 1)), np.tile(np.diag(variance), (SETS, 1, 1)))
    order, size = np.tile(np.arange(len(_data()[1])), (SETS, 1)), question.batch
    for k in range(question.steps):
        if size:
            place = k % (order.shape[1] // size)
            order = order if place else rng.permuted(order, axis=1)
            P, b = score_of_rows(order[:, place * size : (place + 1) * size])
        law = law.after(METHODS[question.algorithm](P, b, settings, k))
    return law.positions(dim).sample(question.chains, rng)


def _score(question: LangevinLaw) -> tuple[Array, Array]:
    """P and b of the score b - P w of the whole target."""
    if question.task != _NORMAL:
        return score_of_rows(np.arange(len(_data()[1])))
    P = np.diag(np.exp(-np.array(_LOG_VARS)))
    return P, P @ np.array(_MEANS)


def score_of_rows(rows: NDArray[np.int64]) -> tuple[Array, Array]:
    """P (..., D, D) and b (..., D) of the score b - P w on a mini-batch (..., B), its likelihood scaled to all rows."""
    X, y = _data()
    scale = len(y) / rows.shape[-1] / _NOISE_VARIANCE
    Xt = np.swapaxes(X[rows], -1, -2)
    P = scale * Xt @ X[rows] + _PRIOR_PRECISION * np.eye(X.shape[1])
    return P, scale * (Xt @ y[rows][..., None])[..., 0]


def _twin_draws(question: LangevinLaw, settings: dict[str, Any], rng: np.random.Generator) -> Array:
    """Sets of draws from the method's plain program, (sets, chains, D)."""
    P, b = _score(question)
    x = _START_MEAN + _START_SD * rng.standard_normal((_TWIN_SETS * question.chains, len(b)))
    ends = TWINS[question.algorithm](lambda x: b - x @ P, x, settings, question.steps, rng)
    return ends.reshape(_TWIN_SETS, question.chains, -1)


#: Sets of draws where every chain is simulated.
_TWIN_SETS = 200


@cache
def _data() -> tuple[Array, Array]:
    """Inputs (n, D) and responses (n,)."""
    model: Any = load_task(_TASK)
    return model.model.X.numpy(), model.model.y.numpy()


_REPULSIVE = settings_of(alpha=2.0, memory=4, spacing=2)
_DECAY = settings_of(step_size=0.4, log_sobolev=1.0, constant_steps=3)
LAWS = [
    LangevinLaw("ula", settings_of(step_size=0.003), 10),
    LangevinLaw("sgld", settings_of(step_size=0.002), 12, batch=12),
    LangevinLaw("lapd", settings_of(step_size=0.003), 10),
    LangevinLaw("lapd-decay", settings_of(step_size=0.003, log_sobolev=300.0, constant_steps=3), 12),
    LangevinLaw("lapd", settings_of(step_size=0.3), 10, task=_NORMAL),
    LangevinLaw("lapd-decay", _DECAY, 12, task=_NORMAL),
    LangevinLaw("uld", settings_of(step_size=0.3, friction=0.8), 12, task=_NORMAL),
    LangevinLaw("sghmc", settings_of(step_size=0.2, friction=0.3), 12, task=_NORMAL),
    LangevinLaw("uld", settings_of(step_size=0.002, friction=0.7), 12),
    LangevinLaw("uld", settings_of(step_size=0.001, friction=0.7), 12, batch=12),
    LangevinLaw("sghmc", settings_of(step_size=0.001, friction=0.2), 12),
    LangevinLaw("sghmc", settings_of(step_size=0.0005, friction=0.2), 12, batch=12),
    LangevinLaw("psgld", settings_of(step_size=0.002, decay=1.0, damping=1.0), 12, batch=12),
    LangevinLaw("psgld", settings_of(step_size=0.05, decay=0.9), 20),
    LangevinLaw("srld", (("step_size", 0.002), *_REPULSIVE), 40, chains=200),
    LangevinLaw("sr-uld", (("step_size", 0.002), ("friction", 0.7), *_REPULSIVE), 40, chains=200),
    LangevinLaw("sr-sghmc", (("step_size", 0.001), ("friction", 0.2), *_REPULSIVE), 40, chains=200),
]


def _name(law: LangevinLaw) -> str:
    return f"{law.algorithm} on {law.task}" + (f", batches of {law.batch}" if law.batch else "")


@pytest.mark.parametrize("law", LAWS, ids=_name)
def test_law(law: LangevinLaw) -> None:
    """After some steps the points have the method's law, known in closed form or from a plain program."""
    assert_right(law)
