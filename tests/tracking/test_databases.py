"""The SQLite mirror of a store: made quietly, also by two at once; one that is damaged or moved is named and left as it is."""

import shutil
import subprocess
import sys

import pytest
from mirrors import RUN, Mirrored, make_curve, make_record, make_store, mirror

from parvibench.core.errors import StoreError
from parvibench.harness.store.store import RunRecord, Store
from parvibench.tracking import database
from parvibench.tracking.mirror import MirrorObserver, sync


@pytest.mark.ci
def test_mirrors_of_two_stores_start_at_the_same_time(tmp_path, monkeypatch, quick_databases):
    """Alembic's globals serve one thread at a time; a lock on each file does not see to that."""
    monkeypatch.setattr(database, "connect", quick_databases)
    copies = [MirrorObserver(tmp_path / name) for name in ("a", "b")]
    for copy in copies:
        copy.started(RunRecord(**RUN))
    assert [copy.close() for copy in copies] == ["", ""]


@pytest.mark.ci
def test_mirroring_prints_nothing(tmp_path):
    code = (
        "import sys, json; from pathlib import Path; from parvibench.tracking.mirror import MirrorObserver\n"
        "from parvibench.harness.store.store import RunRecord\n"
        f"m = MirrorObserver(Path({str(tmp_path)!r})); m.started(RunRecord(**{RUN!r})); assert m.close() == ''"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout + done.stderr == ""


def test_the_mirror_of_a_moved_store_is_refused_with_a_remedy_that_works(tmp_path):
    """MLflow keeps absolute addresses: the copy's runs would be written into the original's folder."""
    first, second = tmp_path / "first", tmp_path / "a second place"
    make_store(first, RUN, (make_record("good"), make_curve()))
    assert sync(Store(first)) == ""
    (tmp_path / "link").symlink_to(first)
    assert sync(Store(tmp_path / "link")) == ""
    shutil.copytree(first, second)
    warning = sync(Store(second))
    assert "its MLflow mirror was made in another folder" in warning
    with pytest.raises(StoreError, match=r"delete mlflow\.db and artifacts"):
        database.experiment_page(f"sqlite:///{second}/mlflow.db", second, "tiny")
    third = tmp_path / "third"
    shutil.copytree(second, third, ignore=shutil.ignore_patterns("mlflow.db", "artifacts"))
    shutil.rmtree(first)
    assert sync(Store(third)) == ""
    assert not first.exists()


@pytest.mark.parametrize("name", ["mlflow.db", "team.db"])
def test_a_damaged_database_is_named_and_left_as_it_is(name, tmp_path):
    """Of the store's own it is said that it can be deleted; a team's may hold the runs of others."""
    file = tmp_path / name
    file.write_bytes(junk := b"SQLite format 3\0" + bytes(range(256)) * 16)
    warning = mirror(tmp_path, (make_record("good"), None), uri=f"sqlite:///{file}")
    assert "not a database" in warning
    assert ("If mlflow.db is damaged, delete it" in warning) is (name == "mlflow.db")
    assert file.read_bytes() == junk


def test_two_mirrors_of_a_store_at_once_write_every_cell_once(tmp_path):
    cells = [make_record(str(i)) for i in range(12)]
    store = make_store(tmp_path, RUN, *((cell, make_curve()) for cell in cells))
    copies = [MirrorObserver(tmp_path) for _ in range(2)]
    for copy in copies:
        copy.started(RunRecord(**RUN))
        for cell in cells:
            copy.finished(None, cell, store.folder(cell.key), cached=False)
    assert [copy.close() for copy in copies] == ["", ""]
    mirrored = Mirrored(tmp_path, [])
    assert [len(mirrored.tagged("cell_key", cell.key)) for cell in cells] == [1] * 12
    assert len(mirrored.tagged("run_id", RUN["id"])) == 1
