"""The names, tags, parameters and metrics of runs and cells in MLflow."""

import contextlib
import datetime as dt
import getpass
import hashlib
import math
import re
import statistics
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from parvibench.core import registry
from parvibench.core.reference import load_floored
from parvibench.core.result import CellRecord, Status
from parvibench.harness.store.curve_grid import CurveGrid
from parvibench.harness.store.results import metric_values, primary_metric
from parvibench.harness.store.secrets import without_secrets

MAX_TAG, _MAX_PARAM = 5000, 6000
NOTE = "mlflow.note.content"
_COMPLETE = ("FINISHED", "FAILED", "KILLED")
RATIO = "floor_ratio"
#: Metrics of a cell that describe its cost: MLflow shows them apart from the others.
_COSTS = ("seconds", "score_evaluations", "sequential_steps", "peak_memory")


class Shown(NamedTuple):
    """A leaderboard's row of a cell."""

    tags: Mapping[str, str]  #: ``verdict``, ``marks``, ``result`` (number, marks, interval), where there are any
    note: str  #: one sentence


class Ranking(NamedTuple):
    """A run's leaderboard, which this layer does not compute."""

    text: str  #: in Markdown
    cells: Mapping[tuple[str, str], Shown]  #: by task and label
    metrics: Mapping[str, float]  #: of the run as a whole


def is_same(run: Any, record: CellRecord) -> bool:
    """Whether a mirrored cell is complete and has the outcome of ``record``."""
    tags = run.data.tags
    return (
        run.info.status in _COMPLETE
        and tags.get("parvibench.status") == str(record.status)
        and tags.get("parvibench.metrics_key", "") == record.metrics_key
    )


def points(record: CellRecord, curve: CurveGrid) -> Iterator[tuple[str, int, float, float]]:
    """Metric points of a cell: name, step, compute seconds, value (perhaps not finite).

    Medians over replicates at every checkpoint; of metrics that were measured at the end alone at step 0, where MLflow
    draws bars.
    """
    primary = primary_metric([record], record.task)
    floor = _floor(record, primary)
    for metric, stored in record.values.items():
        if not stored:
            continue
        name = f"system/{metric}" if metric in _COSTS else metric
        for step, spent, value in _course(record, curve, metric):
            yield name, step, spent, value
            if metric == primary and floor is not None:
                yield RATIO, step, spent, value / floor
                yield "floor", step, spent, floor
    if record.effective_step is not None:
        yield "step_size", 0, record.seconds, record.effective_step


def _course(record: CellRecord, curve: CurveGrid, metric: str) -> Iterator[tuple[int, float, float]]:
    """Iteration, compute seconds and median of a metric at each checkpoint."""
    measured = curve.metric(metric)
    if len(measured) < 2:
        yield 0, record.seconds, statistics.median(metric_values(metric, record.values[metric]))
        return
    for at, here in enumerate(measured.measured):
        iteration, seconds = (float(np.median(measured.spent[axis][at, here])) for axis in ("iteration", "seconds"))
        yield int(iteration), seconds, statistics.median(metric_values(metric, measured.at(at, record.diverged)))


def _floor(record: CellRecord, primary: str) -> float | None:
    """Median noise floor of the primary metric at the size of the samples; None where there is none."""
    row = registry.metrics().get(primary)
    with contextlib.suppress(ValueError, OSError):  # damaged, or a plug-in whose name is not a valid file name
        reference = load_floored(record.task)
        floor = reference.floor(primary, record.samples) if reference and row is not None and row.floor_ratio else None
        return None if floor is None else floor.median
    return None


def cut_lines(text: str, most: int) -> str:
    """The first lines of a text, at most so many characters, and a word on the rest."""
    rest = "\n\nCut short; all of it is in report/leaderboard.md."
    return text if len(text) <= most else text[: most - len(rest)].rpartition("\n")[0] + rest


def cell_params(record: CellRecord) -> dict[str, str]:
    """What methods are compared by, as text; what is constant in a run is in ``cell.json`` alone."""
    names = ("settings", "budget", "particles", "samples", "burn_in", "thinning", "seed", "start", "compiled")
    values = record.spec.model_dump(mode="json", exclude_defaults=True, include=set(names))
    return _flat(values | {"replicates": record.n_replicates, "tuned": record.tuned})


def cell_tags(record: CellRecord, run: Mapping[str, Any]) -> dict[str, str]:
    """Tags that identify a cell, its outcome, and the units of its metrics; MLflow's own of author and source."""
    names = ("task", "algorithm", "label", "kind", "status", "reason", "n_diverged", "metrics_key", "hardware", "created")  # fmt: skip
    tags = {"cell_key": record.key, "device": record.spec.device} | {n: str(getattr(record, n)) for n in names}
    lost = {m: sum(v is None or not math.isfinite(v) for v in stored) for m, stored in record.values.items()}
    tags["flags"] = "; ".join(record.flags)
    tags["nonfinite"] = ", ".join(f"{m}: {n} replicates" for m, n in lost.items() if n)
    # MLflow knows no units, and their signs are not admitted in names.
    rows = {m: registry.metrics().get(m) for m in record.values}
    tags |= {f"unit.{m}": r.unit for m, r in rows.items() if r is not None and r.unit not in ("1", "count")}
    note = f"{record.label} on {record.task}: {record.status}{f', {record.reason}' if record.reason else ''}."
    return {f"parvibench.{k}": v[:MAX_TAG] for k, v in tags.items() if v} | _source(run) | {NOTE: note[:MAX_TAG]}


def _source(run: Mapping[str, Any]) -> dict[str, str]:
    """MLflow's own tags of a run's author, program and commit."""
    facts = run.get("provenance", {})
    words = without_secrets(str(facts.get("command") or "")).split()
    tags = {"mlflow.source.name": " ".join(words[:2]) or "parvibench", "mlflow.source.type": "LOCAL"}
    tags |= {"mlflow.source.git.commit": str(facts.get("git") or "").rstrip("+")}
    with contextlib.suppress(OSError, KeyError, ImportError):  # an account without a name
        tags["mlflow.user"] = getpass.getuser()
    return {k: v for k, v in tags.items() if v}


def run_tags(run: Mapping[str, Any]) -> dict[str, str]:
    """Tags that identify a run."""
    tags = {
        "run_id": run["id"],
        "started": run["started"],
        "suite": run["suite"]["name"],
        "profile": run.get("profile"),
        "command": run.get("provenance", {}).get("command"),
    }
    return {f"parvibench.{k}": without_secrets(str(v))[:MAX_TAG] for k, v in tags.items() if v} | _source(run)


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


def milliseconds(time: str) -> int:
    """A time in ISO's format in milliseconds since 1970."""
    return int(1000 * dt.datetime.fromisoformat(time).timestamp())


def mlflow_status(status: Status) -> str:
    """The nearest of MLflow's own statuses."""
    if status is Status.INTERRUPTED:
        return "KILLED"
    return "FAILED" if status.failed else "FINISHED"


def clean_name(text: str) -> str:
    """A name MLflow accepts: other characters become ``_``; a name that is cut ends in its digest."""
    clean = re.sub(r"[^\w\-. :/]", "_", text, flags=re.ASCII)
    return clean if len(clean) <= 250 else f"{clean[:230]}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
