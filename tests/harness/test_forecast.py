"""Forecasts count processor time and metrics, whatever else the machine does."""

import time

import pytest

from parvibench.harness.forecast import foresee, predict
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


def test_a_forecast_holds_steps_and_metrics() -> None:
    """Twice the steps take twice the pace; more metrics take more, though steps do not."""
    base, longer = cell(), cell(SUITE.replace("iterations: 2000", "iterations: 2000000"))
    (short,), (long,) = predict([base]), predict([longer])
    assert short is not None
    assert long > 100 * foresee(base).pace * 2000
    more = cell(SUITE.replace("[sliced_w2]", "[sliced_w2, w2, ess_bulk, rhat, mmd2, kl_knn]"))
    (costly,) = predict([more])
    assert costly > short


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
