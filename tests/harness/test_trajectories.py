"""Trajectories of some particles: stored at every checkpoint, the same after an interruption, merged, drawn, refused."""

from pathlib import Path

import numpy as np
import pytest
from test_resuming import make_cell, run_in_two

import parvibench as pb
from parvibench.core.errors import InputError
from parvibench.harness.run.loop import run_chunk
from parvibench.harness.store.merging import merge
from parvibench.harness.store.results import StoredRun
from parvibench.harness.store.store import Store
from parvibench.harness.suite.suite import Suite
from parvibench.reporting.facts.run import Facts
from parvibench.reporting.figures.density_scatter import trajectories
from parvibench.reporting.figures.figure import TaskCells, label_styles

ENTRIES = [{"name": "svgd", "trajectories": 5}, {"name": "sgld", "trajectories": 20}, {"name": "ula"}]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> StoredRun:
    suite = Suite.model_validate({
        "name": "followed", "tasks": ["banana"], "algorithms": ENTRIES, "replicates": 2, "particles": 20,
        "budget": {"iterations": 40},
    })  # fmt: skip
    return pb.run(suite, workers=0, tracking=False, out=tmp_path_factory.mktemp("store"))


def test_they_lead_from_the_start_to_the_samples(results: StoredRun) -> None:
    svgd, sgld, ula = results.cells
    for cell, k in ((svgd, 5), (sgld, 20)):
        found = results.trajectories(cell)
        assert found is not None
        assert found.positions.shape == (len(found.iterations), k, 2)
        assert (found.iterations[0], found.iterations[-1]) == (0, 40)
        assert set(found.iterations[1:]) == set(results.curve(cell)["iteration"])
        rows = np.linspace(0, 19, k).round().astype(int)
        assert np.array_equal(found.positions[-1], results.samples(cell)[0][rows])
        assert (np.abs(np.diff(found.positions, axis=0)).max((1, 2)) > 0).all()
    assert results.trajectories(ula) is None
    starts = [results.trajectories(c).positions[0] for c in (svgd, sgld)]
    assert np.array_equal(starts[0], starts[1][np.linspace(0, 19, 5).round().astype(int)])


def test_keeping_them_changes_no_sample(results: StoredRun) -> None:
    plain = make_cell(tasks=["banana"], algorithms=["sgld"], budget={"iterations": 40}, metrics=["sliced_w2"])
    kept = make_cell(tasks=["banana"], algorithms=[ENTRIES[1]], budget={"iterations": 40}, metrics=["sliced_w2"])
    assert plain.key != kept.key
    assert plain.key == plain.varied(trajectories=0).key
    a, b = (run_chunk(c, c.chunks[0]) for c in (plain, kept))
    assert np.array_equal(a.samples, b.samples)
    assert a.score_evaluations == b.score_evaluations


@pytest.mark.parametrize("name", ["sgld", "svgd"])
def test_an_interruption_loses_none(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = make_cell(algorithms=[{"name": name, "trajectories": 4}], budget={"iterations": 24}, samples=10)
    whole = run_chunk(cell, cell.chunks[0])
    resumed, _ = run_in_two(cell, tmp_path / "s.pt", monkeypatch, stop=17)
    assert resumed.visited == whole.visited
    assert np.array_equal(resumed.trajectories.positions, whole.trajectories.positions)


def test_merging_takes_them_along(results: StoredRun, tmp_path: Path) -> None:
    merged, _ = merge([results.store], Store(tmp_path))
    found = StoredRun.load(Store(tmp_path), merged.id)
    for cell in results.cells[:2]:
        assert np.array_equal(found.trajectories(cell).positions, results.trajectories(cell).positions)


def test_the_page_draws_them(results: StoredRun) -> None:
    styles = label_styles(Facts.of(results))
    (drawing,) = trajectories(TaskCells(Facts.of(results), "banana", styles, ["sgld", "svgd", "ula"]))
    assert [p.caption for p in drawing.pictures] == ["sgld", "svgd"]
    own = drawing.data[drawing.data["label"] == "svgd"]
    last = own[own["iteration"] == 40][["x1", "x2"]].to_numpy()
    assert np.allclose(last, results.trajectories(results.cells[0]).positions[-1])
    assert own["particle"].nunique() == 5
    assert trajectories(TaskCells(Facts.of(results), "banana", styles, ["ula"])) == []


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({"name": "sivi", "trajectories": 5}, "trajectories of sivi: a method of kind generator moves no particles"),
        ({"name": "exact", "trajectories": 5}, "trajectories of exact: a method of kind anchor"),
        ({"name": "svgd", "trajectories": 21}, "trajectories of svgd: 21 are more than its 20 particles"),
    ],
)
def test_what_has_none_is_refused(entry: dict[str, object], text: str) -> None:
    with pytest.raises(InputError, match=text):
        make_cell(algorithms=[entry])
