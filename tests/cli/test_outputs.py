"""Outputs are checked before work begins: every option that is a path, as the command line lists them, is an input or is checked."""

import re
from pathlib import Path

import numpy as np
import pytest
from command_line import Run
from output_options import FILES, FOLDERS, READ, REPORTS, path_options

import parvibench as pb
from parvibench.harness.store.files import output_place

SUITE = """name: mine
tasks: [multimodal]
algorithms: [ula]
particles: 5
budget: {iterations: 5}
tune: {step_size: [0.01, 0.1], points: 2, replicates: 2}
"""
TARGET = "import parvibench as pb\nwide = pb.task(lambda x: -x.square().sum(-1) / 2, dim=2, name='wide')\n"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    options = {"replicates": 2, "particles": 5, "budget": {"iterations": 5}, "workers": 0, "tracking": False}
    pb.run(tasks=["multimodal"], algorithms=["ula"], out=folder / "store", **options)  # type: ignore[arg-type]
    (folder / "suite.yaml").write_text(SUITE)
    (folder / "target.py").write_text(TARGET)
    np.save(folder / "draws.npy", np.zeros((500, 2)))
    return folder


def test_every_path_of_the_command_line_is_an_input_or_an_output_that_is_tried() -> None:
    assert set(path_options()) == {*FOLDERS, *FILES, *REPORTS, *READ}


@pytest.mark.parametrize("option", [*FOLDERS, *FILES, *REPORTS])
def test_an_output_below_a_file_is_refused_before_anything_is_done(
    option: str, made: Path, call: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By the sentence of the shared check, which no other place has."""
    monkeypatch.chdir(made)
    (tmp_path / "taken").touch()
    bad = str(tmp_path / "taken" / ("" if option in REPORTS else "x.png"))
    before = contents(made)
    words = {**FOLDERS, **FILES, **REPORTS}[option].split()
    answer = call(*(word.replace("{}", bad) for word in words))
    assert answer.code == 2
    assert re.search("taken(: not a| is no) folder", answer.err), answer.err
    assert contents(made) == before


def contents(folder: Path) -> list[Path]:
    """All but byte code, which a target's file leaves behind."""
    return sorted(path for path in folder.rglob("*") if "__pycache__" not in path.parts)


@pytest.mark.parametrize("folder", [False, True])
def test_places_for_an_output(folder: bool, tmp_path: Path) -> None:
    """New ones and links are taken, and nothing is left behind."""
    (tmp_path / "file").write_text("old")
    (tmp_path / "folder").mkdir()
    for name in ("file", "folder"):
        (tmp_path / f"link-{name}").symlink_to(name)
    (tmp_path / "dangling").symlink_to("new")
    before = sorted(tmp_path.rglob("*"))
    own, other = ("folder", "file") if folder else ("file", "folder")
    assert [output_place(tmp_path / n, folder=folder).name for n in ("new", own, f"link-{own}", "dangling")] == [
        "new", own, own, "new",
    ]  # fmt: skip
    for name in (other, f"link-{other}", "file/below", *(() if folder else ("missing/file",)), "n" * 300):
        with pytest.raises(ValueError, match=r"not a|no folder|not there|File name too long") as error:
            output_place(tmp_path / name, folder=folder)
        assert "\n" not in str(error.value)
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "file").read_text() == "old"
