"""What MLflow shows of a cell at once: its task and source, and at most twelve charts."""

import json
import re
import time
from types import SimpleNamespace

import pytest
import records
from mirrors import make_record

from parvibench.core import registry
from parvibench.harness.store.cell_files import CurveGrid
from parvibench.tracking import content, database
from parvibench.tracking.mirror import MirrorObserver


def test_a_cell_has_at_most_twelve_charts_and_its_costs_apart():
    """The primary metric is always shown; one that is measured at the end alone is at step 0."""
    names = [f"own_{i}" for i in range(20)] + ["kl_knn", "seconds", "sliced_w2"]
    found = list(
        content.points(
            make_record("many", values={n: [1.0, 2.0, 4.0] for n in names}), CurveGrid.of(records.make_curve([]))
        )
    )
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


@pytest.mark.ci
def test_a_slow_server_that_delivers_is_not_given_up_at_once(tmp_path, monkeypatch):
    """Longer than the timeout in all, but not for one record; ten times the timeout is the end.

    A busy machine delays a delivery: two seconds of it pass unseen.
    """
    for seconds, count, timeout, complete in ((1.0, 4, 3.0, True), (0.15, 20, 0.2, False)):
        slow = SimpleNamespace(report=lambda *_, s=seconds: time.sleep(s), finish=lambda: None)
        monkeypatch.setattr(MirrorObserver, "_connected", lambda _, slow=slow: slow)
        copy = MirrorObserver(tmp_path)
        for _ in range(count):
            copy.report("run", tmp_path)
        start = time.monotonic()
        assert (copy.close(timeout=timeout) == "") is complete
        assert timeout < time.monotonic() - start


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
