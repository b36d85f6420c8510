"""The server or database that holds a mirror: reached quietly, without telemetry, and without waiting long.

A SQLite file is there as a whole, or not at all: MLflow makes its tables one after the other, and can use no database
that lacks some. A new one is therefore made beside its place and renamed into it, one process at a time.
"""

import contextlib
import importlib
import logging
import os
import re
import sqlite3
import sys
import tempfile
import threading
import warnings
from pathlib import Path
from typing import Any
from urllib.parse import quote

import filelock

#: Held while MLflow is imported or opens a database. Its modules import each other in circles, and Alembic, which makes
#: and checks the tables, keeps its context in module globals: two threads at a time break both, on different files too.
STARTING = threading.RLock()
#: What SQLite and MLflow say of a file that no waiting, space or permission would make usable.
_BROKEN = re.compile(
    r"not a database|malformed|disk image|database schema|already exists|no such (table|column)|duplicate column|"
    r"locate revision"
)
_ASIDE = ".new-mlflow-"


def default_uri(root: Path) -> str:
    """``MLFLOW_TRACKING_URI``, else the SQLite file of the store at ``root``."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{root.resolve() / 'mlflow.db'}"


def configure() -> None:
    """Import MLflow, quiet, quick to give up and without telemetry; to be called before anything of it is used."""
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    os.environ["GIT_PYTHON_REFRESH"] = "quiet"
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    os.environ["MLFLOW_ALLOW_HTTP_REDIRECTS"] = "false"  # a server answers for itself
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"  # standard output is ours
    # MLflow's own models use it; nothing a user could change.
    warnings.filterwarnings("ignore", message="The ``noload`` loader", category=DeprecationWarning)
    for chatty in ("mlflow.store", "alembic"):
        logging.getLogger(chatty).setLevel(logging.CRITICAL)  # errors reach us as exceptions
    with STARTING:
        importlib.import_module("mlflow")


def connect(uri: str) -> Any:
    """An MLflow client that notices quickly when a server is away; a SQLite database must be there (``database``)."""
    configure()
    from mlflow import MlflowClient

    with STARTING:
        return MlflowClient(tracking_uri=uri)


def experiment_page(uri: str, suite: str) -> str:
    """Where a server on ``uri`` shows the runs of a suite, after its address; empty where they are not mirrored."""
    found = connect(uri).get_experiment_by_name(f"parvibench/{suite}")
    return f"#/experiments/{found.experiment_id}/runs?workflowType=machine_learning" if found is not None else ""


def ui_command(root: Path, host: str, port: int) -> tuple[list[str], dict[str, str]]:
    """The command that serves MLflow's pages on a store's mirror, and its environment.

    The address of the database may hold a password, and every user of a machine can read arguments: it travels in the
    environment.
    """
    command = [sys.executable, "-m", "mlflow", "ui", "--host", host, "--port", str(port)]
    return command, os.environ | {"MLFLOW_BACKEND_STORE_URI": default_uri(root)}


def file_of(uri: str) -> Path | None:
    """The file behind a SQLite URI, or None."""
    name = uri.removeprefix("sqlite:///").partition("?")[0]
    return Path(name) if uri.startswith("sqlite:///") and name else None


def prepare(file: Path, *, own: bool) -> Path | None:
    """Make an MLflow database where there is none.

    A broken one is set aside if it is a store's ``own``, which can be rebuilt: return its new place, else None.
    """
    configure()
    file.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(file.with_name(f".{file.name}.lock")), STARTING:
        for left in file.parent.glob(f"{_ASIDE}*"):
            left.unlink(missing_ok=True)
        aside = _set_aside(file) if own and file.exists() and _is_broken(file) else None
        if not file.exists():
            _make(file)
        _relocate(file)
    return aside


def _relocate(file: Path) -> None:
    """Where a store has been moved or copied, let its database name the artifacts that lie beside it now.

    MLflow keeps absolute addresses. Those of ours end in ``/artifacts/<suite>``; only a database that has its artifacts
    beside it is changed.
    """
    folder = file.absolute().parent / "artifacts"
    if not folder.is_dir():
        return
    with (
        contextlib.closing(sqlite3.connect(file, timeout=20)) as database,
        contextlib.suppress(sqlite3.DatabaseError),  # read only, or no database of MLflow: others say so
        database,  # commits at the end, or rolls back
    ):
        known = database.execute(
            "SELECT experiment_id, artifact_location, name FROM experiments WHERE name LIKE 'parvibench/%'"
        ).fetchall()
        for experiment, old, name in known:
            suite = name.partition("/")[2]
            new = f"{folder.as_uri()}/{suite}"
            if old == new or not old.endswith(f"/artifacts/{suite}") or not (folder / suite).is_dir():
                continue
            database.execute("UPDATE experiments SET artifact_location = ? WHERE experiment_id = ?", (new, experiment))
            database.execute(
                "UPDATE runs SET artifact_uri = ? || substr(artifact_uri, ?) "
                "WHERE experiment_id = ? AND substr(artifact_uri, 1, ?) = ?",
                (new, len(old) + 1, experiment, len(old) + 1, f"{old}/"),
            )


def _make(file: Path) -> None:
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    handle, name = tempfile.mkstemp(prefix=_ASIDE, dir=file.parent)
    os.close(handle)
    try:
        store = SqlAlchemyStore(f"sqlite:///{name}", (file.parent / "artifacts").absolute().as_uri())  # type: ignore[no-untyped-call]
        store.engine.dispose()
        Path(name).chmod(0o644)
        Path(name).replace(file)
    finally:
        Path(name).unlink(missing_ok=True)


def _is_broken(file: Path) -> bool:
    """Whether neither SQLite nor MLflow can read the file; False where they were only kept from trying."""
    from mlflow import MlflowClient

    try:
        place = f"file:{quote(str(file.absolute()))}?mode=rw"
        with contextlib.closing(sqlite3.connect(place, uri=True, timeout=20)) as database:
            found = database.execute("PRAGMA quick_check(1)").fetchone()
        if found != ("ok",):
            return True
        # Under another spelling: MLflow keeps connections open by URI, and these must end with the file.
        spelt = f"sqlite:///{file.parent.absolute()}/./{file.name}"
        MlflowClient(tracking_uri=spelt).search_experiments(max_results=1)
    except Exception as error:  # of SQLite, SQLAlchemy, Alembic or MLflow
        return _BROKEN.search(str(error)) is not None
    return False


def _set_aside(file: Path) -> Path:
    """Rename the database, with what SQLite keeps beside it, to a name that is free."""
    names = (file.with_name(f"{file.name}.broken-{i}") for i in range(1, 10_000))
    aside = next(name for name in names if not name.exists())
    for ending in ("-journal", "-wal", "-shm", ""):  # the database last: a kill before leaves it to the next process
        part = file.with_name(file.name + ending)
        if part.exists():
            part.rename(aside.with_name(aside.name + ending))
    return aside
