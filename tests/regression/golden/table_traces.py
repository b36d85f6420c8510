"""Traces of suites, tuning, recording, streams and the meter on fixed tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch

from parvibench.core import registry
from parvibench.core.algorithm import Algorithm
from parvibench.core.budget import Meter
from parvibench.core.errors import BudgetExhausted
from parvibench.core.registry import load_task
from parvibench.core.streams import Streams
from parvibench.core.task import TUNING_REPLICATES
from parvibench.data import splits
from parvibench.harness.run.loop import CHECKPOINTS
from parvibench.harness.run.recorder import PathRecorder
from parvibench.harness.run.thompson import RecentPositions
from parvibench.harness.store.results import checkpoint_values, metric_values
from parvibench.harness.suite import tuning
from parvibench.harness.suite.cells import Cell, expand
from parvibench.harness.suite.suite import Suite, parse_suite

from .function_traces import curves
from .metric_traces import numbers
from .trace import Trace, Values, plain, traces_named, weighted


def table_traces() -> Iterator[Trace]:
    """All of them."""
    return traces_named(
        "tables",
        {
            "curves": _diverged, "cells": lambda: _cells(_PROTOCOLS), "cells on a GPU": lambda: _cells(_PROTOCOLS, device="cuda"),
            "cells matched": lambda: _cells(_MATCHED), "cells tuned": _tuned_cells, "tuning grid": _tuning_cells,
            "tuning choice": _tuning_choice, "recorder": _recorder, "recent positions": _recent, "streams": _streams, "meter": _meter,
            "splits": _splits, "methods": _kinds,
        },
    )  # fmt: skip


def _diverged() -> Values:
    rows = curves().query("task == 'a' and iteration == 2")
    found = [checkpoint_values(m, rows, [0, 7]) for m in ("w2", "ess_bulk")]
    return {"values": plain([found, metric_values("w2", [1.0, None, math.nan]), metric_values("rhat", [None])])}


_SUITE = b"""\
name: traced
tasks: [multimodal, linear-regression, bnn-diabetes-sklearn]
algorithms:
- ula
- svgd
- {name: sgld, label: slow, settings: {step_size: 0.001}}
- {name: sgld, label: as-ula, step_from: ula}
- {name: sgld, label: as-far, step_from: ula, match_drift: true}
- lapd
- exact
replicates: 3
particles: 20
seed: 4
budget: {scores_per_particle: 60}
tune: {step_size: [1.0e-3, 10.0], points: 4, replicates: 2, share: 0.5, options: {svgd: {rule: [plain, adagrad]}}}
"""
#: Presets, and a protocol for each entry.
_PROTOCOLS = b"""\
name: traced
tasks: [gmm5-2d, {name: bnn-yacht, splits: 4}, bandit-wheel]
algorithms:
- {name: sgld, preset: gmm5-2d}
- {name: sgld, label: other, preset: gmm5-2d, particles: 50, budget: {iterations: 10}, settings: {step_size: 0.1}}
- {name: srld, preset: gmm2-2d, burn_in: 3, thinning: 2, samples: 30}
- {name: mean-field, samples: 70}
- {name: hmc, particles: 8}
- initial
replicates: 7
particles: 40
samples: 25
burn_in: 0.25
thinning: 3
contexts: 300
seed: 4
dtype: float64
budget: {scores_per_particle: 60, score_evaluations: 30000}
"""
#: Methods whose step sizes are scaled to one effective step.
_MATCHED = b"""\
name: traced
tasks: [multimodal, banana]
algorithms:
- {name: svgd, settings: {step_size: 0.3}}
- {name: sgld, settings: {step_size: 0.05}}
- {name: l2-gf, settings: {velocity_divisor: 10.0}}
- {name: ksdd, settings: {step_size: 0.02}}
replicates: 2
budget: {iterations: 30}
match: effective-step
"""


def _suite() -> Suite:
    return parse_suite(_SUITE, "traced.yaml")


def _cells(text: bytes, **options: Any) -> Values:
    """What is run, and how, of every cell; after tuning too."""
    found: Values = {}
    for c in expand(parse_suite(text, "traced.yaml"), **options):
        spec = c.spec.model_dump(mode="json", exclude={"key", "settings", "source"})
        words = [c.tuned, c.untuned, *c.notes, c.missing_needs(), " ".join(c.metrics)]
        found[f"{c.label} {c.task}"] = plain([spec, dict(c.settings), words])
    return found


def _tuned_cells() -> Values:
    """A suite that holds what its tuning chose, and a setting given by hand."""
    chosen = tuning.Tuner(_suite()).tune(_tuning_run)
    suite = _suite().model_copy(update={"tuned": chosen})
    cells = expand(suite, settings={"lapd": {"step_size": 0.7}})
    return {f"{c.label} {c.task}": plain([dict(c.settings), c.tuned, c.untuned]) for c in cells}


def _tuning_cells() -> Values:
    cells = tuning.Tuner(_suite()).first_cells()
    return {
        f"{c.label} {c.task}": plain([dict(c.settings), c.spec.budget.score_evaluations, c.spec.replicates])
        for c in cells
    }


#: Where each method is best in short runs, and how much farther in whole ones.
_BEST = {"ula": (0.03, 1.0), "svgd": (40.0, 1.0), "slow": (0.2, 1.0), "lapd": (0.3, 9.0)}


def _tuning_run(cells: Sequence[Cell]) -> Any:
    """Records of cells, with optima within a grid, beyond its end and nowhere: one method diverges on one task."""
    records = []
    for i, cell in enumerate(cells):
        label, step = cell.label.split(" @ ")[0], cell.settings["step_size"]
        place, farther = _BEST.get(label, (0.1, 1.0))
        whole = cell.spec.budget.score_evaluations == _horizons()[cell.task, label]
        value = math.log(step / (place * farther if whole else place)) ** 2 + 0.01 * math.sin(i)
        values: list[float | None] = [value, None, value + 1]
        if (label, cell.task) == ("svgd", "multimodal"):
            values = [None] * 3
        record = SimpleNamespace(
            label=cell.label, task=cell.task, status="ok", reason="", score_evaluations=100.0 + i, n_replicates=2,
            values={cell.metrics[0]: values, "drift_rms": [2.0 if label == "ula" else 0.3, 1.0]},
        )  # fmt: skip
        records.append(record)
    return SimpleNamespace(cells=records)


@cache
def _horizons() -> dict[tuple[str, str], float | None]:
    """Score evaluations of whole runs, by task and label."""
    return {(c.task, c.label): c.spec.budget.score_evaluations for c in expand(_suite())}


def _tuning_choice() -> Values:
    return {"chosen": plain(tuning.Tuner(_suite()).tune(_tuning_run).model_dump())}


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
    meter, spent = Meter(10.0), list[float]()
    for asked in ((3, 4.5, 1), (1, 0, 4), (2, 0, 2), (0, 4, 0), (0, 0, 0.5), (0, 1, 0.25)):
        try:
            meter.charge(**dict(zip(("scores", "log_densities", "hvps"), asked, strict=True)))
        except BudgetExhausted:
            spent.append(-1.0)
        spent += [meter.charged, meter.sequential_steps]
    return found | {"meter": list(spent)}


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
