"""Tasks, and the problem an algorithm sees of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Protocol

import torch
from torch import Generator, Tensor

from .budget import Meter
from .errors import ShapeError, UnsupportedError
from .reference import Certified, Floored, Reference, load_predictions, load_reference, stamp_of
from .result import StartKind
from .streams import Streams, derive_seed
from .target import Target

#: Replicates from this id on serve tuning only: own streams, own data splits, disjoint from all others.
TUNING_REPLICATES = 2_000_000

#: Spread of a warm start, in standard deviations of the reference.
WARM_SCATTER = 0.1

DENSITY_METRICS = (
    "sliced_w2", "w2", "mmd2", "ksd", "kl_knn", "mean_error", "sd_error", "worst_coordinate", "correlation_error", "ks_marginal",
    "tail_error", "ess_bulk", "ess_per_evaluation", "rhat", "path_primary", "path_equivalent_n", "seconds", "score_evaluations",
    "peak_memory",
)  # fmt: skip
#: Without the linear programme, whose floors take longer than all others together.
LEAN_METRICS = tuple(m for m in DENSITY_METRICS if m != "w2")
#: Of tasks that state log Z.
LOG_Z_METRICS = ("log_z", "log_z_se", "log_z_error", "log_z_deviation", "log_z_doubt")
PREDICTIVE_METRICS = (
    "rmse", "nll", "crps", "coverage", "ess_bulk", "ess_per_evaluation", "rhat", "path_primary", "seconds", "score_evaluations", "peak_memory",
)  # fmt: skip


@dataclass(frozen=True)
class Modes:
    """Known modes of a target."""

    means: Tensor  #: (K, D) centres
    sds: Tensor  #: (K,) spread of each mode, in units of x
    weights: Tensor  #: (K,) probability of each mode


@dataclass(frozen=True)
class Facts:
    """What is known of a target exactly; tests hold exact draws to it."""

    mean: Tensor | None = None  #: (D,) mean, or None
    sd: Tensor | None = None  #: (D,) standard deviation, or None
    modes: Modes | None = None  #: known modes, or None
    unmixing: Tensor | None = None  #: (d, d) unmixing matrix whose estimates the samples are, or None
    infinite_moments: bool = False  #: True where second moments are infinite: no errors of moments are measured
    log_z: float | None = None  #: logarithm of the integral of exp(log_density), or None
    #: named constants of the density that theory speaks of
    constants: Mapping[str, float] = field(default_factory=dict, hash=False)


class PredictiveData(Protocol):
    """Held-out data of a batch of replicates and the model's predictions on them."""

    @property
    def y(self) -> Tensor:
        """Held-out responses in original units, (R, T)."""
        ...

    @property
    def certified(self) -> Certified | None:
        """Posterior predictions to compare with; None if unknown."""
        ...

    def predict(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        """Means (R, n, T) and noise standard deviations (R, n) of the samples (R, n, D), in original units."""
        ...


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """A benchmark target: density, start, protocol, reference and the metrics that apply."""

    name: str  #: canonical name; a variant is a task of its own name
    summary: str  #: one line
    dim: int  #: D
    tags: frozenset[str]  #: for selection and grouping, e.g. ``multimodal``, ``2d``, ``regression``.
    citation: str  #: where the target is from
    version: int = 1  #: raised on any change of density, data, start or reference
    provides: frozenset[str] = frozenset({"score", "hvp", "full-batch"})  #: capabilities that algorithms may need
    metrics: tuple[str, ...] = DENSITY_METRICS  #: names of the metrics that apply
    primary: str = "sliced_w2"  #: the metric that ranks
    standardised: bool = False  #: whether metrics compare in units of the reference's standard deviations
    particles: int = 100  #: the protocol's N
    batch_size: int | None = None  #: mini-batch size B for tasks with data, or None for full-data scores
    rows: int | None = None  #: number of training rows n, or None without data
    data: tuple[str, ...] = ()  #: names of the data sets needed from disk
    facts: Facts = field(default_factory=Facts)  #: exact facts
    has_constant: bool = True  #: False where the density drops constants, so that its log Z means nothing
    precision: torch.dtype | None = None  #: the only one the density takes; None takes that of its argument
    begins: StartKind = "task"  #: where runs start unless they say otherwise
    departures: tuple[str, ...] = ()  #: where a variant departs from the plain task on purpose, one sentence each

    @abstractmethod
    def target(self, replicates: Sequence[int], device: torch.device | str, dtype: torch.dtype) -> Target:
        """The density, bound to each replicate's training data where there is any."""

    @abstractmethod
    def initial(self, target: Target, n: int, generators: Sequence[Generator]) -> Tensor:
        """Initial points, (R, n, D): one generator per replicate."""

    def prior(self, target: Target, n: int, generators: Sequence[Generator]) -> Tensor:
        """Draws from the Gaussian prior that the target declares, (R, n, D); ``UnsupportedError`` without one."""
        if target.prior_precision is None:
            raise UnsupportedError(f"{self.name} declares no prior to start from; start: task or warm")
        drawn = [torch.randn(n, self.dim, generator=g, dtype=torch.float64) for g in generators]
        return torch.stack(drawn) / target.prior_precision**0.5

    def warm(self, target: Target, n: int, generators: Sequence[Generator]) -> Tensor:
        """One reference draw per replicate, n times, scattered by a tenth of the reference's sds, (R, n, D).

        In the mass, and nowhere near its spread: what is left is exploring. ``UnsupportedError`` without a reference.
        """
        reference = self.reference()
        if reference is None:
            raise UnsupportedError(f"{self.name} has no reference draws to start from; start: task")
        draws, points = reference.draws, []
        for g in generators:
            place = draws[torch.randint(len(draws), (1,), generator=g)]
            scatter = torch.randn(n, self.dim, generator=g, dtype=torch.float64)
            points.append(place + WARM_SCATTER * draws.std(0) * scatter)
        return torch.stack(points)

    def exact(self, n: int, generator: Generator) -> Tensor:
        """Independent exact draws, (n, D) float64; ``UnsupportedError`` without an exact sampler."""
        raise UnsupportedError(f"{self.name} has no exact sampler")

    def predictive(
        self, replicates: Sequence[int], device: torch.device | str, dtype: torch.dtype
    ) -> PredictiveData | None:
        """Held-out data of the replicates, or None."""
        return None

    def canonical(self, x: Tensor) -> Tensor:
        """A representative of every point under the symmetries of the density, (..., D); by default the point itself.

        Metrics compare in these coordinates, so that samples in a mode equal to the reference's count as correct.
        """
        return x

    def reference(self) -> Reference | None:
        """The shipped or user-built reference, or None; read once per process until it is rebuilt."""
        return _read(self.name, stamp_of(self.name))

    def floored(self) -> Floored | None:
        """What metrics have floors against: the reference, or certified predictions, or None."""
        return self.reference() or load_predictions(self.name)

    def batch_share(self, full_batch: bool = False) -> float:
        """B/n: what one score call per particle costs in score evaluations."""
        if full_batch or self.batch_size is None or self.rows is None:
            return 1.0
        return min(1.0, self.batch_size / self.rows)

    def problem(
        self,
        replicates: int | Sequence[int],
        seed: int,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        *,
        particles: int | None = None,
        limit: float | None = None,
        full_batch: bool = False,
        start: StartKind = "task",
    ) -> Problem:
        """What an algorithm sees of this task.

        ``replicates`` are their ids, or how many; initial points and batches depend on ``seed`` and the task's name
        only; ``particles`` is N, by default the protocol's; ``limit`` the budget in score evaluations per replicate;
        ``full_batch`` for exact scores instead of mini-batches; ``start``: where initial points are from.
        """
        ids = tuple(range(replicates)) if isinstance(replicates, int) else tuple(replicates)
        target = self.target(ids, device, dtype)
        # the history of a posterior that grows is its target's own
        takes_double = self.precision in (None, torch.float64) and "full-batch" in self.provides
        return self._problem_type()(
            target,
            Streams(derive_seed(seed, self.name), ids, device, dtype),
            start={"task": self.initial, "prior": self.prior, "warm": self.warm}[start],
            particles=particles or self.particles,
            batch_size=None if full_batch else self.batch_size,
            limit=limit,
            double=(lambda: self.target(ids, device, torch.float64)) if takes_double else None,
        )

    def _problem_type(self) -> type[Problem]:
        return Problem


@lru_cache(maxsize=4)
def _read(name: str, stamp: object) -> Reference | None:
    return load_reference(name)


#: Points (R, N, D) -> log densities (R, N) and scores (R, N, D).
Evaluation = Callable[[Tensor], tuple[Tensor, Tensor]]


class Problem:
    """The metered view of a task: density, score and start, without references and test data.

    Every call is booked per replicate before it is made (N rows scored once cost N; a mini-batch of B out of n data
    rows costs B/n of that). Differentiating ``log_density`` books a score, differentiating ``score`` a Hessian-vector
    product. States of the type ``finest`` may be given in place of those of the problem's type.

    Args:
        target: the density.
        streams: randomness of these replicates; the harness positions it at the current step, which selects the
            mini-batch.
        start: the task's initial distribution.
        particles: N of the protocol.
        batch_size: B, or None for exact scores.
        limit: budget in score evaluations per replicate, or None.
        double: makes the density in double precision, when it is first needed; None where there is none.
    """

    def __init__(
        self,
        target: Target,
        streams: Streams,
        *,
        start: Callable[[Target, int, Sequence[Generator]], Tensor],
        particles: int,
        batch_size: int | None = None,
        limit: float | None = None,
        double: Callable[[], Target] | None = None,
    ) -> None:
        self._target, self._start = target, start
        self._double = double if streams.dtype == torch.float32 else None
        self._both: Evaluation = self._density_and_score
        self._batch_size = batch_size if batch_size and target.rows and batch_size < target.rows else None
        self.streams, self.dim, self.particles = streams, target.dim, particles
        self.replicates = len(streams.replicates)  #: R
        self.device = streams.device  #: where states live
        self.dtype = streams.dtype  #: floating type of states
        #: finest type of states that can be evaluated: double precision, or that of a density that takes no other
        self.finest = streams.dtype if self._double is None else torch.float64
        #: B/n: cost of scoring one row
        self.share = 1.0 if self._batch_size is None else self._batch_size / (target.rows or 1)
        self.prior_precision = target.prior_precision  #: m of a prior N(0, I/m) that the target declares, or None
        self.native = target.native  #: the compiled program that a sampler of its own language runs, or None
        self.meter = Meter(limit)
        self.started = False  #: whether the initial points were requested
        self.start_cost = 0.0  #: score evaluations charged for them

    def init(self, n: int | None = None) -> Tensor:
        """Initial points, (R, n, D), n = N by default, the same for every algorithm with the same seed and n."""
        self.started = True
        x = self._start(self._target, n or self.particles, self.streams.generators("init"))
        return x.to(self.device, self.dtype)

    def log_density(self, x: Tensor) -> Tensor:
        """Unnormalised log density on all data: (R, N, D) -> (R, N)."""
        self._check(x)
        self.meter.charge(log_densities=x.shape[1])
        value = self._target_for(x).log_density(x)
        if value.requires_grad:
            value.register_hook(lambda _: self.meter.charge(scores=x.shape[1]))  # type: ignore[no-untyped-call]
        return value

    def score(self, x: Tensor) -> Tensor:
        """Gradient of the log density, mini-batched by the protocol: (R, N, D) -> (R, N, D)."""
        self._check(x)
        rows = x.shape[1] * self.share
        self.meter.charge(scores=rows)
        value = self._target_for(x).score(x, self._batch())
        if value.requires_grad:
            value.register_hook(lambda _: self.meter.charge(hvps=rows))  # type: ignore[no-untyped-call]
        return value

    def log_density_and_score(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Both on all data at the price of one score: ((R, N), (R, N, D))."""
        self._check(x)
        self.meter.charge(scores=x.shape[1], log_densities=x.shape[1])
        return self._both(x)

    def evaluate_by(self, make: Callable[[Evaluation], Evaluation]) -> None:
        """From now on what ``make`` makes of it computes log density and score: the same numbers, faster."""
        self._both = make(self._density_and_score)

    def compiled(self, x: Tensor) -> Any:
        """What computes them of points like x in C++, for a program that charges by itself; None if nothing does."""
        made = self._both.made(x) if hasattr(self._both, "made") else None
        return made if hasattr(made, "entry") else None

    def _density_and_score(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self._target_for(x).log_density_and_score(x)

    def score_f(self, x: Tensor, precision: float) -> Tensor:
        """Score of the density without a Gaussian factor exp(-(m/2)||x||^2), m = ``precision``."""
        return self.score(x) + precision * x

    def fit_gradient(self, x: Tensor, development: bool = False) -> Tensor:
        """Gradient of the mean squared error of the N points' mean prediction, (R, N, D) -> (R, N, D).

        On the step's mini-batch or on the task's development rows; V rows cost N V/n score evaluations.
        ``UnsupportedError`` where the task is no regression, or has no development rows that are requested.
        """
        self._check(x)
        rows = self._target.development_rows
        if development and not rows:
            raise UnsupportedError("this task holds back no development rows")
        share = rows / (self._target.rows or 1) if development else self.share
        self.meter.charge(scores=x.shape[1] * share)
        return self._target.fit_gradient(x, None if development else self._batch(), development)

    def _target_for(self, x: Tensor) -> Target:
        """The density in the type of the states."""
        return self._target if self._double is None or x.dtype != torch.float64 else self._in_double

    @cached_property
    def _in_double(self) -> Target:
        assert self._double is not None
        with torch.inference_mode(False):  # autograd refuses data that are inference tensors
            return self._double()

    def _batch(self) -> Tensor | None:
        """Row indices (R, B) of the current step's mini-batch, or None for all rows."""
        if self._batch_size is None:
            return None
        return self.streams.batch(self._target.rows or 0, self._batch_size)

    def _check(self, x: Tensor) -> None:
        if torch._C._functorch.peek_interpreter_stack() is not None:
            raise UnsupportedError(
                "a problem cannot be called under torch.func transforms (vmap hides rows from the meter); "
                "call it on a batch (R, N, D) instead"
            )
        if x.dim() != 3 or x.shape[0] != self.replicates or x.shape[2] != self.dim:
            raise ShapeError(f"expected states of shape ({self.replicates}, N, {self.dim}), got {tuple(x.shape)}")
