"""Looking every sixteen steps changes nothing but the time it takes; recorded steps and their cost."""

import time
from typing import Any

import pytest
import torch
from ascent import Ascent

from parvibench.core.algorithm import ParticleState
from parvibench.harness.forecast import foresee
from parvibench.harness.run import compiling
from parvibench.harness.run import loop as runner
from parvibench.harness.run.loop import CHECKPOINTS, run_chunk
from parvibench.harness.store.environment import provenance
from parvibench.harness.suite.cells import Cell, expand
from parvibench.harness.suite.suite import Suite
from parvibench.harness.workers.executors import InProcess
from parvibench.harness.workers.jobs import ChunkJob


def make_cell(method: str, budget: dict[str, float], **more: Any) -> Cell:
    suite = {
        "name": "stepping", "tasks": ["multimodal"], "algorithms": [method], "replicates": 2, "particles": 10,
        "budget": budget, "metrics": ["mean_error", "displacement", "score_evaluations"],
    }  # fmt: skip
    return expand(Suite.model_validate(suite), **more)[0]


class FourthIsDear(Ascent):
    """Scores twice at every fourth step, as methods of changing cost do."""

    name = "fourth-is-dear"
    kind = "chains"

    def step(self, problem, settings, state, streams):
        for _ in range(1 + (streams.step % 4 == 0)):
            score = problem.score(state.x)
        return ParticleState(state.x + 0.1 * score + streams.normal("noise", state.x.shape[1:]))


@pytest.mark.parametrize(
    "budget",
    [
        {"iterations": 1},
        {"iterations": 333},
        {"score_evaluations": 5001},
        {"iterations": 400, "score_evaluations": 3000},
        {"iterations": 100, "score_evaluations": 3000},
    ],
    ids=str,
)
@pytest.mark.parametrize("method", ["svgd", "ksivi", "fourth-is-dear"])
def test_many_steps_between_looks_are_single_steps(
    method: str, budget: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Samples, paths, checkpoints, costs and marks are the same, whatever the steps cost."""
    objects = [FourthIsDear()] if method == "fourth-is-dear" else []
    settings = {"ksivi": {"batch": 4}} if method == "ksivi" else {}
    cell = make_cell(method, budget, objects=objects, settings=settings)
    results = []
    for slow in (-1.0, 1e9):  # every step looked after, then none
        monkeypatch.setattr(runner, "_SLOW_S", slow)
        results.append(run_chunk(cell, cell.chunks[0]))
    one_by_one, together = results
    assert (one_by_one.samples == together.samples).all()
    assert one_by_one.values == together.values
    rows = [[(*row[:4], *row[5:]) for row in r.curve] for r in results]
    assert rows[0] == rows[1]


class CountsSteps(FourthIsDear):
    """Chains whose position is the number of steps taken."""

    name = "counts-steps"

    def step(self, problem, settings, state, streams):
        problem.score(state.x)
        return ParticleState(torch.full_like(state.x, streams.step + 1))


@pytest.mark.parametrize(
    ("samples", "burn_in", "times"),
    [(4, 0.5, [40]), (10, 0.5, [40]), (30, 0.5, [27, 34, 40]), (30, 0.0, [14, 27, 40]), (20, 30.0, [35, 40])],
)
def test_chains_are_judged_by_their_last_states(samples: int, burn_in: float, times: list[int]) -> None:
    """Ten chains at the end; at earlier times too only where more samples than chains are wanted."""
    cell = make_cell("counts-steps", {"iterations": 40}, objects=[CountsSteps()])
    cell = cell.varied(samples=samples, burn_in=burn_in)
    result = run_chunk(cell, cell.chunks[0])
    assert sorted(set(result.samples.flatten().tolist())) == times


def test_checkpoints_are_at_the_first_step_that_reaches_their_share() -> None:
    result = run_chunk(cell := make_cell("svgd", {"iterations": 700}), cell.chunks[0])
    steps = sorted({row[2] for row in result.curve})
    assert steps == [min(s for s in range(701) if s / 700 >= share) for share in CHECKPOINTS]


def test_compiled_cells_have_keys_of_their_own_where_anything_is_compiled() -> None:
    values = {"name": "s", "tasks": ["banana"], "algorithms": ["svgd", "nuts", "smc", "exact"]}
    suite = Suite.model_validate({**values, "budget": {"iterations": 9}})
    plain, compiled = (expand(suite, compiled=c) for c in (False, True))
    assert [c.spec.compiled for c in compiled] == [True, True, False, False]
    assert [a.key == b.key for a, b in zip(plain, compiled, strict=True)] == [False, False, True, True]


def test_the_time_of_recording_is_reported_separately(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a slow recorder: seconds of steps only, and none of a forecast."""
    slow, recorded = 1.0, []
    record = compiling._replayable

    def slowly(*given: Any) -> Any:
        recorded.append(time.sleep(slow))
        return record(*given)

    monkeypatch.setattr(compiling, "_replayable", slowly)
    cell = make_cell("sgld", {"iterations": 200}, compiled=True)
    result = run_chunk(cell, cell.chunks[0])
    assert result.overheads["compile"] > slow
    assert result.overheads["warmup"] < slow
    assert 0 < result.seconds < slow  # 0.05 s on a machine with nothing else to do
    assert len(recorded) == 1
    foresee(cell)
    assert len(recorded) == 1


def test_products_are_in_full_precision_and_said_to_be() -> None:
    """Whatever the caller has chosen for itself, and keeps."""
    assert provenance("", "cpu")["determinism"]["TF32"] is False
    torch.set_float32_matmul_precision("high")
    try:
        assert provenance("", "cpu")["determinism"]["TF32"] is True
        ((_, outcome),) = InProcess().run([ChunkJob(make_cell("svgd", {"iterations": 3}), 0)], lambda job, news: None)
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert outcome.result.process["float32 products"] == "highest"
