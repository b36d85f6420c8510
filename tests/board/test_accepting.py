"""A submission enters the board with its marks: `verified` rows are those of reruns here, and a forged archive changes nothing."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from forged import LARGE, SEALED, Forger, forged, packed, unpacked

from parvibench.api import stores as api
from parvibench.api.report import load, write
from parvibench.api.run import run
from parvibench.board import packing
from parvibench.core.errors import InputError, RefusedError
from parvibench.harness.store.store import Store

BOARD = Path("reports/quick")


def accept(archive: str = "theirs.zip", **options: Any) -> dict[str, str]:
    """Label -> mark of the accepted rows."""
    manifest = api.accept(archive, workers=0, out="reruns", **options).manifest
    (path,) = [p for p in BOARD.glob("submissions/*.zip") if packing.read(p).manifest == manifest]
    return {c.label: manifest.marks[c.key] for c in packing.read(path).run.cells}


def board() -> pd.DataFrame:
    """The published rows, by label."""
    return pd.read_parquet(BOARD / "results.parquet").drop_duplicates("label").set_index("label")


def honest() -> dict[str, bytes]:
    return unpacked(Path("theirs.zip").read_bytes())


def test_rows_enter_the_page_with_their_marks(folder: Path) -> None:
    assert accept() == {"mala": "verified", "mine": "unverified"}
    page = (BOARD / "index.html").read_text()
    assert "mine (Theirs &lt;b&gt;)" in page
    assert "(Theirs <b>)" not in page
    assert ">verified<" in page
    (path,) = BOARD.glob("submissions/*")
    archive = packing.read(path)
    assert archive.manifest.contact == "them@example.org"
    assert archive.sources == {"plugins/mine.py": Path("mine.py").read_bytes()}
    assert api.write_board(BOARD).read_text() == page


def test_a_row_bears_its_own_values(folder: Path) -> None:
    accept()
    rows = board()
    for cell in Store("theirs").run().cells:
        values = Store("theirs").find(cell.key).values["sliced_w2"]  # type: ignore[union-attr]
        assert rows.loc[f"{cell.label} (Theirs <b>)", "median"] == pytest.approx(pd.Series(values).median(), rel=1e-6)


@pytest.mark.parametrize("kind", [pytest.param(k, marks=pytest.mark.ci) if k in LARGE else k for k in SEALED])
@pytest.mark.parametrize("elsewhere", [False, pytest.param(True, marks=pytest.mark.ci)])
def test_a_forged_archive_is_refused_or_shows_what_was_computed_here(folder: Path, kind: str, elsewhere: bool) -> None:
    Path("forged.zip").write_bytes(forged(kind, honest(), other_hardware=elsewhere))
    before = sorted(folder.rglob("*"))
    truth = {c.label: Store("theirs").find(c.key) for c in Store("theirs").run().cells}
    page = (BOARD / "index.html").read_bytes()
    said, marks = "", {}
    try:
        marks = accept("forged.zip")
    except (InputError, RefusedError) as error:
        said = str(error)
    if not marks:
        assert said.startswith("forged.zip: ") or "no board of suite" in said
        assert [p for p in sorted(folder.rglob("*")) if "reruns" not in p.parts] == before
        assert (BOARD / "index.html").read_bytes() == page
        return
    (path,) = BOARD.glob("submissions/*.zip")
    found = packing.read(path)
    for cell in found.run.cells:
        record = found.records[cell.key]
        if marks[cell.label] == "verified":
            assert record.values["sliced_w2"] == truth["mala"].values["sliced_w2"]  # type: ignore[union-attr]
        assert ([f for f in record.flags if "machine's speed" not in f], record.traceback) == (
            [],
            "",
        )  # of our own rerun
    assert "<script>alert" not in (BOARD / "index.html").read_text()


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_forged_row_of_a_built_in_method_is_that_of_the_rerun(folder: Path, elsewhere: bool) -> None:
    Path("forged.zip").write_bytes(forged("a built-in's values times 0.1", honest(), other_hardware=elsewhere))
    assert accept("forged.zip")["mala"] == "verified"
    (values,) = (Store("theirs").find(c.key).values for c in Store("theirs").run().cells if c.label == "mala")  # type: ignore[union-attr]
    median = pd.Series(values["sliced_w2"]).median()
    assert board().loc["mala (Theirs <b>)", "median"] == pytest.approx(median, rel=1e-6)


def test_a_submission_that_holds_a_row_of_the_board_does_not_rename_it(folder: Path) -> None:
    run("quick", tasks=["banana"], algorithms=["ula", "mala"], workers=0, tracking=False, out="both")
    api.submit("both", "both.zip", name="Both", warn=print)
    accept("both.zip")
    assert {"ula", "mala (Both)"} <= set(board().index)
    assert "ula (Both)" not in board().index


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"replicates": 2}, "replicates 2; the board has 6"), ({"seed": 3}, "seed 3; the board has 0"),
     ({"budget": {"iterations": 50}}, "budget iterations 50"), ({"start": "warm"}, "start warm; the board has task"),
     pytest.param({"tasks": ["banana", "funnel-10d"]}, "no task of this board", marks=pytest.mark.ci)],
)  # fmt: skip
def test_other_terms_are_refused_and_submit_warns(
    folder: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], reason: str
) -> None:
    tasks = options.pop("tasks", ["banana"])
    given = {"mala": {"step_size": 0.05}}
    run("quick", tasks=tasks, algorithms=["mala"], settings=given, workers=0, tracking=False, out="other", **options)
    monkeypatch.setattr(api, "files", lambda package: folder / "reports")
    said: list[str] = []
    api.submit("other", "other.zip", name="other", warn=said.append)
    assert [reason in line and line.startswith("accept will refuse this: ") for line in said] == [True]
    with pytest.raises(InputError, match=reason):
        accept("other.zip")


def test_no_warning_of_what_is_accepted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "files", lambda package: folder / "reports")
    api.submit("theirs", name="again", warn=lambda line: pytest.fail(line))


def test_a_name_on_the_board_is_refused(folder: Path) -> None:
    accept()
    again = Forger(honest())
    again.manifest["note"] = "a second one"
    Path("again.zip").write_bytes(packed(again.sealed()))
    with pytest.raises(InputError, match="on the board already: choose another name"):
        accept("again.zip")


@pytest.mark.parametrize(
    "writes",
    [
        pytest.param(0, marks=pytest.mark.ci),
        1,
        pytest.param(2, marks=pytest.mark.ci),
        pytest.param(4, marks=pytest.mark.ci),
    ],
)
def test_an_interrupted_acceptance_is_completed_by_a_repeat(
    folder: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """Stopped before and after the archive, and between two files of the page."""
    write, left = api.write_atomically, [writes]

    def stopping(path: Path, content: bytes) -> None:
        if BOARD.resolve() in path.resolve().parents:
            if not left[0]:
                (BOARD / ".new-left-by-a-kill").touch()
                raise KeyboardInterrupt
            left[0] -= 1
        write(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(api, "write_atomically", stopping)
        with pytest.raises(KeyboardInterrupt):
            accept()
    assert accept() == {"mala": "verified", "mine": "unverified"}
    assert {"mala (Theirs <b>)", "mine (Theirs <b>)"} <= set(board().index)
    assert not list(BOARD.rglob(".new-*"))
    page = (BOARD / "index.html").read_bytes()
    assert api.write_board(BOARD).read_bytes() == page


def test_a_page_with_fewer_pictures_is_not_published(folder: Path) -> None:
    """The archive of a board that was published before archives held points shows no samples."""
    write(load("own"), BOARD, compact=True)
    packing.pack(Store("own"), BOARD / "results.zip")
    page = (BOARD / "index.html").read_bytes()
    with pytest.raises(InputError, match=r"results\.zip lacks the samples"):
        accept()
    assert not list(BOARD.rglob("submissions/*"))
    assert (BOARD / "index.html").read_bytes() == page


def test_results_of_a_run_in_a_container_replace_those_of_plug_ins_only(folder: Path) -> None:
    other = Forger(honest())
    other.scale("mine", 3.0)
    other.scale("mala", 3.0)
    Path("container.zip").write_bytes(packed(other.sealed()))
    assert accept(container="container.zip") == {"mala": "verified", "mine": "rerun"}
    rows, cells = board(), {c.label: Store("theirs").find(c.key) for c in Store("theirs").run().cells}
    for label, factor in (("mine", 3.0), ("mala", 1.0)):
        median = pd.Series(cells[label].values["sliced_w2"]).median()  # type: ignore[union-attr]
        assert rows.loc[f"{label} (Theirs <b>)", "median"] == pytest.approx(factor * median, rel=1e-6)


def test_board_without_results_and_unknown_suite_are_named(folder: Path) -> None:
    (BOARD / "results.zip").unlink()
    with pytest.raises(InputError, match=r"no results\.zip"):
        accept()
    (BOARD / "results.parquet").unlink()
    with pytest.raises(InputError, match="no board of suite 'quick'"):
        accept()


def test_commands_print_the_marks_and_write_the_page(folder: Path, call: Callable[..., Any]) -> None:
    answer = call("accept", str(folder / "theirs.zip"), "--reports", str(folder / "reports"), "--workers", "0")
    assert answer.code == 0, answer.err
    assert "Theirs <b>, 1 verified, 1 unverified" in answer.out
    page = folder / BOARD / "index.html"
    page.unlink()
    assert call("report", "--board", str(folder / BOARD)).code == 0
    assert page.is_file()
    (folder / "bad.zip").write_text("nothing")
    answer = call("accept", str(folder / "bad.zip"))
    assert answer.code == 2
    assert "no archive of results" in answer.err


@pytest.mark.ci
def test_a_board_with_options_of_its_own_has_its_own_terms(folder: Path) -> None:
    """The record of the board's own run counts, not the suite's file."""
    own = run("quick", tasks=["banana"], algorithms=["ula"], replicates=2, workers=0, tracking=False, out="small")
    write(own, BOARD, compact=True)
    (BOARD / "index.html").unlink()
    with pytest.raises(InputError, match="replicates 6; the board has 2"):
        accept()
    run("quick", tasks=["banana"], algorithms=["mala"], replicates=2, workers=0, tracking=False, out="two")
    api.submit("two", "two.zip", name="two", warn=print)
    assert accept("two.zip") == {"mala": "verified"}
    assert json.loads((BOARD / "summary.json").read_text())["suite"] == "quick"
