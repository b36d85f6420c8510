"""Running one chunk of a cell: the loop, the clock, the checkpoints."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from parvibench.core.algorithm import Algorithm, AlgorithmSettings, finite_replicates
from parvibench.core.budget import MAX_CHECKPOINTS
from parvibench.core.errors import BudgetExhausted, BudgetIgnored, StoreError
from parvibench.core.metric import Cost
from parvibench.core.sequential import GrowingProblem, SequentialTask
from parvibench.core.task import Problem, Task
from parvibench.metrics.compute import compute

from .cells import Cell
from .chunks import ChunkResult, stamp
from .clock import MAX_DRIFT, Clock, drift, peak_memory, reference_seconds
from .keeping import Keeper
from .measuring import Moved, context_maker
from .provenance import process_facts
from .recorder import PathRecorder
from .sequential import DecisionMaker, RecentPositions
from .snapshot import NotWritableError, named_types, pack, unpack

#: Budget shares at which samples are measured; the end of the run is always measured.
CHECKPOINTS = tuple(float(s) for s in np.geomspace(0.01, 1.0, MAX_CHECKPOINTS))
#: Budget share from which ``displacement`` is measured.
_MARK = 0.8
_FINITE_EVERY = 64
_PROBE_STEPS = 2
#: Seconds between two signs of life.
_BEAT_S = 2.0
_TAMPERED = "changed the meter of its budget"
_IGNORED = "ignored its budget: went on after BudgetExhausted; stopped, the last complete state stands"

Notify = Callable[[dict[str, Any]], None]


class Place(NamedTuple):
    """Where a run stands: the state after iteration ``step``, and the budget shares still to be measured."""

    state: Any
    step: int
    pending: list[float]


def run_chunk(
    cell: Cell, replicates: Sequence[int], notify: Notify = lambda _: None, keeper: Keeper | None = None
) -> ChunkResult:
    """Run a chunk of replicates to the end of its budget and measure it on the way.

    Args:
        cell: what to run.
        replicates: ids of the replicates of this chunk.
        notify: called every few seconds with ``iteration`` and ``share`` of the budget, at every checkpoint with
            ``metric`` and ``value`` besides.
        keeper: where the state is kept once a minute, and found by a run that goes on; None keeps nothing.

    Returns:
        Curve, samples and costs. Replicates that stop being finite are recorded as diverged.

    Raises:
        DataMissingError: the task's data are not here.
        UnsupportedError: the task lacks what the algorithm needs.
    """
    task, algorithm = cell.load()
    settings = algorithm.make_settings(dict(cell.settings))
    chunk = _Chunk(cell, replicates, task, algorithm, settings, notify, keeper)
    return chunk.draw_anchor() if algorithm.kind == "anchor" else chunk.run()


def foresee(cell: Cell) -> tuple[int, float]:
    """Iterations that a cell's budget allows, and seconds of one for a chunk; from two steps of its first chunk.

    Raises:
        ParVIBenchError: as ``run_chunk``.
    """
    task, algorithm = cell.load()
    if algorithm.kind == "anchor":
        return 0, 0.0
    settings = algorithm.make_settings(dict(cell.settings))
    chunk = _Chunk(cell, cell.chunks[0], task, algorithm, settings, lambda _: None, None)
    horizon, _ = chunk.probe()
    return horizon, chunk.pace


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
        keeper: Keeper | None,
    ) -> None:
        self.cell, self.replicates, self.task = cell, tuple(replicates), task
        self.algorithm, self.settings, self.notify = algorithm, settings, notify
        self.result = ChunkResult(effective_step=algorithm.effective_step(settings))
        self.device = torch.device(cell.device)
        self.clock = Clock(self.device)
        self.keeper = keeper if algorithm.resumable else None
        self.memory_before = 0.0
        self.pace = 0.0
        self._limits = (cell.budget.iterations, cell.budget.score_evaluations, cell.budget.seconds)
        if cell.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        self.metrics_seconds = 0.0
        self.path: PathRecorder | RecentPositions | None = None
        self.decider: DecisionMaker | None = None
        self.mark: Tensor | None = None
        self._context = context_maker(task, self.replicates, cell.metrics)

    def run(self) -> ChunkResult:
        horizon, first = self.probe()
        self._open(self.cell.budget.score_evaluations)
        before = reference_seconds(self.device)
        with torch.inference_mode(not self.algorithm.differentiates):
            place = self._kept(first, horizon) or self._begin(horizon)
            state, step = self._loop(place)
            if step != self.result.iterations or not self.result.values:
                self._measure(state, step, last=True)
        self.result.seconds = self.clock.seconds
        self.result.overheads["metrics"] = self.metrics_seconds
        self.result.process = process_facts()
        self.result.drift = drift(before, reference_seconds(self.device))
        if self.result.drift > MAX_DRIFT:
            change = f"{100 * self.result.drift:.0f}%"
            self.result.flag(f"the machine's speed changed by {change} meanwhile: the seconds are doubtful")
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

    def _begin(self, horizon: int) -> Place:
        self.clock.start()
        state = self.algorithm.init(self.problem, self.settings, self.problem.streams, horizon)
        self.clock.stop()
        if self.algorithm.kind == "chains":
            self.path = self._recorder(state.x, horizon)
        return Place(state, 0, list(CHECKPOINTS[:-1]))

    def _recorder(self, x: Tensor, horizon: int) -> PathRecorder | RecentPositions:
        if self.decider is None:
            return PathRecorder(x)
        return self.decider.recorder(x, self.cell.samples, horizon)

    def _loop(self, place: Place) -> tuple[Any, int]:
        budget, streams = self.cell.budget, self.problem.streams
        state, step, pending = place.state, place.step, place.pending
        problem, settings, clock, path = self.problem, self.settings, self.clock, self.path
        meter, limit, advance = problem.meter, problem.meter.limit, self.algorithm.step
        moves = "displacement" in self.cell.metrics
        last = np.inf if budget.iterations is None else budget.iterations
        only_steps = not (budget.score_evaluations or budget.seconds)
        share, charged = self._share(step), meter.charged
        beat = time.monotonic() + _BEAT_S
        keep = time.monotonic() + (self.keeper.every if self.keeper else np.inf)
        while step < last:  # what is done here at every step adds up to a few microseconds
            if self.decider is not None:
                self._decide(state, step, share)
            streams.step = step
            clock.start()
            try:
                after = advance(problem, settings, state, streams)
            except BudgetExhausted:
                break
            except BudgetIgnored:
                self.result.flag(_IGNORED)
                break
            finally:
                clock.stop()
            if meter.refusals:
                self.result.flag(_IGNORED)
                break
            state = after
            step += 1
            if path is not None:
                path.add(step, state.x)
            share = step / last if only_steps else self._share(step)
            if moves and share >= _MARK and self.mark is None:
                self.mark = self._positions(state, step)
            reached = share if self.decider is None else self.decider.progress
            due = bool(pending) and reached >= pending[0]
            if due or not step % _FINITE_EVERY:
                before, charged = charged, meter.charged
                if problem.meter is not meter or meter.limit != limit or charged < before:
                    raise BudgetIgnored(_TAMPERED)
            look = due or not (step % _FINITE_EVERY or _surely_finite(state))
            if look and self._all_diverged(state, step):
                break
            if share >= 1 and budget.seconds is not None and self.clock.seconds >= budget.seconds:
                break
            if due:
                pending = [p for p in pending if p > reached]
                self._measure(state, step, last=False)
            now = time.monotonic()
            if now >= beat:
                self.notify({"iteration": step, "share": share})
                beat = now + _BEAT_S
            if now >= keep:
                self._keep(Place(state, step, pending))
                keep = time.monotonic() + (self.keeper.every if self.keeper else np.inf)
        if problem.meter is not meter or meter.limit != limit or meter.charged < charged:
            raise BudgetIgnored(_TAMPERED)
        self._all_diverged(state, step)
        self._decide(state, step, 1.0)
        return state, step

    def _decide(self, state: Any, step: int, share: float) -> None:
        """Make the decisions that are due once ``share`` of the budget is spent."""
        while self.decider is not None and self.decider.due(share):
            self.decider.decide(self._samples(state, step)[0])

    def _keep(self, place: Place) -> None:
        """Write down where the run is; one whose state cannot be written starts again when interrupted."""
        if self.keeper is None:
            return
        meter = self.problem.meter
        values = {
            "stamp": stamp(self.cell, self.replicates),
            "place": tuple(place),
            "meter": (meter.scores, meter.hessian_vector_products, meter.log_densities),
            "seconds": (self.clock.seconds, self.metrics_seconds),
            "memory": self._memory(),
            "result": self.result.plain(),
            "path": self.path.kept if self.path is not None else None,
            "decided": self.decider.kept if self.decider is not None else None,
            "mark": self.mark,
        }
        try:
            self.keeper.save(pack(values))
        except NotWritableError:
            self.keeper = None

    def _kept(self, first: Any, horizon: int) -> Place | None:
        """Where an earlier run of this chunk was, if it left word; ``first`` is a state of the same types."""
        content = self.keeper.load() if self.keeper else None
        if content is None:
            return None
        try:
            kept = unpack(content, named_types(first), self.device)
        except StoreError:
            return None
        if kept["stamp"] != stamp(self.cell, self.replicates):
            return None
        place = Place(*kept["place"])
        meter = self.problem.meter
        meter.scores, meter.hessian_vector_products, meter.log_densities = kept["meter"]
        seconds, self.metrics_seconds = kept["seconds"]
        self.clock = Clock(self.device, seconds)
        self.memory_before, self.mark = kept["memory"] or 0.0, kept["mark"]
        self.result = ChunkResult.from_plain(kept["result"])
        if self.decider is not None:
            self.decider.kept = kept["decided"]
        if kept["path"] is not None:
            self.path = self._recorder(place.state.x, horizon)
            self.path.kept = kept["path"]
        return place

    def probe(self) -> tuple[int, Any]:
        """Warm up untimed on a throw-away problem: how many iterations the budget allows, and a state."""
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
        self.pace = seconds
        budget = self.cell.budget
        limits = [
            float(budget.iterations or np.inf),
            (budget.score_evaluations or np.inf) / cost if cost else np.inf,
            (budget.seconds or np.inf) / max(seconds, 1e-9),
        ]
        return max(1, int(min(limits))) if np.isfinite(min(limits)) else 1, state

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
        iterations, scores, seconds = self._limits
        share = step / iterations if iterations else 0.0
        if scores:
            share = max(share, self.problem.meter.charged / scores)
        return max(share, self.clock.seconds / seconds) if seconds else share

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
        cost = Cost(step, charged, self.clock.seconds / len(self.replicates), self._memory())
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

    def _memory(self) -> float | None:
        """Most memory held, MiB, also by an earlier process of this run."""
        now = peak_memory(self.device)
        return None if now is None else max(now, self.memory_before)

    def _add_rows(self, values: dict[str, Tensor], cost: Cost) -> None:
        checkpoint = 1 + max((row[1] for row in self.result.curve), default=-1)
        spent = (checkpoint, cost.iterations, cost.score_evaluations, cost.seconds)
        for metric, per_replicate in values.items():
            for replicate, value in zip(self.replicates, per_replicate.tolist(), strict=True):
                self.result.curve.append((replicate, *spent, metric, value))


def _surely_finite(state: Any) -> bool:
    """Whether every tensor of a state has a finite sum: a quick look; a sum may overflow by itself."""
    return all(
        math.isfinite(t.sum()) for t in state if isinstance(t, Tensor) and t.is_floating_point() and t.numel()
    )


def _take(samples: Tensor, n: int) -> Tensor:
    """n rows spread evenly over (R, N, D) when there are more."""
    if samples.shape[1] == n:
        return samples
    rows = torch.linspace(0, samples.shape[1] - 1, n).round().long()
    return samples[:, rows.to(samples.device)]
