"""Running one chunk of a cell to the end of its budget."""

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from parvibench.core.algorithm import Algorithm, Anchor, finite_replicates, floating_tensors, grounded
from parvibench.core.budget import MAX_CHECKPOINTS
from parvibench.core.task import Problem
from parvibench.harness.store.environment import process_facts
from parvibench.harness.store.files import SnapshotFile
from parvibench.harness.suite.cells import Cell

from .account import CHANGED, UNDEFINED, Account, Guard, Repeated
from .chunks import Chunk, ChunkResult
from .clock import MAX_DRIFT, drift, reference_seconds, reset_peak_memory
from .compiling import CompiledStep, compile_seconds
from .judging import Curve, Judge, Notify
from .recorder import Path
from .resuming import Place, Standing
from .snapshot import NotWritableError
from .stepping import Advance, Stepper
from .thompson import DecisionMaker
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
_IGNORED = "ignored its budget: continued after BudgetExhausted; the run was stopped at its last complete state"

_AFTERWARDS = "counted afterwards: evaluations are charged after each block of an external program, not one by one"


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
    ``iteration`` and ``share`` of the budget, at every checkpoint with ``metric`` and ``value`` besides. The state is
    saved in ``snapshot`` once a minute, and a later run of the chunk resumes from there. With ``deferred`` the metrics
    are left to another process (``judging.judged``).

    Raises:
        DataMissingError: the task's data are not here.
        UnsupportedError: the task lacks what the algorithm needs.
        ShapeError: the algorithm's samples are not real numbers of the expected shape.
        BudgetIgnored: the meter was changed, or a plug-in went past it.
    """
    chunk, device = Chunk.of(cell, replicates), torch.device(cell.spec.device)
    judge = None if deferred else Judge(chunk.task, cell.metrics, chunk.replicates)
    reset_peak_memory(device)
    if isinstance(chunk.method, Anchor):
        return _draw(chunk, chunk.method, judge, notify)
    advance: Advance = chunk.method.step
    if cell.spec.compiled:
        advance = CompiledStep(advance, cell.spec.device)
    trial = Trial(chunk, advance)
    warmup = trial.seconds - compile_seconds(advance)
    run = _Run(chunk, chunk.problem(cell.spec.budget.score_evaluations), judge, notify, snapshot)
    run.curve.result.overheads["warmup"], run.curve.result.start = warmup, trial.start
    before = reference_seconds(device)
    with step_mode(cell, chunk.method), Guard(run.problem, watched=cell.is_plugin and not cell.spec.compiled) as guard:
        place = run.resumed(trial) or run.begun(trial.horizon)
        stepper = Stepper(
            run.problem,
            chunk.settings,
            advance,
            run.account.clock,
            run.path.recorder,
            place.state,
            place.step,
            run.curve.tally,
        )
        slow = trial.pace > _SLOW_S
        del trial  # its problem has the data a second time
        run.loop(stepper, place.pending, guard, slow=slow)
        run.finish(stepper, guard)
    result = run.curve.result
    result.seconds = run.account.clock.seconds
    result.overheads["metrics"] = run.curve.seconds
    if isinstance(advance, CompiledStep):
        result.overheads["compile"] = advance.seconds
        if advance.left_plain:
            result.flag(f"--compile: the step is compiled, the density of the task is not ({advance.left_plain})")
    result.process = process_facts()
    result.drift = drift(before, reference_seconds(device))
    if chunk.method.counted_afterwards:
        result.flag(_AFTERWARDS)
    if result.drift > MAX_DRIFT:
        change = f"{100 * result.drift:.0f}%"
        result.flag(f"the machine's speed changed by {change} during the run: seconds are unreliable")
    return result


def _draw(chunk: Chunk, anchor: Anchor, judge: Judge | None, notify: Notify) -> ChunkResult:
    """An anchor's samples: one checkpoint at no cost."""
    problem = chunk.problem(None)
    decisions = DecisionMaker.of(chunk.task, problem)
    samples, excluded = anchor.draw(chunk.task, problem, chunk.cell.samples, problem.streams)
    if decisions is not None:
        decisions.catch_up(1.0, lambda: samples)
    curve = Curve(chunk, Account(chunk, problem), decisions, judge, notify)
    curve.add(samples, 0, last=True, excluded_rows=excluded)
    curve.result.overheads["metrics"] = curve.seconds
    return curve.result


class _Run:
    """One run of a chunk: its steps, and the budget that ends them."""

    def __init__(
        self, chunk: Chunk, problem: Problem, judge: Judge | None, notify: Notify, snapshot: SnapshotFile | None
    ) -> None:
        self.chunk, self.problem, self.notify = chunk, problem, notify
        self._may_overflow = chunk.method.may_overflow if isinstance(chunk.method, Algorithm) else frozenset[str]()
        self.snapshot = snapshot if chunk.method.resumable else None
        self.decisions = DecisionMaker.of(chunk.task, problem)
        self.account = Account(chunk, problem)
        self.path = Path(chunk, problem, self.decisions)
        self.curve = Curve(chunk, self.account, self.decisions, judge, notify)
        repeatable = chunk.cell.own_task and self.decisions is None  # a posterior that grows does change
        self.repeated = Repeated(problem._target, problem.dtype) if repeatable else None
        self.standing = Standing(self.account, self.path, self.decisions, self.curve)

    def resumed(self, trial: Trial) -> Place | None:
        """The place of an interrupted run of this chunk, or None."""
        content = self.snapshot.load() if self.snapshot else None
        return None if content is None else self.standing.resume(self.chunk, content, trial.state, trial.horizon)

    def begun(self, horizon: int) -> Place:
        """The first state, and the budget shares at which samples are measured."""
        method, clock, spec = self.chunk.method, self.account.clock, self.chunk.cell.spec
        clock.start()
        state = method.init(self.problem, self.chunk.settings, self.problem.streams, horizon)
        clock.stop()
        self.path.start(state, horizon)
        self._follow(state, 0)
        iterations = spec.budget.iterations
        explicit = [k / iterations for k in spec.checkpoints] if iterations else []
        return Place(state, 0, explicit or list(CHECKPOINTS[:-1]))

    def loop(self, stepper: Stepper, pending: list[float], guard: Guard, *, slow: bool) -> None:
        """Step until the budget is spent; the state is inspected after every block, or after every step if ``slow``."""
        budget, account, path, decisions = self.chunk.cell.spec.budget, self.account, self.path, self.decisions
        single = slow or budget.seconds is not None or decisions is not None
        share = account.share(stepper.step)
        beat, save = _Timer(_BEAT_S), _Timer(self.snapshot.every if self.snapshot else math.inf)
        while stepper.step < (budget.iterations or math.inf):
            self._decide(stepper, share)
            goal = min(pending[0] if pending else 1.0, _MARK if path.unmarked else 1.0)
            stop = (stepper.step + 1, math.inf) if single else account.until(stepper.step, goal)
            goes_on = stepper.go(*stop)
            guard.check()
            if not goes_on:
                break
            state, step = stepper.state, stepper.step
            share = account.share(step)
            if path.unmarked and share >= _MARK:
                path.mark = path.positions(state, step)
            reached = share if decisions is None else decisions.progress
            due = bool(pending) and reached >= pending[0]
            doubtful = due or not (step % _FINITE_EVERY or _surely_finite(grounded(state, self._may_overflow)))
            if (doubtful and self._all_diverged(state, step)) or (share >= 1 and account.timed_out):
                break
            if due:
                pending = [p for p in pending if p > reached]
                self._measure(state, step, guard, last=False)
            if beat.due():
                self.notify({"iteration": step, "share": share})
            if save.due():
                self._save(Place(state, step, pending))

    def finish(self, stepper: Stepper, guard: Guard) -> None:
        """Make the remaining decisions and judge the last state."""
        result, state, step = self.curve.result, stepper.state, stepper.step
        if stepper.ignored:
            result.flag(_IGNORED)
        self._all_diverged(state, step)
        self._decide(stepper, 1.0)
        if step != result.iterations or not result.values:
            self._measure(state, step, guard, last=True)
        guard.check()

    def _decide(self, stepper: Stepper, share: float) -> None:
        if self.decisions is not None:
            self.decisions.catch_up(share, lambda: self.path.samples(stepper.state, stepper.step))

    def _measure(self, state: Any, step: int, guard: Guard, *, last: bool) -> None:
        """Judge the samples that a state gives after ``step`` iterations."""
        samples = self.path.samples(state, step)
        self._follow(state, step)
        self.curve.result.note_diverged(self.chunk.replicates, samples.isfinite().all(-1).all(-1), step)
        path = self.path.recorded() if last and step > 0 else None
        moved = self.path.moved(state, step) if last else None
        with guard.pausing():
            if self.repeated is not None and self.repeated.changed(samples):
                self.curve.result.flag(CHANGED)
            self._notice()
            self.curve.add(samples, step, last=last, path=path, moved=moved)

    def _notice(self) -> None:
        if self.repeated is not None and self.repeated.undefined:
            self.curve.result.flag(UNDEFINED)

    def _follow(self, state: Any, step: int) -> None:
        """Extend the trajectories that are recorded."""
        places = self.path.followed(state, step)
        if places is not None:
            self.curve.result.visited.append(step)
            self.curve.result.places.append(places)

    def _save(self, place: Place) -> None:
        """Save the state; a run whose state cannot be written starts again after an interruption."""
        if self.snapshot is not None:
            self._notice()
            try:
                self.snapshot.save(self.standing.packed(self.chunk, place))
            except NotWritableError:
                self.snapshot = None

    def _all_diverged(self, state: Any, step: int) -> bool:
        """Record replicates that are no longer finite; True where all have diverged."""
        self.curve.result.note_diverged(self.chunk.replicates, finite_replicates(state, self._may_overflow), step)
        return len(self.curve.result.diverged) == len(self.chunk.replicates)


class _Timer:
    """Due once every so many seconds."""

    def __init__(self, every: float) -> None:
        self._every, self._next = every, time.monotonic() + every

    def due(self) -> bool:
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._every
        return True


def _surely_finite(state: Any) -> bool:
    """Whether every tensor of a state has a finite sum: quick, but the sum of finite values may overflow."""
    return all(math.isfinite(t.sum()) for t in floating_tensors(state) if t.numel())
