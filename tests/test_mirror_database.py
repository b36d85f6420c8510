"""The SQLite file of a mirror: whole or absent, set aside when broken, made anew from the store."""

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from records import asked, make_curve, make_record

from parvibench.harness.store.store import RunRecord, Store
from parvibench.tracking import database
from parvibench.tracking.mirror import Mirror, sync

#: MLflow dies after the first tables, before it has brought them up to date.
DIES = """
import os, sys
from pathlib import Path
import mlflow.store.db.utils as making
making._upgrade_db = lambda engine: os._exit(9)
from parvibench.tracking.mirror import Mirror
Mirror(Path(sys.argv[1])).close()
"""


@pytest.fixture(autouse=True)
def own_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def make_store(root: Path) -> Store:
    """A store with one finished run of one cell."""
    store, record = Store(root), make_record("a", values={"ksd": [1.0, 2.0, 3.0]})
    store.write_cell(record, make_curve([(0, 0, 5, 20.0, 0.1, "ksd", 1.0)]), np.zeros((3, 8, 2)))
    run = RunRecord(
        id="r",
        suite={"name": "x"},
        cells=[asked(record)],
        started="2026-01-01T00:00:00",
        finished="2026-01-01T00:01:00",
    )
    store.write_run(run)
    return store


def keys_in(file: Path) -> list[str]:
    with closing(sqlite3.connect(file)) as opened:
        rows = opened.execute("SELECT value FROM tags WHERE key = 'parvibench.cell_key'").fetchall()
    return [key for (key,) in rows]


@pytest.mark.ci
def test_a_kill_while_the_database_is_made_leaves_none(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    dead = subprocess.run([sys.executable, "-c", DIES, str(tmp_path)], capture_output=True, check=False)
    assert dead.returncode == 9
    assert not (tmp_path / "mlflow.db").exists()
    assert sync(store) == ""
    assert keys_in(tmp_path / "mlflow.db") == [store.run().cells[0].key]
    assert not list(tmp_path.glob(".new-*"))


def junk(file: Path) -> None:
    file.write_bytes(b"SQLite format 3\0" + bytes(range(256)) * 16)


def first_tables(file: Path) -> None:
    """As far as MLflow had come when it was killed: some tables, none of its later columns."""
    with closing(sqlite3.connect(file)) as opened:
        opened.execute("CREATE TABLE experiments (experiment_id INTEGER NOT NULL, name VARCHAR(256) NOT NULL)")
        opened.commit()


def half(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])


@pytest.mark.parametrize("harm", [junk, first_tables, half])
def test_a_broken_database_is_set_aside_and_made_anew_of_the_store(harm, empty_database: Path, tmp_path: Path) -> None:
    """By the next run's mirror, which is told of no run itself, as by ``sync``."""
    store = make_store(tmp_path)
    if harm is half:
        shutil.copy(empty_database, tmp_path / "mlflow.db")
    harm(tmp_path / "mlflow.db")
    broken = (tmp_path / "mlflow.db").read_bytes()
    mirror = Mirror(tmp_path)
    assert mirror.close() == ""
    assert "mlflow.db was broken: it is now mlflow.db.broken-1" in mirror.notice
    assert keys_in(tmp_path / "mlflow.db") == [store.run().cells[0].key]
    if harm is not first_tables:  # MLflow tries to complete those
        assert (tmp_path / "mlflow.db.broken-1").read_bytes() == broken


def test_a_team_database_is_never_set_aside(tmp_path: Path) -> None:
    make_store(tmp_path / "store")
    team = tmp_path / "team.db"
    junk(team)
    warning = Mirror(tmp_path / "store", f"sqlite:///{team}").close()
    assert "not a database" in warning
    assert [p.name for p in tmp_path.glob("team.db*")] == ["team.db"]


def test_a_locked_database_is_not_a_broken_one(empty_database: Path, tmp_path: Path) -> None:
    file = tmp_path / "mlflow.db"
    shutil.copy(empty_database, file)
    with closing(sqlite3.connect(file)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        assert database.prepare(file, own=True) is None
    assert file.exists()
