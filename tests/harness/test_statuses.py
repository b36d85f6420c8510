"""Every requested cell has a status with its reason, and a cell that is stored, failed or damaged is run again only where it must be."""

from pathlib import Path

import numpy as np
import pytest
from ascent import Ascent
from toy_runs import QUICK, run_here

import parvibench as pb
from parvibench.core.result import CellRecord, Status
from parvibench.harness.store.results import StoredRun
from parvibench.harness.suite.cells import Cell
from parvibench.harness.suite.suite import Suite


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

        def progress(self, job: object, news: object) -> None:
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
