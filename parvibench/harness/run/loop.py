"""Running one chunk of a cell to the end of its budget."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from parvibench.core.algorithm import Anchor, finite_replicates, floating_tensors
from parvibench.core.budget import MAX_CHECKPOINTS
from parvibench.core.errors import BudgetIgnored
from parvibench.harness.store.environment import process_facts
from parvibench.harness.store.files import SnapshotFile
from parvibench.harness.suite.cells import Cell

from .checkpoints import Checkpoints, Notify
from .chunks import ChunkResult
from .clock import MAX_DRIFT, drift, reference_seconds
from .compiling import CompiledStep
from .resuming import Place, packed, resume
from .snapshot import NotWritableError
from .stepping import BLOCK, Advance, Stepper, Watch
from .trial import Trial, step_mode

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


def run_chunk(
    cell: Cell,
    replicates: Sequence[int],
    notify: Notify = lambda _: None,
    snapshot: SnapshotFile | None = None,
    *,
    deferred: bool = False,
) -> ChunkResult:
    """Run a chunk of replicates to the end of its budget and measure it on the way.

    Replicates that stop being finite are recorded as diverged. ``notify`` is called every few seconds with
    ``iteration`` and ``share`` of the budget, at every checkpoint with ``metric`` and ``value`` besides. In
    ``snapshot`` the state is saved once a minute, and found by a run that goes on; None saves nothing. With ``deferred``
    the metrics are left to another process (``judging.judged``).

    Raises:
        DataMissingError: the task's data are not here.
        UnsupportedError: the task lacks what the algorithm needs.
        ShapeError: the algorithm's samples are not real numbers of the shape that was asked for.
        BudgetIgnored: the meter was changed, or a plug-in went past it.
    """
    task, algorithm = cell.load()
    settings = algorithm.make_settings(dict(cell.settings))
    checkpoints = Checkpoints(cell, replicates, task, algorithm, settings, notify, deferred=deferred)
    return _draw(checkpoints, algorithm) if isinstance(algorithm, Anchor) else _Run(checkpoints, snapshot).run()


def _draw(here: Checkpoints, anchor: Anchor) -> ChunkResult:
    """An anchor's samples: one checkpoint at no cost."""
    here.open(None)
    samples, excluded = anchor.draw(here.task, here.problem, here.cell.samples, here.problem.streams)
    while here.decider is not None and here.decider.due(1.0):
        here.decider.decide(samples)
    here.record(samples.double().cpu(), 0, last=True, excluded_rows=excluded)
    here.result.overheads["metrics"] = here.seconds
    return here.result


class _Run:
    """One run of a chunk: its steps, and the budget that ends them."""

    def __init__(self, checkpoints: Checkpoints, snapshot: SnapshotFile | None) -> None:
        self.here = checkpoints
        algorithm, device = checkpoints.algorithm, checkpoints.cell.spec.device
        self.compiled = CompiledStep(algorithm.step, device) if checkpoints.cell.spec.compiled else None
        self.snapshot = snapshot if algorithm.resumable else None

    def run(self) -> ChunkResult:
        here, cell, algorithm = self.here, self.here.cell, self.here.algorithm
        advance: Advance = self.compiled or algorithm.step
        trial = Trial(cell, here.replicates, here.task, algorithm, here.settings, advance)
        warmup = trial.seconds - self._compiling
        here.result.overheads["warmup"] = warmup
        here.result.start = trial.start
        here.open(cell.spec.budget.score_evaluations)
        before = reference_seconds(here.device)
        if cell.is_plugin and self.compiled is None:
            here.watch = Watch(here.problem)
        with step_mode(cell, algorithm), here.watch or nullcontext():
            content = self.snapshot.load() if self.snapshot else None
            place = resume(here, content, trial.state, trial.horizon) if content is not None else None
            place = place or self._begin(trial.horizon)
            stepper = Stepper(
                here.problem, here.settings, advance, here.clock, here.path, place.state, place.step, here.tally
            )
            slow = trial.pace > _SLOW_S
            del trial  # its problem has the data a second time
            state, step = self._loop(stepper, place.pending, slow=slow)
            if step != here.result.iterations or not here.result.values:
                here.measure(state, step, last=True)
            self._watch()
        result = here.result
        result.seconds = here.clock.seconds
        result.overheads["metrics"] = here.seconds
        if self.compiled:
            result.overheads["compile"] = self.compiled.seconds
        result.process = process_facts()
        result.drift = drift(before, reference_seconds(here.device))
        if result.drift > MAX_DRIFT:
            change = f"{100 * result.drift:.0f}%"
            result.flag(f"the machine's speed changed by {change} meanwhile: the seconds are doubtful")
        return result

    def _watch(self) -> None:
        """Raise ``BudgetIgnored`` if a plug-in asked for scores past the meter."""
        if self.here.watch is not None:
            self.here.watch.check()

    def _begin(self, horizon: int) -> Place:
        here = self.here
        here.clock.start()
        state = here.algorithm.init(here.problem, here.settings, here.problem.streams, horizon)
        here.clock.stop()
        if here.algorithm.kind == "chains":
            here.path = here.recorder(state.x, horizon)
        here.follow(state, 0)
        iterations, explicit = here.cell.spec.budget.iterations, here.cell.spec.checkpoints
        shares = [k / iterations for k in explicit] if iterations and explicit else list(CHECKPOINTS[:-1])
        return Place(state, 0, shares)

    def _loop(self, stepper: Stepper, pending: list[float], *, slow: bool) -> tuple[Any, int]:
        """Step until the budget is spent; the state is inspected after every block, or after every step if ``slow``."""
        here = self.here
        budget, problem, clock = here.cell.spec.budget, here.problem, here.clock
        meter, limit = problem.meter, problem.meter.limit
        step, state = stepper.step, stepper.state
        moves = "displacement" in here.cell.metrics and here.algorithm.kind != "generator"
        last = np.inf if budget.iterations is None else budget.iterations
        share, charged = here.share(step), meter.charged
        beat = time.monotonic() + _BEAT_S
        save = time.monotonic() + (self.snapshot.every if self.snapshot else np.inf)
        while step < last:
            here.decide(state, step, share)
            marking = moves and here.mark is None
            goal = min(pending[0] if pending else 1.0, _MARK if marking else 1.0)
            compiling = self._compiling
            goes_on = stepper.go(*((step + 1, math.inf) if slow else self._until(step, goal)))
            clock.leave_out(self._compiling - compiling)
            step, state = stepper.step, stepper.state
            if not goes_on:
                break
            self._watch()
            share = here.share(step)
            if marking and share >= _MARK:
                here.mark = here.positions(state, step)
            reached = share if here.decider is None else here.decider.progress
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
                here.measure(state, step, last=False)
            now = time.monotonic()
            if now >= beat:
                here.notify({"iteration": step, "share": share})
                beat = now + _BEAT_S
            if now >= save:
                self._save(Place(state, step, pending))
                save = time.monotonic() + (self.snapshot.every if self.snapshot else np.inf)
        if stepper.ignored:
            here.result.flag(_IGNORED)
        if problem.meter is not meter or meter.limit != limit or meter.charged < charged:
            raise BudgetIgnored(_TAMPERED)
        self._all_diverged(state, step)
        here.decide(state, step, 1.0)
        return state, step

    def _until(self, step: int, share: float) -> tuple[int, float]:
        """Where to inspect next: an iteration, and the score evaluations at which ``share`` of the budget is used."""
        iterations, scores, seconds = self.here.limits
        if seconds or self.here.decider is not None:
            return step + 1, math.inf
        stop = (step // BLOCK + 1) * BLOCK
        if iterations:
            due = int(share * iterations)
            stop = min(stop, max(step + 1, due + (due / iterations < share)))
        return stop, share * scores if scores else math.inf

    def _save(self, place: Place) -> None:
        """Save where the run is; one whose state cannot be written starts again when interrupted."""
        if self.snapshot is not None:
            try:
                self.snapshot.save(packed(self.here, place))
            except NotWritableError:
                self.snapshot = None

    @property
    def _compiling(self) -> float:
        """Time spent on compiling so far, s."""
        return self.compiled.seconds if self.compiled else 0.0

    def _all_diverged(self, state: Any, step: int) -> bool:
        """Note replicates that are no longer finite; True when none is left."""
        here = self.here
        for replicate, finite in zip(here.replicates, finite_replicates(state).tolist(), strict=True):
            if not finite:
                here.result.diverged.setdefault(replicate, step)
        return len(here.result.diverged) == len(here.replicates)


def _surely_finite(state: Any) -> bool:
    """Whether every tensor of a state has a finite sum: quick, but the sum of finite values may overflow."""
    return all(math.isfinite(t.sum()) for t in floating_tensors(state) if t.numel())
