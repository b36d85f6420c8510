"""Biased Langevin methods on Bayesian linear regression, whose law after any number of steps is known.

Model and data: 60 rows y = X w + N(0, 1/4), prior w ~ N(0, I). Full-batch scores, or batches of 12 rows, each
epoch a fresh shuffle: given the batches the law is Gaussian, and the batches' law is simulated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from parvibench.check.questions import Expected, Values
from parvibench.core.registry import load_algorithm, load_task
from parvibench.core.streams import Streams
from parvibench.core.task import Problem

from .laws_affine import METHODS, WITH_VELOCITY, Gaussian
from .laws_twins import TWINS
from .steps import (
    SETS,
    Settings,
    TruthQuestion,
    generator_of,
    laws,
    per_replicate,
    run,
    settings_of,
    summaries,
)

_TASK = "linear-regression"
_NOISE_VARIANCE, _PRIOR_PRECISION = 0.25, 1.0
#: Every coordinate of the start is from N(_START_MEAN, _START_SD^2): about the posterior, wider.
_START_MEAN, _START_SD = 0.5, 0.5

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LangevinLaw(TruthQuestion):
    """Whether the points after some steps have the law that theory or a plain program gives.

    Attributes:
        algorithm: a registered method.
        settings: of it.
        steps: taken.
        batch: rows in a mini-batch, or None for all.
        chains: in a replicate; they share its mini-batches.
        task: the regression.
    """

    algorithm: str
    settings: Settings
    steps: int
    batch: int | None = None
    chains: int = 400
    task: str = _TASK

    def measure(self, replicates: range, seed: int) -> Values:
        """Summaries of the last positions."""
        algorithm = load_algorithm(self.algorithm)
        settings = algorithm.make_settings(dict(self.settings))
        single = algorithm.n_particles == 1
        # Chains that go alone are many replicates of one chain.
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
        target = load_task(self.task).target(ids, "cpu", torch.float64)
        shape = (chains, target.dim)
        z = [torch.randn(shape, generator=generator_of("start", seed, i), dtype=torch.float64) for i in ids]
        start = _START_MEAN + _START_SD * torch.stack(z)
        streams = Streams(seed, ids, "cpu", torch.float64)
        return Problem(target, streams, start=lambda *_: start, particles=chains, batch_size=self.batch)


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
    X, y = _data()
    dim = X.shape[1]
    mean, variance = np.full(dim, _START_MEAN), np.full(dim, _START_SD**2)
    if question.algorithm in WITH_VELOCITY:
        mean = np.concatenate([mean, np.zeros(dim)])
        variance = np.concatenate([variance, np.full(dim, settings["step_size"])])
    law = Gaussian(np.tile(mean, (SETS, 1)), np.tile(np.diag(variance), (SETS, 1, 1)))
    order = np.tile(np.arange(len(y)), (SETS, 1))
    size = question.batch or len(y)
    for k in range(question.steps):
        place = k % (len(y) // size)
        if place == 0 and question.batch:
            order = rng.permuted(order, axis=1)
        P, b = score_of_rows(order[:, place * size : (place + 1) * size])
        law = law.after(METHODS[question.algorithm](P, b, settings, k))
    return law.positions(dim).sample(question.chains, rng)


def score_of_rows(rows: NDArray[np.int64]) -> tuple[Array, Array]:
    """P and b of the score b - P w that a mini-batch gives, its likelihood scaled to all rows.

    Args:
        rows: (..., B) indices.

    Returns:
        (..., D, D) and (..., D).
    """
    X, y = _data()
    scale = len(y) / rows.shape[-1] / _NOISE_VARIANCE
    Xt = np.swapaxes(X[rows], -1, -2)
    return scale * Xt @ X[rows] + _PRIOR_PRECISION * np.eye(X.shape[1]), scale * (Xt @ y[rows][..., None])[
        ..., 0
    ]


def _twin_draws(question: LangevinLaw, settings: dict[str, Any], rng: np.random.Generator) -> Array:
    """Sets of draws from the method's plain program, (sets, chains, D)."""
    _, y = _data()
    P, b = score_of_rows(np.arange(len(y)))
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


def langevin_questions() -> list[TruthQuestion]:
    """All questions about laws of Langevin methods."""
    repulsive = settings_of(alpha=2.0, memory=4, thinning=2)
    return [
        LangevinLaw("ula", settings_of(step_size=0.003), 10),
        LangevinLaw("sgld", settings_of(step_size=0.002), 12, batch=12),
        LangevinLaw("lapd", settings_of(step_size=0.003), 10),
        LangevinLaw("lapd-decay", settings_of(step_size=0.003, log_sobolev=300.0, constant_steps=3), 12),
        LangevinLaw("uld", settings_of(step_size=0.002, friction=0.7), 12),
        LangevinLaw("uld", settings_of(step_size=0.001, friction=0.7), 12, batch=12),
        LangevinLaw("sghmc", settings_of(step_size=0.001, friction=0.2), 12),
        LangevinLaw("sghmc", settings_of(step_size=0.0005, friction=0.2), 12, batch=12),
        LangevinLaw("psgld", settings_of(step_size=0.002, decay=1.0, damping=1.0), 12, batch=12),
        LangevinLaw("psgld", settings_of(step_size=0.05, decay=0.9), 20),
        LangevinLaw("srld", (("step_size", 0.002), *repulsive), 40, chains=200),
        LangevinLaw("sr-uld", (("step_size", 0.002), ("friction", 0.7), *repulsive), 40, chains=200),
        LangevinLaw("sr-sghmc", (("step_size", 0.001), ("friction", 0.2), *repulsive), 40, chains=200),
    ]
