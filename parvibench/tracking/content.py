"""The names, tags, parameters and metrics of runs and cells in MLflow, and the views that its pages open with."""

import contextlib
import getpass
import hashlib
import json
import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from parvibench.core import registry
from parvibench.core.reference import Floored, load_floored
from parvibench.core.result import CellRecord
from parvibench.harness.store.cell_files import CurveGrid
from parvibench.harness.store.results import metric_values, primary_metric
from parvibench.harness.store.secrets import without_secrets

MAX_TAG, _MAX_PARAM = 5000, 6000
NOTE = "mlflow.note.content"
RATIO = "floor_ratio"
#: Metrics of a cell that describe its cost: MLflow shows them apart from the others.
_COSTS = ("seconds", "score_evaluations", "sequential_steps", "peak_memory")
#: MLflow draws a chart for each metric of a cell: ``floor_ratio``, ``floor``, ``step_size`` and at most nine measured ones.
#: The first of these are left out first; ``cell.json`` and ``curve.parquet`` hold them all.
_MEASURED = 9
_LEFT_OUT = (
    "path_primary", "path_equivalent_n", "ess_per_evaluation", "tail_error", "ks_marginal", "kl_knn", "correlation_error", "divergences",
)  # fmt: skip
#: Metrics that the charts of several cells show, where there are any.
_CHARTS = (
    RATIO, "floor", "step_size", "sliced_w2", "predictive_w2", "nll", "regret", "mean_error", "sd_error", "rhat", "ess_bulk", "acceptance",
)  # fmt: skip


class Shown(NamedTuple):
    """A leaderboard's row of a cell."""

    ratio: float  #: of the primary metric to its noise floor; NaN without a floor
    tags: Mapping[str, str]  #: ``verdict``, ``marks``, ``result`` (number, marks, interval), where there are any
    note: str  #: one sentence


class Ranking(NamedTuple):
    """A run's leaderboard, which this layer does not compute."""

    text: str  #: in Markdown
    cells: Mapping[tuple[str, str], Shown]  #: by task and label
    metrics: Mapping[str, float]  #: of the run as a whole


def points(record: CellRecord, curve: CurveGrid) -> Iterator[tuple[str, int, float, float]]:
    """Metric points of a cell: name, step, compute seconds, value (perhaps not finite)."""
    primary, reference = primary_metric([record], record.task), floored(record.task)
    row = registry.metrics().get(primary)
    floor = reference.floor(primary, record.samples) if reference and row is not None and row.floor_ratio else None
    order = sorted(record.values, key=lambda m: (m != primary, m in _LEFT_OUT and len(_LEFT_OUT) - _LEFT_OUT.index(m)))
    shown = [m for m in order if m not in _COSTS][:_MEASURED]
    for metric in (m for m, stored in record.values.items() if stored and m in (*shown, *_COSTS)):
        for step, spent, value in _course(record, curve, metric):
            yield f"system/{metric}" if metric in _COSTS else metric, step, spent, value
            if metric == primary and floor is not None:
                yield RATIO, step, spent, value / floor.median
                yield "floor", step, spent, floor.median
    if record.effective_step is not None:
        yield "step_size", 0, record.seconds, record.effective_step


def _course(record: CellRecord, curve: CurveGrid, metric: str) -> list[tuple[int, float, float]]:
    """Step, seconds and median over replicates at every checkpoint; at step 0, where MLflow draws bars, if there is one."""
    found = curve.metric(metric)
    if len(found) < 2:
        return [(0, record.seconds, statistics.median(metric_values(metric, record.values[metric])))]
    medians = [statistics.median(metric_values(metric, found.at(i, record.diverged))) for i in range(len(found))]
    steps, seconds = (
        [float(np.median(row[here])) for row, here in zip(found.spent[axis], found.measured, strict=True)]
        for axis in ("iteration", "seconds")
    )
    return list(zip(map(int, steps), seconds, medians, strict=True))


@lru_cache(maxsize=4)  # the cells of a run are in the order of its tasks
def floored(task: str) -> Floored | None:
    """The reference of a task, or None."""
    with contextlib.suppress(ValueError, OSError):  # damaged, or a plug-in whose name is not a valid file name
        return load_floored(task)
    return None


def cell_params(record: CellRecord) -> dict[str, str]:
    """What methods are compared by, as text; what is constant in a run is in ``cell.json`` alone."""
    names = ("settings", "budget", "particles", "samples", "burn_in", "thinning", "seed", "start", "compiled")
    values = record.spec.model_dump(mode="json", exclude_defaults=True, include=set(names))
    return flat(values | {"replicates": record.n_replicates, "tuned": record.tuned})


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


def dataset(task: str, version: int | str, run: Mapping[str, Any]) -> dict[str, str]:
    """A task as MLflow's data set: its name, and the first digits of the SHA-256 of its reference, or its version."""
    sha256 = str(run.get("provenance", {}).get("data", {}).get(f"reference of {task}", ""))
    source = json.dumps({"task": task, "version": version, "reference_sha256": sha256})
    digest = sha256[:12] or f"version {version}"[:36]
    return {"name": task[:500], "digest": digest, "source_type": "parvibench", "source": source}


def run_tags(run: Mapping[str, Any]) -> dict[str, str]:
    """Tags that identify a run."""
    tags = {
        "run_id": run["id"],
        "started": run["started"],
        "suite": run["suite"]["name"],
        "profile": run.get("profile"),
    }
    tags["command"] = run.get("provenance", {}).get("command")
    return {f"parvibench.{k}": without_secrets(str(v))[:MAX_TAG] for k, v in tags.items() if v} | _source(run)


def views(metrics: Mapping[str, float]) -> dict[str, str]:
    """Tags that MLflow's pages offer as views: ``cells`` with their results, ``runs`` over time with the best 11 methods."""
    ranks = {n.partition("/")[2]: v for n, v in metrics.items() if n.startswith("average_rank/")}
    methods = [f"{RATIO}/{m}" for m in sorted(ranks, key=ranks.__getitem__) if f"{RATIO}/{m}" in metrics][:11]
    widths = {"verdict": 135, "marks": 110, "result": 170}
    columns = {
        f"metrics.`{RATIO}`": 100,
        **{f"tags.`parvibench.{k}`": w for k, w in widths.items()},
        "attributes.`Dataset`": 190,
    }
    of_runs = {"metrics.`solved`": 90} | {f"metrics.`{n}`": 150 for n in methods}
    found = {  # cells without their runs between them
        "cells": _view("cells", columns, "cell_key", _CHARTS, "tags.`mlflow.runName`"),
        "runs": _view("runs", of_runs, "run_id", ["solved", *map(re.escape, methods)], "attributes.start_time"),
    }
    return {f"mlflow.sharedViewState.parvibench-{k}": v for k, v in found.items() if len(v) <= MAX_TAG}


def _view(name: str, columns: Mapping[str, int], tag: str, charts: Sequence[str], order: str) -> str:
    """A view of the runs with a tag, in the format of MLflow's pages: columns with their widths, charts, sort key."""
    state = {
        "searchFilter": f"tags.`parvibench.{tag}` != ''", "orderByKey": order, "orderByAsc": name == "cells", "startTime": "ALL",
        "lifecycleFilter": "Active", "datasetsFilter": [], "modelVersionFilter": "All Runs", "selectedColumns": list(columns),
        "columnOrder": list(columns), "columnWidths": columns, "chartsSearchFilter": f"^({'|'.join(charts)})$", "runsHiddenMode": "SHOW_ALL",
    }  # fmt: skip
    # Versions that list views by name read ``state``, earlier ones its fields.
    return json.dumps({"name": f"ParVIBench: {name}", "createdAt": 0, "state": json.dumps(state)} | state)


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested values as text under dotted names, such as ``packages.torch``; None and empty text are left out."""
    found: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        elif value not in (None, ""):
            found[f"{prefix}{key}"] = str(value)[:_MAX_PARAM]
    return found


def clean_name(text: str) -> str:
    """A name MLflow accepts: other characters become ``_``; a name that is cut ends in its digest."""
    clean = re.sub(r"[^\w\-. :/]", "_", text, flags=re.ASCII)
    return clean if len(clean) <= 250 else f"{clean[:230]}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
