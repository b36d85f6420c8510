"""Runs end to end: statuses, resume, the same bits whoever runs them."""

import math
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from ascent import Ascent

import parvibench as pb
from parvibench.core.algorithm import Algorithm, ParticleState, SteppedSettings
from parvibench.core.metric import Context
from parvibench.core.result import CellRecord, Status
from parvibench.harness.records import finished
from parvibench.harness.run.loop import run_chunk
from parvibench.harness.session import run_cells
from parvibench.harness.store.results import StoredRun
from parvibench.harness.store.store import Store
from parvibench.harness.suite.cells import Cell, expand
from parvibench.harness.suite.suite import Suite
from parvibench.harness.workers.executors import InProcess, Job, Notify, Outcome
from parvibench.harness.workers.processes import Workers
from parvibench.metrics.compute import compute

QUICK = {"replicates": 2, "budget": {"scores_per_particle": 20}, "tracking": False, "workers": 0}


class DivergesInOne(Ascent):
    """Replicate 1 blows up at the third step."""

    name = "diverges-in-one"

    def step(self, problem, settings, state, streams):
        x = super().step(problem, settings, state, streams).x
        if streams.step == 2:
            bad = torch.tensor([r == 1 for r in streams.replicates])
            x = torch.where(bad[:, None, None], torch.inf, x)
        return ParticleState(x)


class Raises(Ascent):
    """Fails in the middle."""

    name = "raises"

    def step(self, problem, settings, state, streams):
        if streams.step == 5:
            raise RuntimeError("no such layer\nsecond line")
        return super().step(problem, settings, state, streams)


class Greedy(Ascent):
    """Would score for ever within one step."""

    name = "greedy"

    def step(self, problem, settings, state, streams):
        for _ in range(7 if problem.meter.limit else 1):
            problem.score(state.x)
        return state


class NeedsMoon(Ascent):
    name = "needs-moon"
    needs = frozenset({"score", "moon"})


def run_here(tmp_path: Path, *algorithms: Algorithm | type[Algorithm] | str, **options: object) -> StoredRun:
    return pb.run(tasks=["multimodal"], algorithms=list(algorithms), out=tmp_path, **{**QUICK, **options})


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
    task = pb.task(lambda x: -0.5 * (x / 0.01).square().sum(), dim=2, name="narrow")
    run = {"tasks": [task], "algorithms": ["ula"], "budget": {"iterations": steps}, "particles": 5, "workers": 0}
    common = {"replicates": 2, "out": tmp_path, **run}
    (wild,) = pb.run(settings={"ula": {"step_size": 0.25}}, **common).cells
    assert wild.status is Status.DIVERGED
    assert "2 of 2 replicates stopped being finite" in wild.reason
    assert ": step_size 0.25 is too large for the scale of the target at the start (a smaller step_size" in wild.reason
    (calm,) = pb.run(settings={"ula": {"step_size": 1e-5}}, **common).cells
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


def test_a_crash_is_recorded_and_the_suite_goes_on(tmp_path: Path) -> None:
    results = run_here(tmp_path, Raises(), Ascent(), NeedsMoon())
    crashed, fine, unsupported = results.cells
    assert (crashed.status, crashed.reason) == (Status.CRASHED, "RuntimeError: no such layer")
    assert "in step" in crashed.traceback
    assert fine.status is Status.OK
    assert unsupported.status is Status.UNSUPPORTED
    assert unsupported.reason == "multimodal offers no moon, which needs-moon needs"


def test_the_budget_is_enforced_inside_a_step(tmp_path: Path) -> None:
    cell = run_here(tmp_path, Greedy()).cells[0]
    assert cell.iterations == 2  # 20 scores hold two steps of seven
    assert cell.score_evaluations == 2000


def test_the_second_time_nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run_here(tmp_path, "svgd", "sgld")
    monkeypatch.setattr("parvibench.harness.workers.jobs.run_chunk", lambda *_: pytest.fail("ran again"))
    second = run_here(tmp_path, "sgld", "svgd")
    assert [c.status for c in second.cells] == [Status.OK] * 2
    assert first.cells[0].values == second.cells[1].values


def test_a_damaged_cell_is_told_and_it_alone_is_run_again(tmp_path: Path) -> None:
    first = run_here(tmp_path, "svgd", "sgld")
    good, bad = first.cells
    path = first.store.folder(bad.key) / "samples.npz"
    path.write_bytes(path.read_bytes()[:-40])
    found = StoredRun.load(first.store).cells
    assert [c.status for c in found] == [Status.OK, Status.DAMAGED]
    assert "samples.npz: damaged" in found[1].reason
    assert "runs this cell again" in found[1].reason
    again = run_here(tmp_path, "svgd", "sgld")
    assert [c.status for c in again.cells] == [Status.OK] * 2
    assert again.cells[0].sha256 == good.sha256
    assert np.array_equal(again.samples(again.cells[1]), again.store.samples(bad.key))
    assert again.cells[1].values["ksd"] == bad.values["ksd"]


def test_failed_cells_are_kept_until_asked_for(tmp_path: Path) -> None:
    assert run_here(tmp_path, Raises()).cells[0].status is Status.CRASHED
    created = run_here(tmp_path, Raises()).cells[0].created
    again = run_here(tmp_path, Raises(), retry_failed=True)
    assert again.cells[0].status is Status.CRASHED
    assert again.cells[0].created >= created


def suite(**values: object) -> Suite:
    given = {
        "name": "t", "tasks": ["banana"], "algorithms": ["svgd", "sgld", "mala", "ksivi"], "replicates": 3,
        "particles": 1000, "samples": 100, "budget": {"scores_per_particle": 10},
    }  # fmt: skip
    return Suite.model_validate({**given, **values})


def test_a_replicate_that_reports_no_acceptance_has_none() -> None:
    """A chunk whose budget ends in the warm-up reports nothing of its steps; the others do."""
    (cell,) = expand(suite(algorithms=["mala"]))
    whole, part = (run_chunk(cell, ids) for ids in cell.chunks)
    del part.values["acceptance"]
    record = finished(cell, [Outcome(whole), Outcome(part)]).record
    given = whole.values["acceptance"]
    assert record.values["acceptance"] == [*given, *[None] * (3 - len(given))]
    assert None not in record.values["sliced_w2"]


def test_one_worker_two_workers_and_this_process_give_the_same_bits(tmp_path: Path) -> None:
    cells = expand(suite())
    assert {len(c.chunks) for c in cells} == {2}
    plain = suite().resolved()
    results = [
        run_cells(cells, Store(tmp_path / str(i)), executor, suite=plain)
        for i, executor in enumerate([InProcess(), Workers(1, 120), Workers(2, 120)])
    ]
    for here, one, two in zip(*(r.cells for r in results), strict=True):
        assert here.status is Status.OK
        samples = [r.samples(c) for r, c in zip(results, (here, one, two), strict=True)]
        assert np.array_equal(samples[0], samples[1])
        assert np.array_equal(samples[1], samples[2])


@dataclass
class SaysItBegan(Job[str]):
    """A job that leaves a file."""

    file: Path

    def run(self, notify: Notify) -> str:
        self.file.touch()
        return self.file.name


def test_the_next_job_runs_while_the_caller_deals_with_an_outcome(tmp_path: Path) -> None:
    jobs = [SaysItBegan(tmp_path / str(i)) for i in range(3)]
    asked = []
    for number, outcome in Workers(1, 60).run(jobs, lambda job, news: None):
        assert outcome.result == jobs[number].file.name
        asked.append(jobs[number])
        follower = tmp_path / str(len(asked))
        give_up = time.monotonic() + 30
        while len(asked) < len(jobs) and not follower.exists():
            assert time.monotonic() < give_up, f"job {follower.name} waits for the caller"
            time.sleep(0.01)
    assert asked == jobs


def test_missing_data_skip_their_cells_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from parvibench.data import fetch, loaders

    loaders.load.cache_clear()
    monkeypatch.delenv(fetch.FOLDER_VARIABLE, raising=False)
    monkeypatch.setattr(fetch, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(fetch, "_TIMEOUT_S", (0.01, 0.01))
    results = pb.run(tasks=["bnn-yacht", "multimodal"], algorithms=["svgd"], out=tmp_path / "s", **QUICK)
    skipped, fine = results.cells
    assert skipped.status is Status.SKIPPED
    assert "parvibench data fetch yacht" in skipped.reason
    assert fine.status is Status.OK
    assert results.failed


def test_a_seconds_budget_ends_in_time() -> None:
    cell = expand(suite(algorithms=["sgld"], budget={"seconds": 0.2}, particles=100))[0]
    result = run_chunk(cell, cell.chunks[0])
    assert 0.2 <= result.seconds < 2


def test_ula_shows_its_closed_form_bias(tmp_path: Path) -> None:
    """On N(0, 1) ULA's variance is 1 / (1 - eta / 2): through the whole harness, within 5 standard errors.

    Catches noise of the wrong scale, a stray accept step, and states of the start.
    """
    eta, chains = 0.4, 4000
    results = pb.run(
        tasks=["biased-start-gaussian"], algorithms=["ula"], settings={"ula": {"step_size": eta}}, particles=chains,
        out=tmp_path, **{**QUICK, "replicates": 1},
    )  # fmt: skip
    samples = results.samples(results.cells[0])
    assert samples.shape == (1, chains, 2)
    assert abs(samples.var() * (1 - eta / 2) - 1) < 5 * math.sqrt(2 / samples.size)


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


class Copier(Algorithm):
    """Rows of the reference, passed off as samples."""

    name = "copier"
    kind = "particles"
    settings_type = SteppedSettings

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
        assert results.store.find(cell.key).values[metric][1] is not None  # what it reached is kept


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


def test_labels_that_share_a_cell_are_all_told_of(tmp_path: Path) -> None:
    """Two methods tuned to the same step are one cell; nothing is called interrupted, and a second run finds all of it."""
    suite = Suite.model_validate({
        "name": "t", "tasks": ["banana"], "algorithms": ["sgld", {"name": "sgld", "label": "again"}, "ula"],
        "replicates": 1, "budget": {"iterations": 5},
    })  # fmt: skip

    class Told:
        def __init__(self) -> None:
            self.counts: tuple[int, int] = (0, 0)
            self.seen: list[tuple[str, str, bool]] = []

        def started(self, run: object, total: int, cached: int) -> None:
            self.counts = total, cached

        def progress(self, progress: object) -> None:
            pass

        def finished(self, cell: Cell, record: CellRecord, folder: Path, cached: bool) -> None:
            self.seen.append((cell.label, record.label, cached))

        def ended(self, run: object) -> None:
            pass

    for cached in (False, True):
        told = Told()
        pb.run(suite, tracking=False, workers=0, out=tmp_path, observers=[told])
        assert told.counts == (3, 3 * cached)
        assert sorted(told.seen) == [(k, k, cached) for k in ("again", "sgld", "ula")]


@pytest.mark.ci
@pytest.mark.parametrize("given", ["file", "stdin"])
def test_a_script_without_a_guard_runs_once(tmp_path, given):
    """Workers do not import the main program: neither a file that runs on import, nor what Python reads from a pipe."""
    script = tmp_path / "script.py"
    script.write_text(
        "import parvibench as pb\nprint('once')\n"
        "print(pb.run(tasks=['banana'], algorithms=['sgld'], replicates=1, budget={'iterations': 3}, workers=1, tracking=False, out='s'))\n"
    )
    command = [sys.executable, *([str(script)] if given == "file" else ["-"])]
    ran = subprocess.run(command, input=script.read_text(), capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert (ran.returncode, ran.stdout.count("once")) == (0, 1), ran.stderr
    assert "crashed" not in ran.stdout
    assert "Traceback" not in ran.stderr


@dataclass(frozen=True)
class Sends(Job[int]):
    """A job whose forks report as well, or whose code writes into the worker's pipes."""

    garbage: bool

    def run(self, notify: Notify) -> int:
        if self.garbage:
            (pipe,) = (c.cell_contents for c in notify.__closure__ if hasattr(c.cell_contents, "fileno"))
            os.write(pipe.fileno(), b"\x00\x00\x00\x04\x00\x00\x00\x00")
            time.sleep(30)
        os.fork()
        for k in range(2000):
            notify({"iteration": k, "share": 0.5})
        return 7


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_forks_and_garbage_in_the_pipe_end_no_run() -> None:
    """Only the worker itself reports; what is no message is a crash of that cell alone."""
    outcomes = dict(Workers(1, 60).run([Sends(True), Sends(False)], lambda job, news: None))
    assert outcomes[0].status is Status.CRASHED
    assert "cannot be read" in outcomes[0].reason
    assert outcomes[1].result == 7


@pytest.mark.ci
def test_a_changed_profile_is_not_called_by_its_name_alone(tmp_path: Path) -> None:
    suite = tmp_path / "mine.yaml"
    suite.write_text(
        "name: mine\ntasks: [banana]\nalgorithms: [sgld]\nreplicates: 1\nparticles: 8\nbudget: {iterations: 4}\n"
        "profiles: {fast: {replicates: 1}}\n"
    )
    for options, title in (({}, "mine, profile fast<"), ({"particles": 9}, "mine, profile fast with other particles<")):
        chosen: Any = {"profile": "fast", "workers": 0, "tracking": False, "out": tmp_path / "store", **options}
        pb.run(str(suite), report=tmp_path / "page", **chosen)
        assert title in (tmp_path / "page/index.html").read_text()


def test_cells_are_handed_on_and_do_not_come_back_to_the_session(tmp_path: Path) -> None:
    """Whatever their number: calls of the run that return to ``session.py`` from the file of cells and from the store."""
    back: list[str] = []

    def count(frame: Any, event: str, _: Any) -> None:
        before = frame.f_back
        if event == "return" and before is not None and before.f_code.co_filename.endswith("harness/session.py"):
            back.append(Path(frame.f_code.co_filename).name)

    sys.setprofile(count)
    try:
        pb.run(tasks=["banana"], algorithms=["ula", "mala", "initial"], particles=4, samples=4, out=tmp_path, **QUICK)  # type: ignore[arg-type]
    finally:
        sys.setprofile(None)
    assert (back.count("cell_runs.py"), back.count("store.py")) == (2, 2)
