"""The store: whole cells or none, one writer, clear words about damage."""

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from records import asked, make_curve, make_record

from parvibench.core.errors import DamagedError, InputError, StoreError
from parvibench.core.result import CellRecord, CellSpec, Status
from parvibench.harness.store.cell_files import single_precision
from parvibench.harness.store.results import primary_metric
from parvibench.harness.store.store import RunRecord, Store, is_final


def whole_cell() -> tuple[CellRecord, pd.DataFrame, np.ndarray]:
    values = {"sliced_w2": [0.5, None]}
    record = make_record("k", diverged={1: 64}, n_diverged=1, values=values, traceback="T")
    curve = make_curve([(0, 0, 5, 20.0, 0.1, "sliced_w2", np.inf)])
    return record, curve, np.arange(16, dtype=np.float32).reshape(2, 4, 2)


def test_a_cell_comes_back_as_it_was_written(tmp_path: Path) -> None:
    store, (record, curve, samples) = Store(tmp_path), whole_cell()
    store.write_cell(record, curve, samples)
    found = store.find(record.key)
    assert found.model_copy(update={"files": {}, "sha256": ""}) == record
    assert sorted(found.files) == ["curve.parquet", "samples.npz", "traceback.txt"]
    pd.testing.assert_frame_equal(store.curve(record.key), curve)
    assert np.array_equal(store.samples(record.key), samples)
    assert [p.name for p in (tmp_path / "cells").iterdir()] == [record.key]


def test_writing_again_replaces_the_whole_cell(tmp_path: Path) -> None:
    store, (record, curve, samples) = Store(tmp_path), whole_cell()
    store.write_cell(record, curve, samples)
    store.write_cell(record.model_copy(update={"status": Status.CRASHED}))
    assert store.find(record.key).status is Status.CRASHED
    assert store.samples(record.key) is None


@pytest.mark.parametrize("large", [1.0, 1e300])
def test_a_curve_in_single_precision_keeps_its_values(tmp_path: Path, large: float) -> None:
    """As float64 again; none becomes infinite."""
    store, (record, _, _) = Store(tmp_path), whole_cell()
    values = (0.1, large, np.nan, np.inf)
    curve = make_curve([(r, 0, 5, 20.0, 0.1, "w2", v) for r, v in enumerate(values)])
    store.write_cell(record, single_precision(curve))
    pd.testing.assert_frame_equal(store.curve(record.key), curve, rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", ["cell.json", "curve.parquet", "samples.npz", "traceback.txt"])
@pytest.mark.parametrize("harm", ["a bit", "the end", "all of it"])
def test_every_damaged_file_is_found(name: str, harm: str, tmp_path: Path) -> None:
    """One bit flipped, the last bytes lost, the file gone: only the cell's absence is no damage."""
    store, (record, curve, samples) = Store(tmp_path), whole_cell()
    store.write_cell(record, curve, samples)
    path = store.folder(record.key) / name
    content = bytearray(path.read_bytes())
    if harm == "all of it":
        path.unlink()
    else:
        content[len(content) // 2] ^= 1
        path.write_bytes(content if harm == "a bit" else content[: -len(content) // 8])
    if (name, harm) == ("cell.json", "all of it"):
        assert store.find(record.key) is None
        return
    with pytest.raises(DamagedError, match=f"{name}: damaged"):
        store.find(record.key)
    assert store.usable(record.key) is None


def test_a_record_under_another_key_is_damage(tmp_path: Path) -> None:
    store, record, other = Store(tmp_path), make_record("a"), make_record("b")
    store.write_cell(record)
    store.folder(record.key).rename(store.folder(other.key))
    with pytest.raises(DamagedError, match="specification is that of another cell"):
        store.find(other.key)


def test_older_formats_are_refused_with_what_to_do(tmp_path: Path) -> None:
    store, record = Store(tmp_path), make_record()
    store.write_cell(record)
    told = r"store format 1, and this version reads format 2: run again into another folder \(--out\)"
    (store.folder(record.key) / "cell.json").write_text('{"format": 1, "key": "k1"}')
    with pytest.raises(StoreError, match=told):
        store.find(record.key)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "old.json").write_text('{"format": 1, "id": "old", "cells": []}')
    with pytest.raises(StoreError, match=told):
        store.run()
    with pytest.raises(StoreError, match=told), store.locked():
        pass


def test_a_run_names_the_digests_of_its_cells(tmp_path: Path) -> None:
    """A cell that is written again later is whole, but no longer what the run left."""
    store, record = Store(tmp_path), make_record(values={"ksd": [1.0, 2.0, 3.0]})
    store.write_cell(record)
    run = RunRecord(id="r", suite={"name": "x"}, cells=[asked(record)], started="2026-01-01T00:00:00")
    store.write_run(run)
    (cell,) = store.run("r").cells
    assert cell.sha256 == hashlib.sha256((store.folder(record.key) / "cell.json").read_bytes()).hexdigest()
    assert store.find_for(cell).flags == []
    store.write_cell(record.model_copy(update={"values": {"ksd": [4.0, 5.0, 6.0]}}))
    assert store.find_for(cell).flags == ["written again after this run"]


def test_keys_depend_on_every_field_and_on_no_default() -> None:
    base = make_record().spec
    changes = {
        "task": "x", "task_version": 2, "algorithm": "x", "algorithm_version": 2, "source": "x", "settings": {},
        "budget": {"seconds": 1}, "particles": 9, "samples": 9, "burn_in": 0.5, "thinning": 2, "replicates": (0,), "seed": 1, "chunk": 1,
        "device": "cuda", "dtype": "float64", "contexts": 9, "compiled": True, "checkpoints": (1, 5), "trajectories": 3, "start": "warm",
    }  # fmt: skip
    assert set(changes) == set(CellSpec.model_fields)
    keys = {CellSpec.model_validate({**base.model_dump(), k: v}).key for k, v in changes.items()}
    assert len(keys) == len(changes)
    assert base.key not in keys
    assert CellSpec.model_validate(base.model_dump(exclude_defaults=True)).key == base.key


def test_what_answers_a_request() -> None:
    answers = {s: is_final(make_record(status=s)) for s in Status}
    assert {s for s, final in answers.items() if not final} == {
        Status.SKIPPED, Status.INTERRUPTED, Status.UNSUPPORTED,
    }  # fmt: skip
    assert not is_final(make_record(status=Status.CRASHED), retry_failed=True)
    assert is_final(make_record(status=Status.OK), retry_failed=True)
    assert not is_final(None)


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    second = pytest.raises(StoreError, match="another run is writing")
    with Store(tmp_path).locked(), second, Store(tmp_path).locked():
        pass
    with Store(tmp_path).locked():
        pass


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file: not a folder"):
        Store(tmp_path / "file").check_writable()


def test_runs_are_found_by_id_and_by_date(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(StoreError, match="no runs here"):
        store.run()
    cells = [asked(make_record())]
    for name, started in (("b", "2026-01-01T00:00:00"), ("a", "2026-01-02T00:00:00")):
        store.write_run(RunRecord(id=name, suite={"name": "x"}, cells=cells, started=started))
    assert store.run().id == "a"
    assert store.run("b").started == "2026-01-01T00:00:00"
    with pytest.raises(StoreError, match="no run 'c'; runs here: a, b"):
        store.run("c")
    (tmp_path / "runs" / "c.json").write_text("{")
    with pytest.raises(StoreError, match=r"c\.json: damaged"):
        store.run("c")


def test_a_new_run_is_the_latest_whatever_the_clock(tmp_path: Path) -> None:
    """Its start follows that of a run from the future; damaged, odd and extreme records are passed over."""
    store, cells = Store(tmp_path), [asked(make_record())]
    new = RunRecord(id="new", suite={"name": "x"}, cells=cells, started="2026-01-01T00:00:00+00:00")
    assert store.last(new) == new
    store.write_run(new.model_copy(update={"id": "future", "started": "2030-12-31T23:59:59+00:00"}))
    (tmp_path / "runs" / "damaged.json").write_text("{")
    assert store.last(new).started == "2031-01-01T00:00:00+00:00"
    for odd in ("tomorrow", "9999-12-31T23:59:59+00:00"):
        store.write_run(new.model_copy(update={"id": "odd", "started": odd}))
        assert store.last(new) == new


@pytest.mark.ci
def test_a_reader_during_rewrites_never_sees_damage(tmp_path: Path) -> None:
    """One process writes a cell again and again, with other samples each time; readers get one of the versions."""
    import subprocess
    import sys

    code = (
        "import sys, numpy as np, pandas as pd; sys.path.insert(0, sys.argv[2])\n"
        "from parvibench.harness.store.store import Store, CURVE_COLUMNS\n"
        "from records import make_record\n"
        "store = Store(sys.argv[1]); record = make_record()\n"
        "for i in range(150):\n"
        "    curve = pd.DataFrame([(0, 0, 1, 1.0, 0.1, 'w2', float(i))], columns=list(CURVE_COLUMNS))\n"
        "    store.write_cell(record, curve, np.full((1, 4, 2), i, np.float32))\n"
        "    print(record.key, flush=True)\n"
    )
    tests = str(Path(__file__).parent.parent)
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "s"), tests], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        key, store, seen = writer.stdout.readline().strip(), Store(tmp_path / "s"), set()
        while writer.poll() is None:
            assert store.find(key) is not None
            samples = store.samples(key)
            assert samples is not None
            seen.add(float(samples.max()))
            assert len(store.curve(key)) == 1
        assert writer.returncode == 0
    assert len(seen) > 1


def test_a_network_is_ranked_by_its_distance_to_certified_predictions_where_a_suite_measures_it() -> None:
    """By the likelihood elsewhere: suite `uci` keeps its board. Catches a board of samplers that is won by optimisers."""
    values = {"nll": [1.0], "predictive_w2": [0.4]}
    sampling = make_record("a", task="bnn-wine-red", values=values)
    predicting = make_record("b", task="bnn-wine-red", values={"rmse": [1.0], "nll": [1.0]})
    assert primary_metric([sampling], "bnn-wine-red") == "predictive_w2"
    assert primary_metric([predicting], "bnn-wine-red") == "nll"


def test_a_run_that_lists_a_label_twice_is_refused(tmp_path: Path) -> None:
    """Tables identify rows by task and label: the values of one would be shown for the other."""
    store, (record, curve, samples) = Store(tmp_path), whole_cell()
    store.write_cell(record, curve, samples)
    store.write_run(RunRecord(id="r", suite={"name": "s"}, cells=[asked(record)], started="2026"))
    path = tmp_path / "runs" / "r.json"
    run = json.loads(path.read_bytes())
    run["cells"] *= 2
    path.write_bytes(sealed_json(run))
    with pytest.raises(DamagedError, match="not a run record"):
        store.run()


def sealed_json(document: dict[str, object]) -> bytes:
    """A document with its digest, as any program can make it."""
    plain = json.dumps({k: v for k, v in document.items() if k != "sha256"} | {"sha256": ""}).encode()
    return plain[:-2] + hashlib.sha256(plain).hexdigest().encode() + plain[-2:]


@pytest.mark.parametrize("place", ["cells/KEY", "cells/KEY/cell.json", "unfinished/KEY/0.pt"])
def test_a_pipe_in_a_store_is_refused_or_ignored_at_once(tmp_path: Path, place: str) -> None:
    store, (record, *_) = Store(tmp_path), whole_cell()
    path = tmp_path / place.replace("KEY", record.key)
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    if place.startswith("unfinished"):
        assert store.snapshot(record.key, 0).load() is None
    else:
        with pytest.raises(StoreError, match="not a plain file"):
            store.find(record.key)
