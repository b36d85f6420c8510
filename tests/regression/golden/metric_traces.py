"""Traces of metrics, floors and verdicts on fixed arrays."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from parvibench.core import registry
from parvibench.core.exact import ExactTask
from parvibench.core.metric import Context, Cost, Decisions
from parvibench.core.reference import Certified, Predictions, Reference
from parvibench.core.target import Target
from parvibench.core.task import Facts, Modes
from parvibench.metrics import equivalent, floors
from parvibench.metrics.compute import compute, compute_guarded, copied_rows
from parvibench.metrics.evaluate import evaluate_samples, serially_correlated

from .noise import normal_numbers
from .trace import Trace, Value, Values, plain, traces_named

_DIM, _SAMPLES, _ROWS, _HELD_OUT = 4, 50, 120, 90


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


@dataclass(frozen=True, kw_only=True)
class Alone(Everything):
    """The same density without a reference."""

    name: str = "alone"

    def reference(self) -> None:  # type: ignore[override]
        """None."""


@cache
def _reference() -> Reference:
    draws = everything().canonical(numbers(21, _ROWS, _DIM) * torch.tensor([1.0, 0.7, 1.3, 2.0]))
    constants = {name: {"gap": 1.5 + i, "bias": 0.01 * i} for i, name in enumerate(equivalent.V_STATISTICS)}
    certificate = {
        "bandwidth": 1.4,
        "self_similarity": 0.31,
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
    certified: Certified | None = None

    def of_rows(self, rows: Tensor) -> Lines:
        """The same of these rows alone."""
        return Lines(self.y[:, rows], self.slopes[..., rows])

    def predict(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        """Means (R, n, T) and noise standard deviations (R, n)."""
        return samples @ self.slopes, (0.2 * samples[..., 0]).exp()


def fixed_context() -> Context:
    """A context of two replicates that holds all that any metric needs."""
    task = everything()
    rows = _HELD_OUT
    draws = numbers(43, 2, 30, rows), numbers(44, 2, 30).exp(), numbers(45, 2, rows)
    certified = Certified(numbers(33, 2, rows), numbers(34, 2, rows).exp(), *draws)
    lines = Lines(2 * numbers(31, 2, rows), numbers(32, 2, _DIM, rows), certified)
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


#: Module of the metrics -> its limits of size, so small here that what lies beyond them runs.
_SMALL: dict[str, dict[str, int]] = {
    "pairwise": {"BLOCK_ENTRIES": 400, "WIDE_BLOCK": 600},
    "chains": {
        "MOST_DRAWS": 36, "MOST_COORDINATES": 2, "_BY_EACH": 1, "_SCREENED": 60, "_LOCATED": 30, "_MIXED": 0, "_STATES": 17,
    },
    "equivalent": {"MOST_STATES": 31},
    "transport": {"MOST_POINTS": 20},
    "divergence": {"TREE_DIMENSIONS": 2, "SPARE": 2, "MOST_POINTS": 30, "CENTRES": 9},
    "tails": {"_BLOCK": 13},
}  # fmt: skip


@contextmanager
def small_limits() -> Iterator[None]:
    """Metrics cut their inputs into small blocks, and thin them to a few rows."""
    with ExitStack() as patches:
        for module, limits in _SMALL.items():
            for limit, value in limits.items():
                patches.enter_context(mock.patch(f"parvibench.metrics.{module}.{limit}", value))
        yield


def metric_traces(name: str) -> Iterator[Trace]:
    """The trace of a metric."""
    yield Trace(f"metric {name}", lambda: _metric(name))


def _metric(name: str) -> Values:
    """Two replicates; far out; one that is not finite; against the other rows of the reference; cut into small parts."""
    context, x = fixed_context(), samples()
    lost = x.clone()
    lost[1, 3, 2] = math.nan
    rows = torch.arange(5, 5 + _SAMPLES).expand(2, -1)
    found = {
        label: _computed(name, given, at)
        for label, given, at in (
            ("values", x, context),
            ("far out", 3 * x, context),
            ("one lost", lost, context),
            ("without reference", x, replace(context, reference=None)),
            ("rows left out", x[:, :20], replace(context, excluded_rows=rows[:, :20])),
            *_further(registry.metrics()[name].need, x, context),
        )
    }
    with small_limits():
        anew = replace(_reference(), draws=_reference().draws.clone())  # metrics remember what they have made of rows
        found["small limits"] = _computed(name, x, replace(context, reference=anew))
    return found


def _further(need: str, x: Tensor, context: Context) -> Iterator[tuple[str, Tensor, Context]]:
    """Paths of many coordinates, of networks, and of many short chains; modes of one spread on a line."""
    if need == "path":
        wide = replace(everything(), dim=60)
        yield "wide", numbers(44, 1, 5, 60), Context(wide, path=numbers(43, 1, 24, 2, 60).cumsum(1), cost=context.cost)
        yield "network", x, replace(context, task=replace(everything(), tags=frozenset({"network"})))
        yield (
            "short",
            x[:1],
            replace(context, path=numbers(45, 1, 14, 12, _DIM).cumsum(1) + numbers(46, 1, 1, 12, _DIM)),
        )
    elif need == "modes":
        means = torch.tensor([0.5, -1.0, 2.0]).double()[:, None] * numbers(49, 1, _DIM)
        modes = Modes(means, torch.full((3,), 0.9).double(), torch.tensor([0.5, 0.3, 0.2]).double())
        yield "on a line", x, replace(context, task=replace(everything(), facts=Facts(modes=modes)))


def _computed(name: str, x: Tensor, context: Context) -> list[Value]:
    """The values, if there are any."""
    values, _ = compute([name], x, context)
    return plain(values[name].tolist()) if name in values else ["not applicable"]


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
        few = {m: [0.5, 0.6] for m in ("sliced_w2", "mmd2", "tail_error", "mode_weight_tv")}
        for count in (10, 40):  # so few values that none could be rejected
            short = replace(reference, floors={m: {100: values[100][:count]} for m, values in reference.floors.items()})
            tests = floors.floor_tests(few, 100, short, tuple(few))
            found[f"few {count}"] = plain([tests.p_values, tests.adjusted, tests.verdict, tests.reason])
        return found

    def sizes() -> Values:
        values = (0.01, 0.3, 1.1, 4.0)
        return {
            f"{m} {n}": plain([equivalent.equivalent_sample_size(m, v, n, reference) for v in (*values, list(values))])
            for m in ("sliced_w2", *equivalent.V_STATISTICS)
            for n in (50, 1000, 3000)
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
        x, metrics = samples()[0], [*task.metrics, "energy_distance"]
        chains = 0.3 * numbers(47, 3, 90, _DIM).cumsum(1) * torch.tensor([0.1, 0.5, 1.0, 0.0]) + numbers(
            48, 3, 90, _DIM
        )
        alone = Alone(facts=task.facts)
        return {
            "document": plain(evaluate_samples(task, x, Cost(1, 50.0, 0.5), metrics)),
            "correlated": plain([serially_correlated(v) for v in (x, x.cumsum(0))]),
            "chains": plain(evaluate_samples(task, chains, None, metrics)),
            "alone": plain(evaluate_samples(alone, x, None, ["ksd", "mean_error"])),
            "alone, chains": plain(evaluate_samples(alone, chains, None, ["ksd"])),
        }

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

    yield from traces_named(
        "floors",
        {
            "verdicts": verdicts, "equivalent n": sizes, "sizes": tables, "simulated": simulated, "evaluate": evaluated,
            "constants": constants, "copies": copies, "interpolated": interpolated, "reference": bandwidths,
        },
    )  # fmt: skip
