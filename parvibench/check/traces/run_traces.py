"""Traces of whole short runs: budgets, checkpoints, recording, measuring and decisions of the harness."""

from __future__ import annotations

from collections.abc import Iterator

from parvibench.harness.run.loop import run_chunk
from parvibench.harness.suite.cells import Cell, expand
from parvibench.harness.suite.suite import parse_suite

from .trace import Trace, Values, plain, weighted

#: Cells: task, algorithm and its step size, what a run may spend, how it is judged.
_CELLS = (
    ("banana", "ula", "budget: {iterations: 60}, particles: 3, samples: 20", "mean_error ess_bulk rhat displacement"),
    (
        "banana",
        "mala",
        "budget: {iterations: 40}, particles: 5, samples: 15, burn_in: 7, thinning: 2",
        "sd_error acceptance",
    ),
    ("multimodal", "svgd", "budget: {score_evaluations: 200}, particles: 8", "mean_error modes_found displacement"),
    ("gmm2-2d", "srld", "budget: {iterations: 30}, particles: 1, samples: 10", "mean_error"),
    ("multimodal", "mean-field", "budget: {iterations: 12}, particles: 8, samples: 30", "sd_error"),
    ("linear-regression", "sgld 0.0005", "budget: {scores_per_particle: 25}, particles: 4, samples: 12", "mean_error"),
    ("gmm2-2d", "exact", "budget: {iterations: 2}, particles: 8, samples: 30", "mean_error mode_weight_tv"),
    ("bnn-diabetes-sklearn", "sgld 1.0e-6", "budget: {iterations: 6}, particles: 3, samples: 6", "rmse nll"),
    (
        "bandit-wheel",
        "sgld 1.0e-7",
        "budget: {iterations: 24}, particles: 2, samples: 4, contexts: 120",
        "regret contexts",
    ),
    ("bandit-wheel", "svgd 1.0e-6", "budget: {iterations: 9}, particles: 4, contexts: 120", "regret regret_percent"),
)


def run_names() -> list[str]:
    """Task and algorithm of every run."""
    return [f"{task}/{algorithm.split()[0]}" for task, algorithm, *_ in _CELLS]


def run_traces(name: str) -> Iterator[Trace]:
    """The trace of a run."""
    yield Trace(f"run {name}", lambda: _run(_cell(name)))


def _cell(name: str) -> Cell:
    task, algorithm, protocol, metrics = _CELLS[run_names().index(name)]
    lines = protocol.replace("}, ", "}\n").replace(", ", "\n")
    method, _, step = algorithm.partition(" ")
    entry = f"{{name: {method}, settings: {{step_size: {step}}}}}" if step else method
    text = f"name: traced\ntasks: [{task}]\nalgorithms: [{entry}]\nreplicates: 2\nseed: 6\n{lines}\n"
    (cell,) = expand(parse_suite((text + f"metrics: [{metrics.replace(' ', ', ')}]\n").encode(), "traced.yaml"))
    return cell.varied(dtype="float64")


def _run(cell: Cell) -> Values:
    """Values at the end, the curve without its times, the samples (stored in single precision) and the cost."""
    result = run_chunk(cell, cell.chunks[0])
    curve: dict[str, list[float]] = {}
    for _, checkpoint, iterations, spent, _, metric, value in result.curve:
        curve.setdefault(f"{metric} {checkpoint}", [iterations, spent]).append(value)
    found: Values = {label: plain(values) for label, values in curve.items()}
    found["protocol"] = plain([cell.spec.chunk, cell.spec.budget.score_evaluations, cell.spec.budget.iterations])
    found["run"] = plain([result.iterations, result.score_evaluations, result.effective_step, sorted(result.absent)])
    if result.samples is not None:
        found["samples"] = [weighted(result.samples.round(4))]
    return found
