"""The MLflow mirror: every run and cell of a store, to browse and compare in MLflow.

The store is the truth; the mirror is a copy that may lag behind, be away, or be made later::

    experiment parvibench/<suite>
      run <suite> <profile>, <start>   one per suite run; tag parvibench.run_id; its note: the leaderboard
        suite.yaml run.json cells.json   cells.json: every cell asked for -> its MLflow run
        report/                          the page with its figures, when one was written
        params   packages.*, git, hardware, determinism.*, data.* (SHA-256) ...
        metrics  system/*                load and memory of the machine during the run
        run <suite> <profile>: <label> on <task>   one per cell; tags parvibench.cell_key, .task, .label, .status ...,
          and             .unit.<metric>      where it has one
          params   settings.*, budget.*, particles, replicates, seed ...
          metrics  <metric>                   median over replicates, step = iteration
                   final/<metric>             median at the end of the run
                   final/floor_ratio          the leaderboard's number, with the tag parvibench.verdict
                   nonfinite/<metric>         replicates without a finite value at the end, where there are any
                   replicates/<metric>.r<id>  each replicate, up to MAX_REPLICATE_SERIES of them
          artifacts  cell.json curve.parquet samples.npz traceback.txt

Values that are not finite are left out (MLflow would store infinity as 1.8e308). The time axis of a
metric is compute time: each point lies as many seconds after the start as its checkpoint had cost.

A cell belongs to the run that first mirrored it. Later runs that reuse it link to it in their
``cells.json``; only another outcome (a retried failure, metrics measured anew) takes its place.
"""

from __future__ import annotations

import importlib
import math
import queue
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from parvibench.core.errors import DamagedError
from parvibench.core.result import CellRecord, Status
from parvibench.harness.store.reading import read_table
from parvibench.harness.store.results import StoredRun
from parvibench.harness.store.secrets import of_address, shown_address
from parvibench.harness.store.store import CURVE_COLUMNS, Store

from . import connection, database
from .archive import CELL_FILES
from .content import (
    EXPERIMENT_TAGS,
    MAX_TAG,
    Ranking,
    cell_params,
    cell_tags,
    clean_name,
    cut_lines,
    is_same,
    mlflow_status,
    plain,
    points,
    run_params,
    run_tags,
    run_title,
    system_points,
)

_RATIO, _VERDICT = "final/floor_ratio", "parvibench.verdict"
_GIVE_UP_AFTER = 2
_WAITS = 10  #: times the timeout that is waited while records are delivered
_BATCH = {"metrics": 1000, "params": 100, "tags": 100}

Progress = Callable[[int, int], None]
_Job = Callable[["_Writer"], None]
_Numbers = Mapping[tuple[str, str], tuple[float, str]]


class Mirror:
    """Copies runs and cells to MLflow from a thread of its own; never raises, never delays a cell.

    Args:
        root: the store's folder; holds ``mlflow.db`` and ``artifacts/`` unless a server is named.
        uri: tracking URI; default ``MLFLOW_TRACKING_URI``, else the SQLite file in ``root``.

    Attributes:
        notice: what a user should know when the store's own database was broken and has been made anew.
    """

    def __init__(self, root: Path, uri: str | None = None) -> None:
        self.root = root.absolute()
        self.uri = uri or connection.default_uri(self.root)
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._total = self._done = self._lost = 0
        self._error = self.notice = ""
        self._hurry = threading.Event()
        for package in ("pandas", "requests"):  # which this thread needs as well: not while the other imports MLflow
            importlib.import_module(package)
        self._thread = threading.Thread(target=self._work, name="parvibench-mlflow", daemon=True)
        self._thread.start()

    def start_run(self, run: Mapping[str, Any]) -> None:
        """Mirror a suite run (the content of ``runs/<id>.json``) as the parent of its cells."""
        copy = dict(run)
        self._put(lambda writer: writer.start_run(copy))

    def cell(self, run_id: str, record: CellRecord, folder: Path) -> None:
        """Mirror a cell of a run that was started here; its files lie in ``folder``."""
        self._put(lambda writer: writer.cell(run_id, record, folder))

    def end_run(self, run: Mapping[str, Any]) -> None:
        """Add the end of a run and the machine's load during it."""
        copy = dict(run)
        self._put(lambda writer: writer.end_run(copy))

    def report(self, run_id: str, folder: Path) -> None:
        """Add the files of a run's report."""
        self._put(lambda writer: writer.report(run_id, folder))

    def rank(self, run_id: str, ranking: Ranking) -> None:
        """Set the leaderboard that MLflow shows above a run, and its numbers of the run's cells."""
        self._put(lambda writer: writer.note(run_id, ranking.text))
        names = list(ranking.cells)
        for i in range(0, len(names), _BATCH["tags"]):
            part = {name: ranking.cells[name] for name in names[i : i + _BATCH["tags"]]}
            self._put(lambda writer, part=part: writer.rank(run_id, part))  # type: ignore[misc]

    def close(self, timeout: float = 60.0, progress: Progress = lambda done, total: None) -> str:
        """Deliver what is queued and end the runs.

        Args:
            timeout: seconds to wait for the next delivery, ten times as many in all; the rest is given up.
            progress: called with (delivered, total) while waiting.

        Returns:
            A warning that says how much was not delivered and why, or an empty string.
        """
        self._queue.put(None)
        now = last = time.monotonic()
        end, done = now + _WAITS * timeout, self._done
        while self._thread.is_alive() and now < min(end, last + timeout):
            self._thread.join(0.1)
            progress(self._done, self._total)
            now = time.monotonic()
            if self._done > done:  # thousands of cells take their time
                last, done = now, self._done
        if self._thread.is_alive():
            self._hurry.set()
            self._error = self._error or f"no answer within {timeout:g} s"
        lost = self._total - self._done
        if not lost and not self._error:
            return ""
        return (
            f"{lost} of {self._total} records did not reach MLflow at {shown_address(self.uri)}: {self._error}\n"
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
            writer = self._connected()
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

    def _connected(self) -> _Writer:
        """A writer; where the store's own database was broken, a new one has the finished runs first."""
        file = database.file_of(self.uri)
        own = file is not None and file.absolute() == self.root / "mlflow.db"
        aside = None if file is None else database.prepare(file, own=own)
        writer = _Writer(connection.connect(self.uri), self._artifact_root())
        if aside is not None:
            self.notice = f"{file} was broken: it is now {aside.name}, and a new one is made of the store's runs"
            replay(Store(self.root), writer, finished=True)
            writer.finish()
        return writer

    def _artifact_root(self) -> str | None:
        """Where artifacts go: beside the store for a database, the server's choice for a server."""
        is_database = urlsplit(self.uri).scheme.split("+")[0] in ("sqlite", "postgresql", "mysql", "mssql")
        return (self.root / "artifacts").as_uri() if is_database else None

    def _note(self, error: Exception) -> None:
        """Keep the first error, on one line and without credentials."""
        text = of_address(" ".join(str(error).split()), self.uri)
        self._error = self._error or f"{type(error).__name__}: {text:.300}"


class _Writer:
    """Talks to MLflow, in one thread.

    Args:
        client: an ``MlflowClient``.
        artifact_root: URI that new experiments keep their artifacts under, or None for the server's.
    """

    def __init__(self, client: Any, artifact_root: str | None) -> None:
        self._client, self._artifact_root = client, artifact_root
        found = client.search_experiments(filter_string="name LIKE 'parvibench/%'")
        self._experiments: dict[str, str] = {e.name: e.experiment_id for e in found}
        self._parents: dict[str, str] = {}
        self._experiment_of: dict[str, str] = {}
        self._titles: dict[str, str] = {}
        self._cells: dict[str, list[dict[str, str]]] = {}

    def start_run(self, run: Mapping[str, Any]) -> None:
        """Find or make the parent run."""
        run_id, suite = str(run["id"]), run["suite"]
        experiment = self._experiment(f"parvibench/{suite['name']}")
        found = self._find("parvibench.run_id", run_id)
        self._titles[run_id] = title = run_title(run)
        name = f"{title}, {str(run['started'])[:16].replace('T', ' ')}"
        parent = found or self._client.create_run(experiment, run_name=name[:250], tags=run_tags(run))
        uid = parent.info.run_id
        if found:
            self._client.update_run(uid, status="RUNNING")
        self._batched(uid, "params", self._as_params(run_params(run)))  # those of a found run may not have arrived
        self._client.log_dict(uid, plain(suite), "suite.yaml")
        self._client.log_dict(uid, plain(run), "run.json")
        self._parents[run_id], self._experiment_of[run_id], self._cells[run_id] = uid, experiment, []

    def cell(self, run_id: str, record: CellRecord, folder: Path) -> None:
        """Link the cell if it is mirrored already, else mirror it as a child of the run."""
        parent = self._parents.get(run_id)
        if parent is None:
            raise LookupError(f"run {run_id} is not mirrored")
        found = self._find("parvibench.cell_key", record.key)
        if found is not None and not is_same(found, record):
            self._client.delete_run(found.info.run_id)
            found = None
        link = {k: str(getattr(record, k)) for k in ("key", "task", "algorithm", "label", "status")}
        if found is None:
            link |= {"mlflow_run_id": self._write_cell(run_id, record, folder), "reused": "false"}
        else:
            elsewhere = found.data.tags.get("mlflow.parentRunId") != parent
            link |= {"mlflow_run_id": found.info.run_id, "reused": str(elsewhere).lower()}
        self._cells[run_id].append(link)

    def end_run(self, run: Mapping[str, Any]) -> None:
        """Write the run again as it ended, and the machine's load once."""
        from mlflow.entities import Metric

        uid = self._parents[str(run["id"])]
        self._client.log_dict(uid, plain(run), "run.json")
        held = self._client.get_run(uid).data.metrics
        self._batched(uid, "metrics", [Metric(*p) for p in system_points(run) if p[0] not in held])

    def report(self, run_id: str, folder: Path) -> None:
        """The report's files under ``report/``."""
        self._client.log_artifacts(self._parents[run_id], str(folder), "report")

    def note(self, run_id: str, text: str) -> None:
        """A text above the run on MLflow's page, as long as MLflow takes it."""
        self._client.set_tag(self._parents[run_id], "mlflow.note.content", cut_lines(text, MAX_TAG))

    def rank(self, run_id: str, cells: _Numbers) -> None:
        """A leaderboard's numbers of some cells; a cell of another run keeps what that run's leaderboard said of it."""
        from mlflow.entities import Metric, RunTag

        links = [link for link in self._cells[run_id] if (link["task"], link["label"]) in cells]
        ids = ", ".join(f"'{link['mlflow_run_id']}'" for link in links)
        known = list(self._experiments.values())
        found = self._client.search_runs(known, f"attributes.run_id IN ({ids})") if links else []
        data = {run.info.run_id: run.data for run in found}
        for link in links:
            uid = link["mlflow_run_id"]
            if uid not in data:  # deleted there meanwhile
                continue
            ratio, verdict = cells[link["task"], link["label"]]
            held = data[uid].metrics.get(_RATIO), data[uid].tags.get(_VERDICT)
            if link["reused"] == "true" and held != (None, None):
                continue
            metrics = (
                [Metric(_RATIO, ratio, int(time.time() * 1000), 0)] if math.isfinite(ratio) and held[0] != ratio else []
            )
            tags = [RunTag(_VERDICT, verdict)] if verdict and held[1] != verdict else []
            if metrics or tags:
                self._client.log_batch(uid, metrics=metrics, tags=tags)

    def finish(self) -> None:
        """Write every parent's list of cells and end it."""
        for run_id, uid in self._parents.items():
            cells = self._cells[run_id]
            self._client.log_dict(uid, {"cells": cells}, "cells.json")
            failed = sum(Status(c["status"]).failed for c in cells)
            reused = sum(c["reused"] == "true" for c in cells)
            for name, count in {"cells": len(cells), "failed": failed, "reused": reused}.items():
                self._client.set_tag(uid, f"parvibench.n_{name}", str(count))
            self._client.set_terminated(uid, "FAILED" if failed else "FINISHED")

    def _write_cell(self, run_id: str, record: CellRecord, folder: Path) -> str:
        from mlflow.entities import Metric

        end = int(time.time() * 1000)
        start = end - int(record.seconds * 1000)
        run = self._client.create_run(
            self._experiment_of[run_id],
            start_time=start,
            run_name=f"{self._titles[run_id]}: {record.label} on {record.task}"[:250],
            tags={"mlflow.parentRunId": self._parents[run_id], **cell_tags(record)},
        )
        uid: str = run.info.run_id
        self._batched(uid, "params", self._as_params(cell_params(record)))
        file = folder / "curve.parquet"
        curve = read_table(file.read_bytes(), str(file), CURVE_COLUMNS, text=("metric",)) if file.is_file() else None
        measured = [
            Metric(clean_name(name), value, start + int(1000 * seconds), step)
            for name, step, seconds, value in points(record, curve)
            if math.isfinite(value)
        ]
        self._batched(uid, "metrics", measured)
        if folder.is_dir():
            for path in (folder / name for name in CELL_FILES):
                if path.is_file():
                    self._client.log_artifact(uid, str(path))
        else:
            self._client.log_text(uid, record.model_dump_json(indent=1), "cell.json")
        self._client.set_terminated(uid, mlflow_status(record.status), end_time=end)
        return uid

    def _as_params(self, values: Mapping[str, str]) -> list[Any]:
        from mlflow.entities import Param

        return [Param(clean_name(k), v) for k, v in values.items()]

    def _batched(self, uid: str, kind: str, entities: list[Any]) -> None:
        size = _BATCH[kind]
        for i in range(0, len(entities), size):
            self._client.log_batch(uid, **{kind: entities[i : i + size]})

    def _experiment(self, name: str) -> str:
        if name not in self._experiments:
            gone = self._client.get_experiment_by_name(name)
            if gone is not None and gone.lifecycle_stage == "deleted":
                number = gone.experiment_id
                raise LookupError(
                    f"the experiment {name} was deleted there; restore it (mlflow experiments restore -x {number}, "
                    "with MLFLOW_TRACKING_URI set), or remove it for good (mlflow gc)"
                )
            place = f"{self._artifact_root}/{name.partition('/')[2]}" if self._artifact_root else None
            self._experiments[name] = self._client.create_experiment(
                name, artifact_location=place, tags=EXPERIMENT_TAGS
            )
        return self._experiments[name]

    def _find(self, tag: str, value: str) -> Any:
        """The run that carries a tag, in any of our experiments, or None."""
        if not self._experiments:
            return None
        known = list(self._experiments.values())
        runs = self._client.search_runs(known, f"tags.`{tag}` = '{value}'", max_results=1)
        return runs[0] if runs else None


def replay(
    store: Store, to: Mirror | _Writer, *, finished: bool = False, rank: Callable[[StoredRun], Ranking] | None = None
) -> None:
    """Mirror the runs of a store, oldest first; a run whose record is damaged is left out.

    Args:
        store: read.
        to: where to.
        finished: leave out the runs that have not ended, too.
        rank: the leaderboard of a run.
    """
    for run_id in store.runs():
        try:
            results = StoredRun.load(store, run_id)
        except DamagedError:
            continue
        if finished and not results.run.finished:
            continue
        document = results.run.model_dump(mode="json")
        to.start_run(document)
        for record in results.cells:
            to.cell(run_id, record, store.folder(record.key))
        to.end_run(document)
        if rank is not None and isinstance(to, Mirror):
            to.rank(run_id, rank(results))
