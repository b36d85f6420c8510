"""The MLflow mirror on a real SQLite store, read back by a plain client."""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import records

from parvibench.core.errors import StoreError
from parvibench.core.result import Status
from parvibench.harness.store import store
from parvibench.harness.store.secrets import without_secrets
from parvibench.harness.store.store import RunRecord, Store
from parvibench.tracking import Mirror, archive
from parvibench.tracking.observer import rebuild, sync


@pytest.fixture(autouse=True, scope="module")
def no_retries():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        yield


RUN = {
    "id": "20260101-000000-000-tiny",
    "suite": {"name": "tiny", "tasks": [{"name": "banana"}], "budget": {"iterations": 40}},
    "profile": None,
    "cells": [],
    "provenance": {"command": "parvibench run", "cpus": 2, "packages": {"torch": "2"}},
    "started": "2026-01-01T00:00:00+00:00",
}


def make_record(name, **changes):
    values = {
        "label": f"svgd ({name})",
        "settings": {"step_size": 0.05, "rule": None},
        "effective_step": 0.05,
        "iterations": 40,
        "seconds": 1.5,
        "values": {"sliced_w2": [0.3, 0.1, 0.2]},
        "metrics_key": "m1",
        "created": "2026-01-01T00:00:01+00:00",
    }
    return records.make_record(name, **values | changes)


def write_folder(root, record, curve=None):
    store = Store(root)
    store.write_cell(record, curve, None if curve is None else np.zeros((3, 8, 2)))
    return store.folder(record.key)


def make_curve():
    rows = [
        (r, c, 20 * (c + 1), 160.0 * (c + 1), 0.1 * (c + 1), "sliced_w2", value)
        for c, values in enumerate([(0.9, 0.5, 0.7), (0.3, 0.1, 0.2)])
        for r, value in enumerate(values)
    ]
    return records.make_curve(rows)


def mirror(root, *cells, run=RUN, uri=None):
    copy = Mirror(root, uri)
    copy.start_run(run)
    for record, curve in cells:
        copy.cell(run["id"], record, write_folder(root, record, curve))
    return copy.close()


@pytest.fixture(scope="module")
def mirrored(tmp_path_factory):
    """A store with a good, a diverged and a partly diverged cell, mirrored twice; and a client on it."""
    from mlflow import MlflowClient

    root = tmp_path_factory.mktemp("store")
    curve = make_curve()
    cells = (
        (make_record("good"), curve),
        (
            make_record("bad", status=Status.CRASHED, reason="it <broke>", values={}, effective_step=None),
            None,
        ),
        (
            make_record(
                "half", n_diverged=2, diverged={0: 25, 1: 25}, values={"sliced_w2": [None, None, 0.2]}
            ),
            curve[(curve["checkpoint"] == 0) | (curve["replicate"] == 2)],
        ),
    )
    warnings = [mirror(root, *cells), mirror(root, *cells)]
    client = MlflowClient(tracking_uri=f"sqlite:///{root}/mlflow.db")
    experiment = client.get_experiment_by_name("parvibench/tiny")
    runs = {r.info.run_name: r for r in client.search_runs([experiment.experiment_id])}
    return root, warnings, client, experiment, runs


def child(runs, name):
    return runs[f"banana / svgd ({name})"]


def found(client, experiment, record):
    """The runs that mirror a cell."""
    query = f"tags.`parvibench.cell_key` = '{record.key}'"
    return client.search_runs([experiment.experiment_id], query)


def test_nothing_is_lost_and_nothing_is_doubled(mirrored):
    _, warnings, _, _, runs = mirrored
    assert warnings == ["", ""]
    assert len(runs) == 4  # the parent and three children


def test_children_hang_under_their_run(mirrored):
    _, _, _, _, runs = mirrored
    parent = runs[RUN["id"]]
    assert parent.data.tags["parvibench.suite"] == "tiny"
    assert parent.data.tags["parvibench.command"] == "parvibench run"
    for name in ("good", "bad", "half"):
        tags = child(runs, name).data.tags
        assert tags["mlflow.parentRunId"] == parent.info.run_id
        assert tags["parvibench.cell_key"] == make_record(name).key
        assert tags["parvibench.task"] == "banana"


def test_statuses_and_reasons_are_mirrored(mirrored):
    _, _, _, _, runs = mirrored
    assert child(runs, "good").info.status == "FINISHED"
    assert child(runs, "bad").info.status == "FAILED"
    assert child(runs, "bad").data.tags["parvibench.reason"] == "it <broke>"
    assert runs[RUN["id"]].info.status == "FAILED"  # a cell of it failed


def test_settings_and_budget_are_parameters(mirrored):
    _, _, _, _, runs = mirrored
    params = child(runs, "good").data.params
    assert params["settings.step_size"] == "0.05"
    assert params["budget.iterations"] == "40"
    assert params["seed"] == "0"


def test_step_metrics_are_medians_and_replicates_at_iterations(mirrored):
    _, _, client, _, runs = mirrored
    uid = child(runs, "good").info.run_id
    assert [(m.step, m.value) for m in client.get_metric_history(uid, "sliced_w2")] == [(20, 0.7), (40, 0.2)]
    history = client.get_metric_history(uid, "replicates/sliced_w2.r1")
    assert [(m.step, m.value) for m in history] == [(20, 0.5), (40, 0.1)]
    assert history[1].timestamp - history[0].timestamp == pytest.approx(100, abs=1)  # 0.1 s of compute
    assert child(runs, "good").data.metrics["final/sliced_w2"] == 0.2


def test_infinite_medians_are_left_out_and_counted(mirrored):
    _, _, client, _, runs = mirrored
    run = child(runs, "half")
    # Two of three replicates stopped before the last checkpoint: its median is infinite.
    assert [m.step for m in client.get_metric_history(run.info.run_id, "sliced_w2")] == [20]
    assert "final/sliced_w2" not in run.data.metrics
    assert run.data.metrics["nonfinite/sliced_w2"] == 2
    assert all(abs(v) < 1e300 for v in run.data.metrics.values())


def test_artifacts_lie_beside_the_store(mirrored):
    root, _, client, experiment, runs = mirrored
    assert experiment.artifact_location == (root / "artifacts" / "tiny").as_uri()
    names = {f.path for f in client.list_artifacts(child(runs, "good").info.run_id)}
    assert names == {"cell.json", "curve.parquet", "samples.npz"}
    assert {f.path for f in client.list_artifacts(child(runs, "bad").info.run_id)} == {"cell.json"}
    parent = runs[RUN["id"]].info.run_id
    assert {f.path for f in client.list_artifacts(parent)} == {"suite.yaml", "run.json", "cells.json"}


def test_a_run_mirrored_again_keeps_its_own_cells(mirrored):
    root, _, client, _, runs = mirrored
    place = client.download_artifacts(runs[RUN["id"]].info.run_id, "cells.json", str(root))
    cells = json.loads(Path(place).read_text())["cells"]
    assert [(c["key"], c["reused"]) for c in cells] == [
        (make_record(name).key, "false") for name in ("good", "bad", "half")
    ]


def test_a_later_run_links_to_what_is_there(mirrored):
    root, _, client, experiment, runs = mirrored
    later = RUN | {"id": "20260102-000000-000-tiny"}
    assert mirror(root, (make_record("good"), make_curve()), run=later) == ""
    assert len(found(client, experiment, make_record("good"))) == 1
    parent = client.search_runs([experiment.experiment_id], f"tags.`parvibench.run_id` = '{later['id']}'")[0]
    place = client.download_artifacts(parent.info.run_id, "cells.json", str(root))
    (link,) = json.loads(Path(place).read_text())["cells"]
    assert link["mlflow_run_id"] == child(runs, "good").info.run_id
    assert link["reused"] == "true"


def test_a_retried_failure_takes_the_place_of_the_old_one(mirrored):
    root, _, client, experiment, _ = mirrored
    retried = RUN | {"id": "20260103-000000-000-tiny"}
    assert mirror(root, (make_record("bad"), make_curve()), run=retried) == ""
    (run,) = found(client, experiment, make_record("bad"))
    assert run.info.status == "FINISHED"


def test_odd_names_and_large_values_are_delivered(mirrored):
    root, _, client, experiment, _ = mirrored
    odd = RUN | {"id": "20260104-000000-000-tiny"}
    record = make_record(
        "odd",
        label="<script>" + "x" * 10_000,
        settings={"a|[b]": "y" * 10_000},
        values={"m|[1]": [1.0, 2.0, 3.0]},
        status=Status.CRASHED,
        reason="z" * 10_000,
    )
    assert mirror(root, (record, None), run=odd) == ""
    (mirrored_cell,) = found(client, experiment, record)
    assert mirrored_cell.data.metrics["final/m__1_"] == 2.0


def test_a_server_out_of_reach_costs_a_warning(tmp_path):
    start = time.monotonic()
    warning = mirror(tmp_path, (make_record("good"), None), uri="http://user:secret@127.0.0.1:9")
    assert time.monotonic() - start < 20
    assert warning.startswith("2 of 2 records did not reach MLflow at http://127.0.0.1:9")
    assert "secret" not in warning
    assert "parvibench sync" in warning


def test_a_slow_server_is_given_up_on_time(tmp_path, monkeypatch):
    monkeypatch.setattr("parvibench.tracking.connection.connect", lambda uri: time.sleep(3))
    copy = Mirror(tmp_path)
    copy.start_run(RUN)
    start = time.monotonic()
    seen = []
    warning = copy.close(timeout=0.5, progress=lambda done, total: seen.append((done, total)))
    assert time.monotonic() - start < 2
    assert "no answer within 0.5 s" in warning
    assert seen[-1] == (0, 1)


def test_the_server_of_the_environment_is_used(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    copy = Mirror(tmp_path)
    assert copy.uri == "http://127.0.0.1:9"
    assert copy.close().startswith("0 of 0")


def test_credentials_never_show():
    assert without_secrets("postgresql://me:pw@host:1/db") == "postgresql://host:1/db"
    assert without_secrets("sqlite:////tmp/a@b.db") == "sqlite:////tmp/a@b.db"
    line = "parvibench run --set a.api_key=abc --token hidden http://u:p@h/x?access_token=t&b=1"
    assert without_secrets(line) == (
        "parvibench run --set a.api_key=*** --token *** http://h/x?access_token=***&b=1"
    )


def test_mirroring_prints_nothing(tmp_path):
    code = (
        "import sys, json; from pathlib import Path; from parvibench.tracking import Mirror\n"
        f"m = Mirror(Path({str(tmp_path)!r})); m.start_run({RUN!r}); assert m.close() == ''"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout + done.stderr == ""


def test_the_parent_carries_provenance_load_and_report(mirrored, tmp_path):
    """Parameters from the provenance, the machine's load as metrics, the report's files; twice is as once."""
    root, _, client, experiment, _ = mirrored
    run = RUN | {
        "id": "20260105-000000-000-tiny",
        "provenance": {
            "command": "parvibench run --set a.token=abc",
            "packages": {"torch": "2.6"},
            "data": {"boston": "cafe"},
            "determinism": {"cudnn benchmark": False},
        },
        "system": [
            {"seconds": 5.0, "cpu_percent": 50.0, "memory_mib": 100},
            {"seconds": 10.0, "cpu_percent": 70.0, "memory_mib": 120},
        ],
    }
    (tmp_path / "figures").mkdir()
    (tmp_path / "index.html").write_text("page")
    (tmp_path / "figures" / "a.svg").write_text("<svg/>")
    for _ in range(2):
        copy = Mirror(root)
        copy.start_run(run)
        copy.end_run(run)
        copy.report(run["id"], tmp_path)
        assert copy.close() == ""
    (parent,) = client.search_runs([experiment.experiment_id], f"tags.`parvibench.run_id` = '{run['id']}'")
    assert parent.data.params["packages.torch"] == "2.6"
    assert parent.data.params["data.boston"] == "cafe"
    assert parent.data.params["determinism.cudnn benchmark"] == "False"
    assert "abc" not in str(parent.data.params) + str(parent.data.tags)
    history = client.get_metric_history(parent.info.run_id, "system/cpu_percent")
    assert [(m.step, m.value) for m in history] == [(5, 50.0), (10, 70.0)]
    assert {f.path for f in client.list_artifacts(parent.info.run_id, "report")} == {
        "report/figures", "report/index.html",
    }  # fmt: skip


def make_store(root, run, *cells):
    """A store whose mirror lies beside it."""
    store = Store(root)
    for record, curve in cells:
        samples = None if curve is None else np.arange(48, dtype=np.float32).reshape(3, 8, 2)
        store.write_cell(record, curve, samples)
    store.write_run(RunRecord.model_validate({**run, "cells": [records.asked(r) for r, _ in cells]}))
    return store


def test_a_store_is_rebuilt_from_the_mirror(mirrored, tmp_path, monkeypatch):
    """Records, curves, samples and traceback come back as they were; a second time nothing is fetched."""
    root = mirrored[0]
    uri = f"sqlite:///{root}/mlflow.db"
    run = RUN | {"id": "20260106-000000-000-tiny"}
    failed = make_record("lost", status=Status.CRASHED, reason="x", traceback="Traceback ...", values={})
    here = make_store(tmp_path / "here", run, (make_record("kept"), make_curve()), (failed, None))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert sync(here) == ""
    there = Store(tmp_path / "there")
    assert rebuild(uri, there, run["id"]).id == run["id"]
    kept, lost = (make_record(name).key for name in ("kept", "lost"))
    for key in (kept, lost):
        assert there.find(key) == here.find(key)
    pd.testing.assert_frame_equal(there.curve(kept), here.curve(kept))
    assert np.array_equal(there.samples(kept), here.samples(kept))
    assert there.samples(lost) is None
    assert (there.folder(lost) / "traceback.txt").read_text() == "Traceback ..."
    monkeypatch.setattr(Store, "write_cell", lambda *_: pytest.fail("written again"))
    rebuild(uri, there, run["id"])
    monkeypatch.setitem(archive.CELL_FILES, "samples.npz", 10)
    with pytest.raises(StoreError, match=r"samples\.npz has \d+ bytes, more than 10"):
        rebuild(uri, Store(tmp_path / "c"), run["id"])


def test_what_cannot_be_rebuilt_is_told(mirrored, tmp_path):
    uri = f"sqlite:///{mirrored[0]}/mlflow.db"
    with pytest.raises(StoreError, match=r"no run 'nothing'; the latest there: .*-tiny"):
        rebuild(uri, Store(tmp_path / "a"), "nothing")
    with pytest.raises(StoreError, match=r"http://127\.0\.0\.1:9: cannot be read"):
        rebuild("http://user:secret@127.0.0.1:9", Store(tmp_path / "b"))


def test_a_server_s_paths_lead_nowhere(mirrored, tmp_path):
    """A cell on the server names a file by a path: nothing is read or written outside the store."""
    root = mirrored[0]
    run = RUN | {"id": "20260107-000000-000-tiny"}
    record = make_record("evil", traceback="T")
    here = make_store(tmp_path / "here", run, (record, None))
    path = here.folder(record.key) / "cell.json"
    evil = record.model_copy(update={"files": {"../../evil": "0" * 64}})
    path.write_bytes(store._sealed(evil, evil.files))
    copy = Mirror(root)
    copy.start_run(here.run().model_dump(mode="json"))
    copy.cell(run["id"], record, here.folder(record.key))
    assert copy.close() == ""
    with pytest.raises(StoreError, match="no file of a cell"):
        rebuild(f"sqlite:///{root}/mlflow.db", Store(tmp_path / "s"), run["id"])
