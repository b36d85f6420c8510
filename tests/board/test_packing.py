"""An archive holds a run, is the same for the same run, and what others put into one stays within its limits."""

import stat
import tempfile
import zipfile
from pathlib import Path

import pytest
from pandas.testing import assert_frame_equal

from parvibench.api import stores as api
from parvibench.board import packing as module
from parvibench.board.packing import opened
from parvibench.core.errors import InputError
from parvibench.harness.store.store import Store


def test_run_comes_back_whole_and_without_samples(folder: Path) -> None:
    theirs = Store("theirs")
    with opened(Path("theirs.zip")) as found:
        assert found.manifest.name == "Theirs <b>"
        assert (found.plugins / "mine.py").read_bytes() == Path("mine.py").read_bytes()
        for cell in theirs.run().cells:
            before, after = theirs.find(cell.key), found.store.find(cell.key)
            assert before is not None
            assert after is not None
            assert before.values == after.values
            assert_frame_equal(found.store.curve(cell.key), theirs.curve(cell.key), rtol=1e-6, atol=0)
            assert found.store.samples(cell.key) is None


def test_same_run_gives_the_same_bytes(folder: Path) -> None:
    again, manifest = api.submit("theirs", "again.zip", name="Theirs <b>", contact="them@example.org")
    assert again.read_bytes() == Path("theirs.zip").read_bytes()
    with opened(again) as found:
        assert found.manifest.id == manifest.id


def test_changed_plugin_is_refused(folder: Path) -> None:
    Path("mine.py").write_text(Path("mine.py").read_text() + "\n# changed\n")
    with pytest.raises(InputError, match="not the one that was run"):
        api.submit("theirs", name="x")


def rewritten(source: Path, change: str) -> Path:
    """The archive with one thing wrong."""
    target = source.with_name(f"{change}.zip")
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for entry in old.infolist():
            content = old.read(entry)
            if change == "content" and entry.filename.endswith("cell.json"):
                content = content.replace(b"banana", b"bananb")
            if change == "missing" and entry.filename.endswith("curve.parquet"):
                continue
            if change == "manifest" and entry.filename == "manifest.json":
                content = b'{"format": 1, "surplus": true}'
            new.writestr(entry.filename, content)
            if change == "twice":
                with pytest.warns(UserWarning, match="Duplicate"):
                    new.writestr(entry.filename, content)
        extra = zipfile.ZipInfo(
            {"up": "../evil.py", "absolute": "/etc/evil", "surplus": "plugins/other.py"}.get(change, "plugins/link.py")
        )
        if change == "link":
            extra.external_attr = (stat.S_IFLNK | 0o777) << 16
        if change in ("up", "absolute", "surplus", "link"):
            new.writestr(extra, "/etc/passwd")
    return target


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("content", "not the file that the manifest lists"), ("missing", "not the file that the manifest lists"),
        ("surplus", "not the file that the manifest lists"), ("manifest", "surplus"), ("up", "no file of an archive"),
        ("absolute", "no file of an archive"), ("link", "no plain file"), ("twice", "occurs twice"),
    ],
)  # fmt: skip
def test_altered_archive_is_refused_and_writes_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, reason: str
) -> None:
    into = tmp_path / "into"
    into.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(into))  # where archives are extracted
    with pytest.raises(InputError, match=reason), opened(rewritten(Path("theirs.zip"), change)):
        pass
    assert not list(into.iterdir())


def test_bomb_and_garbage_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_UNPACKED", 1_000_000)
    bomb, noise = tmp_path / "bomb.zip", tmp_path / "noise.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("plugins/zeros.py", b"\0" * 5_000_000)
    noise.write_bytes(b"PK\x03\x04 nothing")
    for file, reason in ((bomb, "unpacked"), (noise, "no archive"), (tmp_path / "none.zip", "cannot be read")):
        with pytest.raises(InputError, match=reason), opened(file):
            pass
