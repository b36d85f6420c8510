"""A cell is mirrored once: its outcome, parameters, metrics and files are those of its record."""

import re
from pathlib import Path

import numpy as np
import pytest
from mirrors import RUN, make_curve, make_record, mirror

from parvibench.core import registry
from parvibench.core.result import Status
from parvibench.harness.store.store import RunRecord
from parvibench.tracking import content
from parvibench.tracking.mirror import MirrorObserver


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


def test_infinite_medians_are_left_out_and_counted(mirrored):
    run = mirrored.child("half")
    # Two of three replicates stopped before the last checkpoint: its median is infinite.
    assert mirrored.history(run, "sliced_w2") == [(20, 0.7)]
    assert run.data.tags["parvibench.nonfinite"] == "sliced_w2: 2 replicates"
    assert all(abs(v) < 1e300 for v in run.data.metrics.values())


def test_artifacts_lie_beside_the_store(mirrored):
    assert mirrored.experiment.artifact_location == (mirrored.root / "artifacts" / "tiny").as_uri()
    assert mirrored.artifacts(mirrored.child("good")) == {"cell.json", "curve.parquet", "samples.npz"}
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
        copy = MirrorObserver(mirrored.root)
        copy.started(RunRecord(**run))
        copy.ended(RunRecord(**run))
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
