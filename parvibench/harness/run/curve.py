"""The checkpoints of a chunk: what each has cost and what its samples are worth."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from .account import Account
from .chunks import Chunk, ChunkResult
from .judging import Checkpoint, Judge
from .measuring import is_reported
from .stepping import Tally
from .thompson import DecisionMaker

#: Calls of the density or its score one after the other: the second axis of a budget, beside the rows scored.
SEQUENTIAL = "sequential_steps"
Notify = Callable[[dict[str, Any]], None]


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
