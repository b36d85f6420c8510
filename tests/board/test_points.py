"""A board's page that is written from its archive has the pictures of the page that was written from the store."""

import io
import re
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pandas as pd
import pytest
from made_stores import make_curve, make_record, with_values, write_store

from parvibench.api.report import write
from parvibench.api.stores import write_board
from parvibench.board import packing
from parvibench.core.errors import InputError
from parvibench.harness.store.cell_files import Trajectories
from parvibench.harness.store.store import Store
from parvibench.reporting.page.report import drawings
from parvibench.reporting.presented import Results

#: Task -> dimension: in the plane, and a path.
TASKS = {"banana": 2, "diffusion-50": 50}
METHODS = {"svgd": "particles", "ula": "chains"}


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A compact report; its store is of the same name."""
    root = tmp_path_factory.mktemp("published")
    generator, cells = np.random.default_rng(3), []
    for task, dim in TASKS.items():
        for method, kind in METHODS.items():
            curve = make_curve(generator, ["sliced_w2"], 1 + generator.random())
            record = make_record(task + method, task, method, kind=kind, particles=1 if method == "ula" else 100)
            cells.append((with_values(record, curve), curve, generator.normal(size=(7, 100, dim))))
    write_store(root / "store" / "board", cells)
    store = Store(root / "store" / "board")
    moved = generator.normal(size=(3, 5, 2)).astype(np.float32)
    record, curve, samples = cells[0]
    store.write_cell(record, curve, samples, Trajectories(np.array([0, 10, 20]), moved))
    store.write_run(store.run())
    write(Results.load(store), root / "board", compact=True)
    return root / "board"


def test_pages_are_equal_to_the_last_byte(board: Path) -> None:
    page = (board / "index.html").read_bytes()
    found = {m.decode() for m in re.findall(rb'id="figure-(samples|trajectories|corner)', page)}
    assert found == {"samples", "trajectories", "corner"}
    (board / "index.html").unlink()
    assert write_board(board).read_bytes() == page


def test_pictures_of_methods_without_points_say_so(board: Path) -> None:
    results = Results.load(Store(board.parent / "store" / "board"))
    name = "samples-banana"
    results.points[name] = pd.DataFrame({"x1": [0.0], "x2": [1.0], "label": ["svgd"]})
    drawing = next(d for d in drawings(results, name) if d.name == name)
    assert len(drawing.pictures) == 1
    assert "No points are stored of ula." in drawing.note


def test_points_do_not_make_the_archive_large(board: Path) -> None:
    """Of samples of 200 kB a cell remain some 3 kB."""
    (entry,) = (e for e in ZipFile(board / "results.zip").infolist() if e.filename == "points.parquet")
    assert entry.compress_size < 8_000 * len(TASKS) * len(METHODS)


def test_columns_of_unequal_length_are_refused(board: Path, tmp_path: Path) -> None:
    run = Store(board.parent / "store" / "board")
    table = pd.DataFrame({"x1": [0.0, 1.0], "x2": [1.0, 2.0], "label": ["a", "a"]})
    packing.pack(run, tmp_path / "right.zip", points={"samples-banana": table})
    assert packing.read(tmp_path / "right.zip").points["samples-banana"].equals(table.astype({"x1": "f4", "x2": "f4"}))
    whole = packing._packed_points
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "_packed_points", lambda points: packing.parquet(_without_last(whole(points))))
        packing.pack(run, tmp_path / "wrong.zip", points={"samples-banana": table})
    with pytest.raises(InputError, match="unequal length"):
        packing.read(tmp_path / "wrong.zip")


def _without_last(content: bytes) -> pd.DataFrame:
    return pd.read_parquet(io.BytesIO(content)).iloc[:-1]
