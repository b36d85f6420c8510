"""Recorded blocks of steps repeat single steps bit for bit; what cannot is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from recordings import Rerun
from torch import Tensor

from parvibench.core import registry
from parvibench.core.algorithm import Algorithm, ParticleState, SteppedSettings
from parvibench.core.budget import Meter
from parvibench.core.errors import UnsupportedError
from parvibench.core.streams import Streams
from parvibench.core.tape import Tape
from parvibench.harness import trial
from parvibench.harness.cells import Cell, expand
from parvibench.harness.chunks import ChunkResult
from parvibench.harness.replay import LENGTH, checked_replay, recorder
from parvibench.harness.runner import run_chunk
from parvibench.harness.suite import Suite

STEADY: list[tuple[str, dict[str, Any]]] = [
    (name, {})
    for name, row in registry.algorithms().items()
    if row.kind != "anchor"
    and name != "hmc"
    and (a := registry.load_algorithm(name)).is_steady(a.make_settings())
]
STEADY += [
    ("svgd", {"rule": "adagrad"}),
    ("svgd", {"bandwidth": "median-sampled"}),
    ("sifg", {"particle_rule": "rms"}),
    ("sifg", {"score": "exact"}),
    ("hmc", {"jitter": 0.2, "leapfrog_steps": 2}),
]
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def make_cell(
    task: str, method: str, budget: dict[str, float], settings: dict[str, Any] | None = None, **more: Any
) -> Cell:
    suite = {
        "name": "replay", "tasks": [task], "algorithms": [{"name": method, "settings": settings or {}}],
        "replicates": 2, "particles": 20, "budget": budget, "metrics": ["mean_error", "displacement"],
    }  # fmt: skip
    return expand(Suite.model_validate(suite), **more)[0]


def about_graphs(result: ChunkResult) -> list[str]:
    """Flags but those of an unsteady clock."""
    return [flag for flag in result.flags if "CUDA graph" in flag]


def single_steps(algorithm: Algorithm, settings: Any, problem: Any, state: Any, steps: range) -> Any:
    for step in steps:
        problem.streams.step = step
        state = algorithm.step(problem, settings, state, problem.streams)
    return state


@pytest.mark.parametrize(("name", "settings"), STEADY)
@pytest.mark.parametrize("task_name", ["gmm5-2d", "bnn-diabetes-sklearn"])
def test_a_steady_algorithm_is_replayed_to_the_same_bits(
    name: str, settings: dict[str, Any], task_name: str
) -> None:
    """Far from where it was recorded, counters of the state and mini-batches included.

    Fails for an algorithm that claims to be steady and has a schedule or reads the step number.
    """
    task, algorithm = registry.load_task(task_name), registry.load_algorithm(name)
    chosen = algorithm.make_settings({"step_size": 1e-4, **settings})
    full = "full-batch" in algorithm.needs

    def problem() -> Any:
        return task.problem(2, seed=3, particles=5, full_batch=full)

    with torch.inference_mode(not algorithm.differentiates):
        mine, other = problem(), problem()
        start = algorithm.init(mine, chosen, mine.streams, 10**6)
        state = single_steps(algorithm, chosen, mine, start, range(2))
        replay = checked_replay(other, algorithm, chosen, state, 2, Rerun)
        far = 5000
        state = type(state)(*(f if isinstance(f, Tensor) else f + far - 2 for f in state))
        expected = single_steps(algorithm, chosen, mine, state, range(far, far + 2 * LENGTH))
        meter = Meter()
        for block in range(2):
            state, _ = replay.run(state, far + block * LENGTH, meter)
    for found, wanted in zip(state, expected, strict=True):
        assert torch.equal(found, wanted) if isinstance(found, Tensor) else found == wanted
    per_step = 1 if name != "hmc" else chosen.leapfrog_steps
    share = 1.0 if full else task.batch_share()
    assert meter.charged == pytest.approx(2 * LENGTH * per_step * 5 * share)


@pytest.mark.parametrize(
    ("task", "method", "budget"),
    [
        ("banana", "sgld", {"iterations": 333}),
        ("banana", "svgd", {"score_evaluations": 5432}),
        ("banana", "mala", {"iterations": 1000, "score_evaluations": 5432}),
        ("gmm5-2d", "sifg", {"iterations": 100}),
        ("bnn-diabetes-sklearn", "sgld", {"scores_per_particle": 100}),
    ],
)
def test_a_run_with_replays_is_the_run_without(
    task: str, method: str, budget: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkpoints, recorded paths, samples and costs; the budget ends within a block."""
    cell = make_cell(task, method, budget)
    plain = run_chunk(cell, cell.chunks[0])
    monkeypatch.setattr(trial, "recorder", lambda device: Rerun)
    before = Rerun.replays
    replayed = run_chunk(cell, cell.chunks[0])
    assert Rerun.replays - before > 2
    assert not about_graphs(replayed)
    assert (replayed.samples == plain.samples).all()
    assert replayed.iterations == plain.iterations
    assert replayed.score_evaluations == pytest.approx(plain.score_evaluations)
    strip = [(r, c, i, metric, value) for r, c, i, _, _, metric, value in plain.curve]
    assert [(r, c, i, metric, value) for r, c, i, _, _, metric, value in replayed.curve] == strip


class Cooling(Algorithm):
    """Claims to be steady, with a step size that falls."""

    name = "cooling"
    kind = "particles"
    settings_type = SteppedSettings
    steady = True

    def init(self, problem, settings, streams, horizon):
        return ParticleState.start(problem)

    def step(self, problem, settings, state, streams):
        return ParticleState(state.x + problem.score(state.x) / (streams.step + 100))

    def output(self, problem, settings, state, n, streams):
        return state.x


class Warming(Cooling):
    """Inherits the claim, not the step."""

    name = "warming"

    def step(self, problem, settings, state, streams):
        return super().step(problem, settings, state, streams)


def test_a_false_claim_is_found_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = make_cell("banana", "cooling", {"iterations": 50}, objects=[Cooling()])
    plain = run_chunk(cell, cell.chunks[0])
    monkeypatch.setattr(trial, "recorder", lambda device: Rerun)
    found = run_chunk(cell, cell.chunks[0])
    assert "differs from single steps" in about_graphs(found)[0]
    assert (found.samples == plain.samples).all()


def test_the_claim_is_not_inherited_by_another_step() -> None:
    assert Cooling().is_steady(SteppedSettings())
    assert not Warming().is_steady(SteppedSettings())


def test_steps_that_cannot_be_recorded_are_taken_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(work: Callable[[], None]) -> Any:
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    monkeypatch.setattr(trial, "recorder", lambda device: refuse)
    cell = make_cell("banana", "sgld", {"iterations": 50})
    result = run_chunk(cell, cell.chunks[0])
    assert result.iterations == 50
    assert about_graphs(result) == [
        "steps one by one, not from a CUDA graph: operation not permitted when stream is capturing"
    ]


def test_nothing_is_recorded_on_a_cpu() -> None:
    assert recorder(torch.device("cpu")) is None


def test_a_tape_holds_what_its_source_draws() -> None:
    """Also across the blocks that draws are made in (256 steps) and the epochs of mini-batches (3 steps)."""
    source, plain = Streams(5, (0, 4)), Streams(5, (0, 4))
    tape = Tape(source, LENGTH)

    def draws(streams: Streams) -> tuple[Tensor, ...]:
        normal = streams.normal("noise", (3, 2), index=1)
        return normal, streams.uniform("algorithm", (4,)), streams.batch(10, 3)

    places = None
    for first in (0, 250, 7):
        tape.wind(first)
        for tape.step in range(LENGTH):
            plain.step = first + tape.step
            assert all(torch.equal(a, b) for a, b in zip(draws(tape), draws(plain), strict=True))
        tape.step = 0
        found = [d.data_ptr() for d in draws(tape)]
        assert places in (None, found)
        places = found
    with pytest.raises(UnsupportedError, match="normal"):
        tape.generator("noise", 0)


@pytest.mark.gpu
@gpu
@pytest.mark.parametrize(("name", "settings"), STEADY)
def test_a_cuda_graph_repeats_single_steps(name: str, settings: dict[str, Any]) -> None:
    cell = make_cell("gmm5-2d", name, {"iterations": 200}, settings, device="cuda")
    result = run_chunk(cell, cell.chunks[0])
    assert result.iterations == 200
    assert not about_graphs(result)


@pytest.mark.gpu
@gpu
def test_a_run_with_cuda_graphs_is_the_run_without(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = make_cell("bnn-diabetes-sklearn", "sgld", {"iterations": 333}, device="cuda")
    replayed = run_chunk(cell, cell.chunks[0])
    monkeypatch.setattr(trial, "recorder", lambda device: None)
    plain = run_chunk(cell, cell.chunks[0])
    assert (replayed.samples == plain.samples).all()
