"""Data of Stan programs from zip archives that may hold anything."""

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from parvibench.core.errors import InputError
from parvibench.data import archives


def load(content: bytes, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, np.ndarray]:
    """What the loader makes of a JSON file in an archive."""
    path = folder / "data.zip"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data.json", content)
    path.write_bytes(buffer.getvalue())
    monkeypatch.setattr(archives, "fetch", lambda name: path)
    archives.load_stan_data.cache_clear()
    return archives.load_stan_data("any")


def test_numbers_and_arrays_keep_their_shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = load(b'{"N": 2, "x": [[1, 2.5], [3, 4]], "y": []}', tmp_path, monkeypatch)
    assert {k: v.shape for k, v in found.items()} == {"N": (), "x": (2, 2), "y": (0,)}
    assert found["x"].dtype == np.float64
    with pytest.raises(ValueError, match="read-only"):
        found["x"][0, 0] = 5


@pytest.mark.parametrize(
    "content",
    [b"[1, 2]", b'{"x": [[1], [2, 3]]}', b'{"x": "one"}', b'{"x": {"y": 1}}', b"not JSON", b"\xff\xfe", b"[" * 100_000],
)
def test_what_holds_no_numbers_is_refused(content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="expected a JSON object of numbers"):
        load(content, tmp_path, monkeypatch)


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="unpacks to more"):
        load(b" " * (archives.STAN_BYTES + 1), tmp_path, monkeypatch)
