"""What tests of several folders share."""

import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import Answer, Run

from parvibench import cli
from parvibench.data import archives, fetch
from parvibench.tracking import database

# One thread each, as in the harness's workers: the tests run at the same time, and their arrays are small.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
torch.set_num_threads(1)
#: As the package has it.
CONNECT = database.connect


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Archives carry the time at which they were made, and workers must collect the same names."""
    return argname if isinstance(val, bytes) else None


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MLflow database without runs."""
    file = tmp_path_factory.mktemp("empty") / "mlflow.db"
    CONNECT(f"sqlite:///{file}")
    return file


@pytest.fixture(autouse=True, scope="session")
def quick_databases(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Any]]:
    """Making a database takes MLflow seconds: one is made, the others are copies of it. The package's own way to connect."""

    def connect(uri: str) -> Any:
        file = database.file_of(uri)
        if file is not None and not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(request.getfixturevalue("empty_database"), file)
        return CONNECT(uri)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "connect", connect)
        yield CONNECT


@pytest.fixture(scope="session")
def tracking_uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One database for all tests of the command line: making one takes MLflow seconds."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, tracking_uri: str) -> Run:
    """Runs `parvibench ARGS` in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", tracking_uri)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str) -> Answer:
        monkeypatch.setattr(sys, "argv", ["parvibench", *arguments])
        with pytest.raises(SystemExit) as left:
            cli.main()
        captured = capsys.readouterr()
        return Answer(int(left.value.code or 0), captured.out, captured.err)

    return run


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
        for module in (archives, fetch):
            monkeypatch.setattr(module, "registry", lambda: {entry.name: entry})
        path = tmp_path / entry.file
        path.parent.mkdir(exist_ok=True)
        if content is not None:
            path.write_bytes(content)
        return path

    archives.load_channels.cache_clear()
    yield place
    archives.load_channels.cache_clear()
