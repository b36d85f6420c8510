"""Writing runs and cells to MLflow, in one thread."""

import datetime as dt
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from parvibench.core.result import CellRecord, Status
from parvibench.harness.store.cell_files import CURVE_COLUMNS, CurveGrid, read_curve
from parvibench.harness.store.secrets import without_secrets

from . import content
from .archive import CELL_FILES
from .content import Ranking, Shown

BATCH = {"metrics": 1000, "params": 100, "tags": 100}  #: Most entities that MLflow takes at a time.


class Writer:
    """Talks to MLflow, in one thread; new experiments keep their artifacts under ``artifact_root``, or the server's."""

    def __init__(self, client: Any, artifact_root: str | None) -> None:
        from mlflow import entities

        self._client, self._artifact_root, self._entities = client, artifact_root, entities
        found = client.search_experiments(filter_string="name LIKE 'parvibench/%'")
        self._experiments: dict[str, str] = {e.name: e.experiment_id for e in found}
        self._parents: dict[str, str] = {}
        self._experiment_of: dict[str, str] = {}
        self._runs: dict[str, Mapping[str, Any]] = {}
        self._cells: dict[str, list[dict[str, str]]] = {}

    def start_run(self, run: Mapping[str, Any]) -> None:
        """Find or make the parent run."""
        run_id, suite = str(run["id"]), run["suite"]
        experiment = self._experiment(f"parvibench/{suite['name']}")
        found = self._find("parvibench.run_id", run_id)
        title = " ".join(filter(None, (str(suite["name"]), run.get("profile"))))
        name = f"{title}, {str(run['started'])[:16].replace('T', ' ')}"
        parent = found or self._client.create_run(experiment, run_name=name[:250], tags=content.run_tags(run))
        uid = parent.info.run_id
        if found:
            self._client.update_run(uid, status="RUNNING")
        facts = {k: without_secrets(v) for k, v in content.flat(run.get("provenance", {})).items()}
        self._log_params(uid, facts)  # those of an existing run may not have arrived
        specs = [cell["spec"] for cell in run["cells"]]
        self._log_tasks(uid, run, {spec["task"]: spec["task_version"] for spec in specs})
        self._client.log_dict(uid, dict(suite), "suite.yaml")
        self._client.log_dict(uid, dict(run), "run.json")
        self._parents[run_id], self._experiment_of[run_id], self._cells[run_id] = uid, experiment, []
        self._runs[run_id] = run

    def cell(self, run_id: str, record: CellRecord, folder: Path) -> None:
        """Link the cell if it is mirrored already, else mirror it as a child of the run."""
        parent = self._parents.get(run_id)
        if parent is None:
            raise LookupError(f"run {run_id} is not mirrored")
        found = self._find("parvibench.cell_key", record.key)
        if found is not None:
            outcome = [found.data.tags.get(f"parvibench.{name}", "") for name in ("status", "metrics_key")]
            whole = found.info.status in ("FINISHED", "FAILED", "KILLED")
            if not whole or outcome != [str(record.status), record.metrics_key]:
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
        """Write the run again as it ended."""
        self._client.log_dict(self._parents[str(run["id"])], dict(run), "run.json")

    def report(self, run_id: str, folder: Path) -> None:
        """The report's files under ``report/``."""
        self._client.log_artifacts(self._parents[run_id], str(folder), "report")

    def note(self, run_id: str, ranking: Ranking) -> None:
        """A run's leaderboard: the text on its page, its metrics, and the views that show them."""
        uid, run = self._parents[run_id], self._runs[run_id]
        held = self._client.get_run(uid).data.metrics
        start, now = int(1000 * dt.datetime.fromisoformat(run["started"]).timestamp()), int(time.time() * 1000)
        values = {content.clean_name(k): v for k, v in ranking.metrics.items() if math.isfinite(v)}
        # Of values at one step MLflow shows that of the latest time.
        changed = [(k, v, now if k in held else start, 0) for k, v in values.items() if held.get(k) != v]
        self._batched(uid, "metrics", [self._entities.Metric(*p) for p in changed])
        text, rest = ranking.text, "\n\nCut short; all of it is in report/leaderboard.md."
        if len(text) > content.MAX_TAG:
            text = text[: content.MAX_TAG - len(rest)].rpartition("\n")[0] + rest
        self._client.set_tag(uid, content.NOTE, text)
        for tag, view in content.views(values).items():
            self._client.set_experiment_tag(self._experiment_of[run_id], tag, view)

    def rank(self, run_id: str, cells: Mapping[tuple[str, str], Shown]) -> None:
        """A leaderboard's rows of some cells; a cell of another run keeps those of that run's leaderboard."""
        links = [link for link in self._cells[run_id] if (link["task"], link["label"]) in cells]
        ids = ", ".join(f"'{link['mlflow_run_id']}'" for link in links)
        known = list(self._experiments.values())
        found = self._client.search_runs(known, f"attributes.run_id IN ({ids})") if links else []
        data = {run.info.run_id: run.data for run in found}
        for link in links:
            uid = link["mlflow_run_id"]
            if uid not in data:  # deleted there meanwhile
                continue
            ratio, tags, note = cells[link["task"], link["label"]]
            tags = {f"parvibench.{k}": v for k, v in tags.items()}
            tags |= {content.NOTE: note[: content.MAX_TAG]} if note else {}
            held = data[uid].metrics.get(content.RATIO), data[uid].tags
            if link["reused"] == "true" and "parvibench.result" in held[1]:
                continue
            metrics = []
            if math.isfinite(ratio) and not math.isclose(ratio, held[0] or 0.0):
                last = max((m.step for m in self._client.get_metric_history(uid, content.RATIO)), default=0)
                metrics = [self._entities.Metric(content.RATIO, ratio, int(time.time() * 1000), last)]
            changed = [self._entities.RunTag(k, v) for k, v in tags.items() if held[1].get(k) != v]
            if metrics or changed:
                self._client.log_batch(uid, metrics=metrics, tags=changed)

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
        end = int(time.time() * 1000)
        start, run = end - int(record.seconds * 1000), self._runs[run_id]
        made = self._client.create_run(
            self._experiment_of[run_id],
            start_time=start,
            run_name=f"{record.task} / {record.label}"[:250],
            tags={"mlflow.parentRunId": self._parents[run_id], **content.cell_tags(record, run)},
        )
        uid: str = made.info.run_id
        self._log_params(uid, content.cell_params(record))
        self._log_tasks(uid, run, {record.task: record.spec.task_version})
        file = folder / "curve.parquet"
        curve = (
            read_curve(file.read_bytes(), str(file)) if file.is_file() else pd.DataFrame(columns=list(CURVE_COLUMNS))
        )
        measured = [
            self._entities.Metric(content.clean_name(name), value, start + int(1000 * seconds), step)
            for name, step, seconds, value in content.points(record, CurveGrid.of(curve))
            if math.isfinite(value)
        ]
        self._batched(uid, "metrics", measured)
        if folder.is_dir():
            for path in (folder / name for name in CELL_FILES):
                if path.is_file():
                    self._client.log_artifact(uid, str(path))
        else:
            self._client.log_text(uid, record.model_dump_json(indent=1), "cell.json")
        ended = "KILLED" if record.status is Status.INTERRUPTED else "FAILED" if record.status.failed else "FINISHED"
        self._client.set_terminated(uid, ended, end_time=end)
        return uid

    def _log_tasks(self, uid: str, run: Mapping[str, Any], versions: Mapping[str, int]) -> None:
        """The tasks of an MLflow run, in its column of data sets."""
        tasks = [self._entities.Dataset(**content.dataset(task, v, run)) for task, v in versions.items()]
        context = [self._entities.InputTag("mlflow.data.context", "task")]
        self._client.log_inputs(uid, [self._entities.DatasetInput(task, context) for task in tasks])

    def _log_params(self, uid: str, values: Mapping[str, str]) -> None:
        self._batched(uid, "params", [self._entities.Param(content.clean_name(k), v) for k, v in values.items()])

    def _batched(self, uid: str, kind: str, entities: list[Any]) -> None:
        size = BATCH[kind]
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
            tags = {"mlflow.experimentKind": "custom_model_development"} | content.views({})
            try:
                made = self._client.create_experiment(name, artifact_location=place, tags=tags)
            except Exception:  # another process has made it meanwhile
                if (found := self._client.get_experiment_by_name(name)) is None:
                    raise
                made = found.experiment_id
            self._experiments[name] = made
        return self._experiments[name]

    def _find(self, tag: str, value: str) -> Any:
        """The run that carries a tag, in any of our experiments, or None."""
        if not self._experiments:
            return None
        known = list(self._experiments.values())
        runs = self._client.search_runs(known, f"tags.`{tag}` = '{value}'", max_results=1)
        return runs[0] if runs else None
