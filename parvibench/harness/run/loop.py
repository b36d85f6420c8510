"""Running one chunk of a cell to the end of its budget."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from parvibench.core.algorithm import Algorithm, Anchor, finite_replicates, floating_tensors, grounded, take_steps
from parvibench.core.budget import MAX_CHECKPOINTS
from parvibench.core.errors import StoreError
from parvibench.core.sequential import GrowingProblem, SequentialTask
from parvibench.harness.store.environment import process_facts
from parvibench.harness.store.files import SnapshotFile
from parvibench.harness.suite.cells import Cell
from parvibench.harness.workers.executors import Notify

from .account import CHANGED, ENDED, UNDEFINED, Account, Guard, Repeated
from .chunks import Chunk, ChunkResult, NotWritableError, pack, rebuilt, stamp, unpack
from .clock import reference_seconds
from .compiling import RecordedStep
from .judging import AFTERWARDS, SEQUENTIAL, Judge, is_reported
from .recorder import Path
from .shared_data import refuse_spoilt, unchanged
from .stepping import SO_FAR, Advance, Stepper, Tally, Trial, step_mode
from .thompson import DecisionMaker

#: Budget shares at which samples are measured; the end of the run is always measured.
CHECKPOINTS = tuple(float(s) for s in np.geomspace(0.01, 1.0, MAX_CHECKPOINTS))
_MARK = 0.8  #: Budget share from which ``displacement`` is measured.
_FINITE_EVERY = 64
_SLOW_S = 1e-3  #: The state is inspected after every step when one takes longer than this, s.
_BEAT_S = 2.0  #: Seconds between two progress reports.
#: Largest rounding of a log density that a Metropolis step bears, in nats.
_COARSE = 0.1
_ROUNDED = (
    "log densities of {size:.1g} at the start are rounded to {rounding:.1g} in single precision, and chains may stand still: "
    "`dtype: float64` in a suite file"
)
#: A reference kernel this much slower or faster after a run than before flags the run's seconds.
_MAX_DRIFT = 0.2
_IGNORED = "ignored its budget: continued after BudgetExhausted; the run was stopped at its last complete state"
_NO_STEP = "no step was complete within the budget: its start is judged"


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
    are left to another process (``judging.judged``). Errors as of loading the task and of its problem, and

    Raises:
        ShapeError: the algorithm's samples are not real numbers of the expected shape.
        BudgetIgnored: the meter was changed, or a plug-in went past it.
        InputError: a plug-in changed data that cells of this process share, now or before; or a budget of score
            evaluations alone, and thousands of iterations without one.
    """
    refuse_spoilt()
    chunk = Chunk.of(cell, replicates)
    with unchanged(chunk) if cell.is_plugin else nullcontext():
        return _run_loaded(chunk, notify, snapshot, deferred=deferred)


def _run_loaded(chunk: Chunk, notify: Notify, snapshot: SnapshotFile | None, *, deferred: bool) -> ChunkResult:
    cell, device = chunk.cell, torch.device(chunk.cell.spec.device)
    judge = None if deferred else Judge(chunk.task, cell.metrics, chunk.replicates)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()  # a process's own cannot be reset
    if isinstance(chunk.method, Anchor):
        return _Run(chunk, judge, notify, None).drawn(chunk.method)
    advance: Advance = RecordedStep(chunk.method.step) if cell.spec.compiled else chunk.method.step
    trial = Trial(chunk)
    run = _Run(chunk, judge, notify, snapshot if chunk.method.resumable else None)
    run.result.overheads["warmup"], run.result.start = trial.seconds, trial.start
    before = reference_seconds(device)
    with step_mode(chunk.method), run.guard:
        state, step, pending = run.resumed(trial) or run.begun(trial.horizon)
        steps = take_steps(advance, run.problem, chunk.settings, state, step)
        method = chunk.method
        ended = None if type(method).ended is Algorithm.ended else partial(method.ended, run.problem, chunk.settings)
        stepper = Stepper(
            steps, advance, run.problem.meter, run.account.clock, run.path.recorder, run.tally, state, step, ended=ended
        )
        slow = trial.pace > _SLOW_S
        del trial  # its problem has the data a second time
        run.loop(stepper, pending, slow=slow)
        run.finish(stepper)
    result = run.result
    result.seconds = run.account.clock.seconds
    if isinstance(advance, RecordedStep):
        result.overheads["compile"] = advance.seconds
        part = "density" if method.compiled_step() else "steps"
        if advance.left_plain:
            result.flag(f"--compile: plain {part}: {advance.left_plain}")
    result.process = process_facts()
    after = reference_seconds(device)
    result.drift = max(before, after) / max(min(before, after), 1e-9) - 1
    if chunk.method.counted_afterwards:
        result.flag(AFTERWARDS)
    if result.drift > _MAX_DRIFT:
        result.flag(f"the machine's speed changed by {result.drift:.0%} during the run: seconds are unreliable")
    return result


def _every(seconds: float) -> Iterator[bool]:
    """True once in so many seconds, else False, at every ``next``."""
    following = time.monotonic() + seconds
    while True:
        due = (now := time.monotonic()) >= following
        following = now + seconds if due else following
        yield due


class _Run:
    """One run of a chunk: its steps, the budget that ends them, and its snapshots, from which it resumes to the bit."""

    def __init__(self, chunk: Chunk, judge: Judge | None, notify: Notify, snapshot: SnapshotFile | None) -> None:
        cell = chunk.cell
        self.chunk, self.judge, self.notify, self.snapshot = chunk, judge, notify, snapshot
        self.problem = chunk.problem(None if isinstance(chunk.method, Anchor) else cell.spec.budget.score_evaluations)
        self.guard = Guard(self.problem, watched=cell.is_plugin and not cell.spec.compiled)
        self.decisions: DecisionMaker | None = None
        if isinstance(chunk.task, SequentialTask) and isinstance(self.problem, GrowingProblem):
            self.decisions = DecisionMaker(chunk.task, self.problem)
        self.account = Account(chunk, self.problem)
        self.path = Path(chunk, self.problem, self.decisions)
        self.result = ChunkResult(effective_step=chunk.method.effective_step(chunk.settings))
        self.tally = Tally()  #: what the steps since the last checkpoint reported
        repeatable = cell.own_task and self.decisions is None  # a posterior that grows does change
        self.repeated = Repeated(self.problem._target, self.problem.dtype) if repeatable else None

    def drawn(self, anchor: Anchor) -> ChunkResult:
        """An anchor's samples: one checkpoint at no cost."""
        problem, n = self.problem, self.chunk.cell.samples
        samples, excluded = anchor.draw(self.chunk.task, problem, n, problem.streams)
        if self.decisions is not None:
            self.decisions.catch_up(1.0, lambda: samples)
        self._judge(samples, 0, last=True, excluded_rows=excluded)
        return self.result

    def resumed(self, trial: Trial) -> tuple[Any, int, list[float]] | None:
        """State, step and budget shares to be measured of an interrupted run, all else put back as it was, or None."""
        content = self.snapshot.load() if self.snapshot else None
        if content is None:
            return None
        try:
            saved = unpack(content, torch.device(self.chunk.cell.spec.device))
            if saved["stamp"] != stamp(self.chunk.cell, self.chunk.replicates):
                return None
            state, step, pending = rebuilt(saved["state"], trial.state), saved["step"], saved["pending"]
        except (StoreError, KeyError, TypeError):
            return None
        self.tally.sums, self.tally.steps = saved["tally"]
        self.result = ChunkResult.from_plain(saved["result"])
        seconds, self.result.overheads["metrics"] = saved["seconds"]
        self.account.restore(saved, seconds)
        if self.decisions is not None:
            self.decisions.saved = saved["decided"]
        self.path.start(state, trial.horizon)
        self.path.mark = saved["mark"]
        if self.path.recorder is not None:
            self.path.recorder.saved = saved["path"]
        return state, step, pending

    def begun(self, horizon: int) -> tuple[Any, int, list[float]]:
        """The first state, step 0, and the budget shares at which samples are measured."""
        method, clock, spec = self.chunk.method, self.account.clock, self.chunk.cell.spec
        clock.start()
        state = method.init(self.problem, self.chunk.settings, self.problem.streams, horizon)
        clock.stop()
        self.path.start(state, horizon)
        self.path.follow(self.result, state, 0)
        if method.kind == "chains" and self.problem.dtype == torch.float32 and "full-batch" in method.needs:
            self._look_at_rounding(state.x)
        iterations = spec.budget.iterations
        explicit = [k / iterations for k in spec.checkpoints] if iterations else []
        return state, 0, explicit or list(CHECKPOINTS[:-1])

    def _look_at_rounding(self, x: Tensor) -> None:
        """Flag log densities at the start (R, N, D) so large that single precision loses the differences of a step."""
        with torch.no_grad():
            largest = self.problem._target.log_density(x).abs().median().item()
        if math.isfinite(largest) and (rounding := largest * torch.finfo(torch.float32).eps) > _COARSE:
            self.result.flag(_ROUNDED.format(size=largest, rounding=rounding))

    def loop(self, stepper: Stepper, pending: list[float], *, slow: bool) -> None:
        """Step until the budget is spent; the state is inspected after every block, or after every step if ``slow``."""
        budget, account, decisions = self.chunk.cell.spec.budget, self.account, self.decisions
        single = slow or budget.seconds is not None or decisions is not None
        share = account.share(stepper.step)
        beat, save = _every(_BEAT_S), _every(self.snapshot.every if self.snapshot else math.inf)
        next(beat), next(save)  # their seconds begin now
        while stepper.step < (budget.iterations or math.inf):
            self._decide(stepper, share)
            goal = min(pending[0] if pending else 1.0, _MARK if self.path.unmarked else 1.0)
            following = (stepper.step + 1, math.inf) if single else account.until(stepper.step, goal)
            goes_on = stepper.go(*following)
            self.guard.check()
            if not goes_on:
                break
            account.require_charge(stepper.step)
            state, step = stepper.state, stepper.step
            share = account.share(step)
            if self.path.unmarked and share >= _MARK:
                self.path.mark = self.path.positions(state, step)
            reached = share if decisions is None else decisions.progress
            due = bool(pending) and reached >= pending[0]
            if self._over(state, step, share, surely=due):
                break
            if due:
                pending = [p for p in pending if p > reached]
                self._measure(state, step, last=False)
            if next(beat):
                self.notify({"iteration": step, "share": share})
            if next(save):
                self._save(state, step, pending)

    def _over(self, state: Any, step: int, share: float, *, surely: bool) -> bool:
        """Whether all replicates have diverged, examined ``surely`` or where a sum is not finite, or the time is over."""
        may_overflow = self.chunk.method.may_overflow
        # Sums are quick, but that of finite values may overflow.
        sums = (
            () if surely or step % _FINITE_EVERY else map(Tensor.sum, floating_tensors(grounded(state, may_overflow)))
        )
        doubtful = surely or not all(map(math.isfinite, sums))
        return (doubtful and self._all_diverged(state, step)) or (
            share >= 1 and self.account.clock.seconds >= (self.chunk.cell.spec.budget.seconds or math.inf)
        )

    def finish(self, stepper: Stepper) -> None:
        """Make the remaining decisions and judge the last state."""
        result, state, step = self.result, stepper.state, stepper.step
        if stepper.ignored:
            result.flag(_IGNORED)
        if stepper.done:
            result.flag(ENDED)
        elif step == 0 and self.chunk.method.kind == "chains":
            result.flag(_NO_STEP)
        self._all_diverged(state, step)
        self._decide(stepper, 1.0)
        if step != result.iterations or not result.values:
            self._measure(state, step, last=True)
        self.guard.check()

    def _decide(self, stepper: Stepper, share: float) -> None:
        if self.decisions is not None:
            self.decisions.catch_up(share, lambda: self.path.samples(stepper.state, stepper.step))

    def _measure(self, state: Any, step: int, *, last: bool) -> None:
        """Judge the samples that a state gives after ``step`` iterations."""
        samples = self.path.samples(state, step)
        self.path.follow(self.result, state, step)
        self.result.note_diverged(self.chunk.replicates, samples.isfinite().all(-1).all(-1), step)
        path = self.path.recorded() if last and step > 0 else None
        moved = self.path.moved(state, step) if last else None
        with self.guard.pausing():
            if self.repeated is not None and self.repeated.changed(samples):
                self.result.flag(CHANGED)
            self._notice()
            self._judge(samples, step, last=last, path=path, moved=moved)

    def _judge(self, samples: Tensor, step: int, *, last: bool, **known: Any) -> None:
        """Judge samples (R, n, D), ``known`` being more of their ``Context``, or leave them to another process."""
        start = time.perf_counter()
        samples = samples.double().cpu()
        result, task, cost = self.result, self.chunk.task, self.account.cost(step)
        left_out = () if task.has_constant else SO_FAR
        reported = {m: v for m, v in self.tally.means().items() if is_reported(m) and m not in left_out}
        calls = float(self.problem.meter.sequential_steps)
        own = () if self.chunk.method.counted_afterwards else (SEQUENTIAL,)  # there a call is charged for a whole block
        known["diagnostics"] = reported | {name: torch.full((len(self.chunk.replicates),), calls) for name in own}
        decisions = None if self.decisions is None else self.decisions.posterior.decisions()
        values: Mapping[str, Tensor] = {}
        if self.judge is None:
            known["decisions"] = None if decisions is None else asdict(decisions)
            result.unmeasured.append({"samples": samples, "cost": asdict(cost), "last": last, "known": known})
        else:
            values = self.judge.add(result, samples, cost, last=last, decisions=decisions, **known)
        result.iterations, result.score_evaluations = step, cost.score_evaluations
        if last:
            result.samples = samples.float().numpy()
        result.overheads["metrics"] = result.overheads.get("metrics", 0.0) + (time.perf_counter() - start)
        primary = task.primary if task.primary in values else next(iter(values), "")
        value = float(values[primary].median()) if primary else None
        share = 1.0 if last else self.account.share(step)
        self.notify({"iteration": step, "share": share, "metric": primary, "value": value})

    def _notice(self) -> None:
        if self.repeated is not None and self.repeated.undefined:
            self.result.flag(UNDEFINED)

    def _save(self, state: Any, step: int, pending: list[float]) -> None:
        """Save all that the run needs to resume; where that cannot be written, an interrupted run starts again."""
        if self.snapshot is None:
            return
        self._notice()
        recorder = self.path.recorder
        try:
            content = pack({
                "stamp": stamp(self.chunk.cell, self.chunk.replicates),
                "state": tree_leaves(state),  # its types are those of a fresh state of the same algorithm
                "step": step,
                "pending": pending,
                **self.account.saved,
                "seconds": (self.account.clock.seconds, self.result.overheads.get("metrics", 0.0)),
                "result": self.result.plain(),
                "path": None if recorder is None else recorder.saved,
                "decided": None if self.decisions is None else self.decisions.saved,
                "mark": self.path.mark,
                "tally": (self.tally.sums, self.tally.steps),
            })  # fmt: skip
        except NotWritableError:
            self.snapshot = None
        else:
            self.snapshot.save(content)

    def _all_diverged(self, state: Any, step: int) -> bool:
        """Record replicates that are no longer finite; True where all have diverged."""
        self.result.note_diverged(self.chunk.replicates, finite_replicates(state, self.chunk.method.may_overflow), step)
        return len(self.result.diverged) == len(self.chunk.replicates)
