"""What algorithms report of their steps: means between checkpoints, and not a bit of the samples."""

import itertools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

import parvibench as pb
from parvibench.core.algorithm import Algorithm, SteppedSettings, finite_replicates, state_and_info
from parvibench.core.metric import Context
from parvibench.harness.run.stepping import Tally
from parvibench.metrics.compute import compute


class Walk(NamedTuple):
    inner: Any
    count: int


class State(NamedTuple):
    x: Tensor
    walk: Walk


class Info(NamedTuple):
    acceptance: Tensor
    nll: Tensor  # the name of a metric of another kind
    length: Tensor  # no metric's name


class Quiet(Algorithm[SteppedSettings, State]):
    """A random walk with a nested state, the default output and no Info."""

    name, kind, settings_type = "quiet", "chains", SteppedSettings

    def init(self, problem: Any, settings: SteppedSettings, streams: Any, horizon: int) -> State:
        x = problem.init()
        return State(x, Walk((x.mean(1),), 0))

    def step(self, problem: Any, settings: SteppedSettings, state: State, streams: Any) -> Any:
        x = state.x + 1e-3 * problem.score(state.x)
        return State(x, Walk((x.mean(1),), state.walk.count + 1))


class Talkative(Quiet):
    """The same, reporting the number of its step and its replicate."""

    name = "talkative"

    def step(self, problem: Any, settings: SteppedSettings, state: State, streams: Any) -> Any:
        after = super().step(problem, settings, state, streams)
        told = torch.tensor(streams.replicates, dtype=after.x.dtype) + 10 * after.walk.count
        return after, Info(told, told, told)


def run(out: Path) -> pb.Results:
    return pb.run(
        tasks=["banana"], algorithms=[Quiet, Talkative, "mala", "exact"], replicates=2,
        budget={"iterations": 40}, workers=0, tracking=False, out=out,
    )  # fmt: skip


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> pb.Results:
    return run(tmp_path_factory.mktemp("store"))


def test_reports_are_means_since_the_checkpoint_before(results: pb.Results) -> None:
    curve = results.store.curve(results.cells[1].key)
    for metric in ("acceptance", "length"):
        told = curve[curve["metric"] == metric]
        for replicate, rows in told.groupby("replicate"):
            ends = [0, *rows["iteration"]]
            expected = [10 * np.mean(range(a + 1, b + 1)) + replicate for a, b in itertools.pairwise(ends)]
            assert rows["value"].tolist() == pytest.approx(expected)
    assert rows["iteration"].iloc[-1] == 40


def test_reports_change_no_sample_and_cover_no_other_metric(results: pb.Results) -> None:
    quiet, talkative = (results.samples(cell) for cell in results.cells[:2])
    assert np.array_equal(quiet, talkative)
    assert "nll" not in results.cells[1].values
    assert "acceptance" not in results.cells[0].values
    assert "acceptance" not in results.cells[3].values


def test_mala_reports_its_acceptance(results: pb.Results) -> None:
    assert all(0.9 < value < 1 for value in results.cells[2].values["acceptance"])


def test_a_metric_nobody_reports_says_so() -> None:
    task = pb.load_task("banana")
    values, absent = compute(["acceptance"], torch.zeros(1, 4, 2), Context(task=task))
    assert (values, absent) == ({}, {"acceptance": "the algorithm reports none"})


def test_stored_reports_are_found_again(results: pb.Results) -> None:
    again = run(results.store.root)
    assert again.cells[2].values["acceptance"] == results.cells[2].values["acceptance"]


def test_nested_states_are_looked_through() -> None:
    x = torch.zeros(3, 2, 1)
    spoilt = torch.tensor([[0.0], [float("nan")], [0.0]])
    state = State(x, Walk((spoilt,), 4))
    assert finite_replicates(state).tolist() == [True, False, True]
    assert state_and_info(state) == (state, None)
    assert state_and_info((state, 1)) == (state, 1)


def test_a_tally_starts_again_after_each_mean() -> None:
    tally = Tally()
    assert tally.means() == {}
    given = torch.tensor([0.25, 1.0])
    for factor in (1, 3):
        tally.add(Info(factor * given, given, given))
    assert tally.means()["acceptance"].tolist() == [0.5, 2.0]
    tally.add(Info(given, given, given))
    assert tally.means()["acceptance"].tolist() == given.tolist() == [0.25, 1.0]
