"""Permutations that others saved: read from the pickle's opcodes, never unpickled, and refused where they are none."""

import io
import os
import pickle
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from parvibench.core.errors import InputError
from parvibench.data import archives, fetch
from parvibench.data.archives import load_permutation

NAME = "sifg-boston-permutation"
ROWS = np.random.RandomState(3).permutation(30)
Place = Callable[[bytes], Path]


def pickled(values: object, protocol: int = 2) -> bytes:
    return pickle.dumps(values, protocol=protocol)


def archive(*members: bytes, name: str = "data.pkl", compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as file:
        for i, member in enumerate(members):
            file.writestr(f"part{i}/{name}", member)
        file.writestr("archive/version", b"3\n")
    return buffer.getvalue()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """Puts a file in the registered one's place."""
    load_permutation.cache_clear()
    entry = replace(fetch.registry()[NAME], rows=len(ROWS))

    def put(content: bytes) -> Path:
        path = tmp_path / "permutation.pt"
        path.write_bytes(content)
        monkeypatch.setattr(archives, "fetch", lambda _: path)
        monkeypatch.setattr(archives, "registry", lambda: {NAME: entry})
        return path

    yield put
    load_permutation.cache_clear()


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_the_numbers_are_those_that_were_saved(place: Place, protocol: int) -> None:
    place(archive(pickled(ROWS, protocol)))
    found = load_permutation(NAME)
    np.testing.assert_array_equal(found, ROWS)
    assert found.dtype == np.int64
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 1


class Planted:
    """Unpickling it would run a command."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.path}",)


def test_nothing_is_unpickled(place: Place, tmp_path: Path) -> None:
    place(archive(pickled((Planted(tmp_path / "ran"), ROWS))))
    np.testing.assert_array_equal(load_permutation(NAME), ROWS)
    assert not (tmp_path / "ran").exists()


SWAPPED = np.where(ROWS == 7, 8, ROWS)
TOO_MUCH = "unpacks to more than 65536 bytes"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK no archive", "no readable zip archive"),
        (archive(pickled(ROWS))[:-40], "no readable zip archive"),
        (archive(), "expected one file data.pkl in the archive, found 0"),
        (archive(pickled(ROWS), pickled(ROWS)), "found 2"),
        (archive(pickled(ROWS), name="other"), "found 0"),
        (archive(b"no pickle"), "no pickle of an array"),
        (archive(pickled(ROWS)[:60]), "no pickle of an array"),
        (archive(pickled("\u20ac" * 240)), "no pickle of an array"),
        (archive(pickled(None)), "a permutation of 0 to 29"),
        (archive(pickled(ROWS[:-1])), "a permutation of 0 to 29"),
        (archive(pickled(SWAPPED)), "a permutation of 0 to 29"),
        (archive(pickled(ROWS + 1)), "a permutation of 0 to 29"),
        (archive(pickled(ROWS.astype(np.float64))), "a permutation of 0 to 29"),
        (archive(pickled(np.arange(20_000))), TOO_MUCH),
        (archive(bytes(2**24), compression=zipfile.ZIP_DEFLATED), TOO_MUCH),
    ],
)
def test_other_contents_are_refused(place: Place, content: bytes, message: str) -> None:
    """Among them one row twice, an array of another length or type, text, and a small file that unpacks to 16 MiB."""
    path = place(content)
    with pytest.raises(InputError, match=message) as caught:
        load_permutation(NAME)
    assert str(path) in str(caught.value)


@pytest.mark.data
def test_the_authors_permutation_equals_its_text() -> None:
    """Where the folder with the data has the text beside it: that is on no server."""
    text = Path(os.environ.get(fetch.FOLDER_VARIABLE, "")) / "sifg" / "boston_permutation.txt"
    if not text.is_file():
        pytest.skip("no boston_permutation.txt in the data folder")
    load_permutation.cache_clear()
    np.testing.assert_array_equal(load_permutation(NAME), np.loadtxt(text, dtype=np.int64))
