"""The No-U-Turn sampler (NUTS), as Pyro implements it.

Hoffman & Gelman (2014), arXiv:1111.4246, with multinomial weights and Stan's windowed warm-up (Betancourt
2017, arXiv:1701.02434, Appendix A): the trajectory doubles until it turns back on itself, the step length
comes from dual averaging towards a mean acceptance, a diagonal mass matrix from the warm-up's variances.

One step here is one transition of one chain, of any number of evaluations: a transition that the budget
cannot pay for to its end is dropped. The warm-up counts as steps and is charged. It ends when a quarter of the
evaluations is charged (without a limit of them: after a quarter of the transitions foreseen), or after
``warmup_steps``, whichever comes first, so that the judged half of a path is one kernel's.

The warm-up is divided by share, as Stan divides a short one: 15% for the step length alone, then windows of 25,
50, 100, ... transitions whose variances make the mass matrix, the last 10% for the step length alone. Departs
from Pyro and Stan: the matrix changes only where 20 further transitions of warm-up are foreseen at the pace so
far, and after fewer than 20 the step length is at most the reasonable one that they started from. Each change
starts dual averaging again at ten times that, and a mean over two transitions has left chains that never moved.

Pyro draws from the global generator: every transition runs under a fork of it, seeded by its address, so a
run depends on its own streams only. The kernel holds its adaptation in itself, and cannot be resumed; it
takes one replicate at a time.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import pyro.infer
from pydantic import Field
from pyro.infer.mcmc.adaptation import WarmupAdapter
from torch import Tensor

from parvibench.core.algorithm import Algorithm, AlgorithmSettings, Example
from parvibench.core.errors import ShapeError
from parvibench.core.streams import Streams
from parvibench.core.task import Problem

from ._pyro import LogDensity, seeded

#: Shares of the warm-up between which the mass matrix is adapted.
WINDOWS = (0.15, 0.9)
FIRST_WINDOW = 25
#: Transitions of warm-up that must be foreseen for the mass matrix to change.
SETTLING = 20


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
    kernel: _Kernel  # changes in place


class Info(NamedTuple):
    """What a transition tells of itself, (1,) each."""

    acceptance: Tensor  # mean over the points of the trajectory
    divergences: Tensor  # 1 where the energy error exceeds 1000 or is not a number
    tree_depth: Tensor  # doublings begun


class PyroNUTS(Algorithm[Settings, State]):
    """The No-U-Turn sampler of Pyro, one chain (external)."""

    name = "pyro-nuts"
    version = 1
    kind = "chains"
    needs = frozenset({"full-batch", "score"})
    differentiates = True
    resumable = False
    host_bound = True
    n_particles = 1
    max_chunk = 1
    citation = "Hoffman & Gelman (2014), arXiv:1111.4246"
    example = Example(settings={"max_tree_depth": 4}, steps=30, both_modes=False, brief_steps=3)

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> State:
        """One chain at the task's initial point; the first step length is searched for here.

        Raises:
            ShapeError: more than one replicate.
        """
        if problem.replicates != 1:
            raise ShapeError(f"pyro-nuts takes one replicate at a time, got {problem.replicates}")
        x = problem.init(1)
        kernel = _Kernel(problem, settings, horizon)
        kernel.initial_params = {"x": x.flatten().clone()}
        with seeded(streams, "init", self.name):
            kernel.setup(math.inf)  # type: ignore[no-untyped-call]
        return State(x, kernel)

    def step(self, problem: Problem, settings: Settings, state: State, streams: Streams) -> tuple[State, Info]:
        """One transition."""
        kernel = state.kernel
        with seeded(streams, "algorithm", self.name):
            z = kernel.sample({"x": state.x.flatten()})
        x = z["x"].detach().clone().view_as(state.x)
        told = (kernel.warmup.acceptance, float(kernel.diverged), float(kernel.depth))
        return State(x, kernel), Info(*(x.new_tensor([value]) for value in told))


class _Kernel(pyro.infer.NUTS):
    """Pyro's kernel with the warm-up below, watching its trajectories.

    Attributes:
        depth: doublings begun in the last transition.
        diverged: whether one of them diverged.
    """

    def __init__(self, problem: Problem, settings: Settings, horizon: int) -> None:
        super().__init__(  # type: ignore[no-untyped-call]
            potential_fn=lambda z: -LogDensity.apply(z["x"], problem),  # type: ignore[no-untyped-call]
            max_tree_depth=settings.max_tree_depth,
        )
        self.warmup = self._adapter = _Warmup(problem, settings, horizon)
        self.depth, self.diverged = 0, False

    def sample(self, params: dict[str, Tensor]) -> dict[str, Tensor]:
        """One transition."""
        self.depth, self.diverged = 0, False
        z: dict[str, Tensor] = super().sample(params)  # type: ignore[no-untyped-call]
        return z

    def _build_tree(self, *given: Any) -> Any:
        tree = super()._build_tree(*given)  # type: ignore[no-untyped-call]
        *_, depth, _ = given
        self.depth = max(self.depth, depth + 1)
        self.diverged = self.diverged or bool(tree.diverging)
        return tree


class _Warmup(WarmupAdapter):
    """Adaptation by shares of the effort that the warm-up may take.

    Attributes:
        acceptance: mean acceptance of the last transition.
        share: of the warm-up that is spent.
    """

    def __init__(self, problem: Problem, settings: Settings, horizon: int) -> None:
        super().__init__(  # type: ignore[no-untyped-call]
            adapt_step_size=True, adapt_mass_matrix=True, target_accept_prob=settings.target_acceptance
        )
        limit = problem.meter.limit
        self._meter, self._charge = problem.meter, math.inf if limit is None else limit / 4
        self._steps = settings.warmup_steps if limit is not None else min(settings.warmup_steps, horizon // 4)
        self._window, self._held, self._since = FIRST_WINDOW, 0, 0
        self.acceptance, self.share = 1.0, 0.0 if self._steps else 1.0

    def step(self, t: int, z: dict[str, Tensor], accept_prob: Tensor, z_grad: Any = None) -> None:
        """Learn from transition number ``t``, counted from 1."""
        self.acceptance = float(accept_prob)
        if self.share >= 1:
            return
        self._update_step_size(accept_prob)  # type: ignore[no-untyped-call]
        self._since += 1
        first, last = WINDOWS
        before, self.share = self.share, max(t / self._steps, self._meter.charged / self._charge)
        if first <= self.share and before < last:
            self._learn_masses(z, z_grad, foreseen=(1 - self.share) * t / self.share, last=self.share >= last)
        if self.share >= 1:
            self._end_adaptation()

    def _build_adaptation_schedule(self) -> list[Any]:
        return []  # windows come as the effort goes

    def _learn_masses(self, z: dict[str, Tensor], z_grad: Any, foreseen: float, last: bool) -> None:
        self.mass_matrix_adapter.update(z, z_grad)
        self._held += 1
        if (self._held == self._window or last) and self._held >= FIRST_WINDOW and foreseen >= SETTLING:
            self.mass_matrix_adapter.end_adaptation()
            self.reset_step_size_adaptation(z)
            self._window, self._held = 2 * self._window, 0

    def reset_step_size_adaptation(self, z: dict[str, Tensor]) -> None:
        """Search for a reasonable step length, and start dual averaging from it."""
        super().reset_step_size_adaptation(z)  # type: ignore[no-untyped-call]
        self._reasonable, self._since = self.step_size, 0

    def _end_adaptation(self) -> None:
        super()._end_adaptation()  # type: ignore[no-untyped-call]
        if self._since < SETTLING:
            self.step_size = min(self.step_size, self._reasonable)
