"""Metrics of a chunk at its checkpoints: computed as it runs, or afterwards where a plug-in's code never ran."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from parvibench.core.metric import Cost, Decisions
from parvibench.core.task import Task
from parvibench.harness.marks import blown_up
from parvibench.harness.suite.cells import Cell
from parvibench.metrics.compute import compute_guarded

from .account import Account
from .chunks import Chunk, ChunkResult
from .measuring import context_maker, is_reported, thinned_values
from .snapshot import unpack
from .stepping import Tally
from .thompson import DecisionMaker

#: Calls of the density or its score one after the other: the second axis of a budget, beside the rows scored.
SEQUENTIAL = "sequential_steps"
Notify = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Checkpoint:
    """Input of the metrics at a checkpoint."""

    samples: Tensor  #: (R, n, D) float64
    cost: Cost
    last: bool  #: whether the run ends here
    known: Mapping[str, Any] = field(default_factory=dict)  #: what else their ``Context`` holds, by its fields

    def plain(self) -> dict[str, Any]:
        """Tensors, numbers and text."""
        known = dict(self.known)
        if known.get("decisions") is not None:
            known["decisions"] = asdict(known["decisions"])
        return {"samples": self.samples, "cost": asdict(self.cost), "last": self.last, "known": known}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Checkpoint:
        """The inverse of ``plain``."""
        known = dict(plain["known"])
        if known.get("decisions") is not None:
            known["decisions"] = Decisions(**known["decisions"])
        return cls(plain["samples"], Cost(**plain["cost"]), plain["last"], known)


class Judge:
    """Computes these metrics of a chunk of a task."""

    def __init__(self, task: Task, metrics: Sequence[str], replicates: Sequence[int]) -> None:
        self._metrics, self._replicates = metrics, replicates
        self._context = context_maker(task, replicates, metrics)

    def add(self, result: ChunkResult, at: Checkpoint) -> Mapping[str, Tensor]:
        """Compute the metrics of a checkpoint into a result; their values, (R,) each."""
        context = self._context(cost=at.cost, **at.known)
        with torch.inference_mode(False), torch.no_grad():
            values, absent = compute_guarded(self._metrics, at.samples.clone(), context, "last" if at.last else "every")
            result.judged = thinned_values(list(values), at.samples, context) if at.last else {}
            limits = blown_up.rmse_limits(context.predictive) if at.last and "rmse" in values else None
        for replicate, error, limit in zip(self._replicates, values.get("rmse", ()), limits or (), strict=False):
            if float(error) > limit:
                result.diverged.setdefault(replicate, at.cost.iterations)
        values |= context.diagnostics
        checkpoint = 1 + max((row[1] for row in result.curve), default=-1)
        spent = (checkpoint, at.cost.iterations, at.cost.score_evaluations, at.cost.seconds)
        for metric, per_replicate in values.items():
            for replicate, value in zip(self._replicates, per_replicate.tolist(), strict=True):
                result.curve.append((replicate, *spent, metric, value))
        if at.last:
            result.values = {m: v.tolist() for m, v in values.items()}
        result.absent = absent
        return values


class Curve:
    """Judges samples checkpoint by checkpoint into a result; without a judge they are left to another process."""

    def __init__(
        self, chunk: Chunk, account: Account, decisions: DecisionMaker | None, judge: Judge | None, notify: Notify
    ) -> None:
        self._chunk, self._account, self._decisions = chunk, account, decisions
        self._judge, self._notify = judge, notify
        self.result = ChunkResult(effective_step=chunk.method.effective_step(chunk.settings))
        self.tally = Tally()  #: what the steps since the last checkpoint reported
        self.seconds = 0.0  #: spent here

    def add(self, samples: Tensor, step: int, *, last: bool, **known: Any) -> None:
        """Judge samples (R, n, D) of an iteration; ``known`` is what else their ``Context`` holds."""
        start = time.perf_counter()
        samples = samples.double().cpu()
        cost = self._account.cost(step)
        reported = {m: v for m, v in self.tally.means().items() if is_reported(m)}
        reported[SEQUENTIAL] = torch.full((len(self._chunk.replicates),), self._account.sequential_steps)
        known["decisions"] = None if self._decisions is None else self._decisions.decisions()
        at = Checkpoint(samples, cost, last, {**known, "diagnostics": reported})
        values: Mapping[str, Tensor] = {}
        if self._judge is None:
            self.result.unmeasured.append(at.plain())
        else:
            values = self._judge.add(self.result, at)
        self.result.iterations, self.result.score_evaluations = step, cost.score_evaluations
        if last:
            self.result.samples = samples.float().numpy()
        self.seconds += time.perf_counter() - start
        task = self._chunk.task
        primary = task.primary if task.primary in values else next(iter(values), "")
        value = float(values[primary].median()) if primary else None
        share = 1.0 if last else self._account.share(step)
        self._notify({"iteration": step, "share": share, "metric": primary, "value": value})


def judged(cell: Cell, replicates: Sequence[int], content: bytes) -> ChunkResult:
    """The packed result with its metrics computed; the algorithm is not loaded."""
    result = ChunkResult.from_plain(unpack(content))
    start = time.perf_counter()
    judge = Judge(cell.load_task(), cell.metrics, replicates)
    for checkpoint in map(Checkpoint.from_plain, result.unmeasured):
        judge.add(result, checkpoint)
    result.unmeasured = []
    result.overheads["metrics"] = time.perf_counter() - start
    return result
