"""Reading back what a mirror holds, to rebuild a store from a server that a team shares.

What comes from a server is untrusted input: only files of known names and bounded size are fetched; the store's
readers validate their contents.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from parvibench.core.errors import StoreError
from parvibench.harness.store.secrets import without_secrets

from .connection import connect

#: The files of a cell, and the most bytes that are fetched of each.
CELL_FILES = {"cell.json": 2**26, "curve.parquet": 2**30, "samples.npz": 2**31, "traceback.txt": 2**20}
_RUN_FILES = {"run.json": 2**26, "cells.json": 2**26}


class Archive:
    """The suite runs that an MLflow server holds.

    Args:
        uri: of the server or database.

    Raises:
        StoreError: it cannot be reached, or it holds no runs of ours.
    """

    def __init__(self, uri: str) -> None:
        self._uri, self._shown = uri, without_secrets(uri)
        try:
            self._client = connect(uri)
            found = self._client.search_experiments(filter_string="name LIKE 'parvibench/%'")
        except Exception as error:  # whatever a server or a driver can raise
            raise self._failed(error) from None
        self._experiments = [e.experiment_id for e in found]
        if not self._experiments:
            raise StoreError(f"{self._shown}: holds no runs of ParVIBench")

    def fetch_run(self, run_id: str | None, folder: Path) -> tuple[dict[str, Any], dict[str, str]]:
        """A suite run by id, the latest by default.

        Args:
            run_id: ``parvibench.run_id``.
            folder: where files are put while they are read.

        Returns:
            The run as ``runs/<id>.json`` held it, and cell key -> MLflow run.

        Raises:
            StoreError: no such run, or a server that fails.
        """
        try:
            runs = self._client.search_runs(
                self._experiments,
                "attributes.status != 'RUNNING' and tags.`parvibench.run_id` LIKE '%'",
                order_by=["attributes.start_time DESC"],
            )
        except Exception as error:
            raise self._failed(error) from None
        by_id = {r.data.tags["parvibench.run_id"]: r.info.run_id for r in reversed(runs)}
        if not by_id:
            raise StoreError(f"{self._shown}: holds no finished run")
        chosen = next(reversed(by_id)) if run_id is None else run_id
        if chosen not in by_id:
            known = ", ".join(sorted(by_id)[-10:])
            raise StoreError(f"{self._shown}: no run {chosen!r}; the latest there: {known}")
        self.fetch(by_id[chosen], _RUN_FILES, folder)
        try:
            run = json.loads((folder / "run.json").read_bytes())
            links = json.loads((folder / "cells.json").read_bytes())["cells"]
            return run, {str(link["key"]): str(link["mlflow_run_id"]) for link in links}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{self._shown}: run {chosen} is damaged there ({error})") from None

    def fetch(self, mlflow_run: str, names: dict[str, int], folder: Path) -> None:
        """Download the named artifacts of an MLflow run, as far as it has them, each up to its number of bytes.

        Raises:
            StoreError: a file is larger, or the server fails.
        """
        try:
            held = self._client.list_artifacts(mlflow_run)
            sizes = {a.path: a.file_size or 0 for a in held if not a.is_dir and a.path in names}
            for name, size in sizes.items():
                if size > names[name]:
                    raise StoreError(f"{self._shown}: {name} has {size} bytes, more than {names[name]}")
                self._client.download_artifacts(mlflow_run, name, str(folder))
        except StoreError:
            raise
        except Exception as error:
            raise self._failed(error) from None

    def _failed(self, error: Exception) -> StoreError:
        text = without_secrets(" ".join(str(error).split()).replace(self._uri, self._shown))
        return StoreError(f"{self._shown}: cannot be read ({type(error).__name__}: {text:.200})")
