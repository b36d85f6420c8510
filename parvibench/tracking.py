"""The MLflow mirror: every run and cell of a store, to browse and compare in MLflow.

The store is the truth; the mirror is a copy that may lag behind, be away, or be made later::

    experiment parvibench/<suite>
      run <run id>                     one per suite run; tag parvibench.run_id
        suite.yaml run.json cells.json   cells.json: every cell asked for -> its MLflow run
        run <task> / <label>           one per cell; tags parvibench.cell_key, .task, .label, .status ...
          params   settings.*, budget.*, particles, replicates, seed ...
          metrics  <metric>                   median over replicates, step = iteration
                   final/<metric>             median at the end of the run
                   nonfinite/<metric>         replicates without a finite value at the end, where there are any
                   replicates/<metric>.r<id>  each replicate, up to MAX_REPLICATE_SERIES of them
          artifacts  cell.json curve.parquet samples.npz

Values that are not finite are left out (MLflow would store infinity as 1.8e308). The time axis of a
metric is compute time: each point lies as many seconds after the start as its checkpoint had cost.

A cell belongs to the run that first mirrored it. Later runs that reuse it link to it in their
``cells.json``; only another outcome (a retried failure, metrics measured anew) takes its place.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
import queue
import re
import statistics
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pandas as pd

from .core import registry
from .core.result import CellRecord, Status

#: Cells with more replicates log medians only; the artifact curve.parquet holds them all.
MAX_REPLICATE_SERIES = 20
_GIVE_UP_AFTER = 2
_BATCH = {"metrics": 1000, "params": 100, "tags": 100}
_MAX_TAG, _MAX_PARAM = 5000, 6000
_COMPLETE = ("FINISHED", "FAILED", "KILLED")

Progress = Callable[[int, int], None]
_Job = Callable[["_Writer"], None]


class Mirror:
    """Copies runs and cells to MLflow from a thread of its own; never raises, never delays a cell.

    Args:
        root: the store's folder; holds ``mlflow.db`` and ``artifacts/`` unless a server is named.
        uri: tracking URI; default ``MLFLOW_TRACKING_URI``, else the SQLite file in ``root``.
    """

    def __init__(self, root: Path, uri: str | None = None) -> None:
        self.root = root.absolute()
        self.uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{self.root / 'mlflow.db'}"
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._total = self._done = self._lost = 0
        self._error = ""
        self._hurry = threading.Event()
        self._thread = threading.Thread(target=self._work, name="parvibench-mlflow", daemon=True)
        self._thread.start()

    def start_run(self, run: Mapping[str, Any]) -> None:
        """Mirror a suite run (the content of ``runs/<id>.json``) as the parent of its cells."""
        copy = dict(run)
        self._put(lambda writer: writer.start_run(copy))

    def cell(self, run_id: str, record: CellRecord, folder: Path) -> None:
        """Mirror a cell of a run that was started here; its files lie in ``folder``."""
        self._put(lambda writer: writer.cell(run_id, record, folder))

    def close(self, timeout: float = 60.0, progress: Progress = lambda done, total: None) -> str:
        """Deliver what is queued and end the runs.

        Args:
            timeout: seconds to wait; what is not delivered by then is given up.
            progress: called with (delivered, total) while waiting.

        Returns:
            A warning that says how much was not delivered and why, or an empty string.
        """
        self._queue.put(None)
        deadline = time.monotonic() + timeout
        while self._thread.is_alive() and time.monotonic() < deadline:
            self._thread.join(0.1)
            progress(self._done, self._total)
        if self._thread.is_alive():
            self._hurry.set()
            self._error = self._error or f"no answer within {timeout:g} s"
        lost = self._total - self._done
        if not lost and not self._error:
            return ""
        return (
            f"{lost} of {self._total} records did not reach MLflow at {redact(self.uri)}: {self._error}\n"
            "The results are safe in the store; mirror them later with: parvibench sync"
        )

    def _put(self, job: _Job) -> None:
        self._total += 1
        self._queue.put(job)

    def _work(self) -> None:
        """The thread: connect, then one job after the other; after repeated failures only drain."""
        writer: _Writer | None = None
        failures = 0
        try:
            writer = _Writer(_connect(self.uri), self._artifact_root())
        except Exception as error:  # anything a server, a driver or a full disk can raise
            self._note(error)
        while (job := self._queue.get()) is not None:
            if writer is None or failures >= _GIVE_UP_AFTER or self._hurry.is_set():
                continue
            try:
                job(writer)
            except Exception as error:
                failures += 1
                self._note(error)
            else:
                failures = 0
                self._done += 1
        if writer is not None and failures < _GIVE_UP_AFTER and not self._hurry.is_set():
            try:
                writer.finish()
            except Exception as error:
                self._note(error)

    def _artifact_root(self) -> str | None:
        """Where artifacts go: beside the store for a database, the server's choice for a server."""
        is_database = urlsplit(self.uri).scheme.split("+")[0] in ("sqlite", "postgresql", "mysql", "mssql")
        return (self.root / "artifacts").as_uri() if is_database else None

    def _note(self, error: Exception) -> None:
        """Keep the first error, on one line and without credentials."""
        text = " ".join(str(error).split()).replace(self.uri, redact(self.uri))
        self._error = self._error or f"{type(error).__name__}: {text:.300}"


class _Writer:
    """Talks to MLflow, in one thread.

    Args:
        client: an ``MlflowClient``.
        artifact_root: URI that new experiments keep their artifacts under, or None for the server's.
    """

    def __init__(self, client: Any, artifact_root: str | None) -> None:
        self._client, self._artifact_root = client, artifact_root
        self._experiments: dict[str, str] = {
            e.name: e.experiment_id
            for e in client.search_experiments(filter_string="name LIKE 'parvibench/%'")
        }
        self._parents: dict[str, str] = {}
        self._experiment_of: dict[str, str] = {}
        self._cells: dict[str, list[dict[str, str]]] = {}

    def start_run(self, run: Mapping[str, Any]) -> None:
        """Find or make the parent run."""
        run_id, suite = str(run["id"]), run["suite"]
        experiment = self._experiment(f"parvibench/{suite['name']}")
        found = self._find("parvibench.run_id", run_id)
        parent = found or self._client.create_run(experiment, run_name=run_id, tags=_run_tags(run))
        uid = parent.info.run_id
        if found:
            self._client.update_run(uid, status="RUNNING")
        self._client.log_dict(uid, _plain(suite), "suite.yaml")
        self._client.log_dict(uid, _plain(run), "run.json")
        self._parents[run_id], self._experiment_of[run_id], self._cells[run_id] = uid, experiment, []

    def cell(self, run_id: str, record: CellRecord, folder: Path) -> None:
        """Link the cell if it is mirrored already, else mirror it as a child of the run."""
        parent = self._parents.get(run_id)
        if parent is None:
            raise LookupError(f"run {run_id} is not mirrored")
        found = self._find("parvibench.cell_key", record.key)
        if found is not None and not _is_same(found, record):
            self._client.delete_run(found.info.run_id)
            found = None
        link = {k: str(getattr(record, k)) for k in ("key", "task", "algorithm", "label", "status")}
        if found is None:
            link |= {"mlflow_run_id": self._write_cell(run_id, record, folder), "reused": "false"}
        else:
            elsewhere = found.data.tags.get("mlflow.parentRunId") != parent
            link |= {"mlflow_run_id": found.info.run_id, "reused": str(elsewhere).lower()}
        self._cells[run_id].append(link)

    def finish(self) -> None:
        """Write every parent's list of cells and end it."""
        for run_id, uid in self._parents.items():
            cells = self._cells[run_id]
            self._client.log_dict(uid, {"cells": cells}, "cells.json")
            failed = sum(Status(c["status"]).failed for c in cells)
            counts = {
                "cells": len(cells),
                "failed": failed,
                "reused": sum(c["reused"] == "true" for c in cells),
            }
            for name, count in counts.items():
                self._client.set_tag(uid, f"parvibench.n_{name}", str(count))
            self._client.set_terminated(uid, "FAILED" if failed else "FINISHED")

    def _write_cell(self, run_id: str, record: CellRecord, folder: Path) -> str:
        from mlflow.entities import Metric, Param

        end = int(time.time() * 1000)
        start = end - int(record.seconds * 1000)
        run = self._client.create_run(
            self._experiment_of[run_id],
            start_time=start,
            run_name=f"{record.task} / {record.label}"[:250],
            tags={"mlflow.parentRunId": self._parents[run_id], **_cell_tags(record)},
        )
        uid: str = run.info.run_id
        self._batched(uid, "params", [Param(_name(k), v) for k, v in _params(record).items()])
        curve_file = folder / "curve.parquet"
        curve = pd.read_parquet(curve_file) if curve_file.is_file() else None
        points = [
            Metric(_name(name), value, start + int(1000 * seconds), step)
            for name, step, seconds, value in _points(record, curve)
            if math.isfinite(value)
        ]
        self._batched(uid, "metrics", points)
        if folder.is_dir():
            self._client.log_artifacts(uid, str(folder))
        else:
            self._client.log_text(uid, record.model_dump_json(indent=1), "cell.json")
        self._client.set_terminated(uid, _mlflow_status(record.status), end_time=end)
        return uid

    def _batched(self, uid: str, kind: str, entities: list[Any]) -> None:
        size = _BATCH[kind]
        for i in range(0, len(entities), size):
            self._client.log_batch(uid, **{kind: entities[i : i + size]})

    def _experiment(self, name: str) -> str:
        if name not in self._experiments:
            place = f"{self._artifact_root}/{name.partition('/')[2]}" if self._artifact_root else None
            self._experiments[name] = self._client.create_experiment(name, artifact_location=place)
        return self._experiments[name]

    def _find(self, tag: str, value: str) -> Any:
        """The run that carries a tag, in any of our experiments, or None."""
        if not self._experiments:
            return None
        runs = self._client.search_runs(
            list(self._experiments.values()), f"tags.`{tag}` = '{value}'", max_results=1
        )
        return runs[0] if runs else None


def ui_command(root: Path, port: int) -> list[str]:
    """The command that serves MLflow's pages on a store's mirror, to this machine only.

    Args:
        root: the store; ``MLFLOW_TRACKING_URI`` goes before its SQLite file.
        port: on the loopback interface.
    """
    uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{root.resolve() / 'mlflow.db'}"
    return [
        *(sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", uri),
        *("--host", "127.0.0.1", "--port", str(port)),
    ]


def _connect(uri: str) -> Any:
    """An MLflow client: quiet, without telemetry, and quick to notice that a server is away."""
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    os.environ["GIT_PYTHON_REFRESH"] = "quiet"
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    # MLflow's own models use it; nothing a user could change.
    warnings.filterwarnings("ignore", message="The ``noload`` loader", category=DeprecationWarning)
    from mlflow import MlflowClient

    for chatty in ("mlflow.store", "alembic"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    if uri.startswith("sqlite:///"):
        Path(uri.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
    return MlflowClient(tracking_uri=uri)


def _is_same(run: Any, record: CellRecord) -> bool:
    """Whether a mirrored cell is complete and has the outcome of ``record``."""
    tags = run.data.tags
    return (
        run.info.status in _COMPLETE
        and tags.get("parvibench.status") == str(record.status)
        and tags.get("parvibench.metrics_key", "") == record.metrics_key
    )


def _points(record: CellRecord, curve: pd.DataFrame | None) -> Iterator[tuple[str, int, float, float]]:
    """Metric points of a cell: name, step, compute seconds, value (perhaps not finite)."""
    if curve is not None:
        for (name, _), rows in curve.groupby(["metric", "checkpoint"]):
            metric = str(name)
            step, seconds = int(rows["iteration"].median()), float(rows["seconds"].median())
            worst = _worst(metric)
            stopped = len(set(record.diverged) - set(rows["replicate"]))
            values = [*rows["value"].fillna(worst), *[worst] * stopped]
            yield metric, step, seconds, float(statistics.median(values))
            if record.replicates <= MAX_REPLICATE_SERIES:
                columns = (rows[c].tolist() for c in ("replicate", "iteration", "seconds", "value"))
                for replicate, at, spent, value in zip(*columns, strict=True):
                    yield f"replicates/{metric}.r{replicate}", at, spent, value
    for metric, stored in record.values.items():
        values = [_worst(metric) if v is None else v for v in stored]
        lost = sum(v is None or not math.isfinite(v) for v in stored)
        if values:
            yield f"final/{metric}", record.iterations, record.seconds, statistics.median(values)
        if lost:
            yield f"nonfinite/{metric}", record.iterations, record.seconds, float(lost)


def _worst(metric: str) -> float:
    """What a replicate without a value counts as."""
    row = registry.metrics().get(metric)
    return -math.inf if row is not None and row.direction == "higher" else math.inf


def _params(record: CellRecord) -> dict[str, str]:
    """What defines the cell, as text."""
    plain = ("task_version", "algorithm_version", "particles", "samples", "replicates", "seed", "chunk", "device", "dtype")  # fmt: skip
    values: dict[str, Any] = {
        "task": record.task,
        "algorithm": record.algorithm,
        **{f"settings.{k}": v for k, v in record.settings.items()},
        **{f"budget.{k}": v for k, v in record.budget.model_dump(exclude_none=True).items()},
        **{name: getattr(record, name) for name in plain},
        "tuned": record.tuned,
    }
    if record.effective_step is not None:
        values["effective_step"] = record.effective_step
    return {k: str(v)[:_MAX_PARAM] for k, v in values.items()}


def _cell_tags(record: CellRecord) -> dict[str, str]:
    names = ("task", "algorithm", "label", "kind", "status", "reason", "n_diverged", "metrics_key", "hardware", "created")  # fmt: skip
    tags = {"cell_key": record.key} | {n: str(getattr(record, n)) for n in names}
    return {f"parvibench.{k}": v[:_MAX_TAG] for k, v in tags.items() if v}


def _run_tags(run: Mapping[str, Any]) -> dict[str, str]:
    provenance = {k: v for k, v in run.get("provenance", {}).items() if isinstance(v, str | int | float)}
    tags = {"run_id": run["id"], "suite": run["suite"]["name"], "profile": run.get("profile"), **provenance}
    return {f"parvibench.{_name(k)}": str(v)[:_MAX_TAG] for k, v in tags.items() if v}


def _mlflow_status(status: Status) -> str:
    if status is Status.INTERRUPTED:
        return "KILLED"
    return "FAILED" if status.failed else "FINISHED"


def _name(text: str) -> str:
    """A name MLflow admits: others' characters become ``_``; a cut is told apart by a digest."""
    clean = re.sub(r"[^\w\-. :/]", "_", text, flags=re.ASCII)
    return clean if len(clean) <= 250 else f"{clean[:230]}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _plain(value: Any) -> Any:
    """Mappings and sequences as dict and list, for YAML and JSON."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def redact(uri: str) -> str:
    """A URI without user name and password."""
    parts = urlsplit(uri)
    if "@" not in parts.netloc:
        return uri
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
