"""The server or database of a mirror: connected to without output, telemetry or long waits."""

import importlib
import logging
import os
import sys
import threading
import warnings
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from parvibench.core.errors import StoreError

#: Locked while MLflow is imported or opens a database. Its modules import each other in circles, and Alembic, which makes
#: and checks the tables, stores its context in module globals: two threads at a time break both, on different files too.
_STARTING = threading.RLock()


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
    with _STARTING:
        importlib.import_module("mlflow")


def connect(uri: str) -> Any:
    """An MLflow client that notices quickly when a server is away; MLflow makes a SQLite database that is not there."""
    configure()
    from mlflow import MlflowClient

    if (file := file_of(uri)) is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
    with _STARTING:
        return MlflowClient(tracking_uri=uri)


def experiment_page(uri: str, root: Path, suite: str) -> str:
    """Address, after the server's, of a suite's cells in a store's mirror; empty without them, errors as of ``check_place``."""
    client = connect(uri)
    if file_of(uri) == root.resolve() / "mlflow.db":
        check_place(client, root.resolve())
    found = client.get_experiment_by_name(f"parvibench/{suite}")
    if found is None:
        return ""
    view = "&viewStateShareKey=parvibench-cells" * ("mlflow.sharedViewState.parvibench-cells" in found.tags)
    return f"#/experiments/{found.experiment_id}/runs?workflowType=machine_learning{view}"


def check_place(client: Any, root: Path) -> None:
    """Raise ``StoreError`` where a store has been moved: MLflow keeps absolute addresses of artifacts."""
    for found in client.search_experiments(filter_string="name LIKE 'parvibench/%'"):
        place = Path(unquote(urlsplit(found.artifact_location).path))
        if place.resolve().parent != root / "artifacts":
            raise StoreError(
                f"{root}: its MLflow mirror was made in another folder ({place}); delete mlflow.db and artifacts, "
                "then make it again: parvibench sync"
            )


def ui_command(root: Path, host: str, port: int) -> tuple[list[str], dict[str, str]]:
    """The command that serves MLflow's pages on a store's mirror, and its environment, which no other user can read."""
    command = [sys.executable, "-m", "mlflow", "ui", "--host", host, "--port", str(port), "--workers", "1"]
    # The address may hold a password, and every user can read arguments. No queue of jobs for language models: it starts
    # further processes.
    return command, os.environ | {
        "MLFLOW_BACKEND_STORE_URI": default_uri(root), "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }  # fmt: skip


def file_of(uri: str) -> Path | None:
    """The file behind a SQLite URI, or None."""
    name = uri.removeprefix("sqlite:///").partition("?")[0]
    return Path(name) if uri.startswith("sqlite:///") and name else None
