"""Traces of whole short runs: budgets, checkpoints, recording, measuring and decisions of the harness."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

from parvibench.harness.run.clock import Clock
from parvibench.harness.run.loop import run_chunk
from parvibench.harness.suite.cells import Cell, expand
from parvibench.harness.suite.suite import parse_suite

from .trace import Trace, Values, plain, weighted

#: Task and method -> the rest of a suite: what a run may spend, and how it is judged.
_SUITES = {
    "banana/ula": "budget: {iterations: 60}, particles: 3, samples: 20, metrics: [mean_error, ess_bulk, rhat, displacement]",
    "banana/mala": "budget: {iterations: 40}, particles: 5, samples: 15, burn_in: 7, thinning: 2, metrics: [sd_error, acceptance]",
    "multimodal/svgd": "budget: {score_evaluations: 200}, particles: 8, metrics: [mean_error, modes_found, displacement]",
    "gmm2-2d/srld": "budget: {iterations: 30}, particles: 1, samples: 10, metrics: [mean_error]",
    "multimodal/mean-field": "budget: {iterations: 12}, particles: 8, samples: 30, metrics: [sd_error]",
    "linear-regression/sgld": "budget: {scores_per_particle: 25}, particles: 4, samples: 12, metrics: [mean_error]",
    "gmm2-2d/exact": "budget: {iterations: 2}, particles: 8, samples: 30, metrics: [mean_error, mode_weight_tv]",
    "bnn-diabetes-sklearn/sgld": "budget: {iterations: 6}, particles: 3, samples: 6, metrics: [rmse, nll]",
    "bandit-wheel/sgld": "budget: {iterations: 24}, particles: 2, samples: 4, contexts: 120, metrics: [regret, contexts]",
    "bandit-wheel/svgd": "budget: {iterations: 9}, particles: 4, contexts: 120, metrics: [regret, regret_percent]",
}
_STEP_SIZES = {
    "linear-regression/sgld": 0.0005, "bnn-diabetes-sklearn/sgld": 1e-6, "bandit-wheel/sgld": 1e-7, "bandit-wheel/svgd": 1e-6,
}  # fmt: skip


def run_names() -> list[str]:
    """Task and algorithm of every run."""
    return list(_SUITES)


def run_traces(name: str) -> Iterator[Trace]:
    """The trace of a run."""
    yield Trace(f"run {name}", lambda: _run(_cell(name)))


def _cell(name: str) -> Cell:
    task, _, method = name.partition("/")
    settings = f", settings: {{step_size: {_STEP_SIZES[name]:.1e}}}" if name in _STEP_SIZES else ""
    text = f"{{name: traced, tasks: [{task}], algorithms: [{{name: {method}{settings}}}], replicates: 3, seed: 6, {_SUITES[name]}}}"
    (cell,) = expand(parse_suite(text.encode(), "traced.yaml"))
    return cell.varied(dtype="float64", chunk=2)


def _run(cell: Cell) -> Values:
    """Values at the end, the curve, the samples and the cost of the first of two chunks, as if it had taken six seconds."""
    with mock.patch.object(Clock, "seconds", 6.0):
        result = run_chunk(cell, cell.chunks[0])
    curve: dict[str, list[float]] = {}
    for _, checkpoint, iterations, spent, seconds, metric, value in result.curve:
        curve.setdefault(f"{metric} {checkpoint}", [iterations, spent, seconds]).append(value)
    found: Values = {label: plain(values) for label, values in curve.items()}
    found["protocol"] = plain([cell.spec.chunk, cell.spec.budget.score_evaluations, cell.spec.budget.iterations])
    found["run"] = plain([result.iterations, result.score_evaluations, result.effective_step, sorted(result.absent)])
    if result.samples is not None:
        found["samples"] = [weighted(result.samples)]
    return found
