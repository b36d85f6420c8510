"""Traces of statistics, rankings, tuning, recording and streams on fixed tables."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import numpy as np
import pandas as pd
import torch

from parvibench import statistics
from parvibench.core import registry
from parvibench.core.algorithm import Algorithm
from parvibench.core.budget import Meter
from parvibench.core.registry import load_task
from parvibench.core.streams import Streams
from parvibench.core.task import TUNING_REPLICATES
from parvibench.data import splits
from parvibench.harness.run.loop import CHECKPOINTS
from parvibench.harness.run.recorder import PathRecorder
from parvibench.harness.run.thompson import RecentPositions
from parvibench.harness.store.results import checkpoint_values, metric_values
from parvibench.harness.suite import tuning
from parvibench.harness.suite.cells import Cell
from parvibench.harness.suite.suite import Suite, parse_suite

from .metric_traces import numbers
from .noise import normal_numbers
from .trace import Trace, Values, plain, weighted

_INF = math.inf


def _array(key: int, *shape: int) -> np.ndarray:
    return normal_numbers(key, *shape)


def _curves() -> pd.DataFrame:
    """Curves of three replicates of two tasks at four checkpoints."""
    rows = [
        (task, r, "w2", float(np.exp(_array(100 + r, 5)[c] - 0.5 * c)), 10 * 2**c, 2**c, 0.1 * c)
        for task in ("a", "b")
        for r in range(3)
        for c in range(4)
    ]
    columns = ["task", "replicate", "metric", "value", "score_evaluations", "iteration", "seconds"]
    return pd.DataFrame(rows, columns=columns)


def _times() -> dict[str, Any]:
    replicates, floors = {"a": 4, "b": 3}, {"a": 0.4, "b": 0.6}
    return statistics.hitting_times(_curves(), floors, replicates, metric="w2", multiples=(1.0, 2.0, 4.0))


def _failing(x: np.ndarray) -> np.ndarray:
    x = x.copy()
    x.flat[2] = np.nan
    return x


#: Every public function of ``statistics`` on fixed tables.
_STATISTICS: dict[str, Callable[[], list[Any]]] = {
    "median_interval": lambda: [
        statistics.median_interval([*_array(1, n), *more], level)
        for n, more, level in ((3, (), 0.95), (7, (), 0.95), (20, (_INF,), 0.95), (20, (math.nan,) * 2, 0.5), (1, (), 0.9))
    ],
    "paired_difference": lambda: [
        statistics.paired_difference(_array(2, n), _failing(_array(3, n)) - 0.2, overlap=share)
        for n, share in ((3, 0.0), (10, 0.0), (10, 0.25), (40, 0.0), (40, 0.1))
    ],
    "first_places": lambda: statistics.first_places([_array(4, 4, 9), _failing(_array(5, 4, 9))], np.random.default_rng(0)),
    "contest": lambda: [
        (c, c.rivals()) for x in (_array(4, 4, 9), _failing(_array(4, 4, 9))) for share in (0.0, 0.2)
        for c in [statistics.contest(np.exp(x + np.array([[0], [1], [0.3], [2]])), 0, overlap=share)]
    ],
    "holm": lambda: [statistics.holm([0.01, 0.04, 0.5, 0.03]), statistics.holm([0.02, 0.04, 0.001], weights=[1, 3, 2])],
    "average_ranks": lambda: [statistics.average_ranks(_failing(_array(5, n, 4).round(1))) for n in (1, 6)],
    "interquartile_mean": lambda: [
        statistics.interquartile_mean([np.exp(_array(6, 7)), [1.0, *more, 2.5]], np.random.default_rng(3))
        for more in ((), (_INF,), (_INF,) * 6)
    ],
    "interquartile_means": lambda: [
        statistics.interquartile_means([[np.exp(_array(7 + a, 6) + 0.3 * a), np.exp(_array(20 + a, 5))] for a in range(3)])
    ],
    "hitting_times": lambda: [{k: np.where(np.isfinite(v), v, -1) for k, v in _times().items()}],
    "runtime_profile": lambda: [statistics.runtime_profile(_times(), [5, 10, 20, 80], np.random.default_rng(4))],
}  # fmt: skip


def statistic_names() -> list[str]:
    """The public functions of ``statistics``."""
    found = inspect.getmembers(statistics, inspect.isfunction)
    return [n for n, f in found if f.__module__ == statistics.__name__ and not n.startswith("_")]


def table_traces() -> Iterator[Trace]:
    """All of them."""
    for name in statistic_names():
        yield Trace(f"tables statistics {name}", partial(_statistic, name))
    yield Trace("tables statistics curves", _diverged)
    yield Trace("tables tuning grid", _tuning_cells)
    yield Trace("tables tuning choice", _tuning_choice)
    yield Trace("tables recorder", _recorder)
    yield Trace("tables recent positions", _recent)
    yield Trace("tables streams", _streams)
    yield Trace("tables meter", _meter)
    yield Trace("tables splits", _splits)
    yield Trace("tables methods", _kinds)


def _statistic(name: str) -> Values:
    return {"values": plain(_STATISTICS[name]())}


def _diverged() -> Values:
    rows = _curves().query("task == 'a' and iteration == 2")
    found = [checkpoint_values(m, rows, [0, 7]) for m in ("w2", "ess_bulk")]
    return {"values": plain([found, metric_values("w2", [1.0, None, math.nan]), metric_values("rhat", [None])])}


_SUITE = b"""\
name: traced
tasks: [multimodal, linear-regression]
algorithms: [ula, svgd, {name: sgld, label: slow, settings: {step_size: 0.001}}, exact]
replicates: 3
particles: 20
seed: 4
budget: {scores_per_particle: 60}
tune: {step_size: [1.0e-3, 10.0], points: 4, replicates: 2, share: 0.5}
"""


def _suite() -> Suite:
    return parse_suite(_SUITE, "traced.yaml")


def _tuning_cells() -> Values:
    cells = tuning.Tuner(_suite()).first_cells()
    return {
        f"{c.label} {c.task}": plain([dict(c.settings), c.spec.budget.score_evaluations, c.spec.replicates])
        for c in cells
    }


def _tuning_choice() -> Values:
    """The values that win, with optima within a grid, beyond its end and nowhere: one method diverges on one task."""
    place = {"ula": 0.03, "svgd": 40.0, "slow": 0.2}

    def run(cells: Sequence[Cell]) -> SimpleNamespace:
        records = []
        for i, cell in enumerate(cells):
            label, step = cell.label.split(" @ ")[0], cell.settings["step_size"]
            value = math.log(step / place[label]) ** 2 + 0.01 * math.sin(i)
            values = [None] * 3 if (label, cell.task) == ("svgd", "multimodal") else [value, None, value + 1]
            record = SimpleNamespace(
                label=cell.label, task=cell.task, status="ok", reason="", values={cell.metrics[0]: values},
                score_evaluations=100.0 + i, n_replicates=2,
            )  # fmt: skip
            records.append(record)
        return SimpleNamespace(cells=records)

    return {"chosen": plain(tuning.Tuner(_suite()).tune(cast("Any", run)).model_dump())}


def _recorder() -> Values:
    """Paths and samples of recorders that overflow, thin and drop a burn-in of either kind."""
    found: Values = {}
    x = numbers(50, 60, 2, 3, 2)
    for burn_in, thinning, most in ((0.5, 1, 2000), (0.0, 3, 2000), (7, 2, 2000), (0.25, 1, 16)):
        with mock.patch("parvibench.harness.run.recorder.MAX_POSITIONS", most):
            recorder = PathRecorder(x[0], burn_in, thinning)
        for step in range(1, 51):
            recorder.add(step, x[step])
        path = recorder.path()
        kept = [weighted(recorder.samples(n, x[50])) for n in (5, 12, 31)]
        found[f"{burn_in} {thinning} {most}"] = [float(path.shape[1]), weighted(path), *kept]
    empty = PathRecorder(x[0], 0.5, 1)
    return found | {"empty": [weighted(empty.samples(7, x[1]))]}


def _recent() -> Values:
    x = numbers(51, 30, 2, 3, 2)
    held = RecentPositions(x[0], 8, every=4)
    found = []
    for step in range(1, 26):
        held.add(step, x[step])
        if step in (3, 9, 25):
            found += [weighted(held.path()), weighted(held.samples(8)), weighted(held.samples(11))]
    return {"positions": list(found)}


def _streams() -> Values:
    """Draws at many addresses, batches of two epochs."""
    streams = Streams(9, (0, 4, 1_000_001), "cpu", torch.float64)
    found: Values = {}
    for step in (0, 1, 255, 256, 700):
        streams.step = step
        found[f"step {step}"] = [
            weighted(streams.normal("noise", (3,))),
            weighted(streams.normal("noise", (3,), 1)),
            weighted(streams.normal("init", (3,))),
            weighted(streams.uniform("noise", (3,))),
            weighted(streams.uniform("output", (400_000,))[:, :50]) if step < 2 else 0.0,
            weighted(streams.batch(10, 3)),
            weighted(streams.permutation("batch", 12, step)),
            *(weighted(torch.rand(2, generator=g)) for g in streams.generators("metric", step)),
        ]
    return found


def _meter() -> Values:
    """What a problem's calls cost, with and without mini-batches."""
    found: Values = {}
    for full in (False, True):
        problem = load_task("linear-regression").problem((0,), 1, dtype=torch.float64, particles=5, full_batch=full)
        charged = []
        for call in ("score", "log_density", "log_density_and_score"):
            x = problem.init(5).requires_grad_()
            value = getattr(problem, call)(x)
            charged.append(problem.meter.charged)
            (value[0] if isinstance(value, tuple) else value).sum().backward()
            charged.append(problem.meter.charged)
        found["full" if full else "batch"] = [*charged, weighted(problem.score_f(x.detach(), 0.7))]
    meter = Meter(10.0)
    meter.charge(scores=3, log_densities=4.5, hvps=1)
    return found | {"meter": [meter.charged]}


def _splits() -> Values:
    found: Values = {"training": [float(splits.training_rows(n)) for n in (1, 5, 10, 303, 506)]}
    for replicate in (0, 1, 19, 20, TUNING_REPLICATES):
        parts = splits.split(57, replicate)
        found[f"replicate {replicate}"] = [weighted(parts.train), weighted(parts.test)]
    constant = splits.moments(np.array([[1.0, 2.0], [1.0, 5.0], [1.0, 4.0]]))
    return found | {"constant": [weighted(v) for v in constant]}


def _kinds() -> Values:
    """The budget's shares at which all runs are measured, and the kind of every algorithm."""
    found: Values = {"checkpoints": list(CHECKPOINTS)}
    for name in registry.algorithms():
        method = registry.load_method(name)
        facts = [
            method.kind,
            str(method.n_particles),
            str(method.max_chunk),
            str(method.host_bound),
            str(method.rescales),
        ]
        if isinstance(method, Algorithm):
            facts += [str(method.differentiates), str(method.resumable)]
        found[name] = [" ".join(facts)]
    return found
