"""The record of a run: curves over three costs, values of its metrics, the start of each method, the name of its protocol."""

from pathlib import Path
from typing import Any

import pytest
import torch
from ascent import Ascent
from toy_runs import QUICK, run_here, suite

import parvibench as pb
from parvibench.core.algorithm import ParticleState
from parvibench.core.metric import Context
from parvibench.core.result import Status
from parvibench.harness.run.loop import run_chunk
from parvibench.harness.session import finished, run_cells
from parvibench.harness.store.store import Store
from parvibench.harness.suite.cells import expand
from parvibench.harness.workers.executors import InProcess, Outcome
from parvibench.metrics.compute import compute


def test_a_run_measures_on_three_axes(tmp_path: Path) -> None:
    results = run_here(tmp_path, "svgd", "ula", budget={"scores_per_particle": 200})
    curve = results.curves.query("label == 'ula' and metric == 'ksd' and replicate == 0")
    assert 3 <= len(curve) <= 7
    for axis in ("iteration", "score_evaluations", "seconds"):
        assert curve[axis].is_monotonic_increasing
    assert curve["score_evaluations"].iloc[-1] == 200 * 100
    assert curve["iteration"].iloc[-1] == 200
    cell = results.cells[0]
    assert (cell.status, cell.iterations, cell.score_evaluations) == (Status.OK, 200, 20_000)
    assert cell.seconds > 0


def test_a_replicate_that_reports_no_acceptance_has_none() -> None:
    """A chunk whose budget ends in the warm-up reports nothing of its steps; the others do."""
    (cell,) = expand(suite(algorithms=["mala"]))
    whole, part = (run_chunk(cell, ids) for ids in cell.chunks)
    del part.values["acceptance"]
    record, *_ = finished(cell, [Outcome(whole), Outcome(part)])
    given = whole.values["acceptance"]
    assert record.values["acceptance"] == [*given, *[None] * (3 - len(given))]
    assert None not in record.values["sliced_w2"]


def test_a_seconds_budget_ends_in_time() -> None:
    cell = expand(suite(algorithms=["sgld"], budget={"seconds": 0.2}, particles=100))[0]
    result = run_chunk(cell, cell.chunks[0])
    assert 0.2 <= result.seconds < 2


def test_stored_samples_are_measured_by_new_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """New metrics on an old cell: computed from its samples, nothing runs, path and cost metrics stay."""
    wanted = {"tasks": ["multimodal"], "algorithms": ["sgld", "svgd"], "particles": 100}
    old = suite(**wanted, metrics=["ksd", "ess_bulk", "seconds"])
    new = suite(**wanted, metrics=["ksd", "mean_error", "ess_bulk", "seconds"])
    store = Store(tmp_path)
    before = run_cells(expand(old), store, InProcess(), suite=old.resolved()).cells[0]
    direct = run_cells(expand(new), Store(tmp_path / "b"), InProcess(), suite=new.resolved()).cells[0]
    monkeypatch.setattr("parvibench.harness.workers.jobs.run_chunk", lambda *_: pytest.fail("ran again"))
    results = run_cells(expand(new), store, InProcess(), suite=new.resolved())
    after = results.cells[0]
    assert list(after.values) == ["ksd", "mean_error", "ess_bulk", "seconds", "sequential_steps"]
    assert after.values["mean_error"] == pytest.approx(direct.values["mean_error"], rel=1e-5)
    assert after.values["ess_bulk"] == before.values["ess_bulk"]
    assert after.created == before.created
    curve = results.curves.query("label == 'sgld' and metric == 'mean_error'")
    assert sorted(curve["replicate"]) == [0, 1, 2]


class Copier(Ascent):
    """Rows of the reference, passed off as samples."""

    name = "copier"

    def init(self, problem, settings, streams, horizon):
        rows = pb.load_task("banana").reference().draws[: problem.particles].to(problem.dtype)
        return ParticleState(problem.init() * 0 + rows)

    def step(self, problem, settings, state, streams):
        return state


def test_copied_reference_rows_are_found_in_runs(tmp_path: Path) -> None:
    """What compares with these rows has no value, as in `evaluate`; exact moments and the score judge on."""
    options = QUICK | {"budget": {"iterations": 2}, "particles": 150, "out": tmp_path}
    copied, exact = pb.run(tasks=["banana"], algorithms=[Copier(), "exact"], **options).cells
    flattered = {"sliced_w2", "w2", "mmd2", "kl_knn", "correlation_error", "ks_marginal", "tail_error"}
    assert {"mean_error", "sd_error", "ksd"} == set(copied.values) - {
        "seconds",
        "score_evaluations",
        "peak_memory",
        "sequential_steps",
    }
    assert flattered <= set(copied.absent)
    assert copied.absent["mmd2"] == "150 of 150 samples are rows of the reference itself"
    assert flattered <= set(exact.values)
    # 150 samples are judged by 100 of them, evenly thinned, whose values stand apart.
    assert set(exact.judged) == flattered | {"mean_error", "sd_error", "ksd", "worst_coordinate"}
    samples = torch.from_numpy(Store(tmp_path).samples(exact.key)).double()[:, torch.arange(100) * 150 // 100]
    task = pb.load_task("banana")
    again = compute(["mean_error"], samples, Context(task, task.reference()))[0]["mean_error"]
    assert exact.judged["mean_error"] == pytest.approx(again.tolist(), rel=1e-4)


def test_where_a_method_began_is_recorded(tmp_path: Path) -> None:
    results = pb.run(
        tasks=["banana"],
        algorithms=["ula", "svgd", "ksivi", "pathfinder", "initial"],
        particles=10,
        out=tmp_path,
        **QUICK,
    )
    assert {c.label: c.start for c in results.cells} == {
        "ula": "task",
        "svgd": "task",
        "ksivi": "own",
        "pathfinder": "task",
        "initial": "",
    }
    steps = results.curves.query("metric == 'sequential_steps'").groupby("label")["value"].max()
    assert steps["ula"] == steps["svgd"] == 20


@pytest.mark.ci
def test_a_changed_profile_is_not_called_by_its_name_alone(tmp_path: Path) -> None:
    suite = tmp_path / "mine.yaml"
    suite.write_text(
        "name: mine\ntasks: [banana]\nalgorithms: [sgld]\nreplicates: 1\nparticles: 8\nbudget: {iterations: 4}\n"
        "profiles: {fast: {replicates: 1}}\n"
    )
    for options, title in (({}, "mine, profile fast<"), ({"particles": 9}, "mine, profile fast, 9 particles<")):
        chosen: Any = {"profile": "fast", "workers": 0, "tracking": False, "out": tmp_path / "store", **options}
        pb.run(str(suite), report=tmp_path / "page", **chosen)
        assert title in (tmp_path / "page/index.html").read_text()
