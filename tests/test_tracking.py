"""The MLflow mirror on a real SQLite store, read back by a plain client."""

import json
import math
import re
import shutil
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import records

from parvibench.core import registry
from parvibench.core.errors import StoreError
from parvibench.core.result import Status
from parvibench.harness.store import files
from parvibench.harness.store.secrets import without_secrets
from parvibench.harness.store.store import RunRecord, Store
from parvibench.tracking import archive, content, database, picture
from parvibench.tracking.archive import rebuild
from parvibench.tracking.content import Ranking, Shown
from parvibench.tracking.mirror import Mirror, sync


@pytest.fixture(autouse=True, scope="module")
def no_retries():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        yield


#: What makes a database; in other tests they are copies.
MAKE = database._make
RUN = {
    "id": "20260101-000000-000-tiny",
    "suite": {"name": "tiny", "tasks": [{"name": "banana"}], "budget": {"iterations": 40}},
    "profile": None,
    "cells": [],
    "provenance": {
        "command": "parvibench run -a svgd", "cpus": 2, "packages": {"torch": "2"}, "git": "0123abc+",
        "data": {"reference of banana": "cafe" * 16},
    },
    "started": "2026-01-01T00:00:00+00:00",
}  # fmt: skip


def make_record(name, **changes):
    values = {
        "label": f"svgd ({name})", "settings": {"step_size": 0.05, "rule": None}, "effective_step": 0.05,
        "iterations": 40, "seconds": 1.5, "values": {"sliced_w2": [0.3, 0.1, 0.2]}, "metrics_key": "m1",
        "created": "2026-01-01T00:00:01+00:00",
    }  # fmt: skip
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
    """A store with a good, a crashed and a partly diverged cell, mirrored twice."""
    root = tmp_path_factory.mktemp("store")
    curve = make_curve()
    bad = make_record("bad", status=Status.CRASHED, reason="it <broke>", values={}, effective_step=None)
    lost = {"n_diverged": 2, "diverged": {0: 25, 1: 25}, "values": {"sliced_w2": [None, None, 0.2]}}
    rest = curve[(curve["checkpoint"] == 0) | (curve["replicate"] == 2)]
    cells = ((make_record("good"), curve), (bad, None), (make_record("half", **lost), rest))
    warnings = [mirror(root, *cells), mirror(root, *cells)]
    return Mirrored(root, warnings)


class Mirrored:
    """A store, the warnings of mirroring it, and its experiment and runs as a plain client finds them."""

    def __init__(self, root, warnings):
        from mlflow import MlflowClient

        self.root, self.warnings, self.uri = root, warnings, f"sqlite:///{root}/mlflow.db"
        self.client = MlflowClient(tracking_uri=self.uri)
        self.experiment = self.client.get_experiment_by_name("parvibench/tiny")
        self.runs = {r.info.run_name: r for r in self.client.search_runs([self.experiment.experiment_id])}
        self.parent = self.runs["tiny, 2026-01-01 00:00"]

    def child(self, name):
        return self.runs[f"banana / svgd ({name})"]

    def tagged(self, tag, value):
        """The runs that carry a tag, as they are now."""
        query = f"tags.`parvibench.{tag}` = '{value}'"
        return self.client.search_runs([self.experiment.experiment_id], query)

    def history(self, run, metric):
        return [(m.step, m.value) for m in self.client.get_metric_history(run.info.run_id, metric)]

    def artifacts(self, run, folder=None):
        return {f.path for f in self.client.list_artifacts(run.info.run_id, folder)}

    def cells(self, run):
        """The list of cells that a run holds."""
        path = self.client.download_artifacts(run.info.run_id, "cells.json", str(self.root))
        return json.loads(Path(path).read_text())["cells"]


def test_every_record_is_mirrored_once(mirrored):
    assert mirrored.warnings == ["", ""]
    assert len(mirrored.runs) == 4  # the parent and three children


def test_cells_are_children_of_their_run(mirrored):
    parent = mirrored.parent
    assert parent.data.tags["parvibench.suite"] == "tiny"
    assert parent.data.tags["parvibench.command"] == "parvibench run -a svgd"
    for name in ("good", "bad", "half"):
        tags = mirrored.child(name).data.tags
        assert tags["mlflow.parentRunId"] == parent.info.run_id
        assert tags["parvibench.cell_key"] == make_record(name).key
        assert tags["parvibench.task"] == "banana"


def test_statuses_reasons_and_parameters_are_mirrored(mirrored):
    good, bad = mirrored.child("good"), mirrored.child("bad")
    assert good.info.status == "FINISHED"
    assert bad.info.status == "FAILED"
    assert bad.data.tags["parvibench.reason"] == "it <broke>"
    assert mirrored.parent.info.status == "FAILED"  # a cell of it failed
    expected = {"settings.step_size": "0.05", "budget.iterations": "40", "seed": "0"}
    assert expected.items() <= good.data.params.items()


def test_metrics_are_medians_at_checkpoints_and_ratios_to_the_floor(mirrored):
    """The floor is that of the certificate at the cell's sample size, read here without the package's readers."""
    good = mirrored.child("good")
    assert mirrored.history(good, "sliced_w2") == [(20, 0.7), (40, 0.2)]
    first, last = mirrored.client.get_metric_history(good.info.run_id, "sliced_w2")
    assert last.timestamp - first.timestamp == pytest.approx(100, abs=1)  # 0.1 s of compute
    place = Path(registry.__file__).parents[2] / "tasks" / "references" / "banana.npz"
    with np.load(place) as stored:
        low, high = (np.median(stored[f"sliced_w2/{n}"]) for n in (5, 10))
    floor = good.data.metrics["floor"]
    assert high < floor < low  # at n = 8
    assert mirrored.history(good, "floor_ratio") == [(20, pytest.approx(0.7 / floor)), (40, pytest.approx(0.2 / floor))]
    assert mirrored.history(good, "step_size") == [(0, 0.05)]


def test_a_cell_has_at_most_twelve_charts_and_its_costs_apart():
    """The primary metric is always shown; one that is measured at the end alone is at step 0."""
    names = [f"own_{i}" for i in range(20)] + ["kl_knn", "seconds", "sliced_w2"]
    found = list(content.points(make_record("many", values={n: [1.0, 2.0, 4.0] for n in names}), None))
    charts = {name for name, *_ in found if not name.startswith("system/")}
    assert len(charts) == 12
    assert {"sliced_w2", "floor", "floor_ratio", "step_size"} <= charts
    assert {(name, step, value) for name, step, _, value in found} >= {
        ("sliced_w2", 0, 2.0),
        ("system/seconds", 0, 2.0),
    }


def test_mlflow_knows_task_author_and_source(mirrored):
    """In its own fields, so that its columns and filters work."""
    query = "dataset.name = 'banana' and tags.`mlflow.source.name` = 'parvibench run'"
    runs = mirrored.client.search_runs([mirrored.experiment.experiment_id], query)
    assert {mirrored.child(n).info.run_id for n in ("good", "half")} <= {r.info.run_id for r in runs}
    (task,) = mirrored.child("good").inputs.dataset_inputs
    assert (task.dataset.name, task.dataset.digest) == ("banana", "cafe" * 3)
    tags = mirrored.child("bad").data.tags
    assert tags["mlflow.source.git.commit"] == "0123abc"
    assert tags["mlflow.user"]
    assert tags["mlflow.note.content"] == "svgd (bad) on banana: crashed, it <broke>."


def test_infinite_medians_are_left_out_and_counted(mirrored):
    run = mirrored.child("half")
    # Two of three replicates stopped before the last checkpoint: its median is infinite.
    assert mirrored.history(run, "sliced_w2") == [(20, 0.7)]
    assert run.data.tags["parvibench.nonfinite"] == "sliced_w2: 2 replicates"
    assert all(abs(v) < 1e300 for v in run.data.metrics.values())


def test_artifacts_lie_beside_the_store(mirrored):
    assert mirrored.experiment.artifact_location == (mirrored.root / "artifacts" / "tiny").as_uri()
    assert mirrored.artifacts(mirrored.child("good")) == {"cell.json", "curve.parquet", "samples.npz", "samples.png"}
    assert mirrored.artifacts(mirrored.child("bad")) == {"cell.json"}
    assert mirrored.artifacts(mirrored.parent) == {"suite.yaml", "run.json", "cells.json"}


def test_a_run_mirrored_again_keeps_its_own_cells(mirrored):
    found = [(c["key"], c["reused"]) for c in mirrored.cells(mirrored.parent)]
    assert found == [(make_record(name).key, "false") for name in ("good", "bad", "half")]


def test_a_later_run_links_to_what_is_there(mirrored):
    later = RUN | {"id": "20260102-000000-000-tiny"}
    assert mirror(mirrored.root, (make_record("good"), make_curve()), run=later) == ""
    assert len(mirrored.tagged("cell_key", make_record("good").key)) == 1
    (link,) = mirrored.cells(mirrored.tagged("run_id", later["id"])[0])
    assert link["mlflow_run_id"] == mirrored.child("good").info.run_id
    assert link["reused"] == "true"


def test_a_retried_failure_takes_the_place_of_the_old_one(mirrored):
    retried = RUN | {"id": "20260103-000000-000-tiny"}
    assert mirror(mirrored.root, (make_record("bad"), make_curve()), run=retried) == ""
    (run,) = mirrored.tagged("cell_key", make_record("bad").key)
    assert run.info.status == "FINISHED"


def test_odd_names_and_large_values_are_delivered(mirrored):
    odd = RUN | {"id": "20260104-000000-000-tiny"}
    long = {"label": "<script>" + "x" * 10_000, "settings": {"a|[b]": "y" * 10_000}, "reason": "z" * 10_000}
    record = make_record("odd", **long, values={"m|[1]": [1.0, 2.0, 3.0]}, status=Status.CRASHED)
    assert mirror(mirrored.root, (record, None), run=odd) == ""
    (run,) = mirrored.tagged("cell_key", record.key)
    assert run.data.metrics["m__1_"] == 2.0


def test_a_server_out_of_reach_costs_a_warning(tmp_path):
    warning = mirror(tmp_path, (make_record("good"), None), uri="http://user:secret@127.0.0.1:9")
    assert warning.startswith("2 of 2 records did not reach MLflow at http://127.0.0.1:9")
    assert "secret" not in warning
    assert "parvibench sync" in warning


@pytest.mark.parametrize("answer", ["401", "500", "a page", "nothing"])
def test_a_server_that_answers_otherwise_costs_a_warning(answer, tmp_path):
    """A login, an error of 100 kB, a page of HTML, a connection that is closed: one remedy, no password."""

    class Odd(BaseHTTPRequestHandler):
        def do_GET(self):
            if answer == "nothing":
                return
            content = b"<html>Please log in</html>" if answer == "a page" else b'{"message": "' + b"x" * 100_000 + b'"}'
            self.send_response(200 if answer == "a page" else int(answer))
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET
        log_message = lambda self, *_: None  # noqa: E731

    with ThreadingHTTPServer(("127.0.0.1", 0), Odd) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        uri = f"http://me:swordfish@127.0.0.1:{server.server_port}"
        warning = mirror(tmp_path, (make_record("good"), None), uri=uri)
        server.shutdown()
    assert warning.startswith("2 of 2 records did not reach MLflow")
    assert "parvibench sync" in warning
    assert "swordfish" not in warning
    assert len(warning) < 900
    assert "Traceback" not in warning


def test_a_slow_server_is_given_up_on_time(tmp_path, monkeypatch):
    answers = Event()
    monkeypatch.setattr("parvibench.tracking.database.connect", lambda uri: answers.wait(600))
    copy = Mirror(tmp_path)
    copy.start_run(RUN)
    warning = copy.close(timeout=0.5)
    answers.set()
    assert "no answer within 0.5 s" in warning
    assert "1 of 1 records" in warning


@pytest.mark.ci
def test_a_slow_server_that_delivers_is_not_given_up_at_once(tmp_path, monkeypatch):
    """Longer than the timeout in all, but not for one record; ten times the timeout is the end.

    A busy machine delays a delivery: two seconds of it pass unseen.
    """
    for seconds, count, timeout, complete in ((1.0, 4, 3.0, True), (0.15, 20, 0.2, False)):
        slow = SimpleNamespace(report=lambda *_, s=seconds: time.sleep(s), finish=lambda: None)
        monkeypatch.setattr(Mirror, "_connected", lambda _, slow=slow: slow)
        copy = Mirror(tmp_path)
        for _ in range(count):
            copy.report("run", tmp_path)
        start = time.monotonic()
        assert (copy.close(timeout=timeout) == "") is complete
        assert timeout < time.monotonic() - start


@pytest.mark.ci
def test_mirrors_of_two_stores_start_at_the_same_time(tmp_path, monkeypatch):
    """Alembic's globals serve one thread at a time; a lock on each file does not see to that."""
    monkeypatch.setattr(database, "_make", MAKE)
    copies = [Mirror(tmp_path / name) for name in ("a", "b")]
    for copy in copies:
        copy.start_run(RUN)
    assert [copy.close() for copy in copies] == ["", ""]


def test_the_server_of_the_environment_is_used(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    copy = Mirror(tmp_path)
    assert copy.uri == "http://127.0.0.1:9"
    assert copy.close().startswith("0 of 0")


def test_credentials_never_show():
    assert without_secrets("postgresql://me:pw@host:1/db") == "postgresql://host:1/db"
    assert without_secrets("sqlite:////tmp/a@b.db") == "sqlite:////tmp/a@b.db"
    line = "parvibench run --set a.api_key=abc --token hidden http://u:p@h/x?access_token=t&b=1"
    assert without_secrets(line) == ("parvibench run --set a.api_key=*** --token *** http://h/x")


@pytest.mark.ci
def test_mirroring_prints_nothing(tmp_path):
    code = (
        "import sys, json; from pathlib import Path; from parvibench.tracking.mirror import Mirror\n"
        f"m = Mirror(Path({str(tmp_path)!r})); m.start_run({RUN!r}); assert m.close() == ''"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout + done.stderr == ""


def test_the_parent_carries_provenance_and_report(mirrored, tmp_path):
    """Parameters from the provenance, the report's files; twice is as once."""
    provenance = {
        "command": "parvibench run --set a.token=abc", "packages": {"torch": "2.6"}, "data": {"boston": "cafe"},
        "determinism": {"cudnn benchmark": False},
    }  # fmt: skip
    run = RUN | {"id": "20260105-000000-000-tiny", "provenance": provenance}
    (tmp_path / "figures").mkdir()
    (tmp_path / "index.html").write_text("page")
    (tmp_path / "figures" / "a.svg").write_text("<svg/>")
    for _ in range(2):
        copy = Mirror(mirrored.root)
        copy.start_run(run)
        copy.end_run(run)
        copy.report(run["id"], tmp_path)
        assert copy.close() == ""
    (parent,) = mirrored.tagged("run_id", run["id"])
    expected = {"packages.torch": "2.6", "data.boston": "cafe", "determinism.cudnn benchmark": "False"}
    assert expected.items() <= parent.data.params.items()
    assert "abc" not in str(parent.data.params) + str(parent.data.tags)
    assert mirrored.artifacts(parent, "report") == {"report/figures", "report/index.html"}


def test_metrics_have_plain_names_and_their_units_are_tags(mirrored):
    """Names without blanks or signs, so that MLflow's search takes them as they stand in the store."""
    good = mirrored.child("good")
    assert [name for name in good.data.metrics if not re.fullmatch(r"[\w./]+", name)] == []
    assert good.data.tags["parvibench.unit.sliced_w2"] == "x"
    names = ("seconds", "ess_per_second", "modes_found", "unknown")
    tags = content.cell_tags(make_record("units", values={m: [1.0] for m in names}), RUN)
    units = {k.removeprefix("parvibench.unit."): v for k, v in tags.items() if ".unit." in k}
    assert units == {"seconds": "s", "ess_per_second": "draws/s"}
    assert [n for n in registry.metrics() if content.clean_name(n) != n] == []


def test_the_leaderboard_is_the_note_of_the_run(mirrored):
    run = RUN | {"id": "20260106-000000-000-tiny", "profile": "fast"}
    copy = Mirror(mirrored.root)
    copy.start_run(run)
    copy.rank(run["id"], Ranking("| method | rank |\n" * 1000, {}, {}))
    assert copy.close() == ""
    (parent,) = mirrored.tagged("run_id", run["id"])
    assert parent.info.run_name == "tiny fast, 2026-01-01 00:00"
    note = parent.data.tags["mlflow.note.content"]
    assert 4500 < len(note) <= 5000
    *lines, last = note.splitlines()
    assert set(lines) == {"| method | rank |", ""}
    assert last.startswith("Cut short")


def test_the_leaderboards_row_stands_in_the_run_of_each_cell(tmp_path):
    """Mirrored twice it is there once; a later run that reuses a cell adds what is missing and changes nothing."""
    names = ("a", "b", "c")
    cells = [(make_record(name, values={"ksd": [1.0, 2.0, 3.0]}), None) for name in names]
    labels = [("banana", record.label) for record, _ in cells]

    def rank(run, *values):
        copy = Mirror(tmp_path)
        copy.start_run(run)
        for record, _ in cells:
            copy.cell(run["id"], record, write_folder(tmp_path, record))
        rows = [
            Shown(ratio, {"verdict": v, "result": f"{ratio:g}"} if v else {}, f"{ratio:g}, {v}") for ratio, v in values
        ]
        metrics = {"solved": values[0][0], "average_rank/svgd|a": math.inf}
        copy.rank(run["id"], Ranking("leaderboard", dict(zip(labels, rows, strict=False)), metrics))
        assert copy.close() == ""
        mirrored = Mirrored(tmp_path, [])
        runs = [mirrored.child(name) for name in names]
        histories = [[value for _, value in mirrored.history(r, "floor_ratio")] for r in runs]
        return histories, [r.data.tags.get("parvibench.verdict") for r in runs]

    first = [(1.5, "worse"), (math.nan, ""), (math.inf, "worse")]
    told = [[1.5], [], []], ["worse", None, "worse"]
    assert rank(RUN, *first) == told
    assert rank(RUN, *first) == told
    later = RUN | {"id": "20260108-000000-000-tiny", "started": "2026-01-08T00:00:00+00:00"}
    assert rank(later, (9.0, "indistinguishable"), (2.0, "worse")) == ([[1.5], [2.0], []], ["worse"] * 3)
    corrected, verdicts = rank(RUN, (1.25, "indistinguishable"))
    assert sorted(corrected[0]) == [1.25, 1.5]
    found = Mirrored(tmp_path, [])
    assert found.child("a").data.metrics["floor_ratio"] == 1.25
    assert found.child("a").data.tags["mlflow.note.content"] == "1.25, indistinguishable"
    assert verdicts[0] == "indistinguishable"
    solved = [[v for _, v in found.history(r, "solved")] for r in (found.parent, *found.tagged("run_id", later["id"]))]
    assert solved == [[1.5, 1.25], [9.0]]


def test_the_ui_opens_the_cells_of_the_suite_in_a_view_that_mlflow_reads(mirrored):
    """Verdict and ratio are its first columns; no more than twelve charts are shown, whatever a run measures."""
    page = database.experiment_page(mirrored.uri, mirrored.root, "tiny")
    number = mirrored.experiment.experiment_id
    assert page == f"#/experiments/{number}/runs?workflowType=machine_learning&viewStateShareKey=parvibench-cells"
    assert database.experiment_page(mirrored.uri, mirrored.root, "another") == ""
    metrics = {f"{kind}/m{i}+": float(i) for i in range(90) for kind in ("average_rank", "floor_ratio")} | {
        "solved": 0.5
    }
    for tags, known in (
        (mirrored.experiment.tags, {"floor_ratio"}),
        (content.views(metrics), {"floor_ratio/m0+", "solved"}),
    ):
        views = [json.loads(v) for k, v in tags.items() if k.startswith("mlflow.sharedViewState.parvibench-")]
        assert len(views) == 2
        for view in views:
            state = json.loads(view["state"])
            assert state.items() <= view.items()
            assert state["columnOrder"] == state["selectedColumns"]
        filters = [re.compile(view["chartsSearchFilter"]) for view in views]
        assert any(known == {name for name in known if f.search(name)} for f in filters)
        assert all(sum(bool(f.search(name)) for name in (*registry.metrics(), *metrics)) <= 12 for f in filters)


def test_pictures_are_small_and_need_finite_samples_of_two_coordinates(tmp_path):
    record = make_record("p", values={"w2": [1.0]})
    folder = write_folder(tmp_path, record, make_curve())
    assert picture.draw(record, folder).startswith(b"\x89PNG")
    assert len(picture.draw(record, folder)) < 40_000
    for samples in (np.full((3, 8, 2), np.nan), np.zeros((3, 8, 1))):
        np.savez(folder / "samples.npz", samples=samples)
        assert picture.draw(record, folder) is None


def test_sync_writes_the_note(tmp_path):
    from mlflow import MlflowClient

    store = make_store(tmp_path / "store", RUN, (make_record("good"), make_curve()))
    assert sync(store, rank=lambda results: Ranking(f"{len(results.cells)} cell", {}, {})) == ""
    client = MlflowClient(tracking_uri=f"sqlite:///{store.root}/mlflow.db")
    experiment = client.get_experiment_by_name("parvibench/tiny")
    assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"
    notes = [r.data.tags.get("mlflow.note.content") for r in client.search_runs([experiment.experiment_id])]
    assert sorted(filter(None, notes)) == ["1 cell", "svgd (good) on banana: ok."]


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


#: MLflow dies after the first tables, before it has brought them up to date.
DIES = """
import os, sys
from pathlib import Path
import mlflow.store.db.utils as making
making._upgrade_db = lambda engine: os._exit(9)
from parvibench.tracking.mirror import Mirror
Mirror(Path(sys.argv[1])).close()
"""


@pytest.mark.ci
def test_a_kill_while_the_database_is_made_leaves_none(tmp_path):
    store = make_store(tmp_path, RUN, (make_record("good"), make_curve()))
    dead = subprocess.run([sys.executable, "-c", DIES, str(tmp_path)], capture_output=True, check=False)
    assert dead.returncode == 9
    assert not (tmp_path / "mlflow.db").exists()
    assert sync(store) == ""
    assert not list(tmp_path.glob(".new-*"))
    assert Mirrored(tmp_path, []).child("good")


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
    copies = [Mirror(tmp_path) for _ in range(2)]
    for copy in copies:
        copy.start_run(RUN)
        for cell in cells:
            copy.cell(RUN["id"], cell, store.folder(cell.key))
    assert [copy.close() for copy in copies] == ["", ""]
    mirrored = Mirrored(tmp_path, [])
    assert [len(mirrored.tagged("cell_key", cell.key)) for cell in cells] == [1] * 12
    assert len(mirrored.tagged("run_id", RUN["id"])) == 1


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
    uri, run = mirrored.uri, RUN | {"id": "20260106-000000-000-tiny"}
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
    with pytest.raises(StoreError, match=r"samples\.npz has more than 10 bytes"):
        rebuild(uri, Store(tmp_path / "c"), run["id"])


def test_what_cannot_be_rebuilt_is_reported(mirrored, tmp_path):
    with pytest.raises(StoreError, match=r"no run 'nothing'; the latest there: .*-tiny"):
        rebuild(mirrored.uri, Store(tmp_path / "a"), "nothing")
    with pytest.raises(StoreError, match=r"http://127\.0\.0\.1:9: cannot be read"):
        rebuild("http://user:secret@127.0.0.1:9", Store(tmp_path / "b"))


def test_a_path_from_the_server_is_not_followed(mirrored, tmp_path):
    """A cell on the server names a file by a path: nothing is read or written outside the store."""
    run = RUN | {"id": "20260107-000000-000-tiny"}
    record = make_record("evil", traceback="T")
    here = make_store(tmp_path / "here", run, (record, None))
    path = here.folder(record.key) / "cell.json"
    evil = record.model_copy(update={"files": {"../../evil": "0" * 64}})
    path.write_bytes(files.sealed(evil))
    copy = Mirror(mirrored.root)
    copy.start_run(here.run().model_dump(mode="json"))
    copy.cell(run["id"], record, here.folder(record.key))
    assert copy.close() == ""
    with pytest.raises(StoreError, match="no file of a cell"):
        rebuild(mirrored.uri, Store(tmp_path / "s"), run["id"])


@pytest.mark.ci
def test_an_experiment_that_was_deleted_on_the_server_is_named_with_a_remedy_that_works(tmp_path):
    import os
    import subprocess
    import sys

    from mlflow import MlflowClient

    cells = ((make_record("good"), make_curve()),)
    assert mirror(tmp_path, *cells) == ""
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    client = MlflowClient(tracking_uri=uri)
    client.delete_experiment(client.get_experiment_by_name("parvibench/tiny").experiment_id)
    warning = mirror(tmp_path, *cells)
    assert "parvibench/tiny was deleted there" in warning
    assert "SQL" not in warning
    remedy = re.search(r"\((mlflow experiments restore -x \d+)", warning)[1]
    done = subprocess.run(
        [sys.executable, "-m", *remedy.split()], env=os.environ | {"MLFLOW_TRACKING_URI": uri}, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    assert mirror(tmp_path, *cells) == ""


@pytest.mark.parametrize("name", ["with blanks", "quo'te", "ünï-ço∂é", "100%", "a" * 200])
def test_an_experiment_of_any_name_can_be_restored(name, tmp_path):
    from mlflow import MlflowClient

    run, cells = RUN | {"suite": RUN["suite"] | {"name": name}}, ((make_record("good"), make_curve()),)
    assert mirror(tmp_path, *cells, run=run) == ""
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/mlflow.db")
    client.delete_experiment(client.get_experiment_by_name(f"parvibench/{name}").experiment_id)
    warning = mirror(tmp_path, *cells, run=run)
    assert f"parvibench/{name} was deleted there" in warning
    assert "SQL" not in warning
    client.restore_experiment(re.search(r"mlflow experiments restore -x (\d+)", warning)[1])
    assert mirror(tmp_path, *cells, run=run) == ""
