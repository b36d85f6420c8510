"""The store: whole cells or none, one writer, clear words about damage."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from parvibench.core.budget import Budget
from parvibench.core.errors import StoreError
from parvibench.core.result import CellRecord, Status
from parvibench.harness.store.store import CURVE_COLUMNS, RunCell, RunRecord, Store, is_final


def make_record(key: str = "k1", status: Status = Status.OK, **values: object) -> CellRecord:
    base: dict[str, object] = {
        "key": key, "task": "banana", "task_version": 1, "algorithm": "svgd", "algorithm_version": 1,
        "kind": "particles", "label": "svgd", "settings": {"step_size": 0.1}, "budget": Budget(iterations=5),
        "particles": 4, "samples": 4, "replicates": 2, "seed": 0, "chunk": 2, "device": "cpu", "dtype": "float32",
        "status": status, "values": {"sliced_w2": [0.5, None]},
    }  # fmt: skip
    return CellRecord.model_validate({**base, **values})


def test_a_cell_comes_back_as_it_was_written(tmp_path: Path) -> None:
    store = Store(tmp_path)
    record = make_record(diverged={1: 64}, n_diverged=1)
    curve = pd.DataFrame([(0, 0, 5, 20.0, 0.1, "sliced_w2", np.inf)], columns=list(CURVE_COLUMNS))
    samples = np.arange(16, dtype=np.float32).reshape(2, 4, 2)
    store.write_cell(record, curve, samples)
    assert store.find("k1") == record
    pd.testing.assert_frame_equal(store.curve("k1"), curve)
    assert np.array_equal(store.samples("k1"), samples)
    assert sorted(p.name for p in (tmp_path / "cells").iterdir()) == ["k1"]


def test_writing_again_replaces_the_whole_cell(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write_cell(make_record(), samples=np.zeros((2, 4, 2)))
    store.write_cell(make_record(status=Status.CRASHED, reason="x"))
    assert store.find("k1").status is Status.CRASHED
    assert store.samples("k1") is None


def test_damaged_and_foreign_records_count_as_absent(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write_cell(make_record())
    path = store.folder("k1") / "cell.json"
    for content in ("{", json.dumps({"key": "k1"}), make_record(format=99).model_dump_json()):
        path.write_text(content)
        assert store.find("k1") is None


def test_what_answers_a_request() -> None:
    answers = {s: is_final(make_record(status=s)) for s in Status}
    assert {s for s, final in answers.items() if not final} == {
        Status.SKIPPED, Status.INTERRUPTED, Status.UNSUPPORTED,
    }  # fmt: skip
    assert not is_final(make_record(status=Status.CRASHED), retry_failed=True)
    assert is_final(make_record(status=Status.OK), retry_failed=True)
    assert not is_final(None)


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with (
        Store(tmp_path).locked(),
        pytest.raises(StoreError, match="another run is writing"),
        Store(tmp_path).locked(),
    ):
        pass
    with Store(tmp_path).locked():
        pass


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write here"):
        Store(tmp_path / "file").check_writable()


def test_runs_are_found_by_id_and_by_date(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(StoreError, match="no runs here"):
        store.run()
    cells = [RunCell(key="k1", task="banana", algorithm="svgd", label="svgd")]
    for name, started in (("b", "2026-01-01T00:00:00"), ("a", "2026-01-02T00:00:00")):
        store.write_run(RunRecord(id=name, suite={"name": "x"}, cells=cells, started=started))
    assert store.run().id == "a"
    assert store.run("b").started == "2026-01-01T00:00:00"
    with pytest.raises(StoreError, match="no run 'c'; runs here: a, b"):
        store.run("c")
    (tmp_path / "runs" / "c.json").write_text("{")
    with pytest.raises(StoreError, match=r"c\.json: damaged"):
        store.run("c")
