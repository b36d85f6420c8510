"""The leaderboard of a run is in MLflow: its text and numbers at the run, its rows at the cells."""

import math

from mirrors import RUN, Mirrored, make_curve, make_record, make_store, write_folder

from parvibench.tracking import database
from parvibench.tracking.content import Ranking, Shown
from parvibench.tracking.mirror import Mirror, sync


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
    """Mirrored twice it is there once; a later run that reuses a cell changes nothing of it."""
    names = ("a", "b")
    cells = [make_record(name, values={"ksd": [1.0, 2.0, 3.0]}) for name in names]

    def rank(run, solved, *verdicts):
        copy = Mirror(tmp_path)
        copy.start_run(run)
        for record in cells:
            copy.cell(run["id"], record, write_folder(tmp_path, record))
        rows = {("banana", r.label): Shown({"verdict": v}, f"it is {v}") for r, v in zip(cells, verdicts, strict=True)}
        metrics = {"solved": solved, "average_rank/svgd|a": math.inf}
        copy.rank(run["id"], Ranking("leaderboard", rows, metrics))
        assert copy.close() == ""
        mirrored = Mirrored(tmp_path, [])
        assert mirrored.child("a").data.tags["mlflow.note.content"].startswith("it is ")
        return [mirrored.child(name).data.tags["parvibench.verdict"] for name in names]

    assert rank(RUN, 0.5, "worse", "unknown") == ["worse", "unknown"]
    assert rank(RUN, 0.5, "worse", "unknown") == ["worse", "unknown"]
    later = RUN | {"id": "20260108-000000-000-tiny", "started": "2026-01-08T00:00:00+00:00"}
    assert rank(later, 0.75, "good", "good") == ["worse", "unknown"]
    assert rank(RUN, 1.0, "good", "worse") == ["good", "worse"]
    found = Mirrored(tmp_path, [])
    solved = [[v for _, v in found.history(r, "solved")] for r in (found.parent, *found.tagged("run_id", later["id"]))]
    assert solved == [[0.5, 1.0], [0.75]]


def test_the_ui_opens_the_runs_of_the_suite(mirrored):
    page = database.experiment_page(mirrored.uri, mirrored.root, "tiny")
    assert page == f"#/experiments/{mirrored.experiment.experiment_id}/runs?workflowType=machine_learning"
    assert database.experiment_page(mirrored.uri, mirrored.root, "another") == ""


def test_sync_writes_the_note(tmp_path):
    from mlflow import MlflowClient

    store = make_store(tmp_path / "store", RUN, (make_record("good"), make_curve()))
    assert sync(store, rank=lambda results: Ranking(f"{len(results.cells)} cell", {}, {})) == ""
    client = MlflowClient(tracking_uri=f"sqlite:///{store.root}/mlflow.db")
    experiment = client.get_experiment_by_name("parvibench/tiny")
    assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"
    notes = [r.data.tags.get("mlflow.note.content") for r in client.search_runs([experiment.experiment_id])]
    assert sorted(filter(None, notes)) == ["1 cell", "svgd (good) on banana: ok."]
