"""A replicate that diverges, blows up or never moves is lost, its reason is recorded, and no other replicate changes."""

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from ascent import Ascent
from toy_runs import QUICK, run_here

import parvibench as pb
from parvibench.core.algorithm import ParticleState
from parvibench.core.result import Status
from parvibench.harness.store.results import interval_of


class DivergesInOne(Ascent):
    """Replicate 1 blows up at the third step."""

    name = "diverges-in-one"

    def step(self, problem, settings, state, streams):
        x = super().step(problem, settings, state, streams).x
        if streams.step == 2:
            bad = torch.tensor([r == 1 for r in streams.replicates])
            x = torch.where(bad[:, None, None], torch.inf, x)
        return ParticleState(x)


def test_a_diverged_replicate_is_a_result_and_harms_no_other(tmp_path: Path) -> None:
    clean = run_here(tmp_path / "a", Ascent(), replicates=3)
    harmed = run_here(tmp_path / "b", DivergesInOne(), replicates=3)
    cell = harmed.cells[0]
    assert (cell.status, cell.n_diverged, list(cell.diverged)) == (Status.OK, 1, [1])
    assert cell.values["ksd"][1] is None
    samples, reference = harmed.samples(cell), clean.samples(clean.cells[0])
    assert not np.isfinite(samples[1]).any()
    assert np.array_equal(samples[[0, 2]], reference[[0, 2]])
    assert math.isinf(interval_of(cell, "ksd")[2])


@pytest.mark.parametrize("steps", [20, pytest.param(3000, marks=pytest.mark.ci)])
def test_divergence_in_the_first_steps_names_step_size_and_scale(tmp_path: Path, steps: int) -> None:
    """However long the run; a step that the target's scale allows is not blamed."""
    task = pb.task(lambda x: -0.5 * (x / 1e-9).square().sum(), dim=2, name="narrow")
    run = {"tasks": [task], "algorithms": ["ula"], "budget": {"iterations": steps}, "particles": 5, "workers": 0}
    common = {"replicates": 2, "out": tmp_path, **run}
    (wild,) = pb.run(settings={"ula": {"step_size": 0.25}}, **common).cells
    assert wild.status is Status.DIVERGED
    assert "2 of 2 replicates stopped being finite" in wild.reason
    assert ": step_size 0.25 is too large for the scale of the target at the start (a smaller step_size" in wild.reason
    (calm,) = pb.run(settings={"ula": {"step_size": 1e-19}}, **common).cells
    assert (calm.status, calm.reason) == (Status.OK, "")


def test_a_trajectory_that_overflows_is_no_divergence(tmp_path: Path) -> None:
    """Catches NUTS called diverged where its state holds the rejected end of a trajectory that left all numbers."""
    steep = pb.task(
        lambda x: -(0.5 * x.square() + (x / 1.5) ** 200 / 200).sum(),
        dim=2, name="steep", initial=lambda n, generator: 3.8 * torch.rand(n, 2, generator=generator) - 1.9,
    )  # fmt: skip
    run = {"tasks": [steep], "algorithms": ["nuts"], "budget": {"scores_per_particle": 400}, "workers": 0}
    (cell,) = pb.run(replicates=3, particles=40, out=tmp_path, **run).cells
    assert (cell.status, cell.n_diverged, cell.reason) == (Status.OK, 0, "")


class Explodes(Ascent):
    """Replicate 1 ends at finite points that are absurd, the others stay where they began."""

    name = "explodes"

    def step(self, problem, settings, state, streams):
        problem.score(state.x)
        absurd = torch.tensor([r == 1 for r in streams.replicates])[:, None, None]
        return ParticleState(torch.where(absurd, 1e4, state.x))


def test_a_replicate_that_blew_up_is_no_result_of_the_method(tmp_path: Path) -> None:
    """Finite, and a thousand times further away than the start: by five times ``initial``, and by the error of the mean."""
    for task, metric in (("banana", "sliced_w2"), ("bnn-diabetes-sklearn", "rmse")):
        results = pb.run(tasks=[task], algorithms=[Explodes, "initial"], particles=10, out=tmp_path / task, **QUICK)
        cell = results.cells[0]
        assert (cell.status, cell.n_diverged, list(cell.diverged)) == (Status.OK, 1, [1])
        assert cell.values[metric][1] is None
        assert cell.values[metric][0] is not None
        assert results.document()["cells"][0]["worst"] is not None
        assert results.store.find(cell.key).values[metric][1] is not None  # what it reached remains


class AtRest(NamedTuple):
    acceptance: torch.Tensor


class Stuck(Ascent):
    """A chain far away; replicate 1 rejects every step, replicate 0 all but the first."""

    name = "stuck"
    kind = "chains"

    def init(self, problem, settings, streams, horizon):
        return ParticleState(torch.full_like(problem.init(), 1e4))

    def step(self, problem, settings, state, streams):
        problem.score(state.x)
        accepts = torch.tensor([float(r == 0 and streams.step == 0) for r in streams.replicates])
        return ParticleState(state.x + 1e-3 * state.x * accepts[:, None, None]), AtRest(accepts)


class StuckNearby(Stuck):
    name = "stuck-nearby"

    def init(self, problem, settings, streams, horizon):
        return ParticleState.start(problem)


def test_chains_that_never_moved_are_not_said_to_have_blown_up(tmp_path: Path) -> None:
    """One that moved and then stuck has; where the start is near, the replicate counts and the cell is flagged."""
    run = {"tasks": ["bnn-diabetes-sklearn"], "particles": 10, "out": tmp_path, **QUICK}
    far, near = pb.run(algorithms=[Stuck, StuckNearby], **run).cells
    assert (far.status, sorted(far.diverged)) == (Status.DIVERGED, [0, 1])
    blown, at_rest = far.reason.split("; ")
    assert blown.startswith("1 of 2 replicates stopped being finite or blew up")
    assert at_rest == "1 of 2 replicates never moved from a start that is far off"
    assert "never moved" not in "".join(far.flags)
    assert (near.status, near.reason) == (Status.OK, "")
    assert [f for f in near.flags if "moved" in f] == ["1 of 2 replicates never moved"]
