"""The No-U-Turn sampler (NUTS), as Pyro implements it.

Hoffman & Gelman (2014), arXiv:1111.4246, with multinomial weights and Stan's windowed warm-up (Betancourt
2017, arXiv:1701.02434, Appendix A): the trajectory doubles until it turns back on itself, the step length
comes from dual averaging towards a mean acceptance, a diagonal mass matrix from the warm-up's variances.

One step here is one transition of one chain, of any number of evaluations: a transition that the budget
cannot pay for to its end is dropped. The warm-up counts as steps and is charged; it is cut to a quarter of
the transitions that the budget is foreseen to allow, inside the half of a path that is not judged.

Pyro draws from the global generator: every transition runs under a fork of it, seeded by its address, so a
run depends on its own streams only. The kernel holds its adaptation in itself, and cannot be resumed; it
takes one replicate at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pyro.infer
import torch
from pydantic import Field
from torch import Tensor

from parvibench.core.algorithm import Algorithm, AlgorithmSettings, Example
from parvibench.core.errors import ShapeError
from parvibench.core.streams import Streams, derive_seed
from parvibench.core.task import Problem


class Settings(AlgorithmSettings):
    """Settings of NUTS."""

    warmup_steps: int = Field(500, ge=0, description="most transitions of adaptation; ours (Stan: 1000)")
    target_acceptance: float = Field(
        0.8, gt=0, lt=1, description="mean acceptance that the step length is adapted to; Pyro, Stan"
    )
    max_tree_depth: int = Field(10, ge=1, le=15, description="most doublings of a trajectory; Pyro, Stan")


class State(NamedTuple):
    """The chain and the kernel that moves it."""

    x: Tensor  # (1, 1, D)
    kernel: Any  # pyro.infer.NUTS: changes in place


class NUTS(Algorithm[Settings, State]):
    """The No-U-Turn sampler."""

    name = "nuts"
    kind = "chains"
    needs = frozenset({"full-batch", "score"})
    settings_type = Settings
    differentiates = True
    resumable = False
    host_bound = True
    n_particles = 1
    max_chunk = 1
    citation = "Hoffman & Gelman (2014), arXiv:1111.4246"
    summary = "the No-U-Turn sampler of Pyro, one chain"
    example = Example(settings={"max_tree_depth": 4}, steps=30, both_modes=False, brief_steps=3)

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> State:
        """One chain at the task's initial point; the first step length is searched for here.

        Raises:
            ShapeError: more than one replicate.
        """
        if problem.replicates != 1:
            raise ShapeError(f"nuts takes one replicate at a time, got {problem.replicates}")
        x = problem.init(1)
        kernel = pyro.infer.NUTS(  # type: ignore[no-untyped-call]
            potential_fn=lambda z: -_LogDensity.apply(z["x"], problem),  # type: ignore[no-untyped-call]
            target_accept_prob=settings.target_acceptance,
            max_tree_depth=settings.max_tree_depth,
        )
        kernel.initial_params = {"x": x.flatten().clone()}
        with _seeded(streams, "init"):
            kernel.setup(min(settings.warmup_steps, horizon // 4))  # type: ignore[no-untyped-call]
        return State(x, kernel)

    def step(self, problem: Problem, settings: Settings, state: State, streams: Streams) -> State:
        """One transition."""
        with _seeded(streams, "algorithm"):
            z = state.kernel.sample({"x": state.x.flatten()})
        return State(z["x"].detach().clone().view_as(state.x), state.kernel)


class _LogDensity(torch.autograd.Function):
    """Log density of a flat (D,) position whose gradient is the problem's score, at the price of one score."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, problem: Problem) -> Tensor:
        log_density, score = problem.log_density_and_score(x.detach().view(1, 1, -1))
        ctx.save_for_backward(score.flatten())
        return log_density.flatten()[0]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (score,) = ctx.saved_tensors
        return grads[0] * score, None


@contextmanager
def _seeded(streams: Streams, stream: str) -> Iterator[None]:
    """A fork of the global generators, seeded by the address of the current step."""
    devices = [streams.device] if streams.device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(derive_seed(streams.seed, stream, "nuts", streams.replicates[0], streams.step))
        yield
