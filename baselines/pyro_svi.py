"""Stochastic variational inference with the automatic guides of Pyro.

Bingham et al. (2019), Pyro, J. Mach. Learn. Res. 20(28); the bound of Kucukelbir et al. (2017), arXiv:1603.00788. A guide
q over the whole of R^D, made by Pyro, is fitted by Adam to the evidence bound of K vectorised draws,

    (1/K) sum_k [ log p(x_k) - log q(x_k) ],   x_k ~ q reparameterised (``Trace_ELBO``)

Guides: ``normal`` (``AutoDiagonalNormal``), ``multivariate-normal``, ``low-rank`` (``AutoLowRankMultivariateNormal``) and
``iaf`` (``AutoIAFNormal``); all but the flow from the task's initial point, narrow. ``mean-field``, ``full-rank`` and ``iaf`` are ours of
the same families: batched over replicates, resumable, with the score alone.

A step scores K points. Pyro draws from the global generator: every step runs under a fork of it, seeded by its address.
Parameters stay in the guide (``module_local_params``), out of Pyro's global store. Departure: the learning rate falls
to ``final_rate`` of itself at the horizon, as Pyro's tutorials have it, instead of standing still.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Literal, NamedTuple

import pyro
import torch
from pydantic import Field
from pyro import distributions
from pyro.infer import Trace_ELBO, autoguide
from torch import Tensor

from parvibench.core.algorithm import Algorithm, Example
from parvibench.core.errors import ShapeError
from parvibench.core.streams import Streams
from parvibench.core.task import Problem
from parvibench.nn.variational import VariationalSettings

from ._pyro import LogDensity, seeded

GUIDES = {
    "normal": autoguide.AutoDiagonalNormal,
    "multivariate-normal": autoguide.AutoMultivariateNormal,
    "low-rank": autoguide.AutoLowRankMultivariateNormal,
    "iaf": autoguide.AutoIAFNormal,
}


class Settings(VariationalSettings):
    """Settings of Pyro's guides."""

    guide: Literal["normal", "multivariate-normal", "low-rank", "iaf"] = Field(
        "multivariate-normal", description="family; Pyro"
    )


class State(NamedTuple):
    """A guide's parameters, and the guide that holds them."""

    parameters: Tensor  # (1, P)
    fit: _Fit  # changes in place


class PyroSVI(Algorithm[Settings, State]):
    """Pyro's automatic guides, fitted to the evidence bound (external)."""

    name = "pyro-svi"
    kind = "generator"
    needs = frozenset({"full-batch", "score"})
    differentiates = True
    resumable = False
    host_bound = True
    max_chunk = 1
    citation = "Bingham et al. (2019), J. Mach. Learn. Res. 20(28)"
    example = Example(
        quick={"batch": 8}, settings={"step_size": 0.2, "batch": 20}, steps=40, points=200, both_modes=False
    )

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> State:
        """A narrow guide about the task's initial point.

        Raises:
            ShapeError: more than one replicate.
        """
        if problem.replicates != 1:
            raise ShapeError(f"pyro-svi takes one replicate at a time, got {problem.replicates}")
        with _pyro(streams, "init"):
            fit = _Fit(problem, settings, horizon)
        return State(fit.parameters(), fit)

    def step(self, problem: Problem, settings: Settings, state: State, streams: Streams) -> State:
        """One step of Adam on the bound of fresh draws."""
        with _pyro(streams, "algorithm"):
            state.fit.climb()
        return State(state.fit.parameters(), state.fit)

    def output(self, problem: Problem, settings: Settings, state: State, n: int, streams: Streams) -> Tensor:
        """Fresh draws, (1, n, D)."""
        with _pyro(streams, "output"), torch.no_grad():
            posterior: Any = state.fit.guide.get_posterior()
            drawn: Tensor = posterior.sample((n,))
        return drawn.unsqueeze(0)


class _Fit:
    """A guide, its bound and its optimiser."""

    def __init__(self, problem: Problem, settings: Settings, horizon: int) -> None:
        self._problem, self._batch = problem, settings.batch
        self._start = start = problem.init(1).flatten().clone()
        options: dict[str, Any] = {}
        if settings.guide != "iaf":  # which starts as its network does
            location = autoguide.initialization.init_to_value(values={"x": start})
            options = {"init_scale": settings.init_scale, "init_loc_fn": location}
        self._known = False
        make: Any = GUIDES[settings.guide]
        with nullcontext() if start.device.type == "cpu" else start.device:  # networks are made there
            self.guide: Any = make(self._model, **options)
            self.guide()  # Pyro makes the parameters at the first call
        self.guide.to(start.dtype)
        self._known = True
        elbo: Any = Trace_ELBO
        self._bound = elbo(num_particles=self._batch, vectorize_particles=self._batch > 1, max_plate_nesting=0)
        self._adam = torch.optim.Adam(self.guide.parameters(), lr=settings.step_size)
        rate = settings.final_rate ** (1 / max(1, horizon))
        self._schedule = torch.optim.lr_scheduler.ExponentialLR(self._adam, rate)

    def _model(self) -> None:
        """The target as a model of one site; while the guide is made, one that can be drawn from stands for it."""
        if not self._known:
            pyro.sample("x", distributions.Normal(self._start, 1.0).to_event(1))  # type: ignore[no-untyped-call]
            return
        support: Any = distributions.constraints.real_vector
        x = pyro.sample("x", distributions.ImproperUniform(support, (), (self._problem.dim,)))  # type: ignore[no-untyped-call]
        pyro.factor("log_density", LogDensity.apply(x, self._problem))  # type: ignore[no-untyped-call]

    def climb(self) -> None:
        """One step of Adam."""
        self._adam.zero_grad()
        self._bound.differentiable_loss(self._model, self.guide).backward()
        self._adam.step()
        self._schedule.step()

    def parameters(self) -> Tensor:
        """All of them, (1, P)."""
        return torch.cat([p.detach().flatten() for p in self.guide.parameters()]).unsqueeze(0)


@contextmanager
def _pyro(streams: Streams, stream: str) -> Iterator[None]:
    """Pyro with random numbers by the address of the step, and parameters that stay in their modules."""
    with (
        seeded(streams, stream, "pyro-svi"),
        pyro.settings.context(module_local_params=True, validate_distributions_pyro=False),
    ):
        yield
