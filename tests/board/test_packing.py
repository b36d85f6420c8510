"""An archive holds a run, is the same for the same run, and is read within limits of size, number and memory."""

import os
import random
import zipfile
from pathlib import Path

import numpy as np
import pytest
from forged import LARGE, RAW, flipped, packed, unpacked
from pandas.testing import assert_frame_equal

from parvibench.api import stores as api
from parvibench.board import packing as module
from parvibench.board.packing import read
from parvibench.core.errors import InputError
from parvibench.harness.store.store import Store


def test_run_comes_back_without_samples(folder: Path) -> None:
    theirs, found = Store("theirs"), read(Path("theirs.zip"))
    assert found.manifest.name == "Theirs <b>"
    assert found.sources == {"plugins/mine.py": Path("mine.py").read_bytes()}
    for cell in theirs.run().cells:
        before, after = theirs.find(cell.key), found.records[cell.key]
        assert before is not None
        assert before.values == after.values
        drawn = theirs.curve(cell.key).query("metric in ('sliced_w2', 'kl_knn', 'sequential_steps')")
        assert_frame_equal(found.curves[cell.key], drawn.reset_index(drop=True), rtol=1e-6, atol=0)
    assert not [name for name in found.files if name.endswith(".npz")]


def test_same_run_gives_the_same_bytes(folder: Path) -> None:
    again, manifest = api.submit("theirs", "again.zip", name="Theirs <b>", contact="them@example.org", warn=print)
    assert again.read_bytes() == Path("theirs.zip").read_bytes()
    assert read(again).manifest.id == manifest.id


def test_changed_plugin_is_refused(folder: Path) -> None:
    Path("mine.py").write_text(Path("mine.py").read_text() + "\n# changed\n")
    with pytest.raises(InputError, match="not the one that was run"):
        api.submit("theirs", name="x")


def test_a_pipe_and_a_missing_file_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.zip")
    for name, reason in (("pipe.zip", "not a plain file"), ("none.zip", "cannot be read")):
        with pytest.raises(InputError, match=reason):
            read(tmp_path / name)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"store/cells/x": b""}, "no file of an archive"), ({"plugins/mine.py": b"#"}, "not the file that the manifest lists"),
        ({"plugins/other.py": b""}, "not the file that the manifest lists"),
        ({"manifest.json": b'{"format": 1}'}, "Field required"),
    ],
)  # fmt: skip
def test_altered_files_are_named(folder: Path, change: dict[str, bytes], reason: str) -> None:
    Path("altered.zip").write_bytes(packed(unpacked(Path("theirs.zip").read_bytes()) | change))
    with pytest.raises(InputError, match=reason):
        read(Path("altered.zip"))


def test_files_below_a_limit_that_exceed_it_together_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = unpacked(Path("theirs.zip").read_bytes())
    store = {k: v for k, v in files.items() if k.startswith("store/")}
    Path("theirs.zip").write_bytes(packed(dict(files.items() - store.items()) | {"store.zip": packed(store)}))
    assert read(Path("theirs.zip"))
    monkeypatch.setattr(module, "MOST_BYTES", sum(map(len, files.values())) - 1)
    assert max(map(len, files.values())) < module.MOST_BYTES / 2
    with pytest.raises(InputError, match="all files more than"):
        read(Path("theirs.zip"))


def test_rows_of_curves_are_counted_together(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [len(curve) for curve in read(Path("theirs.zip")).curves.values()]
    monkeypatch.setattr(module, "MOST_ROWS", sum(rows) - 1)
    assert max(rows) < sum(rows) - 1
    with pytest.raises(InputError, match="too many"):
        read(Path("theirs.zip"))


def test_number_of_files_is_limited_before_they_are_listed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_FILES", 4)
    with pytest.raises(InputError, match="more than 4 files"):
        read(Path("theirs.zip"))
    Path("theirs.zip").write_bytes(packed(unpacked(Path("theirs.zip").read_bytes())))
    monkeypatch.setattr(zipfile.ZipFile, "__init__", lambda *args: pytest.fail("the directory was read"))
    with pytest.raises(InputError, match="more than 4 files"):
        read(Path("theirs.zip"))


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no limit of memory but on Linux")
def test_memory_is_limited_and_the_limit_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_MEMORY", 200_000_000)
    with pytest.raises(MemoryError), module._limited_memory():
        np.ones(50_000_000)
    assert np.ones(50_000_000).sum() == 50_000_000


@pytest.mark.parametrize("kind", [pytest.param(k, marks=pytest.mark.ci) if k in LARGE else k for k in RAW])
def test_malformed_zip_files_are_refused(folder: Path, kind: str) -> None:
    Path("forged.zip").write_bytes(RAW[kind](unpacked(Path("theirs.zip").read_bytes())))
    with pytest.raises(InputError, match=r"^forged\.zip: no archive of results \(.+\)$"):
        read(Path("forged.zip"))


def test_flipped_bits_give_one_kind_of_error_or_nothing(folder: Path) -> None:
    """Bits that carry no content, such as times, may change; 40 of the 300 of the study."""
    honest, rng, refused = Path("theirs.zip").read_bytes(), random.Random(7), 0
    before = read(Path("theirs.zip"))
    for _ in range(40):
        Path("flipped.zip").write_bytes(flipped(honest, rng))
        try:
            after = read(Path("flipped.zip"))
        except InputError:
            refused += 1
        else:
            assert after.files == before.files
    assert refused > 30
