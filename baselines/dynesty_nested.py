"""Nested sampling, as dynesty implements it.

Skilling (2006), doi:10.1214/06-BA127; Speagle (2020), arXiv:1904.02180. N live points are replaced one by one, the worst
by a draw from the base measure within the contour of its likelihood; bounds are ellipsoids, moves random walks or slices.

A task has no prior: the base measure is N(0, base_sd^2 I), and the likelihood the density divided by it. Where the base
is narrower than the target, tails are lost; wider costs evaluations, about D log(base_sd / sd) N of them. No gradients:
every log density is charged as one evaluation, one point a call.

A step is N / 10 replacements, at least one; one that the budget cannot pay for is dropped. The samples are draws, with
replacement, from dead and live points by their weights. A run that has ended by its own criterion stops there. dynesty
keeps its bounds in itself: a run cannot resume.
"""

import contextlib
import io
import math
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from pydantic import Field
from scipy.special import ndtri
from torch import Tensor

from parvibench.core.algorithm import Algorithm, AlgorithmSettings, Example, Problem, Streams
from parvibench.core.errors import BudgetExhausted, imported_library

from ._chains import seed_of


class Settings(AlgorithmSettings):
    """Settings of nested sampling."""

    base_sd: float = Field(5.0, gt=0, description="sd of the base measure, in units of x; ours")
    remaining: float = Field(0.01, gt=0, description="log evidence left at which it ends; dynesty")


class State(NamedTuple):
    """The run so far."""

    live: Tensor  # (1, N, D) live points
    log_live: Tensor  # (1, N) their log likelihoods
    dead: int  # points replaced so far, the first ones that the sampler has saved
    sampler: Any  # dynesty's, changes in place
    iterations: Iterator[Any]


class Info(NamedTuple):
    """Diagnostics of the run, (1,)."""

    log_z: Tensor  # of the density, live points included
    log_z_se: Tensor  # dynesty's, of the dead points


class Dynesty(Algorithm[Settings, State]):
    """Nested sampling, no gradients (external)."""

    name = "dynesty"
    kind = "generator"
    needs = frozenset({"full-batch"})
    max_chunk = 1
    host_bound = True
    resumable = False
    library = "dynesty"
    citation = "Skilling (2006); Speagle (2020), arXiv:1904.02180"
    example = Example(settings={}, steps=80, both_modes=False)

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> State:
        """N live points from the base measure; ``LibraryMissingError`` where dynesty is not installed."""
        sd, dim = settings.base_sd, problem.dim

        def likelihoods(x: Any) -> Any:
            at = torch.as_tensor(x, dtype=problem.dtype, device=problem.device).view(1, -1, dim)
            base = -0.5 * (np.square(x) / sd**2).sum(-1) - dim * math.log(sd * math.sqrt(2 * math.pi))
            return np.nan_to_num(problem.log_density(at)[0].double().cpu().numpy() - base, nan=-1e300, neginf=-1e300)

        draws = np.random.default_rng(seed_of(streams, "dynesty"))
        cube = draws.random((problem.particles, dim))
        points = sd * ndtri(cube)
        with _quiet():
            sampler = imported_library("dynesty").NestedSampler(
                lambda x: float(likelihoods(x)[0]), lambda u: sd * ndtri(u), dim, nlive=problem.particles, rstate=draws,
                live_points=[cube, points, likelihoods(points)],
            )  # fmt: skip
        run = sampler.sample(dlogz=settings.remaining, add_live=False)
        return State(*_live(sampler), 0, sampler, run)

    def step(self, problem: Problem, settings: Settings, state: State, streams: Streams) -> tuple[State, Info]:
        """Some replacements; ``BudgetExhausted`` where the run has ended."""
        for _ in range(max(1, problem.particles // 10)):
            with _quiet():
                found = next(state.iterations, None)
            if found is None:
                raise BudgetExhausted("nested sampling has ended")
            log_z, log_volume, variance = (float(v) for v in (found.logz, found.logvol, found.logzvar))
        live = state.sampler.live_logl
        rest = np.logaddexp.reduce(live) - math.log(len(live)) + log_volume
        numbers = np.logaddexp(log_z, rest), math.sqrt(max(0.0, variance))
        info = Info(*(torch.tensor([v], dtype=problem.dtype) for v in numbers))
        dead = len(state.sampler.saved_run["logvol"])
        return State(*_live(state.sampler), dead, state.sampler, state.iterations), info

    def output(self, problem: Problem, settings: Settings, state: State, n: int, streams: Streams) -> Tensor:
        """n draws with replacement, by weight."""
        dead = {k: np.asarray(state.sampler.saved_run[k][: state.dead]) for k in ("v", "logwt", "logvol")}
        last = dead["logvol"][-1] if state.dead else 0.0
        points = np.concatenate([dead["v"].reshape(-1, problem.dim), state.live[0].numpy()])
        logs = np.concatenate([dead["logwt"], state.log_live[0].numpy() + last - math.log(state.live.shape[1])])
        weights = torch.from_numpy(np.exp(logs - logs.max()))
        generator = streams.generator("output", streams.replicates[0], streams.step)
        rows = torch.multinomial(weights, n, replacement=True, generator=generator)
        return torch.from_numpy(points)[rows].to(problem.device, problem.dtype).unsqueeze(0)


def _live(sampler: Any) -> tuple[Tensor, Tensor]:
    """Copies of the live points, (1, N, D), and of their log likelihoods, (1, N)."""
    return tuple(torch.from_numpy(v.copy()).unsqueeze(0) for v in (sampler.live_v, sampler.live_logl))  # type: ignore[return-value]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress what dynesty prints: tracebacks when a budget ends, and warnings of inefficient bounds."""
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield
