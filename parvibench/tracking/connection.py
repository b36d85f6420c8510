"""Reaching an MLflow server or database: quietly, without telemetry, and without waiting long."""

import importlib
import logging
import os
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

#: Held while MLflow is imported or opens a database. Its modules import each other in circles, and Alembic, which makes
#: and checks the tables, keeps its context in module globals: two threads at a time break both, on different files too.
STARTING = threading.RLock()


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

    Args:
        root: the store; ``MLFLOW_TRACKING_URI`` goes before its SQLite file.
        host: name or address to listen on.
        port: to listen on.
    """
    command = [sys.executable, "-m", "mlflow", "ui", "--host", host, "--port", str(port)]
    return command, os.environ | {"MLFLOW_BACKEND_STORE_URI": default_uri(root)}
