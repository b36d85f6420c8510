"""The meter: charges must equal what is evaluated beneath the problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from parvibench.checks.questions import Expected, Fixed, Values
from parvibench.core.registry import load_task
from parvibench.core.streams import Streams
from parvibench.core.target import Target
from parvibench.core.task import Problem

from .steps import TruthQuestion

_ROWS = 7
#: Rounding of sums of shares of a batch.
_TOLERANCE = 1e-9


class Counted(Target):
    """A density that counts its evaluations, in rows; a mini-batch of B out of n data rows counts B/n."""

    scores: float  #: rows scored
    products: float  #: rows of scores differentiated
    log_densities: float  #: rows whose log density was taken

    def __init__(self, target: Target) -> None:
        self._target = target
        self.dim, self.rows, self.prior_precision = target.dim, target.rows, target.prior_precision
        self.scores = self.products = self.log_densities = 0.0

    @property
    def charged(self) -> float:
        """The charge due: log densities are free up to the number of scores."""
        return self.scores + self.products + max(0.0, self.log_densities - self.scores)

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Counted; so is the score of differentiating it."""
        self.log_densities += x.shape[1]
        value = self._target.log_density(x, batch)
        return self._when_differentiated(value, "scores", x.shape[1])

    def score(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Counted; so is the Hessian-vector product of differentiating it."""
        rows = x.shape[1] * (1.0 if batch is None else batch.shape[1] / (self.rows or 1))
        self.scores += rows
        value = self._target.score(x, batch)
        return self._when_differentiated(value, "products", rows)

    def log_density_and_score(self, x: Tensor, batch: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Both counted."""
        self.scores += x.shape[1]
        self.log_densities += x.shape[1]
        return self._target.log_density_and_score(x, batch)

    def _when_differentiated(self, value: Tensor, what: str, rows: float) -> Tensor:
        def book(_: Tensor) -> None:
            setattr(self, what, getattr(self, what) + rows)

        if value.requires_grad:
            value.register_hook(book)  # type: ignore[no-untyped-call]
        return value


@dataclass(frozen=True)
class MeterCharges(TruthQuestion):
    """Whether known calls are charged as the rules say."""

    task: str = "linear-regression"  #: one with data
    batch: int = 12  #: rows in a mini-batch
    algorithm: str = "meter"  #: label

    def measure(self, replicates: range, seed: int) -> Values:
        """Charges of each kind of call on a fresh problem, the same for all replicates."""
        found = {}
        for name in self.expected():
            call, _, rows = name.partition("[")
            batch = self.batch if rows == "batch]" else None
            found[name] = [self._charged(_CALLS[call], replicates, seed, batch)] * len(replicates)
        return found

    def expected(self) -> Mapping[str, Expected]:
        """Rows times the share of the data; a Hessian-vector product counts its score too."""
        share = self.batch / (load_task(self.task).rows or 1)
        charges = {
            "score[full]": 1.0,
            "score[batch]": share,
            "hessian_product[full]": 2.0,
            "hessian_product[batch]": 2 * share,
            "both": 1.0,
            "log_density": 1.0,
            "differentiated": 1.0,
        }
        return {name: Fixed(_ROWS * charge, tolerance=_TOLERANCE) for name, charge in charges.items()}

    def _charged(self, call: Call, replicates: range, seed: int, batch: int | None) -> float:
        """The charge of a call on a fresh problem."""
        task = load_task(self.task)
        streams = Streams(seed, replicates, "cpu", torch.float64)
        target = task.target(replicates, "cpu", torch.float64)
        problem = Problem(target, streams, start=task.initial, particles=_ROWS, batch_size=batch)
        call(problem, problem.init().requires_grad_())
        return problem.meter.charged


#: What is charged: calls of a problem at points that can be differentiated.
Call = Callable[[Problem, Tensor], object]


_CALLS: dict[str, Call] = {
    "score": lambda problem, x: problem.score(x.detach()),
    "hessian_product": lambda problem, x: torch.autograd.grad(problem.score(x).sum(), x),
    "both": lambda problem, x: problem.log_density_and_score(x.detach()),
    "log_density": lambda problem, x: problem.log_density(x.detach()),
    "differentiated": lambda problem, x: torch.autograd.grad(problem.log_density(x).sum(), x),
}
