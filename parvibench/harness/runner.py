"""Running one chunk of a cell: the loop, the clock, the checkpoints."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parvibench.core.algorithm import Algorithm, AlgorithmSettings, finite_replicates
from parvibench.core.budget import MAX_CHECKPOINTS
from parvibench.core.errors import BudgetExhausted
from parvibench.core.metric import Cost
from parvibench.core.sequential import GrowingProblem, SequentialTask
from parvibench.core.task import Problem, Task
from parvibench.metrics.compute import compute

from .cells import Cell
from .measuring import Moved, context_maker
from .recorder import PathRecorder
from .sequential import DecisionMaker, RecentPositions

#: Budget shares at which samples are measured; the end of the run is always measured.
CHECKPOINTS = tuple(float(s) for s in np.geomspace(0.01, 1.0, MAX_CHECKPOINTS))
#: Budget share from which ``displacement`` is measured.
_MARK = 0.8
_FINITE_EVERY = 64
_PROBE_STEPS = 2

Notify = Callable[[dict[str, Any]], None]


@dataclass
class ChunkResult:
    """What a chunk of replicates leaves behind, in replicate order.

    Attributes:
        curve: rows of the long curve table (see ``store.CURVE_COLUMNS``).
        samples: of the last checkpoint, (r, n, D).
        values: metric -> value per replicate at the last checkpoint.
        absent: metric -> why it does not apply.
        diverged: replicate id -> iteration.
        seconds: steady compute time of the chunk.
        overheads: ``warmup`` and ``metrics`` seconds.
    """

    curve: list[tuple[Any, ...]] = field(default_factory=list)
    samples: NDArray[np.float32] | None = None
    values: dict[str, list[float]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    diverged: dict[int, int] = field(default_factory=dict)
    iterations: int = 0
    score_evaluations: float = 0.0
    seconds: float = 0.0
    effective_step: float | None = None
    overheads: dict[str, float] = field(default_factory=dict)


class Clock:
    """Steady compute time; on a GPU the device is waited for before every reading."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self.seconds = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Add the time spent inside."""
        start = self._now()
        try:
            yield
        finally:
            self.seconds += self._now() - start

    def _now(self) -> float:
        if self._cuda:
            torch.cuda.synchronize()
        return time.perf_counter()


def peak_memory(device: torch.device) -> float | None:
    """Most memory held so far, MiB: PyTorch's on a GPU, this process's otherwise; None where it is not told."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device)) / 2**20
    if sys.platform == "win32":
        return None
    import resource

    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def run_chunk(cell: Cell, replicates: Sequence[int], notify: Notify = lambda _: None) -> ChunkResult:
    """Run a chunk of replicates to the end of its budget and measure it on the way.

    Args:
        cell: what to run.
        replicates: ids of the replicates of this chunk.
        notify: called at every checkpoint with ``iteration``, ``share`` of the budget, ``metric``, ``value``.

    Returns:
        Curve, samples and costs. Replicates that stop being finite are recorded as diverged.

    Raises:
        DataMissingError: the task's data are not here.
        UnsupportedError: the task lacks what the algorithm needs.
    """
    task, algorithm = cell.load()
    settings = algorithm.make_settings(dict(cell.settings))
    if algorithm.kind == "anchor":
        return _Chunk(cell, replicates, task, algorithm, settings, notify).draw_anchor()
    return _Chunk(cell, replicates, task, algorithm, settings, notify).run()


class _Chunk:
    """One run of a chunk: problem, state, recorder and result."""

    def __init__(
        self,
        cell: Cell,
        replicates: Sequence[int],
        task: Task,
        algorithm: Algorithm,
        settings: AlgorithmSettings,
        notify: Notify,
    ) -> None:
        self.cell, self.replicates, self.task = cell, tuple(replicates), task
        self.algorithm, self.settings, self.notify = algorithm, settings, notify
        self.result = ChunkResult(effective_step=algorithm.effective_step(settings))
        self.clock = Clock(torch.device(cell.device))
        if cell.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        self.metrics_seconds = 0.0
        self.path: PathRecorder | RecentPositions | None = None
        self.decider: DecisionMaker | None = None
        self.mark: Tensor | None = None
        self._context = context_maker(task, self.replicates, cell.metrics)

    def run(self) -> ChunkResult:
        horizon = self._probe()
        self._open(self.cell.budget.score_evaluations)
        with torch.inference_mode(not self.algorithm.differentiates):
            state, step = self._loop(horizon)
            if step != self.result.iterations or not self.result.values:
                self._measure(state, step, last=True)
        self.result.seconds = self.clock.seconds
        self.result.overheads["metrics"] = self.metrics_seconds
        return self.result

    def draw_anchor(self) -> ChunkResult:
        """Anchors take no steps: one checkpoint at no cost."""
        self._open(None)
        samples, excluded = self.algorithm.draw(  # type: ignore[attr-defined]
            self.task, self.problem, self.cell.samples, self.problem.streams
        )
        while self.decider is not None and self.decider.due(1.0):
            self.decider.decide(samples)
        self._record(samples.double().cpu(), 0, last=True, excluded=excluded)
        self.result.overheads["metrics"] = self.metrics_seconds
        return self.result

    def _loop(self, horizon: int) -> tuple[Any, int]:
        budget, streams = self.cell.budget, self.problem.streams
        pending = list(CHECKPOINTS[:-1])
        with self.clock.running():
            state = self.algorithm.init(self.problem, self.settings, streams, horizon)
        if self.algorithm.kind == "chains":
            self.path = (
                PathRecorder(state.x)
                if self.decider is None
                else self.decider.recorder(state.x, self.cell.samples, horizon)
            )
        step = 0
        while budget.iterations is None or step < budget.iterations:
            self._decide(state, step, self._share(step))
            streams.step = step
            try:
                with self.clock.running():
                    state = self.algorithm.step(self.problem, self.settings, state, streams)
            except BudgetExhausted:
                break
            step += 1
            if self.path is not None:
                self.path.add(step, state.x)
            share = self._share(step)
            if "displacement" in self.cell.metrics and share >= _MARK and self.mark is None:
                self.mark = self._positions(state, step)
            reached = share if self.decider is None else self.decider.progress
            due = bool(pending) and reached >= pending[0]
            if (due or step % _FINITE_EVERY == 0) and self._all_diverged(state, step):
                break
            if share >= 1 and budget.seconds is not None and self.clock.seconds >= budget.seconds:
                break
            if due:
                pending = [p for p in pending if p > reached]
                self._measure(state, step, last=False)
        self._all_diverged(state, step)
        self._decide(state, step, 1.0)
        return state, step

    def _decide(self, state: Any, step: int, share: float) -> None:
        """Make the decisions that are due once ``share`` of the budget is spent."""
        while self.decider is not None and self.decider.due(share):
            self.decider.decide(self._samples(state, step)[0])

    def _probe(self) -> int:
        """Warm up untimed on a throw-away problem, and foresee how many iterations the budget allows."""
        start = time.perf_counter()
        problem = self._problem(None)
        seconds = cost = 0.0
        with torch.inference_mode(not self.algorithm.differentiates):
            state = self.algorithm.init(problem, self.settings, problem.streams, _PROBE_STEPS)
            for step in range(_PROBE_STEPS):
                before, tick = problem.meter.charged, time.perf_counter()
                problem.streams.step = step
                state = self.algorithm.step(problem, self.settings, state, problem.streams)
                cost, seconds = problem.meter.charged - before, time.perf_counter() - tick
        self.result.overheads["warmup"] = time.perf_counter() - start
        budget = self.cell.budget
        limits = [
            float(budget.iterations or np.inf),
            (budget.score_evaluations or np.inf) / cost if cost else np.inf,
            (budget.seconds or np.inf) / max(seconds, 1e-9),
        ]
        return max(1, int(min(limits))) if np.isfinite(min(limits)) else 1

    def _open(self, limit: float | None) -> None:
        self.problem = self._problem(limit)
        if isinstance(self.task, SequentialTask) and isinstance(self.problem, GrowingProblem):
            self.decider = DecisionMaker(self.task, self.problem)

    def _problem(self, limit: float | None) -> Problem:
        cell = self.cell
        return self.task.problem(
            self.replicates,
            cell.seed,
            cell.device,
            cell.torch_dtype,
            particles=cell.particles,
            limit=limit,
            full_batch="full-batch" in self.algorithm.needs,
        )

    def _share(self, step: int) -> float:
        """How much of the budget is used, by its scarcest limit."""
        budget = self.cell.budget
        return max(
            step / budget.iterations if budget.iterations else 0.0,
            self.problem.meter.charged / budget.score_evaluations if budget.score_evaluations else 0.0,
            self.clock.seconds / budget.seconds if budget.seconds else 0.0,
        )

    def _all_diverged(self, state: Any, step: int) -> bool:
        """Note replicates that are no longer finite; True when none is left."""
        for replicate, finite in zip(self.replicates, finite_replicates(state).tolist(), strict=True):
            if not finite:
                self.result.diverged.setdefault(replicate, step)
        return len(self.result.diverged) == len(self.replicates)

    def _measure(self, state: Any, step: int, *, last: bool) -> None:
        samples, path = self._samples(state, step)
        moved = self._moved(state, step) if last else None
        self._record(samples.double().cpu(), step, last=last, path=path, moved=moved)

    def _samples(self, state: Any, step: int) -> tuple[Tensor, Tensor | None]:
        """The samples at this step, (R, n, D), and the recorded path of chains."""
        streams = self.problem.streams
        streams.step = step
        if self.path is not None and step > 0:
            return self.path.samples(self.cell.samples), self.path.path()
        samples = self.algorithm.output(self.problem, self.settings, state, self.cell.samples, streams)
        return _take(samples, self.cell.samples), None

    def _positions(self, state: Any, step: int) -> Tensor | None:
        """Where each particle or chain is now, (R, N, D); a generator has none."""
        if self.algorithm.kind == "generator":
            return None
        if self.algorithm.kind == "chains":
            return state.x.clone()
        streams = self.problem.streams
        streams.step = step
        return self.algorithm.output(self.problem, self.settings, state, state.x.shape[1], streams)

    def _moved(self, state: Any, step: int) -> Moved | None:
        if self.mark is None:
            return None
        now = self._positions(state, step)
        return None if now is None else (self.mark.cpu(), now.cpu())

    def _record(
        self,
        samples: Tensor,
        step: int,
        *,
        last: bool,
        excluded: Tensor | None = None,
        path: Tensor | None = None,
        moved: Moved | None = None,
    ) -> None:
        start = time.perf_counter()
        charged = self.problem.meter.charged
        seconds, memory = (
            self.clock.seconds / len(self.replicates),
            peak_memory(torch.device(self.cell.device)),
        )
        cost = Cost(step, charged, seconds, memory)
        decisions = None if self.decider is None else self.decider.decisions()
        context = self._context(cost, excluded, path, moved, decisions)
        with torch.inference_mode(False), torch.no_grad():
            values, absent = compute(self.cell.metrics, samples.clone(), context, "last" if last else "every")
        self._add_rows(values, cost)
        self.result.values = {m: v.tolist() for m, v in values.items()} if last else self.result.values
        self.result.absent = absent
        self.result.iterations, self.result.score_evaluations = step, charged
        if last:
            self.result.samples = samples.float().numpy()
        self.metrics_seconds += time.perf_counter() - start
        primary = self.task.primary if self.task.primary in values else next(iter(values), "")
        self.notify(
            {
                "iteration": step,
                "share": 1.0 if last else self._share(step),
                "metric": primary,
                "value": float(values[primary].median()) if primary else None,
            }
        )

    def _add_rows(self, values: dict[str, Tensor], cost: Cost) -> None:
        checkpoint = 1 + max((row[1] for row in self.result.curve), default=-1)
        spent = (checkpoint, cost.iterations, cost.score_evaluations, cost.seconds)
        for metric, per_replicate in values.items():
            for replicate, value in zip(self.replicates, per_replicate.tolist(), strict=True):
                self.result.curve.append((replicate, *spent, metric, value))


def _take(samples: Tensor, n: int) -> Tensor:
    """n rows spread evenly over (R, N, D) when there are more."""
    if samples.shape[1] == n:
        return samples
    rows = torch.linspace(0, samples.shape[1] - 1, n).round().long()
    return samples[:, rows.to(samples.device)]
