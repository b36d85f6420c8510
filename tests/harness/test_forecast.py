"""Forecasts count processor time and metrics, whatever else the machine does."""

import itertools
import time
from pathlib import Path

import pytest
from command_line import Run

from parvibench.harness import forecast
from parvibench.harness.forecast import foresee, predict
from parvibench.harness.store.store import Store
from parvibench.harness.suite.cells import expand
from parvibench.harness.suite.suite import parse_suite

SUITE = """
name: mine
tasks: [banana]
algorithms: [ula]
replicates: 4
particles: 50
budget: {iterations: 2000}
metrics: [sliced_w2]
"""


def cell(text=SUITE):
    (found,) = expand(parse_suite(text.encode(), "mine.yaml"))
    return found


def test_waiting_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that sleeps for 20 ms, as one does while others hold the processor, takes 20 ms of the clock and no time."""
    found = cell()
    algorithm = found.load()[1]
    quick = foresee(found)
    step = type(algorithm).step

    def slowly(self, *args):
        time.sleep(0.02)
        return step(self, *args)

    monkeypatch.setattr(type(algorithm), "step", slowly)
    slow = foresee(found)
    assert slow.horizon == quick.horizon == 2000
    assert slow.pace < 0.01


def test_a_forecast_holds_steps_and_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At one pace a thousand times the steps take some hundred times as long; six metrics take more than one of them."""
    store = Store(tmp_path)
    base, longer = cell(), cell(SUITE.replace("iterations: 2000", "iterations: 2000000"))
    (short,), (long,) = predict([base], store), predict([longer], store)
    assert short is not None
    assert long > 100 * foresee(base).pace * 2000
    trial = foresee(base)
    monkeypatch.setattr(forecast, "foresee", lambda _: trial)  # the machine's pace changes between two measurements
    more = cell(SUITE.replace("[sliced_w2]", "[sliced_w2, w2, ess_bulk, rhat, mmd2, kl_knn]"))
    (short,), (costly,) = predict([base], store), predict([more], store)
    assert costly > short


def test_cells_without_time_to_be_measured_are_taken_as_their_methods_mean(
    tmp_path: Path, call: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten of forty: ten of a method that takes 300 s a task and thirty of others, 30 s: 65 min, 33 by the first ten."""
    methods = [f"{{name: ula, label: u{i}, settings: {{step_size: 0.1}}}}" for i in range(4)]
    tasks = "banana, gmm40-2d, x-shaped, multimodal, funnel-10d, gaussian-100d, correlated-2d, gmm5-2d, gmm5-10d, banana-ksivi-code"
    text = SUITE.replace("[banana]", f"[{tasks}]").replace("[ula]", f"[{', '.join(methods)}]")
    (tmp_path / "mine.yaml").write_text(text)
    clock = itertools.count(0, 2)
    monkeypatch.setattr(forecast.time, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(forecast, "_seconds", lambda cell, *_: 300.0 if cell.label == "u3" else 30.0)
    answer = call("run", "--suite", "mine.yaml", "--dry-run", "--workers", "0")
    assert answer.code == 0, answer.err
    assert "40 to run, about 65 min on 1 worker" in answer.out
    assert "measured on 9 of 40 cells, the others taken as the method's mean" in answer.out


def test_steps_on_a_posterior_that_grows_are_foreseen_on_all_of_its_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first ones meet no data at all."""
    found = cell(SUITE.replace("[banana]", "[bandit-wheel]").replace("metrics: [sliced_w2]", "contexts: 600"))
    algorithm, seen = found.load()[1], []
    step = type(algorithm).step

    def watched(self, problem, *args):
        seen.append(problem.posterior.seen)
        return step(self, problem, *args)

    monkeypatch.setattr(type(algorithm), "step", watched)
    foresee(found)
    assert set(seen) == {600}


def test_steps_are_those_after_pretraining() -> None:
    """Which cost a tenth, and hardly any run consists of them."""
    text = SUITE.replace("[banana]", "[bnn-diabetes-sklearn]").replace("[sliced_w2]", "[nll]")
    text = text.replace("[ula]", "[{name: ksivi, settings: {pretraining: 50}}]").replace("particles: 50\n", "")
    pretrained, plain = foresee(cell(text)), foresee(cell(text.replace("pretraining: 50", "pretraining: 0")))
    assert 0.5 < pretrained.pace / plain.pace < 2
