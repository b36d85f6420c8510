"""Reports of runs that are going on, were killed, or were interrupted."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import records
from click.testing import Result
from typer.testing import CliRunner

from parvibench.cli import app
from parvibench.harness.store.store import RunRecord, Store

LOCKING = """
import sys
from parvibench.harness.store.store import Store
with Store(sys.argv[1]).locked():
    print("locked", flush=True)
    sys.stdin.read()
"""


@contextmanager
def locked_by_another(root: Path) -> Iterator[None]:
    command = [sys.executable, "-c", LOCKING, str(root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield
        process.communicate()


def make_store(root: Path, **changes: str) -> Store:
    """A run of two cells, of which one is in the store."""
    done, missing = (records.make_record(n, label=f"svgd {n}", values={"sliced_w2": [0.1, 0.2, 0.3]}) for n in "ab")
    store = Store(root)
    store.write_cell(done)
    values = {"id": "20260101-000000-000-tiny", "suite": {"name": "tiny"}, "started": "2026-01-01T00:00:00+00:00"}
    cells = [records.asked(done), records.asked(missing)]
    store.write_run(RunRecord.model_validate({**values, **changes, "cells": cells}))
    return store


def reports(root: Path) -> dict[str, str]:
    """What a user reads of the run: page, Markdown, terminal, JSON."""

    def call(*arguments: str) -> Result:
        result = CliRunner().invoke(app, ["report", "--out", str(root), *arguments])
        assert result.exit_code == 1, result.output
        return result

    terminal, document = call().stdout, call("--json").stdout
    files = {name: (root / "report" / name).read_text(encoding="utf-8") for name in ("index.html", "leaderboard.md")}
    return {**files, "terminal": " ".join(terminal.split()), "json": document}


def test_the_report_of_a_run_that_is_going_on_says_so(tmp_path: Path) -> None:
    """Nowhere is it interrupted or ended; when its process was killed it is not finished, and can be resumed."""
    store = make_store(tmp_path)
    with locked_by_another(tmp_path):
        told = reports(tmp_path)
    for name, text in told.items():
        assert "still running: this cell has no result yet" in text, name
        assert "ended before" not in text + told["terminal"], name
        if name != "json":  # whose statuses are a fixed list
            assert "This run is still running: 1 of 2 cells have no result yet." in text, name
            assert "interrupted" not in text, name
    for name, text in reports(tmp_path).items():
        assert "not finished: the run was stopped before this cell; the same command resumes it" in text, name
        assert "still running" not in text, name
    with store.locked():
        pass  # looking at the lock did not keep it


@pytest.mark.ci
@pytest.mark.parametrize("name", ["an older run", "an interrupted run"])
def test_another_run_that_is_going_on_is_not_taken_for_this_one(tmp_path: Path, name: str) -> None:
    store = make_store(tmp_path, finished="" if name == "an older run" else "2026-01-01T00:01:00+00:00")
    if name == "an older run":
        later = store.run().model_copy(
            update={"id": "20260102-000000-000-tiny", "started": "2026-01-02T00:00:00+00:00"}
        )
        store.write_run(later)
    with locked_by_another(tmp_path):
        result = CliRunner().invoke(app, ["report", "--out", str(tmp_path), "--run", "20260101-000000-000-tiny"])
    expected = "not finished: the run was stopped" if name == "an older run" else "the run ended before this cell"
    assert expected in " ".join(result.stdout.split())
    assert "still running" not in result.stdout
