"""The leaderboard of a run is in MLflow: its text and numbers at the run, its rows at the cells."""

import math

from mirrors import RUN, Mirrored, make_curve, make_record, make_store, write_folder

from parvibench.harness.store.store import RunRecord
from parvibench.tracking.content import Ranking, Shown
from parvibench.tracking.mirror import MirrorObserver, sync


def test_the_leaderboard_is_the_note_of_the_run(mirrored):
    run = RUN | {"id": "20260106-000000-000-tiny", "profile": "fast"}
    copy = MirrorObserver(mirrored.root)
    copy.started(RunRecord(**run))
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
        copy = MirrorObserver(tmp_path)
        copy.started(RunRecord(**run))
        for record, _ in cells:
            copy.finished(None, record, write_folder(tmp_path, record), cached=False)
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


def test_sync_writes_the_note(tmp_path):
    from mlflow import MlflowClient

    store = make_store(tmp_path / "store", RUN, (make_record("good"), make_curve()))
    assert sync(store, rank=lambda results: Ranking(f"{len(results.cells)} cell", {}, {})) == ""
    client = MlflowClient(tracking_uri=f"sqlite:///{store.root}/mlflow.db")
    experiment = client.get_experiment_by_name("parvibench/tiny")
    assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"
    notes = [r.data.tags.get("mlflow.note.content") for r in client.search_runs([experiment.experiment_id])]
    assert sorted(filter(None, notes)) == ["1 cell", "svgd (good) on banana: ok."]
