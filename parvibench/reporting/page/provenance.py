"""Provenance of the numbers: step sizes, failures, metrics, versions and commands."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from parvibench.core import registry
from parvibench.core.result import CellRecord, Status
from parvibench.harness.store.results import StoredRun
from parvibench.reporting.formatting import join
from parvibench.reporting.tables.leaderboard import NOT_RUN, fixed_step, tuning_cost
from parvibench.reporting.tables.table import Column, Entry, Row, Table, method, setting, sortable
from parvibench.reporting.text import facts, validity

_MAX_TEXT = 4000


@dataclass(frozen=True)
class StepSizes:
    """Origin of the step sizes, as text and as a table, and those on the edge of the tuning grid."""

    summary: str
    at_edge: tuple[str, ...]
    table: Table
    warning: str  #: which step sizes were not tuned; empty where all were


_STEP_COLUMNS = (
    Column("method", numeric=False),
    Column("task", numeric=False),
    Column("step size", "the setting eta in x + eta score + sqrt(2 eta) noise"),
    Column("origin", "default of the method, set by the suite or the user, or tuned", numeric=False),
    Column("effective step", "the factor that multiplies the velocity"),
    Column("tuning cost", "score evaluations spent on tuning it"),
)


def step_sizes(results: StoredRun) -> StepSizes | None:
    """Step sizes used, their origin, and the cost of tuning them; None without any."""
    tuned = results.run.suite.get("tuned") or {}
    cells = [c for c in results.cells if c.settings.get("step_size") is not None and c.status not in NOT_RUN]
    body, at_edge, origins, total = [], [], list[str](), 0.0
    for c in cells:
        origins.append(origin := step_origin(c, results.run.suite))
        cost = tuning_cost(c, results.run.suite)
        total += cost or 0.0
        chosen = Entry(origin)
        if c.tuned and f"{c.task}/{c.label}" in tuned.get("at_edge", ()):
            at_edge.append(f"{c.label} on {c.task}")
            chosen = Entry(f"{origin}, at the edge of the grid", look="status")
        spent = Entry("") if cost is None else Entry(f"{cost:,.0f}", sortable(cost))
        steps = setting(c.settings["step_size"]), chosen, setting(c.effective_step)
        body.append(Row((method(c.label), Entry(c.task), *steps, spent)))
    if not cells:
        return None
    counts = Counter(origins)
    tags = [row.tags if (row := registry.tasks().get(c.task)) else () for c in cells if c.tuned]
    return StepSizes(
        validity.step_sizes(counts, list(dict.fromkeys(map(validity.tuned_by, tags))), total),
        tuple(at_edge),
        Table("Step sizes", _STEP_COLUMNS, tuple(body)),
        validity.untuned(len(cells) - counts["tuned"], len(cells)),
    )


def step_origin(cell: CellRecord, suite: Mapping[str, Any]) -> str:
    """Where a cell's step size comes from; empty where it has none or was not run."""
    if cell.settings.get("step_size") is None or cell.status in NOT_RUN:
        return ""
    if cell.tuned:
        return "tuned"
    if fixed_step(suite, cell):
        return "set"
    try:
        default = registry.load_method(cell.algorithm).make_settings({})
    except Exception:  # a plug-in that is no longer installed
        return "not known"
    return "default" if getattr(default, "step_size", None) == cell.settings["step_size"] else "set"


def failures(results: StoredRun) -> list[CellRecord]:
    """Cells that failed, were not run, or lost replicates."""
    return [c for c in results.cells if c.status is not Status.OK or c.n_diverged]


def glossary(results: StoredRun) -> list[registry.MetricRow]:
    """The metrics of the run."""
    used = {m for c in results.cells for m in (*c.values, *c.absent)}
    return [row for name, row in registry.metrics().items() if name in used]


def profile_in_words(results: StoredRun) -> str:
    """The suite's profile; one that options of the command changed is not called by its name alone."""
    run = results.run
    changed = run.provenance.get("changed") if run.profile else None
    return f"{run.profile} with other {join(changed)}" if changed else run.profile or ""


def provenance(results: StoredRun) -> list[tuple[str, str]]:
    """Pairs of names and short texts; empty ones are left out."""
    run = results.run
    asked = json.loads(json.dumps({k: v for k, v in run.suite.items() if k != "tuned"}, default=str))
    values: dict[str, Any] = {
        "run": run.id,
        "started": run.started,
        "finished": run.finished or results.unfinished,
        "profile": run.profile,
        **run.provenance,
        "command": without_folders(str(run.provenance.get("command", ""))),
        "suite": facts.value(_given(asked)),
    }
    return [(name, text[:_MAX_TEXT]) for name, value in values.items() if (text := _in_words(value))]


def _given(value: Any) -> Any:
    """A document without its empty entries."""
    if isinstance(value, dict):
        return {k: _given(v) for k, v in value.items() if v not in ("", None, False, [], {})}
    return [_given(v) for v in value] if isinstance(value, list) else value


def without_folders(command: str) -> str:
    """A command line without the folders of its absolute paths: pages are copied elsewhere and must not leak local paths.

    >>> without_folders("parvibench run --suite=/home/me/own.yaml --out /tmp/a/store --task banana")
    'parvibench run --suite=own.yaml --out store --task banana'
    """
    return re.sub(r"(?<![^\s='\"])[~/]\S*/(?=[^\s/])", "", command)


def _in_words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {v}" for k, v in value.items() if v not in (None, ""))
    return "" if value is None else str(value)
