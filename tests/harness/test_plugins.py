"""Samplers from files: what they give is demanded, their metrics are computed elsewhere, their scores are counted."""

from collections.abc import Callable

import numpy as np
import pytest

from parvibench.core.result import CellRecord, Status
from parvibench.harness.session import run_cells
from parvibench.harness.store.results import StoredRun
from parvibench.harness.store.store import Store
from parvibench.harness.suite.cells import expand
from parvibench.harness.suite.suite import Suite
from parvibench.harness.workers.executors import InProcess
from parvibench.harness.workers.processes import Workers

#: A sampler that keeps the rules, and those that break one each.
SAMPLERS = '''
import numpy as np
import torch
from parvibench.core import registry
from parvibench.core.algorithm import Algorithm, ParticleState, SteppedSettings


class Good(Algorithm):
    name = "good"
    kind = "particles"
    settings_type = SteppedSettings

    def init(self, problem, settings, streams, horizon):
        return ParticleState.start(problem)

    def step(self, problem, settings, state, streams):
        return ParticleState(state.x + 0.01 * problem.score(state.x))

    def output(self, problem, settings, state, n, streams):
        return state.x


class OneRow(Good):
    def output(self, problem, settings, state, n, streams):
        return state.x[:, :1]


class OneReplicate(Good):
    def output(self, problem, settings, state, n, streams):
        return state.x[:1]


class Complex(Good):
    def output(self, problem, settings, state, n, streams):
        return state.x + 1j


class Whole(Good):
    def output(self, problem, settings, state, n, streams):
        return state.x.long()


class Plain(Good):
    def output(self, problem, settings, state, n, streams):
        return state.x.numpy()


class TurnsNaN(Good):
    """Its states are fine; one replicate's samples are not."""

    def output(self, problem, settings, state, n, streams):
        x = state.x.clone()
        x[1, 3] = torch.nan
        return x


class Embellishes(Good):
    """Every metric of this process is perfect."""

    def step(self, problem, settings, state, streams):
        import parvibench.harness.run.judging as judging
        import parvibench.metrics.compute as computing
        perfect = lambda names, samples, context, when: ({name: torch.zeros(len(samples)) for name in names}, {})
        judging.compute = computing.compute = perfect
        return super().step(problem, settings, state, streams)


class TakesTheTarget(Good):
    def step(self, problem, settings, state, streams):
        return ParticleState(state.x + 0.01 * problem._target.score(state.x))


class TakesAnother(Good):
    """A metered score, and nine of a target of its own."""

    def step(self, problem, settings, state, streams):
        x = state.x + 0.001 * problem.score(state.x)
        own = registry.load_task("multimodal").target((0, 1, 2), "cpu", torch.float32)
        for _ in range(9):
            x = x + 0.001 * own.score(x)
        return ParticleState(x)


class Differentiates(Good):
    """By autograd of the metered density: all charged."""

    differentiates = True

    def step(self, problem, settings, state, streams):
        x = state.x.detach().clone().requires_grad_()
        (score,) = torch.autograd.grad(problem.log_density(x).sum(), x)
        return ParticleState((x + 0.01 * score).detach())
'''
EXPECTED = {
    "Good": (Status.OK, ""),
    "Differentiates": (Status.OK, ""),
    "Embellishes": (Status.OK, ""),
    "OneRow": (Status.CRASHED, "gave (3, 1, 2), expected real numbers of shape (3, at least 20, 2)"),
    "OneReplicate": (Status.CRASHED, "gave (1, 20, 2), expected real numbers of shape (3, at least 20, 2)"),
    "Complex": (Status.CRASHED, "gave torch.complex64, expected real numbers"),
    "Whole": (Status.CRASHED, "gave torch.int64, expected real numbers"),
    "Plain": (Status.CRASHED, "gave ndarray, expected real numbers"),
    "TurnsNaN": (Status.OK, "1 of 3 replicates stopped being finite"),
    "TakesTheTarget": (Status.CRASHED, "rows past the meter of its budget"),
    "TakesAnother": (Status.CRASHED, "rows past the meter of its budget"),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], StoredRun]:
    folder = tmp_path_factory.mktemp("plugins")
    (folder / "samplers.py").write_text(SAMPLERS)
    suite = Suite.model_validate({
        "name": "t", "tasks": ["multimodal"], "replicates": 3, "particles": 20, "budget": {"score_evaluations": 2000},
        "algorithms": [{"name": f"{folder / 'samplers.py'}:{name}", "label": name} for name in EXPECTED],
        "metrics": ["ksd", "sliced_w2", "score_evaluations"],
    })  # fmt: skip
    made: dict[str, StoredRun] = {}

    def run(where: str) -> StoredRun:
        executor = {"workers": Workers(2, 120), "here": InProcess()}[where]
        if where not in made:
            honest = ("Good", "Differentiates")  # what the others change in this process would stay
            cells = [c for c in expand(suite) if where == "workers" or c.label in honest]
            made[where] = run_cells(cells, Store(folder / where), executor, suite=suite.resolved())
        return made[where]

    return run


def cell(results: StoredRun, label: str) -> CellRecord:
    return next(c for c in results.cells if c.label == label)


@pytest.mark.parametrize("label", EXPECTED)
def test_what_a_sampler_gives_is_demanded(label: str, run: Callable[[str], StoredRun]) -> None:
    status, told = EXPECTED[label]
    found = cell(run("workers"), label)
    assert found.status is status, found.reason
    assert told in found.reason


def test_replicates_without_finite_samples_have_diverged(run: Callable[[str], StoredRun]) -> None:
    found, good = cell(run("workers"), "TurnsNaN"), cell(run("workers"), "Good")
    assert (found.n_diverged, list(found.diverged)) == (1, [1])
    for name in ("ksd", "sliced_w2"):
        assert found.values[name][1] is None
        assert found.values[name][::2] == good.values[name][::2]


def test_metrics_are_computed_outside_the_sampler_s_process(run: Callable[[str], StoredRun]) -> None:
    """What it makes of the metrics in its own process changes nothing."""
    false, good = cell(run("workers"), "Embellishes"), cell(run("workers"), "Good")
    assert false.values == good.values
    assert min(good.values["ksd"]) > 0


def test_metrics_computed_elsewhere_are_those_computed_here(run: Callable[[str], StoredRun]) -> None:
    """Values and curves to the last bit."""
    elsewhere, here = run("workers"), run("here")
    for label in ("Good", "Differentiates"):
        a, b = cell(elsewhere, label), cell(here, label)
        assert a.values == b.values
        assert np.array_equal(elsewhere.samples(a), here.samples(b))
        curves = [r.curve(c).drop(columns="seconds") for r, c in ((elsewhere, a), (here, b))]
        assert curves[0].equals(curves[1])


def test_metered_scores_are_all_that_is_charged(run: Callable[[str], StoredRun]) -> None:
    for label in ("Good", "Differentiates"):
        assert cell(run("workers"), label).score_evaluations == 2000
