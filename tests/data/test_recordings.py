"""Recordings in zip archives: read as registered, refused otherwise, never unpacked without end."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from parvibench.core.errors import DataMissingError, InputError
from parvibench.data import archives, fetch
from parvibench.data.archives import load_channels

VALUES = np.random.RandomState(0).standard_normal((6, 40))
Place = Callable[[bytes | None], Path]


def text(values: np.ndarray = VALUES) -> bytes:
    buffer = io.BytesIO()
    np.savetxt(buffer, values)
    return buffer.getvalue()


def archive(*members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for i, member in enumerate(members):
            file.writestr(f"part{i}.txt", member)
    return buffer.getvalue()


@pytest.fixture
def meg(recording: Callable[..., Path]) -> Place:
    """Registers a file of the recording's form, or of another, or none, under the recording's name."""
    return lambda content: recording(content, channels=6, length=40)


def test_the_first_channels_become_columns(meg: Place) -> None:
    meg(archive(text()))
    signals = load_channels("meg-art", 5)
    np.testing.assert_allclose(signals, VALUES[:5].T)
    with pytest.raises(ValueError, match="read-only"):
        signals[0, 0] = 1.0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK no archive", "no readable zip archive"),
        (archive(), "found 0"),
        (archive(text(), text()), "found 2"),
        (archive(text(VALUES[:, :9])), "6 rows of 9"),
        (archive(text(VALUES[:5])), "5 rows of 40"),
        (archive(b"1 2\n3\n" + text()), "expected 6 rows of 40 numbers"),
        (archive("µ".encode()), "no text file"),
        (archive(text())[:-30], "no readable zip archive"),
    ],
)
def test_other_files_are_refused_by_name(meg: Place, content: bytes, message: str) -> None:
    path = meg(content)
    with pytest.raises(InputError, match=message) as caught:
        load_channels("meg-art", 5)
    assert str(path) in str(caught.value)


def test_an_archive_that_unpacks_without_end_is_refused(meg: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte of zeros from a kilobyte, against a limit of 1000 bytes."""
    meg(archive(bytes(2**20)))
    monkeypatch.setattr(archives, "RECORDING_BYTES", 1000)
    with pytest.raises(InputError, match="more than 1000 bytes"):
        load_channels("meg-art", 5)


def test_a_missing_or_tampered_file_says_what_to_do(meg: Place) -> None:
    path = meg(None)
    with pytest.raises(DataMissingError, match="parvibench data fetch meg-art"):
        load_channels("meg-art", 5)
    entry = fetch.registry()["meg-art"]
    path.write_bytes(b"something else")
    with pytest.raises(InputError, match="parvibench data fetch meg-art") as caught:
        load_channels("meg-art", 5)
    for part in (str(path), entry.hash, entry.hash_of(b"something else")):
        assert part in str(caught.value)
