"""What tests of several folders share."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from parvibench.data import fetch, recordings

# One thread each, as in the harness's workers: the tests run beside each other, and their arrays are small.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
torch.set_num_threads(1)


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """A function that puts a file, or none, where the MEG recording is looked for, and registers it as that."""
    registered = fetch.registry()["meg-art"]
    monkeypatch.setattr(fetch, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setenv(fetch.FOLDER_VARIABLE, str(tmp_path))

    def place(content: bytes | None, *, channels: int, length: int) -> Path:
        header = f"blob {len(content or b'')}\0".encode()
        blob = hashlib.sha1(header + (content or b"")).hexdigest()
        entry = replace(registered, url="http://127.0.0.1:9/nobody", rows=length, features=channels, git_blob=blob)
        for module in (fetch, recordings):
            monkeypatch.setattr(module, "registry", lambda: {entry.name: entry})
        path = tmp_path / entry.file
        path.parent.mkdir(exist_ok=True)
        if content is not None:
            path.write_bytes(content)
        return path

    recordings.load_channels.cache_clear()
    yield place
    recordings.load_channels.cache_clear()
