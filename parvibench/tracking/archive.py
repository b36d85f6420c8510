"""Rebuilding a store from a server that a team shares.

What comes from a server is untrusted input: only files of known names are fetched, from the server itself, and no more
bytes of each than its limit, whatever the server says of its size; the store's readers validate their contents.
"""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError
from pydantic_core import from_json

from parvibench.core.errors import StoreError
from parvibench.harness.store.secrets import of_address, shown_address, without_secrets
from parvibench.harness.store.store import RunRecord, Store

from .database import connect, file_of

#: The files of a cell, and the most bytes that are fetched of each.
CELL_FILES = {"cell.json": 2**26, "curve.parquet": 2**30, "samples.npz": 2**31, "traceback.txt": 2**20}
_RUN_FILES = {"run.json": 2**26, "cells.json": 2**26}
_PIECE = 2**20


def rebuild(uri: str, into: Store, run_id: str | None = None) -> RunRecord:
    """Fetch a run, by default the latest finished one, and its cells from an MLflow server or database into a store.

    Cells that are in the store already are not overwritten. ``StoreError`` where the server cannot be reached, or what it
    holds is damaged or too large.
    """
    if (file := file_of(uri)) is not None and not file.is_file():
        raise StoreError(f"{shown_address(uri)}: no such file")
    with _reading(uri), tempfile.TemporaryDirectory(prefix="parvibench-rebuild-") as name:
        client = connect(uri)
        chosen, mlflow_run = _chosen(client, shown_address(uri), run_id)
        with into.locked():
            fetched = Store(name)
            _fetch(client, uri, mlflow_run, _RUN_FILES, fetched.root)
            run, where = _run_record(fetched.root, f"{shown_address(uri)}: run {chosen} is damaged there")
            for cell in run.cells:
                if into.usable(cell.key) is not None or cell.key not in where:
                    continue
                folder = fetched.folder(cell.key)
                folder.mkdir(parents=True)
                _fetch(client, uri, where[cell.key], CELL_FILES, folder)
                record = fetched.find(cell.key)
                if record is not None:
                    curve = fetched.curve(cell.key)
                    into.write_cell(record, curve if len(curve) else None, fetched.samples(cell.key))
                shutil.rmtree(folder)
            into.write_run(run)
    return run


@contextlib.contextmanager
def _reading(uri: str) -> Iterator[None]:
    """Whatever a server or a driver can raise becomes a ``StoreError``."""
    try:
        yield
    except StoreError:
        raise
    except Exception as error:
        text = of_address(" ".join(str(error).split()), uri)
        raise StoreError(f"{shown_address(uri)}: cannot be read ({type(error).__name__}: {text:.200})") from None


def _chosen(client: Any, shown: str, run_id: str | None) -> tuple[str, str]:
    """A suite run by id, by default the latest: its id and its MLflow run."""
    experiments = client.search_experiments(filter_string="name LIKE 'parvibench/%'")
    if not experiments:
        raise StoreError(f"{shown}: holds no runs of ParVIBench")
    runs = client.search_runs(
        [e.experiment_id for e in experiments],
        "attributes.status != 'RUNNING' and tags.`parvibench.run_id` LIKE '%'",
        order_by=["attributes.start_time DESC"],
    )
    runs = sorted(reversed(runs), key=lambda r: r.data.tags.get("parvibench.started", ""))
    by_id = {tag: r.info.run_id for r in runs if (tag := r.data.tags.get("parvibench.run_id"))}
    if not by_id:
        raise StoreError(f"{shown}: holds no finished run")
    chosen = next(reversed(by_id)) if run_id is None else run_id
    if chosen not in by_id:
        raise StoreError(f"{shown}: no run {chosen!r}; the latest there: {', '.join(sorted(by_id)[-10:])}")
    return chosen, by_id[chosen]


def _run_record(folder: Path, damaged: str) -> tuple[RunRecord, dict[str, str]]:
    """The run of fetched files, and cell key -> MLflow run; ``StoreError``, which begins with ``damaged``."""
    try:
        document = from_json((folder / "run.json").read_bytes())
        links = from_json((folder / "cells.json").read_bytes())["cells"]
        where = {str(link["key"]): str(link["mlflow_run_id"]) for link in links}
        return RunRecord.model_validate(document), where
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"{error.error_count()} problems" if isinstance(error, ValidationError) else error
        raise StoreError(f"{damaged} ({reason})") from None


def _fetch(client: Any, uri: str, mlflow_run: str, names: dict[str, int], folder: Path) -> None:
    """Download the named artifacts of an MLflow run, as far as it has them, each up to its number of bytes."""
    artifacts = _artifacts(uri, client.get_run(mlflow_run).info.artifact_uri)
    for name in [a.path for a in artifacts.list_artifacts() if a.path in names]:
        if _download(artifacts, name, folder, names[name]) > names[name]:
            raise StoreError(f"{shown_address(uri)}: {name} has more than {names[name]} bytes")


def _artifacts(uri: str, named: str) -> Any:
    """Where the artifacts of an MLflow run lie; what an HTTP server names must be on that server."""
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    server, place = urlsplit(uri), urlsplit(named)
    here = ("", server.netloc.rpartition("@")[2])
    if server.scheme in ("http", "https") and (place.scheme != "mlflow-artifacts" or place.netloc not in here):
        where = without_secrets(f"{place.scheme}://{place.netloc}")
        shown = shown_address(uri)
        raise StoreError(f"{shown}: its artifacts are not its own but lie at {where:.100}: they are not fetched")
    return get_artifact_repository(place.geturl(), tracking_uri=uri)


def _download(artifacts: Any, name: str, folder: Path, most: int) -> int:
    """Fetch an artifact; its number of bytes. From an HTTP server no more arrive than ``most`` and a piece."""
    from mlflow.store.artifact.http_artifact_repo import HttpArtifactRepository
    from mlflow.utils.credentials import get_default_host_creds
    from mlflow.utils.rest_utils import augmented_raise_for_status, http_request  # type: ignore[attr-defined]

    if not isinstance(artifacts, HttpArtifactRepository):
        return Path(artifacts.download_artifacts(name, str(folder))).stat().st_size
    creds = get_default_host_creds(artifacts.artifact_uri)  # type: ignore[no-untyped-call]
    with (folder / name).open("wb") as file, http_request(creds, f"/{name}", "GET", stream=True) as answer:  # type: ignore[no-untyped-call]
        augmented_raise_for_status(answer)  # type: ignore[no-untyped-call]
        for piece in answer.iter_content(_PIECE):
            file.write(piece)
            if file.tell() > most:
                break
        return file.tell()
