"""The names behind ``list``, ``show``, ``new`` and ``data``: tasks, algorithms, metrics, suites and data sets.

And what every command needs before it runs anything: defaults, places of outputs, numbers as text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parvibench.authoring.scaffold import Scaffold, scaffold
from parvibench.core import registry
from parvibench.core.errors import InputError, UnknownNameError
from parvibench.data import fetch
from parvibench.harness.execution import DEFAULT_STORE as DEFAULT_STORE
from parvibench.harness.execution import DEFAULT_TIMEOUT_S as DEFAULT_TIMEOUT_S
from parvibench.harness.execution import Execution as Execution
from parvibench.harness.store.files import output_place as output_place
from parvibench.reporting.formatting import count as count
from parvibench.reporting.formatting import interval as interval
from parvibench.reporting.formatting import number as number
from parvibench.suites import shipped

if TYPE_CHECKING:
    from parvibench.harness.suite.suite import Suite

KINDS = ("task", "algorithm", "metric", "suite")


def names(kind: str) -> list[str]:
    """All names of a kind: one of ``KINDS``, or ``data``. Loads no task and no algorithm."""
    known: dict[str, Callable[[], Mapping[str, Any]]] = {"suite": shipped, "data": fetch.registry}
    known |= {"task": registry.tasks, "algorithm": registry.algorithms, "metric": registry.metrics}
    return list(known[kind]())


def rows(kind: str) -> list[dict[str, Any]]:
    """A summary of every task, algorithm, metric, suite or posterior of posteriordb."""
    if kind == "posteriordb":
        from parvibench.targets import posteriordb

        return posteriordb.rows()
    if kind == "task":
        return list(_task_rows())
    if kind == "suite":
        return list(_suite_rows())
    if kind == "algorithm":
        return _columns(registry.algorithms(), "name", "kind", "summary", "needs", "citation")
    return _columns(registry.metrics(), "name", "direction", "unit", "need", "summary")


def _columns(found: Mapping[str, Any], *columns: str) -> list[dict[str, Any]]:
    return [{name: getattr(row, name) for name in columns} for row in found.values()]


def _task_rows() -> Iterator[dict[str, Any]]:
    missing = {s["name"] for s in data_sets() if s["state"] != "ok"}
    for r in registry.tasks().values():
        state = "data missing" if missing & set(r.data) else "ready"
        head = {"name": r.name, "dim": r.dim, "reference": r.judged_by, "status": state}
        row = head | {"tags": list(r.tags), "data": list(r.data), "summary": r.summary}
        yield row if r.built_in else row | _loaded(r.name)


def _loaded(name: str) -> dict[str, Any]:
    """What only the code of another package's task knows, or why it cannot be loaded."""
    try:
        task = registry.load_task(name)
    except InputError as error:
        return {"dim": "", "status": "not found", "summary": str(error)}
    judged = "own" if task.reference() is not None else "exact draws" if "exact" in task.provides else "none"
    known = {"dim": task.dim, "tags": sorted(task.tags), "data": list(task.data), "summary": task.summary}
    return known | {"reference": judged}


def _suite_rows() -> Iterator[dict[str, Any]]:
    from parvibench.harness.suite.suite import load_suite

    for name, suite in ((name, load_suite(name)) for name in shipped()):
        pairs = suite.pairs
        counts = {"tasks": len({t.name for t, _ in pairs}), "algorithms": len({a.display for _, a in pairs})}
        head = {"name": name, **counts, "rows": len(suite.rows) or ""}
        yield {**head, "profiles": _profiles(suite), "description": suite.description}


def _profiles(suite: Suite) -> list[str]:
    """Its profiles, with the time that each takes on one core where that is known."""
    return [f"{k} ({duration(3600 * p.hours)})" if p.hours is not None else k for k, p in suite.profiles.items()]


def unnamed_profile(name: str) -> str:
    """The profile under which a shipped suite is run if none is named, and the others; empty where there is no choice."""
    from parvibench.harness.suite.suite import load_suite

    profiles = _profiles(load_suite(name)) if name in shipped() else []
    if len(profiles) < 2:
        return ""
    first, others = profiles[0], ", ".join(profiles[1:])
    return f"profile {first}; others, by --profile: {others} (time of the whole suite on one core)"


def duration(seconds: float) -> str:
    """Seconds as text, in seconds, minutes or hours."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def data_sets() -> list[dict[str, Any]]:
    """The data sets and whether they are on disk; downloads nothing."""
    return [asdict(r) | {"path": str(r.path) if r.path else None} for r in fetch.status()]


def fetch_data(wanted: Sequence[str] = ()) -> Iterator[tuple[str, Path]]:
    """Download data sets, by default all, and verify their hashes: name and file of each."""
    known = names("data")
    for name in wanted:
        if name not in known:
            raise UnknownNameError("data set", name, known)
    for name in wanted or known:
        yield name, fetch.fetch(name)


def draw_reference(task: str, path: Path) -> Path:
    """Write a corner plot of a task's reference samples as PNG or SVG; its path."""
    reference = registry.load_task(task).reference()
    if reference is None:
        raise InputError(f"--figure: task {task} has no reference samples to draw")
    from parvibench.reporting.figures.high_dimensional import write_corner

    if path.suffix not in (".png", ".svg"):
        raise InputError(f"--figure {path}: the name must end in .png or .svg")
    output_place(path.parent, folder=True).mkdir(parents=True, exist_ok=True)
    return write_corner(reference, output_place(path))


def new(kind: str, name: str, to: Path) -> Scaffold:
    """Write a working file for an unregistered algorithm or task, and its test."""
    return scaffold(kind, name, output_place(to, folder=True))
