"""Shards and merging: parts made apart equal the whole made at once."""

import hashlib
import zipfile
from pathlib import Path

import pytest

import parvibench as pb
from parvibench.core.errors import StoreError
from parvibench.harness.store.files import sealed
from parvibench.harness.store.merging import merge
from parvibench.harness.store.results import StoredRun
from parvibench.harness.store.store import Store
from parvibench.reporting.facts.run import Facts

WANTED = {"tasks": ["banana", "multimodal"], "algorithms": ["sgld", "exact", "initial"]}


def run(out: Path, **extra: object) -> StoredRun:
    budget = {"scores_per_particle": 5}
    return pb.run(**WANTED, replicates=2, budget=budget, workers=0, out=out, tracking=False, **extra)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("parts")
    for i in (1, 2):
        run(folder / str(i), part=(i, 2))
    return [folder / "1", folder / "2"]


def test_parts_make_the_whole(parts: list[Path], tmp_path: Path) -> None:
    counts = [len(Store(p).run().cells) for p in parts]
    assert counts == [3, 3]
    merged, notes = merge([Store(p) for p in reversed(parts)], Store(tmp_path / "merged"))
    assert not notes
    whole, found = run(tmp_path / "whole"), StoredRun.load(Store(tmp_path / "merged"), merged.id)
    assert [(c.task, c.label) for c in found.cells] == [(c.task, c.label) for c in whole.cells]
    for a, b in zip(found.cells, whole.cells, strict=True):
        assert a.key == b.key
        assert a.values["sliced_w2"] == b.values["sliced_w2"]
        assert (found.samples(a) == whole.samples(b)).all()
        assert len(found.store.curve(a.key)) == len(whole.store.curve(b.key))
    assert found.timed


def test_merging_again_changes_nothing(parts: list[Path], tmp_path: Path) -> None:
    stores = [Store(p) for p in parts]
    first, _ = merge(stores, Store(tmp_path))
    before = {p: p.stat().st_mtime_ns for p in tmp_path.glob("cells/*/*")}
    second, notes = merge(stores, Store(tmp_path))
    assert {p: p.stat().st_mtime_ns for p in tmp_path.glob("cells/*/*")} == before
    assert first.cells == second.cells
    assert not notes


@pytest.mark.ci
def test_without_samples_the_page_merging_and_resuming_still_work(parts: list[Path], tmp_path: Path) -> None:
    from parvibench.reporting.page.report_files import write_report

    whole, published = Store(tmp_path / "whole"), Store(tmp_path / "published")
    run_, _ = merge([Store(p) for p in parts], whole)
    slim, _ = merge([whole], published, samples=False)
    assert {p.name for p in published.root.glob("cells/*/*")} == {"cell.json", "curve.parquet"}
    for store, record, name in ((whole, run_, "a"), (published, slim, "b")):
        write_report(Facts.load(store, record.id), tmp_path / name)
    assert (tmp_path / "a/leaderboard.csv").read_text() == (tmp_path / "b/leaderboard.csv").read_text()
    before = {p: p.stat().st_mtime_ns for p in published.root.glob("cells/*/*")}
    run(published.root)
    assert {p: p.stat().st_mtime_ns for p in published.root.glob("cells/*/*")} == before
    again, notes = merge([published, Store(parts[0])], Store(tmp_path / "again"))
    assert len(again.cells) == 6
    assert not notes


@pytest.mark.ci
def test_the_command_publishes(parts: list[Path], tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from parvibench.cli import app

    to = tmp_path / "board"
    done = CliRunner().invoke(
        app, ["merge", *map(str, parts), "--without-samples", "--out", str(to / "store"), "--to", str(to)]
    )
    assert done.exit_code == 0, done.output
    assert {p.name for p in to.iterdir()} >= {"index.html", "leaderboard.md", "store"}
    assert not list(to.rglob("samples.npz"))


@pytest.mark.ci
def test_seconds_of_different_hardware_are_not_compared(parts: list[Path], tmp_path: Path) -> None:
    stores, part = [Store(p) for p in parts], Store(parts[1]).run()
    into, other = Store(tmp_path / "merged"), Store(tmp_path / "other")
    for cell in part.cells:
        record = stores[1].find(cell.key)
        moved = record.model_copy(update={"hardware": "another machine"})
        other.write_cell(moved, stores[1].curve(cell.key), stores[1].samples(cell.key))
    other.write_run(part.model_copy(update={"suite": part.suite | {"seed": 7}}))
    run_, notes = merge([stores[0], other], into)
    assert notes[0] == "the parts differ in seed: 0 and 7"
    assert "another machine" in notes[1]
    results = Facts.load(into, run_.id)
    assert not results.timed
    assert all("seconds" not in c.values and c.absent["seconds"] for c in results.cells)
    assert all(c["seconds"] is None for c in results.document()["cells"])
    from parvibench.reporting.page.report_files import write_report

    page = write_report(results, tmp_path / "page").read_text()
    assert "against seconds" not in page


def test_what_cannot_be_merged_is_refused(parts: list[Path], tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no runs here"):
        merge([Store(tmp_path / "none")], Store(tmp_path / "out"))
    odd = Store(tmp_path / "odd")
    run_ = Store(parts[0]).run()
    odd.write_run(run_.model_copy(update={"suite": run_.suite | {"name": "another"}}))
    with pytest.raises(StoreError, match="different suites"):
        merge([Store(parts[0]), odd], Store(tmp_path / "out"))


def test_a_bomb_is_not_unpacked(parts: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = Store(tmp_path / "bomb")
    run_ = Store(parts[0]).run()
    key = run_.cells[0].key
    record = Store(parts[0]).find(key)
    bomb.write_cell(record)
    samples = bomb.folder(key) / "samples.npz"
    with zipfile.ZipFile(samples, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("samples.npy", b"\0" * 100_000)
    digests = {"samples.npz": hashlib.sha256(samples.read_bytes()).hexdigest()}
    (bomb.folder(key) / "cell.json").write_bytes(sealed(record, files=digests))
    bomb.write_run(run_.model_copy(update={"cells": run_.cells[:1]}))
    monkeypatch.setattr("parvibench.harness.store.cell_files.MAX_BYTES", 50_000)
    with pytest.raises(StoreError, match="would unpack to"):
        merge([bomb], Store(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    samples.write_bytes(b"no archive")
    with pytest.raises(StoreError, match="damaged"):
        merge([bomb], Store(tmp_path / "out"))
