"""Stores of unusual names: results, mirror and lock lie where the name says, or the name is refused."""

import contextlib
import sqlite3
from pathlib import Path

import pytest
from few import every

import parvibench as pb
from parvibench.core.errors import StoreError
from parvibench.harness.store.store import Store

NAMES = [
    "with blanks", " lead", "ünï-ço∂é", "漢字", "q#x", "q%x", "100%", "a&b=c", "semi;colon", "quo'te", 'dou"ble', "back\\slash", "$HOME",
    "*star", "[brackets]", "-dash", "~tilde", "n" * 200, "new\nline", "@at", "a:b", "sqlite:", "..dots",
]  # fmt: skip


@pytest.mark.parametrize("name", every(("with blanks", "100%", "q#x", 'dou"ble', "new\nline", "a:b"), NAMES))
def test_a_store_of_any_name_has_its_own_mirror(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results, database and artifacts are in the folder of that name, and nothing next to it."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    done = pb.run(
        tasks=["banana"], algorithms=["ula"], replicates=2, particles=4, samples=4, budget={"iterations": 3}, workers=0,
        out=tmp_path / name, warn=pytest.fail,
    )  # fmt: skip
    assert [p.name for p in tmp_path.iterdir()] == [name]
    assert done.cells[0].status == "ok"
    assert pb.load(tmp_path / name).cells[0].key == done.cells[0].key
    with contextlib.closing(sqlite3.connect(tmp_path / name / "mlflow.db")) as opened:
        keys = opened.execute("SELECT value FROM tags WHERE key = 'parvibench.cell_key'").fetchall()
    assert keys == [(done.cells[0].key,)]
    assert len(list((tmp_path / name / "artifacts").rglob("samples.npz"))) == 1


def test_sqlalchemy_reads_the_addresses_as_we_do(tmp_path: Path) -> None:
    from sqlalchemy.engine import make_url

    from parvibench.tracking.database import default_uri

    for name in NAMES:
        if name != "new\nline":
            assert make_url(default_uri(tmp_path / name)).database == str((tmp_path / name).resolve() / "mlflow.db")


def test_symbolic_links_lead_to_the_store(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real", target_is_directory=True)
    settings = dict(
        tasks=["banana"], algorithms=["ula"], replicates=2, particles=4, samples=4, workers=0, tracking=False
    )
    first = pb.run(**settings, budget={"iterations": 3}, out=tmp_path / "link")
    assert Store(tmp_path / "real").usable(first.cells[0].key) is not None


@pytest.mark.parametrize("name", ["q?x", "?", "a/q?", "q??x=1", "deep?/er", "q%3Fx", "%2e%2e"])
def test_names_that_a_database_address_would_change_are_refused_before_anything_is_written(
    name: str, tmp_path: Path
) -> None:
    (tmp_path / "q").mkdir()
    with pytest.raises(StoreError, match=r"cannot hold '"):
        pb.run(tasks=["banana"], algorithms=["ula"], workers=0, out=tmp_path / name)
    assert [p.name for p in tmp_path.rglob("*")] == ["q"]
