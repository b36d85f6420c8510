"""The parameters, tags and metric points that MLflow gets of a run and of a cell."""

import datetime as dt
import hashlib
import math
import re
import statistics
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pandas as pd

from parvibench.core import registry
from parvibench.core.result import CellRecord, Status
from parvibench.harness.store.results import checkpoint_values, metric_values
from parvibench.harness.store.secrets import without_secrets

#: Cells with more replicates log medians only; the artifact curve.parquet holds them all.
MAX_REPLICATE_SERIES = 20
MAX_TAG, _MAX_PARAM = 5000, 6000
_COMPLETE = ("FINISHED", "FAILED", "KILLED")
#: MLflow then shows runs and their comparison first, and no pages on language models.
EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}


class Ranking(NamedTuple):
    """What a run's leaderboard says, which this layer does not compute."""

    text: str  #: in Markdown
    #: (task, label) -> ratio of the primary metric to its noise floor (NaN without a floor), and verdict (perhaps empty)
    cells: Mapping[tuple[str, str], tuple[float, str]]


def is_same(run: Any, record: CellRecord) -> bool:
    """Whether a mirrored cell is complete and has the outcome of ``record``."""
    tags = run.data.tags
    return (
        run.info.status in _COMPLETE
        and tags.get("parvibench.status") == str(record.status)
        and tags.get("parvibench.metrics_key", "") == record.metrics_key
    )


def points(record: CellRecord, curve: pd.DataFrame | None) -> Iterator[tuple[str, int, float, float]]:
    """Metric points of a cell: name, step, compute seconds, value (perhaps not finite)."""
    if curve is not None:
        for (name, _), rows in curve.groupby(["metric", "checkpoint"]):
            metric = str(name)
            step, seconds = int(rows["iteration"].median()), float(rows["seconds"].median())
            yield metric, step, seconds, statistics.median(checkpoint_values(metric, rows, record.diverged))
            if record.n_replicates <= MAX_REPLICATE_SERIES:
                columns = (rows[c].tolist() for c in ("replicate", "iteration", "seconds", "value"))
                for replicate, at, spent, value in zip(*columns, strict=True):
                    yield f"replicates/{metric}.r{replicate}", at, spent, value
    for metric, stored in record.values.items():
        values = metric_values(metric, stored)
        lost = sum(v is None or not math.isfinite(v) for v in stored)
        if values:
            yield f"final/{metric}", record.iterations, record.seconds, statistics.median(values)
        if lost:
            yield f"nonfinite/{metric}", record.iterations, record.seconds, float(lost)


def run_title(run: Mapping[str, Any]) -> str:
    """Suite and profile."""
    return " ".join(filter(None, (str(run["suite"]["name"]), run.get("profile"))))


def cut_lines(text: str, most: int) -> str:
    """The first lines of a text, at most so many characters, and a word on the rest."""
    rest = "\n\nCut short; all of it is in report/leaderboard.md."
    return text if len(text) <= most else text[: most - len(rest)].rpartition("\n")[0] + rest


def cell_params(record: CellRecord) -> dict[str, str]:
    """The specification of a cell, as text."""
    values = record.spec.model_dump(mode="json") | {"replicates": record.n_replicates, "tuned": record.tuned}
    return _flat(values | {"effective_step": record.effective_step, "process": record.process})


def cell_tags(record: CellRecord) -> dict[str, str]:
    """Tags that identify a cell, its outcome, and the units of its metrics."""
    names = ("task", "algorithm", "label", "kind", "status", "reason", "n_diverged", "metrics_key", "hardware", "created")  # fmt: skip
    tags = {"cell_key": record.key} | {n: str(getattr(record, n)) for n in names}
    tags["flags"] = "; ".join(record.flags)
    # MLflow knows no units, and their signs are not admitted in names.
    rows = {m: registry.metrics().get(m) for m in record.values}
    tags |= {f"unit.{m}": r.unit for m, r in rows.items() if r is not None and r.unit not in ("1", "count")}
    return {f"parvibench.{k}": v[:MAX_TAG] for k, v in tags.items() if v}


def run_tags(run: Mapping[str, Any]) -> dict[str, str]:
    """Tags that identify a run."""
    tags = {
        "run_id": run["id"],
        "started": run["started"],
        "suite": run["suite"]["name"],
        "profile": run.get("profile"),
        "command": run.get("provenance", {}).get("command"),
    }
    return {f"parvibench.{k}": without_secrets(str(v))[:MAX_TAG] for k, v in tags.items() if v}


def run_params(run: Mapping[str, Any]) -> dict[str, str]:
    """The provenance of a run, flat: ``packages.torch``, ``data.boston`` ..."""
    return {k: without_secrets(v) for k, v in _flat(run.get("provenance", {})).items()}


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested values as text under dotted names; None and empty text are left out."""
    found: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{key}.")
        elif value not in (None, ""):
            found[f"{prefix}{key}"] = str(value)[:_MAX_PARAM]
    return found


def system_points(run: Mapping[str, Any]) -> Iterator[tuple[str, float, int, int]]:
    """Load of the machine: name, value, time in ms, step in whole seconds since the start."""
    start = dt.datetime.fromisoformat(run["started"]).timestamp()
    for row in run.get("system", ()):
        for name, value in row.items():
            if name != "seconds":
                yield f"system/{name}", value, int(1000 * (start + row["seconds"])), int(row["seconds"])


def mlflow_status(status: Status) -> str:
    """The nearest of MLflow's own statuses."""
    if status is Status.INTERRUPTED:
        return "KILLED"
    return "FAILED" if status.failed else "FINISHED"


def clean_name(text: str) -> str:
    """A name MLflow accepts: other characters become ``_``; a name that is cut ends in its digest."""
    clean = re.sub(r"[^\w\-. :/]", "_", text, flags=re.ASCII)
    return clean if len(clean) <= 250 else f"{clean[:230]}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
