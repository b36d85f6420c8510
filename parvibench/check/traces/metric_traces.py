"""Traces of metrics, floors and verdicts on fixed arrays."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from parvibench.core import registry
from parvibench.core.exact import ExactTask
from parvibench.core.metric import Context, Cost, Decisions
from parvibench.core.reference import Predictions, Reference
from parvibench.core.target import Target
from parvibench.core.task import Facts, Modes
from parvibench.metrics import equivalent, floors
from parvibench.metrics.compute import compute, compute_guarded, copied_rows
from parvibench.metrics.evaluate import evaluate_samples, serially_correlated

from .noise import normal_numbers
from .trace import Trace, Values, plain

_DIM, _SAMPLES, _ROWS = 4, 50, 120


def numbers(key: int, *shape: int) -> Tensor:
    """Standard normal numbers, float64."""
    return torch.from_numpy(normal_numbers(key, *shape))


class Bowl(Target):
    """A density with tails heavier than Gaussian."""

    dim = _DIM

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Unnormalised log density in nats: (R, N, D) -> (R, N)."""
        return -2.5 * (1 + (x - 0.1).square().sum(-1) / 3).log() - 0.1 * x[..., 0] * x[..., 1]


@dataclass(frozen=True, kw_only=True)
class Everything(ExactTask):
    """A task on which every metric applies."""

    name: str = "everything"
    summary: str = "every metric applies"
    dim: int = _DIM
    tags: frozenset[str] = frozenset({"heavy-tailed"})
    citation: str = ""

    def target(self, replicates: Sequence[int], device: torch.device | str, dtype: torch.dtype) -> Target:
        """The density."""
        return Bowl()

    def exact(self, n: int, generator: Generator) -> Tensor:
        """Normal draws: near the density, not from it."""
        return torch.randn(n, self.dim, generator=generator, dtype=torch.float64)

    def canonical(self, x: Tensor) -> Tensor:
        """The last coordinate loses its sign."""
        return torch.cat([x[..., :-1], x[..., -1:].abs()], -1)

    def reference(self) -> Reference:
        """Fixed draws with moments, bandwidth, floors and constants."""
        return _reference()


@cache
def _reference() -> Reference:
    draws = everything().canonical(numbers(21, _ROWS, _DIM) * torch.tensor([1.0, 0.7, 1.3, 2.0]))
    constants = {name: {"gap": 1.5 + i, "bias": 0.01 * i} for i, name in enumerate(equivalent.V_STATISTICS)}
    certificate = {
        "bandwidth": 1.4,
        "v_statistics": constants,
        "mean": [0.0, 0.1, -0.1, 1.5],
        "sd": [1.0, 0.8, 1.2, 1.1],
    }
    return Reference(draws, True, certificate, _floors())


def _floors() -> dict[str, dict[int, NDArray[np.float64]]]:
    """Forty values of every metric with a floor at every size: they fall as sizes grow."""
    names, found = floors.judged_metrics(), {}
    for i, name in enumerate(names):
        sizes = floors.CURVE_SIZES if name == "sliced_w2" else floors.SIZES
        found[name] = {n: np.sort(np.exp(0.3 * normal_numbers(1000 * i + n, 40)) * 8 / math.sqrt(n)) for n in sizes}
    return found


@cache
def everything() -> Everything:
    """The task, with modes and an unmixing matrix."""
    means = numbers(22, 3, _DIM)
    modes = Modes(means, torch.tensor([0.5, 0.6, 0.7]).double(), torch.tensor([0.5, 0.3, 0.2]).double())
    mean, sd = numbers(23, _DIM), numbers(24, _DIM).exp()
    return Everything(facts=Facts(mean, sd, modes, unmixing=numbers(25, 2, 2)))


@dataclass(frozen=True)
class Lines:
    """Predictions that are linear in the samples."""

    y: Tensor  #: (R, T)
    slopes: Tensor  #: (R, D, T)
    certified: tuple[Tensor, Tensor] | None = None

    def predict(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        """Means (R, n, T) and noise standard deviations (R, n)."""
        return samples @ self.slopes, (0.2 * samples[..., 0]).exp()


def fixed_context() -> Context:
    """A context of two replicates that holds all that any metric needs."""
    task = everything()
    lines = Lines(numbers(31, 2, 7), numbers(32, 2, _DIM, 7), (numbers(33, 2, 7), numbers(34, 2, 7).exp()))
    best = numbers(36, 2, 9).exp()
    return Context(
        task,
        _reference(),
        task.target((0, 1), "cpu", torch.float64),
        lines,
        path=numbers(35, 2, 40, 3, _DIM).cumsum(1) * 0.3 + numbers(40, 2, 40, 3, _DIM),
        cost=Cost(17, 340.5, 0.75, 12.5),
        moved=(numbers(37, 2, 6, _DIM), numbers(38, 2, 6, _DIM)),
        decisions=Decisions(best - numbers(39, 2, 9).square(), best, best - 0.5),
        diagnostics={row.name: numbers(41, 2) for row in registry.metrics().values() if row.need == "diagnostics"},
    )


def samples() -> Tensor:
    """Two replicates of samples near the reference, (R, n, D)."""
    return 1.2 * numbers(42, 2, _SAMPLES, _DIM) + 0.3


def metric_traces(name: str) -> Iterator[Trace]:
    """The trace of a metric."""
    yield Trace(f"metric {name}", lambda: _metric(name))


def _metric(name: str) -> Values:
    """Two replicates; one that is not finite; against the other rows of the reference; long and wide."""
    context, x = fixed_context(), samples()
    lost = x.clone()
    lost[1, 3, 2] = math.nan
    rows = torch.arange(5, 5 + _SAMPLES).expand(2, -1)
    found: Values = {}
    for label, given, at in (
        ("values", x, context),
        ("one lost", lost, context),
        ("without reference", x, replace(context, reference=None)),
        ("rows left out", x[:, :20], replace(context, excluded_rows=rows[:, :20])),
    ):
        values, absent = compute([name], given, at)
        found[label] = values[name].tolist() if name in values else ["not applicable"]
        if absent and label == "values":
            found[label] = [absent[name]]
    metric = registry.load_metric(name)
    if metric.need == "path":
        wide = replace(context, path=numbers(43, 1, 24, 2, 60).cumsum(1))
        found["wide"] = metric.compute(x[:1], wide).tolist() if not name.startswith("path") else []
    return {label: plain(values) for label, values in found.items()}


def floor_traces() -> Iterator[Trace]:
    """Traces of floors, verdicts and equivalent sample sizes."""
    task, reference = everything(), _reference()
    judged = floors.judged_metrics()

    def verdicts() -> Values:
        found: Values = {}
        for label, scale in (("good", 0.7), ("bad", 2.0), ("mixed", 1.0)):
            for replicates in (1, 4, 12):
                values = {
                    m: scale * np.exp(0.3 * normal_numbers(60 + i, replicates)) * 8 / 10 for i, m in enumerate(judged)
                }
                tests = floors.floor_tests(values, 100, reference, (*task.metrics, "ks_marginal"))
                found[f"{label} {replicates}"] = plain([tests.p_values, tests.adjusted, tests.verdict, tests.reason])
        return found

    def sizes() -> Values:
        values = (0.3, 1.1, 4.0)
        return {
            f"{m} {n}": plain([equivalent.equivalent_sample_size(m, v, n, reference) for v in (*values, list(values))])
            for m in ("sliced_w2", *equivalent.V_STATISTICS)
            for n in (50, 1000)
        }

    def tables() -> Values:
        asked = {m: [floors.floor_sets(m, n, task) for n in floors.SIZES] for m in judged}
        known = {m: list(floors.floor_sizes(m, task, rows)) for m in judged for rows in (100, 9000)}
        found = {"sets": plain(asked), "sizes": plain(known), "judged": plain(floors.verdict_metrics(task))}
        return found | {"size": [floors.judged_size(n, reference) or 0 for n in (10, 60, 100, 5000)]}

    def simulated() -> Values:
        few = replace(reference, floors={})
        sets = lambda n: [numbers(70 + i, n, _DIM) for i in range(3)]  # noqa: E731
        made = floors.simulate_floors(task, few, sets, ["mean_error", "kl_knn"])
        return {m: plain({n: values for n, values in table.items()}) for m, table in made.items()}

    def evaluated() -> Values:
        x = samples()[0]
        document = evaluate_samples(task, x[:, :], Cost(1, 50.0, 0.5), [*task.metrics, "energy_distance"])
        return {"document": plain(document), "correlated": plain([serially_correlated(v) for v in (x, x.cumsum(0))])}

    def constants() -> Values:
        pools = [numbers(80 + i, 60, _DIM) for i in range(5)]
        return {m: plain(v) for m, v in equivalent.v_constants(task, reference, pools).items()}

    def copies() -> Values:
        mixed = torch.cat([reference.draws[3:6], samples()[0, :5]])
        context = Context(task, reference, task.target([0], "cpu", torch.float64))
        guarded = compute_guarded(["sliced_w2", "mean_error"], mixed[None], context)
        return {"copies": [copied_rows(mixed, reference)], "guarded": plain(guarded)}

    def interpolated() -> Values:
        at = [reference.floor(m, n) for m in ("sliced_w2", "mmd2", "c2st") for n in (75, 100, 700, 20_000)]
        return {"floors": plain([None if f is None else (f.median, f.quantile(0.95)) for f in at])}

    def bandwidths() -> Values:
        predictions = Predictions(
            numbers(90, 3, 4), numbers(91, 3, 4), numbers(92, 3, 4), numbers(93, 3, 4), certificate={}, floors={}
        )
        return {"moments": plain([reference.mean, reference.sd, predictions.of((0, 2)), predictions.of((3,))])}

    yield Trace("floors verdicts", verdicts)
    yield Trace("floors equivalent n", sizes)
    yield Trace("floors sizes", tables)
    yield Trace("floors simulated", simulated)
    yield Trace("floors evaluate", evaluated)
    yield Trace("floors constants", constants)
    yield Trace("floors copies", copies)
    yield Trace("floors interpolated", interpolated)
    yield Trace("floors reference", bandwidths)
