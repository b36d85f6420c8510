"""Measuring a chunk on its way: the samples judged at a checkpoint, what they cost, and the rows of the curve."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from parvibench.core.algorithm import AlgorithmSettings, require_samples
from parvibench.core.metric import Cost
from parvibench.core.sequential import GrowingProblem, SequentialTask
from parvibench.core.task import Problem, Task
from parvibench.harness.suite.cells import Cell

from .chunks import ChunkResult
from .clock import Clock, peak_memory
from .judging import Checkpoint, Judge
from .measuring import is_reported
from .recorder import PathRecorder
from .stepping import Tally, Watch
from .thompson import DecisionMaker, RecentPositions
from .trial import make_problem

#: Calls of the density or its score one after the other: the second axis of a budget, beside the rows scored.
SEQUENTIAL = "sequential_steps"
Notify = Callable[[dict[str, Any]], None]


class Checkpoints:
    """What a chunk is measured with while it runs; a sequential task's decisions are made here too.

    ``open`` gives it the problem; ``algorithm`` may be an anchor, which takes no steps. With ``deferred`` the metrics are
    left to another process (``judging.judged``).
    """

    problem: Problem

    def __init__(
        self,
        cell: Cell,
        replicates: Sequence[int],
        task: Task,
        algorithm: Any,
        settings: AlgorithmSettings,
        notify: Notify,
        *,
        deferred: bool = False,
    ) -> None:
        self.cell, self.replicates, self.task = cell, tuple(replicates), task
        self.algorithm, self.settings, self.notify = algorithm, settings, notify
        self.result = ChunkResult(effective_step=algorithm.effective_step(settings))
        self.device = torch.device(cell.spec.device)
        self.clock = Clock(self.device)
        self.limits = (cell.spec.budget.iterations, cell.spec.budget.score_evaluations, cell.spec.budget.seconds)
        self.seconds = self.memory_before = 0.0  #: spent here; most memory held by an earlier process of this run, MiB
        self.path: PathRecorder | RecentPositions | None = None
        self.decider: DecisionMaker | None = None
        self.mark: Tensor | None = None  #: positions from which ``displacement`` is measured
        self.tally = Tally()
        self._judge = None if deferred else Judge(task, cell.metrics, self.replicates)
        self.watch: Watch | None = None  #: of a plug-in's steps
        if cell.spec.device == "cuda":
            torch.cuda.reset_peak_memory_stats()

    def open(self, limit: float | None) -> None:
        """Make the problem, with a limit of score evaluations."""
        self.problem = make_problem(self.cell, self.replicates, self.task, self.algorithm, limit)
        if isinstance(self.task, SequentialTask) and isinstance(self.problem, GrowingProblem):
            self.decider = DecisionMaker(self.task, self.problem)

    def recorder(self, x: Tensor, horizon: int) -> PathRecorder | RecentPositions:
        """The recorder of chains at x (R, N, D), for a run of ``horizon`` iterations."""
        if self.decider is None:
            return PathRecorder(x, self.cell.spec.burn_in, self.cell.spec.thinning)
        return self.decider.recorder(x, self.cell.samples, horizon)

    def share(self, step: int) -> float:
        """How much of the budget is used, by its scarcest limit."""
        iterations, scores, seconds = self.limits
        share = step / iterations if iterations else 0.0
        if scores:
            share = max(share, self.problem.meter.charged / scores)
        return max(share, self.clock.seconds / seconds) if seconds else share

    def decide(self, state: Any, step: int, share: float) -> None:
        """Make the decisions that are due once ``share`` of the budget is spent."""
        while self.decider is not None and self.decider.due(share):
            self.decider.decide(self._samples(state, step))

    def measure(self, state: Any, step: int, *, last: bool) -> None:
        """Judge the samples that a state gives after ``step`` iterations."""
        samples = self._samples(state, step)
        self.follow(state, step)
        for replicate, finite in zip(self.replicates, samples.isfinite().all(-1).all(-1).tolist(), strict=True):
            if not finite:
                self.result.diverged.setdefault(replicate, step)
        path = self.path.path() if last and self.path is not None and step > 0 else None
        moved = None
        if last and self.mark is not None and (now := self.positions(state, step)) is not None:
            moved = self.mark.cpu(), now.cpu()
        self.record(samples.double().cpu(), step, last=last, path=None if path is None else path.cpu(), moved=moved)

    def positions(self, state: Any, step: int) -> Tensor | None:
        """Where each particle or chain is now, (R, N, D); a generator has none."""
        if self.algorithm.kind == "generator":
            return None
        if self.algorithm.kind == "chains":
            return state.x.clone()
        streams = self.problem.streams
        streams.step = step
        return self.algorithm.output(self.problem, self.settings, state, state.x.shape[1], streams)

    def follow(self, state: Any, step: int) -> None:
        """Note where the particles are whose trajectories are kept: evenly spread ones of the first replicate."""
        k, first = self.cell.spec.trajectories, self.cell.spec.replicates[0]
        if not k or first not in self.replicates:
            return
        now = self.positions(state, step)
        if now is not None:
            self.result.visited.append(step)
            self.result.places.append(_take(now, k)[self.replicates.index(first)].float().cpu().numpy())

    def _samples(self, state: Any, step: int) -> Tensor:
        """The samples judged at this step, (R, n, D): of chains the last states, and earlier ones where N < n."""
        streams = self.problem.streams
        streams.step = step
        n = self.cell.samples
        if isinstance(self.path, RecentPositions) and step > 0:
            return self.path.samples(n)
        samples = self.algorithm.output(self.problem, self.settings, state, n, streams)
        least = 1 if self.algorithm.kind == "chains" else n  # chains are completed by their paths
        require_samples(samples, len(self.replicates), least, self.problem.dim, self.cell.algorithm)
        if isinstance(self.path, PathRecorder) and samples.shape[1] < n:
            held = self.path.held * samples.shape[1]
            fewer = self.cell.spec.checkpoints and 1 < held < n
            return self.path.samples(held if fewer else n, samples)
        return _take(samples, n)

    def record(self, samples: Tensor, step: int, *, last: bool, **known: Any) -> None:
        """Judge samples (R, n, D) of an iteration; ``known`` is what else their ``Context`` holds."""
        start = time.perf_counter()
        charged = self.problem.meter.charged
        cost = Cost(step, charged, self.clock.seconds / len(self.replicates), self.memory())
        decisions = None if self.decider is None else self.decider.decisions()
        reported = {m: v for m, v in self.tally.means().items() if is_reported(m)}
        reported[SEQUENTIAL] = torch.full((len(self.replicates),), float(self.problem.meter.sequential_steps))
        at = Checkpoint(samples, cost, last, {"decisions": decisions, "diagnostics": reported, **known})
        values: Mapping[str, Tensor] = {}
        if self._judge is None:
            self.result.unmeasured.append(at.plain())
        else:
            with self.watch.pausing() if self.watch else nullcontext():
                values = self._judge.add(self.result, at)
        self.result.iterations, self.result.score_evaluations = step, charged
        if last:
            self.result.samples = samples.float().numpy()
        self.seconds += time.perf_counter() - start
        primary = self.task.primary if self.task.primary in values else next(iter(values), "")
        value = float(values[primary].median()) if primary else None
        share = 1.0 if last else self.share(step)
        self.notify({"iteration": step, "share": share, "metric": primary, "value": value})

    def memory(self) -> float | None:
        """Most memory held, MiB, also by an earlier process of this run."""
        now = peak_memory(self.device)
        return None if now is None else max(now, self.memory_before)


def _take(samples: Tensor, n: int) -> Tensor:
    """n rows spread evenly over (R, N, D) when there are more."""
    if samples.shape[1] == n:
        return samples
    rows = torch.linspace(0, samples.shape[1] - 1, n).round().long()
    return samples[:, rows.to(samples.device)]
