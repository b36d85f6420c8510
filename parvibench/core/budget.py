"""Budgets and the meter that enforces them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from .errors import BudgetExhausted, BudgetIgnored

MAX_CHECKPOINTS = 7
#: Calls refused before an algorithm counts as ignoring its budget.
MAX_REFUSALS = 100


class Budget(BaseModel):
    """What one replicate may spend; the first limit reached wins.

    ``score_evaluations`` counts rows: scoring N particles once costs N, a mini-batch of B out
    of n data rows costs B/n of that. ``scores_per_particle`` states the same limit in score
    calls per particle at the task's own batch size; a cell resolves it before it runs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    iterations: int | None = Field(None, gt=0, description="outer iterations")
    score_evaluations: float | None = Field(None, gt=0, description="rows scored, per replicate")
    scores_per_particle: float | None = Field(None, gt=0, description="score calls per particle at the task's batch")
    seconds: float | None = Field(None, gt=0, description="steady compute time of one chunk, s")

    @model_validator(mode="after")
    def _some_limit(self) -> Self:
        if all(v is None for v in (self.iterations, self.score_evaluations, self.scores_per_particle, self.seconds)):
            raise ValueError("give at least one of iterations, score_evaluations, scores_per_particle, seconds")
        return self

    def resolve(self, particles: int, batch_share: float) -> Budget:
        """Turn ``scores_per_particle`` into ``score_evaluations``: N particles, batches of a share B/n (else 1)."""
        if self.scores_per_particle is None:
            return self
        rows = self.scores_per_particle * particles * batch_share
        limit = rows if self.score_evaluations is None else min(rows, self.score_evaluations)
        return Budget(iterations=self.iterations, score_evaluations=limit, seconds=self.seconds)


@dataclass
class Meter:
    """Counts what one replicate of a problem spends (all replicates of a batch spend alike)."""

    limit: float | None = None  #: score evaluations allowed, or None
    scores: float = 0.0  #: rows scored, in full-data units
    hessian_vector_products: float = 0.0  #: rows of scores that were differentiated
    log_densities: float = 0.0  #: rows whose log density was taken
    refusals: int = 0  #: calls that were not made because they would overrun
    score_calls: int = 0  #: calls, whatever their rows
    product_calls: int = 0  #: of Hessian-vector products
    density_calls: int = 0  #: of log densities

    @property
    def charged(self) -> float:
        """Score evaluations charged to the budget.

        A Hessian-vector product costs as much as a score. A log density comes free with a score
        (they share the forward pass); those beyond the number of scores cost one each, so that
        finite differences of log densities are charged too.
        """
        return self.scores + self.hessian_vector_products + max(0.0, self.log_densities - self.scores)

    @property
    def sequential_steps(self) -> int:
        """Calls made one after the other, charged like rows: what a machine waits for that scores any number at once."""
        return self.score_calls + self.product_calls + max(0, self.density_calls - self.score_calls)

    def charge(self, scores: float = 0.0, hvps: float = 0.0, log_densities: float = 0.0) -> None:
        """Book a call before it is made.

        ``BudgetExhausted`` where it would overrun the limit: nothing is booked; ``BudgetIgnored`` after a hundred.
        """
        asked = scores, hvps, log_densities
        scores += self.scores
        hvps += self.hessian_vector_products
        log_densities += self.log_densities
        charged = scores + hvps + max(0.0, log_densities - scores)
        # Mini-batch shares do not add up exactly in binary: allow a rounding error.
        if self.limit is not None and charged > self.limit * (1 + 1e-9):
            self.refusals += 1
            if self.refusals > MAX_REFUSALS:
                raise BudgetIgnored(f"exceeded its budget of {self.limit:g} in {MAX_REFUSALS} calls")
            raise BudgetExhausted(f"{charged:g} score evaluations would overrun the budget of {self.limit:g}")
        self.scores, self.hessian_vector_products, self.log_densities = scores, hvps, log_densities
        self.score_calls += asked[0] > 0
        self.product_calls += asked[1] > 0
        self.density_calls += asked[2] > 0
