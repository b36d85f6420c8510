"""Metrics of a chunk at its checkpoints: computed as it runs, or afterwards where a plug-in's code never ran."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from parvibench.core.metric import Cost, Decisions
from parvibench.core.task import Task
from parvibench.harness.marks import blown_up
from parvibench.harness.suite.cells import Cell
from parvibench.metrics.compute import compute_guarded

from .chunks import ChunkResult
from .measuring import context_maker, thinned_values
from .snapshot import unpack


@dataclass(frozen=True)
class Checkpoint:
    """What the metrics of a checkpoint are computed of."""

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


def judged(cell: Cell, replicates: Sequence[int], content: bytes) -> ChunkResult:
    """The result behind the bytes of one without metrics, with them; the algorithm is not loaded."""
    result = ChunkResult.from_plain(unpack(content))
    start = time.perf_counter()
    judge = Judge(cell.load_task(), cell.metrics, replicates)
    for checkpoint in map(Checkpoint.from_plain, result.unmeasured):
        judge.add(result, checkpoint)
    result.unmeasured = []
    result.overheads["metrics"] = time.perf_counter() - start
    return result
