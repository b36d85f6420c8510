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
    archive = _Archive(uri)
    with tempfile.TemporaryDirectory(prefix="parvibench-rebuild-") as name, into.locked():
        fetched = Store(name)
        run, where = archive.fetch_run(run_id, fetched.root)
        for cell in run.cells:
            if into.usable(cell.key) is not None or cell.key not in where:
                continue
            folder = fetched.folder(cell.key)
            folder.mkdir(parents=True)
            archive.fetch(where[cell.key], CELL_FILES, folder)
            record = fetched.find(cell.key)
            if record is not None and record.key == cell.key:
                curve = fetched.curve(cell.key)
                into.write_cell(record, curve if len(curve) else None, fetched.samples(cell.key))
            shutil.rmtree(folder)
        into.write_run(run)
    return run


class _Archive:
    """The suite runs that an MLflow server holds; all methods raise ``StoreError``."""

    def __init__(self, uri: str) -> None:
        self._uri, self._shown = uri, shown_address(uri)
        file = file_of(uri)
        if file is not None and not file.is_file():
            raise StoreError(f"{self._shown}: no such file")
        with self._reading():
            self._client = connect(uri)
            found = self._client.search_experiments(filter_string="name LIKE 'parvibench/%'")
        self._experiments = [e.experiment_id for e in found]
        if not self._experiments:
            raise StoreError(f"{self._shown}: holds no runs of ParVIBench")

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Whatever a server or a driver can raise becomes a ``StoreError``."""
        try:
            yield
        except StoreError:
            raise
        except Exception as error:
            text = of_address(" ".join(str(error).split()), self._uri)
            raise StoreError(f"{self._shown}: cannot be read ({type(error).__name__}: {text:.200})") from None

    def fetch_run(self, run_id: str | None, folder: Path) -> tuple[RunRecord, dict[str, str]]:
        """A suite run by id, by default the latest, and cell key -> MLflow run; files are put into ``folder``."""
        with self._reading():
            runs = self._client.search_runs(
                self._experiments,
                "attributes.status != 'RUNNING' and tags.`parvibench.run_id` LIKE '%'",
                order_by=["attributes.start_time DESC"],
            )
        runs = sorted(reversed(runs), key=lambda r: r.data.tags.get("parvibench.started", ""))
        tagged = ((r.data.tags.get("parvibench.run_id"), r.info.run_id) for r in runs)
        by_id = {run_id: uid for run_id, uid in tagged if run_id}
        if not by_id:
            raise StoreError(f"{self._shown}: holds no finished run")
        chosen = next(reversed(by_id)) if run_id is None else run_id
        if chosen not in by_id:
            known = ", ".join(sorted(by_id)[-10:])
            raise StoreError(f"{self._shown}: no run {chosen!r}; the latest there: {known}")
        self.fetch(by_id[chosen], _RUN_FILES, folder)
        try:
            document = from_json((folder / "run.json").read_bytes())
            links = from_json((folder / "cells.json").read_bytes())["cells"]
            where = {str(link["key"]): str(link["mlflow_run_id"]) for link in links}
            return RunRecord.model_validate(document), where
        except ValidationError as error:
            raise StoreError(f"{self._shown}: no run record there ({error.error_count()} problems)") from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{self._shown}: run {chosen} is damaged there ({error})") from None

    def fetch(self, mlflow_run: str, names: dict[str, int], folder: Path) -> None:
        """Download the named artifacts of an MLflow run, as far as it has them, each up to its number of bytes."""
        with self._reading():
            artifacts = self._artifacts(mlflow_run)
            for name in [a.path for a in artifacts.list_artifacts() if a.path in names]:
                if _download(artifacts, name, folder, names[name]) > names[name]:
                    raise StoreError(f"{self._shown}: {name} has more than {names[name]} bytes")

    def _artifacts(self, mlflow_run: str) -> Any:
        """Where the artifacts of an MLflow run lie; what an HTTP server names must be on that server."""
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        place = urlsplit(self._client.get_run(mlflow_run).info.artifact_uri)
        server = urlsplit(self._uri)
        here = ("", server.netloc.rpartition("@")[2])
        if server.scheme in ("http", "https") and (place.scheme != "mlflow-artifacts" or place.netloc not in here):
            where = without_secrets(f"{place.scheme}://{place.netloc}")
            raise StoreError(
                f"{self._shown}: its artifacts are not its own but lie at {where:.100}: they are not fetched"
            )
        return get_artifact_repository(place.geturl(), tracking_uri=self._uri)


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
