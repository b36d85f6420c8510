"""The budget of a run: what was spent of it, and where the run is looked at next."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from parvibench.core.metric import Cost
from parvibench.core.task import Problem

from .chunks import Chunk
from .clock import Clock, peak_memory
from .stepping import BLOCK


class Account:
    """Iterations, score evaluations and seconds spent on a problem, beside their limits."""

    def __init__(self, chunk: Chunk, problem: Problem) -> None:
        self._chunk, self._budget = chunk, chunk.cell.spec.budget
        self._meter, self._device = problem.meter, problem.device
        self.clock = Clock(problem.device)
        self._earlier_peak = 0.0  #: memory of an earlier process of this run, MiB

    def share(self, step: int) -> float:
        """Share of the budget that is used after ``step`` iterations, by its scarcest limit."""
        limits = self._budget
        share = step / limits.iterations if limits.iterations else 0.0
        if limits.score_evaluations:
            share = max(share, self._meter.charged / limits.score_evaluations)
        return max(share, self.clock.seconds / limits.seconds) if limits.seconds else share

    def until(self, step: int, share: float) -> tuple[int, float]:
        """Where to look next: an iteration, and the score evaluations at which ``share`` of the budget is used."""
        iterations, scores = self._budget.iterations, self._budget.score_evaluations
        stop = (step // BLOCK + 1) * BLOCK
        if iterations:
            due = int(share * iterations)
            stop = min(stop, max(step + 1, due + (due / iterations < share)))
        return stop, share * scores if scores else math.inf

    @property
    def timed_out(self) -> bool:
        """Whether the limit of seconds, if there is one, is reached."""
        return self._budget.seconds is not None and self.clock.seconds >= self._budget.seconds

    def cost(self, step: int) -> Cost:
        """What ``step`` iterations have cost each replicate."""
        return Cost(step, self._meter.charged, self.clock.seconds / len(self._chunk.replicates), self._memory())

    @property
    def sequential_steps(self) -> float:
        """Calls of the density or its score that were made one after the other."""
        return float(self._meter.sequential_steps)

    @property
    def saved(self) -> dict[str, Any]:
        """All but the clock, for ``restore``."""
        meter = self._meter
        return {
            "meter": (meter.scores, meter.hessian_vector_products, meter.log_densities),
            "calls": (meter.score_calls, meter.product_calls, meter.density_calls),
            "memory": self._memory(),
        }

    def restore(self, saved: Mapping[str, Any], seconds: float) -> None:
        """Go on from what an earlier process of this run has spent."""
        meter = self._meter
        meter.scores, meter.hessian_vector_products, meter.log_densities = saved["meter"]
        meter.score_calls, meter.product_calls, meter.density_calls = saved.get("calls", (0, 0, 0))
        self._earlier_peak = saved["memory"] or 0.0
        self.clock = Clock(self._device, seconds)

    def _memory(self) -> float | None:
        """Peak memory, MiB, earlier processes of this run included."""
        now = peak_memory(self._device)
        return None if now is None else max(now, self._earlier_peak)
