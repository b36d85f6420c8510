"""Running one chunk of a cell: the loop, the clock, the checkpoints."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from parvibench.core.algorithm import AlgorithmSettings, Anchor, finite_replicates, floating_tensors
from parvibench.core.budget import MAX_CHECKPOINTS
from parvibench.core.errors import BudgetIgnored, ShapeError, StoreError
from parvibench.core.metric import Cost
from parvibench.core.sequential import GrowingProblem, SequentialTask
from parvibench.core.task import Task
from parvibench.harness.store.environment import process_facts
from parvibench.harness.store.files import SnapshotFile
from parvibench.harness.suite.cells import Cell

from .chunks import ChunkResult, stamp
from .clock import MAX_DRIFT, Clock, drift, peak_memory, reference_seconds
from .compiling import CompiledStep
from .judging import Checkpoint, Judge
from .measuring import Moved, is_reported
from .recorder import PathRecorder
from .snapshot import NotWritableError, pack, rebuilt, unpack
from .stepping import BLOCK, Advance, Stepper, Watch
from .tally import Tally
from .thompson import DecisionMaker, RecentPositions
from .trial import Trial, make_problem, step_mode

#: Budget shares at which samples are measured; the end of the run is always measured.
CHECKPOINTS = tuple(float(s) for s in np.geomspace(0.01, 1.0, MAX_CHECKPOINTS))
#: Budget share from which ``displacement`` is measured.
_MARK = 0.8
_FINITE_EVERY = 64
#: The state is inspected after every step when one takes longer than this, s.
_SLOW_S = 1e-3
#: Seconds between two progress reports.
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
    cell: Cell,
    replicates: Sequence[int],
    notify: Notify = lambda _: None,
    snapshot: SnapshotFile | None = None,
    *,
    deferred: bool = False,
) -> ChunkResult:
    """Run a chunk of replicates to the end of its budget and measure it on the way.

    Args:
        cell: what to run.
        replicates: ids of the replicates of this chunk.
        notify: called every few seconds with ``iteration`` and ``share`` of the budget, at every checkpoint with
            ``metric`` and ``value`` besides.
        snapshot: where the state is saved once a minute, and found by a run that goes on; None saves nothing.
        deferred: leave the metrics to another process (``judging.judged``).

    Returns:
        Curve, samples and costs. Replicates that stop being finite are recorded as diverged.

    Raises:
        DataMissingError: the task's data are not here.
        UnsupportedError: the task lacks what the algorithm needs.
        ShapeError: the algorithm's samples are not real numbers of the shape that was asked for.
        BudgetIgnored: the meter was changed, or a plug-in went past it.
    """
    task, algorithm = cell.load()
    settings = algorithm.make_settings(dict(cell.settings))
    chunk = _Chunk(cell, replicates, task, algorithm, settings, notify, snapshot, deferred)
    return chunk.draw(algorithm) if isinstance(algorithm, Anchor) else chunk.run()


class _Chunk:
    """One run of a chunk: problem, state, recorder and result."""

    def __init__(
        self,
        cell: Cell,
        replicates: Sequence[int],
        task: Task,
        algorithm: Any,  # an Algorithm, or an Anchor to draw from
        settings: AlgorithmSettings,
        notify: Notify,
        snapshot: SnapshotFile | None,
        deferred: bool,
    ) -> None:
        self.cell, self.replicates, self.task = cell, tuple(replicates), task
        self.algorithm, self.settings, self.notify = algorithm, settings, notify
        self.compiled = CompiledStep(algorithm.step, cell.spec.device) if cell.spec.compiled else None
        self.result = ChunkResult(effective_step=algorithm.effective_step(settings))
        self.device = torch.device(cell.spec.device)
        self.clock = Clock(self.device)
        self.snapshot = snapshot if getattr(algorithm, "resumable", False) else None
        self.memory_before = 0.0
        self._limits = (
            cell.spec.budget.iterations,
            cell.spec.budget.score_evaluations,
            cell.spec.budget.seconds,
        )
        if cell.spec.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        self.metrics_seconds = 0.0
        self.path: PathRecorder | RecentPositions | None = None
        self.decider: DecisionMaker | None = None
        self.mark: Tensor | None = None
        self.tally = Tally()
        self._judge = None if deferred else Judge(task, cell.metrics, self.replicates)
        self._watch: Watch | None = None

    def run(self) -> ChunkResult:
        advance: Advance = self.compiled or self.algorithm.step
        trial = Trial(self.cell, self.replicates, self.task, self.algorithm, self.settings, advance)
        self.result.overheads["warmup"] = trial.seconds - self._compiling
        self._open(self.cell.spec.budget.score_evaluations)
        before = reference_seconds(self.device)
        if self.cell.is_plugin and self.compiled is None:
            self._watch = Watch(self.problem)
        with step_mode(self.cell, self.algorithm), self._watch or nullcontext():
            place = self._resumed(trial.state, trial.horizon) or self._begin(trial.horizon)
            stepper = Stepper(
                self.problem,
                self.settings,
                advance,
                self.clock,
                self.path,
                place.state,
                place.step,
                self.tally,
            )
            slow = trial.pace > _SLOW_S
            del trial  # its problem has the data a second time
            state, step = self._loop(stepper, place.pending, slow=slow)
            if step != self.result.iterations or not self.result.values:
                self._measure(state, step, last=True)
            if self._watch is not None:
                self._watch.check()
        self.result.seconds = self.clock.seconds
        self.result.overheads["metrics"] = self.metrics_seconds
        if self.compiled:
            self.result.overheads["compile"] = self.compiled.seconds
        self.result.process = process_facts()
        self.result.drift = drift(before, reference_seconds(self.device))
        if self.result.drift > MAX_DRIFT:
            change = f"{100 * self.result.drift:.0f}%"
            self.result.flag(f"the machine's speed changed by {change} meanwhile: the seconds are doubtful")
        return self.result

    def draw(self, anchor: Anchor) -> ChunkResult:
        """An anchor's samples: one checkpoint at no cost."""
        self._open(None)
        samples, excluded = anchor.draw(self.task, self.problem, self.cell.samples, self.problem.streams)
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
            return PathRecorder(x, self.cell.spec.burn_in, self.cell.spec.thinning)
        return self.decider.recorder(x, self.cell.samples, horizon)

    def _loop(self, stepper: Stepper, pending: list[float], *, slow: bool) -> tuple[Any, int]:
        """Step until the budget is spent; the state is inspected after every block, or after every step if ``slow``."""
        budget, problem, clock = self.cell.spec.budget, self.problem, self.clock
        meter, limit = problem.meter, problem.meter.limit
        step, state = stepper.step, stepper.state
        moves = "displacement" in self.cell.metrics and self.algorithm.kind != "generator"
        last = np.inf if budget.iterations is None else budget.iterations
        share, charged = self._share(step), meter.charged
        beat = time.monotonic() + _BEAT_S
        save = time.monotonic() + (self.snapshot.every if self.snapshot else np.inf)
        while step < last:
            if self.decider is not None:
                self._decide(state, step, share)
            marking = moves and self.mark is None
            goal = min(pending[0] if pending else 1.0, _MARK if marking else 1.0)
            compiling = self._compiling
            goes_on = stepper.go(*((step + 1, math.inf) if slow else self._until(step, goal)))
            clock.leave_out(self._compiling - compiling)
            step, state = stepper.step, stepper.state
            if not goes_on:
                break
            if self._watch is not None:
                self._watch.check()
            share = self._share(step)
            if marking and share >= _MARK:
                self.mark = self._positions(state, step)
            reached = share if self.decider is None else self.decider.progress
            due = bool(pending) and reached >= pending[0]
            if due or not step % _FINITE_EVERY:
                before, charged = charged, meter.charged
                if problem.meter is not meter or meter.limit != limit or charged < before:
                    raise BudgetIgnored(_TAMPERED)
            doubtful = due or not (step % _FINITE_EVERY or _surely_finite(state))
            if doubtful and self._all_diverged(state, step):
                break
            if share >= 1 and budget.seconds is not None and clock.seconds >= budget.seconds:
                break
            if due:
                pending = [p for p in pending if p > reached]
                self._measure(state, step, last=False)
            now = time.monotonic()
            if now >= beat:
                self.notify({"iteration": step, "share": share})
                beat = now + _BEAT_S
            if now >= save:
                self._save(Place(state, step, pending))
                save = time.monotonic() + (self.snapshot.every if self.snapshot else np.inf)
        if stepper.ignored:
            self.result.flag(_IGNORED)
        if problem.meter is not meter or meter.limit != limit or meter.charged < charged:
            raise BudgetIgnored(_TAMPERED)
        self._all_diverged(state, step)
        self._decide(state, step, 1.0)
        return state, step

    def _until(self, step: int, share: float) -> tuple[int, float]:
        """Where to inspect next: an iteration, and the score evaluations at which ``share`` of the budget is used."""
        iterations, scores, seconds = self._limits
        if seconds or self.decider is not None:
            return step + 1, math.inf
        stop = (step // BLOCK + 1) * BLOCK
        if iterations:
            due = int(share * iterations)
            stop = min(stop, max(step + 1, due + (due / iterations < share)))
        return stop, share * scores if scores else math.inf

    def _decide(self, state: Any, step: int, share: float) -> None:
        """Make the decisions that are due once ``share`` of the budget is spent."""
        while self.decider is not None and self.decider.due(share):
            self.decider.decide(self._samples(state, step))

    def _save(self, place: Place) -> None:
        """Save where the run is; one whose state cannot be written starts again when interrupted."""
        if self.snapshot is None:
            return
        meter = self.problem.meter
        values = {
            "stamp": stamp(self.cell, self.replicates),
            "state": tree_leaves(place.state),
            "step": place.step,
            "pending": place.pending,
            "meter": (meter.scores, meter.hessian_vector_products, meter.log_densities),
            "seconds": (self.clock.seconds, self.metrics_seconds),
            "memory": self._memory(),
            "result": self.result.plain(),
            "path": self.path.saved if self.path is not None else None,
            "decided": self.decider.saved if self.decider is not None else None,
            "mark": self.mark,
            "tally": (self.tally.sums, self.tally.steps),
        }
        try:
            self.snapshot.save(pack(values))
        except NotWritableError:
            self.snapshot = None

    def _resumed(self, first: Any, horizon: int) -> Place | None:
        """Where an earlier run of this chunk was, if there is a snapshot; ``first`` is a state of the same types."""
        content = self.snapshot.load() if self.snapshot else None
        if content is None:
            return None
        try:
            saved = unpack(content, self.device)
            if saved["stamp"] != stamp(self.cell, self.replicates):
                return None
            place = Place(rebuilt(saved["state"], first), saved["step"], saved["pending"])
        except (StoreError, KeyError, TypeError):
            return None
        meter = self.problem.meter
        meter.scores, meter.hessian_vector_products, meter.log_densities = saved["meter"]
        seconds, self.metrics_seconds = saved["seconds"]
        self.clock = Clock(self.device, seconds)
        self.memory_before, self.mark = saved["memory"] or 0.0, saved["mark"]
        self.tally.sums, self.tally.steps = saved["tally"]
        self.result = ChunkResult.from_plain(saved["result"])
        if self.decider is not None:
            self.decider.saved = saved["decided"]
        if saved["path"] is not None:
            self.path = self._recorder(place.state.x, horizon)
            self.path.saved = saved["path"]
        return place

    @property
    def _compiling(self) -> float:
        """Time spent on compiling so far, s."""
        return self.compiled.seconds if self.compiled else 0.0

    def _open(self, limit: float | None) -> None:
        self.problem = make_problem(self.cell, self.replicates, self.task, self.algorithm, limit)
        if isinstance(self.task, SequentialTask) and isinstance(self.problem, GrowingProblem):
            self.decider = DecisionMaker(self.task, self.problem)

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
        samples = self._samples(state, step)
        for replicate, finite in zip(self.replicates, samples.isfinite().all(-1).all(-1).tolist(), strict=True):
            if not finite:
                self.result.diverged.setdefault(replicate, step)
        path = self.path.path() if last and self.path is not None and step > 0 else None
        moved = self._moved(state, step) if last else None
        self._record(samples.double().cpu(), step, last=last, path=path, moved=moved)

    def _samples(self, state: Any, step: int) -> Tensor:
        """The samples judged at this step, (R, n, D): of chains the last states, and earlier ones where N < n."""
        streams = self.problem.streams
        streams.step = step
        n = self.cell.samples
        if isinstance(self.path, RecentPositions) and step > 0:
            return self.path.samples(n)
        samples = self.algorithm.output(self.problem, self.settings, state, n, streams)
        self._check(samples, 1 if self.algorithm.kind == "chains" else n)  # chains are completed by their paths
        if isinstance(self.path, PathRecorder) and samples.shape[1] < n:
            return self.path.samples(n, samples)
        return _take(samples, n)

    def _check(self, samples: Any, n: int) -> None:
        """Refuse samples that are not real numbers, (R, at least n, D)."""
        expected = f"expected real numbers of shape ({len(self.replicates)}, at least {n}, {self.problem.dim})"
        if not isinstance(samples, Tensor) or not samples.is_floating_point():
            kind = samples.dtype if isinstance(samples, Tensor) else type(samples).__name__
            raise ShapeError(f"output of {self.cell.algorithm} gave {kind}, {expected}")
        found = tuple(samples.shape)
        if len(found) != 3 or found[::2] != (len(self.replicates), self.problem.dim) or found[1] < n:
            raise ShapeError(f"output of {self.cell.algorithm} gave {found}, {expected}")

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
        reported = {m: v for m, v in self.tally.means().items() if is_reported(m)}
        at = Checkpoint(samples, cost, last, excluded, path, moved, decisions, reported)
        values: Mapping[str, Tensor] = {}
        if self._judge is None:
            self.result.unmeasured.append(at.plain())
        else:
            if self._watch is not None:
                self._watch.paused = True
            values = self._judge.add(self.result, at)
            if self._watch is not None:
                self._watch.paused = False
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


def _surely_finite(state: Any) -> bool:
    """Whether every tensor of a state has a finite sum: quick, but the sum of finite values may overflow."""
    return all(math.isfinite(t.sum()) for t in floating_tensors(state) if t.numel())


def _take(samples: Tensor, n: int) -> Tensor:
    """n rows spread evenly over (R, N, D) when there are more."""
    if samples.shape[1] == n:
        return samples
    rows = torch.linspace(0, samples.shape[1] - 1, n).round().long()
    return samples[:, rows.to(samples.device)]
