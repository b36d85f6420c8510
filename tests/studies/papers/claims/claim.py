"""What a claim of a paper is, the rule by which it is judged, and runs of methods to measure it by.

A claim states one or more effects, each signed so that what the paper says makes it exceed a bound. The rule, the same
for all and fixed before anything ran: every effect is measured on each replicate and has a 95% interval of its mean by
Student's t. The claim is **supported** where all intervals are above their bounds, **not supported** where one is
below (at 95% over the claim's effects together, Bonferroni), else **inconclusive**. A replicate that failed counts as
one more than twice the largest finite effect of its part.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import ArrayLike, NDArray
from scipy import stats

import parvibench as pb
from parvibench.core import registry
from parvibench.harness.store.results import StoredRun, metric_values, worst
from parvibench.harness.suite.suite import Suite

LEVEL = 0.95
SUPPORTED, NOT_SUPPORTED, INCONCLUSIVE = "supported", "not supported", "inconclusive"
#: Settings as in the paper; steps scaled so that the methods move alike; steps tuned by one rule for all.
CONDITIONS = ("paper", "matched", "tuned")
#: Grids of tuned steps by unit: nine values each, extended where the best is at an end.
GRID = {"x^2": [1e-4, 1.0], "x": [1e-3, 1.0], "rate": [3e-5, 0.1]}


@dataclass(frozen=True)
class Claim:
    """One claim, its effects, and how they are measured.

    ``measure`` names a function of this package, as ``module:function``, that gives for each name in ``bounds`` the
    effect on each of ``replicates`` replicates.
    """

    number: str
    source: str
    says: str
    bounds: Mapping[str, float]
    measure: str
    replicates: int = 10
    conditions: Sequence[str] = CONDITIONS
    note: str = ""

    def effects(self, lab: Laboratory) -> Mapping[str, ArrayLike]:
        """The effects, measured."""
        module, _, function = self.measure.partition(":")
        found: Mapping[str, ArrayLike] = getattr(import_module(f".{module}", __package__), function)(lab)
        return found


def read_claims() -> dict[str, Claim]:
    """All claims of ``claims.yaml`` by number."""
    entries = yaml.safe_load(Path(__file__).with_name("claims.yaml").read_text("utf-8"))
    return {number: Claim(number, **entry) for number, entry in entries.items()}


@dataclass(frozen=True)
class Effect:
    """Mean of one effect over replicates, with its interval."""

    name: str
    bound: float
    mean: float
    low: float
    high: float
    replicates: int


def judge(bounds: Mapping[str, float], effects: Mapping[str, ArrayLike]) -> tuple[str, list[Effect]]:
    """The verdict on effects per replicate, and their intervals.

    >>> judge({"a less b": 0.0}, {"a less b": [1.0, 1.1, 0.9]})[0]
    'supported'
    """
    if effects.keys() != bounds.keys():
        raise ValueError(f"effects {sorted(effects)} were measured, {sorted(bounds)} are claimed")
    rows, refuted = [], False
    for name, bound in bounds.items():
        found = np.asarray(effects[name], dtype=float)
        if np.isnan(found).all():  # failures compared in every replicate tell nothing, whatever the bound
            rows.append(Effect(name, bound, math.nan, -math.inf, math.inf, len(found)))
            continue
        x = _finite(found)
        mean, low, high = interval(x, LEVEL)
        rows.append(Effect(name, bound, mean, low, high, len(x)))
        refuted |= interval(x, 1 - (1 - LEVEL) / len(bounds))[2] < bound
    if refuted:
        return NOT_SUPPORTED, rows
    return SUPPORTED if all(row.low > row.bound for row in rows) else INCONCLUSIVE, rows


def interval(x: NDArray[np.float64], level: float) -> tuple[float, float, float]:
    """Mean of (R,) values and the ends of its interval by Student's t; without bounds for fewer than two values."""
    mean = float(x.mean())
    if len(x) < 2:
        return mean, -math.inf, math.inf
    half = float(stats.t.ppf(0.5 + level / 2, len(x) - 1) * x.std(ddof=1) / math.sqrt(len(x)))
    return mean, mean - half, mean + half


def _finite(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """NaN, two failures compared, as zero; infinite effects as one more than twice the largest finite one."""
    limit = 1 + 2 * max((abs(v) for v in x[np.isfinite(x)]), default=0.0)
    return np.nan_to_num(x, nan=0.0, posinf=limit, neginf=-limit)


@dataclass
class Measured:
    """Runs of some methods, one entry per replicate; ``task`` names one where there are several."""

    results: StoredRun

    def last(self, label: str, metric: str, task: str | None = None) -> NDArray[np.float64]:
        """Values at the end, (R,); a replicate that diverged counts as the worst there is.

        Raises:
            ValueError: it was not measured.
        """
        cell = self._cell(label, task)
        if metric in cell.absent:
            raise ValueError(f"{label} has no {metric}: {cell.absent[metric]}")
        stored = cell.values.get(metric) or [None] * cell.n_replicates
        return np.array(metric_values(metric, stored))

    def log_ratio(self, metric: str, worse: str, better: str, task: str | None = None) -> NDArray[np.float64]:
        """Logarithm of one method's value over another's, (R,)."""
        return log_ratio(self.last(worse, metric, task), self.last(better, metric, task))

    def curve(self, label: str, metric: str, task: str | None = None) -> NDArray[np.float64]:
        """Values at the checkpoints, (R, C); a replicate that has diverged counts as the worst there is."""
        cell = self._cell(label, task)
        table = self.results.curve(cell)
        wide = table[table["metric"] == metric].pivot(index="replicate", columns="checkpoint", values="value")
        wide = wide.reindex(range(cell.n_replicates))
        return wide.fillna(worst(metric)).to_numpy(dtype=float)

    def samples(self, label: str, task: str | None = None) -> NDArray[np.float64]:
        """Samples judged at the end, (R, n, D)."""
        found = self.results.samples(self._cell(label, task))
        if found is None:
            raise ValueError(f"{label} has no samples")
        return found.astype(np.float64)

    def _cell(self, label: str, task: str | None) -> Any:
        return next(c for c in self.results.cells if c.label == label and task in (None, c.spec.task))


@dataclass
class Laboratory:
    """Where a claim is measured: under which condition, how often, and where runs are stored."""

    store: Path
    condition: str = "paper"
    replicates: int = 10
    workers: int | None = None
    tuned: bool = field(init=False)

    def __post_init__(self) -> None:
        self.tuned = self.condition == "tuned"

    def run(
        self, task: str, methods: Mapping[str, Mapping[str, Any]], *, given_steps: bool = False, **protocol: Any
    ) -> Measured:
        """Run methods, label -> entry of a suite, on a task; finished cells are not run again.

        An entry's ``step_size`` is that of the paper, by its settings or its preset; it is dropped where steps are
        tuned, but for ``given_steps``, where a claim goes through steps itself. ``protocol``: further keys of the suite; ``budget``, ``samples`` and ``burn_in`` come before a preset's.
        """
        first = {key: protocol[key] for key in ("budget", "samples", "burn_in") if key in protocol}
        tuned = self.tuned and not given_steps
        entries = [self._entry(label, {**first, **entry}, tuned) for label, entry in methods.items()]
        protocol = {"budget": {"iterations": 1000}, **protocol}
        values = {"name": "claim", "tasks": [task], "algorithms": entries, "replicates": self.replicates, **protocol}
        if tuned:
            values["tune"] = {"step_size": GRID}
        match = "effective-step" if self.condition == "matched" else None
        suite = Suite.model_validate(values)
        options: dict[str, Any] = {"match": match, "tune": tuned, "workers": self.workers}
        options |= {"out": self.store / self.condition, "tracking": False, "warn": str}
        results = pb.run(suite, **options)
        if any(set(suite.metrics or ()) & set(c.absent) for c in results.cells):
            # Runs of another claim, which did not ask for a metric that only a run can measure.
            results = pb.run(suite, fresh=True, **options)
        return Measured(results)

    def rows(self, suite: str, *rows: str, replicates: int | None = None) -> Measured:
        """Run rows of a paper's suite, named by globs of TASK/LABEL; finished cells are not run again."""
        options = {"rows": rows, "replicates": replicates or self.replicates, "workers": self.workers}
        return Measured(
            pb.run(suite, profile="paper", out=self.store / self.condition, tracking=False, warn=str, **options)
        )

    def _entry(self, label: str, entry: dict[str, Any], tuned: bool) -> dict[str, Any]:
        settings = dict(entry.get("settings", {}))
        if tuned and not entry.get("step_from"):
            preset = entry.pop("preset", None)
            method = registry.load_method(entry["name"])
            chosen = method.expand_preset({"preset": preset, **settings} if preset else settings)
            settings = {key: value for key, value in chosen.items() if key != "step_size"}
            entry |= {key: value for key, value in _protocol(method, preset).items() if key not in entry}
        return {**entry, "label": label, "settings": settings}


def _protocol(method: Any, preset: str | None) -> dict[str, Any]:
    protocol = {} if preset is None else dict(method.protocol(preset))
    if "iterations" in protocol:
        protocol["budget"] = {"iterations": protocol.pop("iterations")}
    return protocol


def log_ratio(worse: ArrayLike, better: ArrayLike) -> NDArray[np.float64]:
    """log(worse / better) of positive metrics, (R,): above zero where the second is smaller."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(np.asarray(worse, dtype=float)) - np.log(np.asarray(better, dtype=float))


def late(curve: NDArray[np.float64], floor: float = 0.0) -> NDArray[np.float64]:
    """Mean of the log of a metric over the checkpoints but the first, (R,): how fast and how far it fell.

    Values below ``floor``, such as a divergence's estimates around zero, count as it.
    """
    with np.errstate(divide="ignore"):
        return np.log(np.maximum(curve[:, 1:], floor)).mean(1)


def spread_ratio(wide: ArrayLike, narrow: ArrayLike) -> NDArray[np.float64]:
    """Distances to the median, of the first less the second, over their joint mean, (R,): above zero where the second varies less."""
    a, b = (np.abs(np.asarray(x, dtype=float) - np.median(x)) for x in (wide, narrow))
    return (a - b) / (a.mean() + b.mean())
