"""Putting the parts of a run together that different machines made (``run --shard I/K``, then ``merge``)."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from parvibench.core.errors import StoreError
from parvibench.harness.suite.cells import Cell

from .cell_files import single_precision
from .store import RunRecord, Store, new_run_id


def shard(cells: Sequence[Cell], part: int, parts: int) -> list[Cell]:
    """Every ``parts``-th cell from number ``part`` (counted from 1) on: a fair share of every task."""
    return list(cells[part - 1 :: parts])


def merge(sources: Sequence[Store], into: Store, *, samples: bool = True) -> tuple[RunRecord, list[str]]:
    """Copy the latest run of every source, all of one suite, into one store as one run.

    Returns the new run and notes for the user: settings that differ, duplicate cells, seconds that cannot be compared. Without ``samples`` (and
    trajectories) records and curves are enough for pages, further merging and resuming, at a tenth of the space or less.
    Nothing is copied, and ``StoreError`` raised, for a source without a run, different suites, or a damaged or large file.
    """
    runs = [source.run() for source in sources]
    names = {str(run.suite.get("name", "")) for run in runs}
    if len(names) > 1:
        raise StoreError(f"these are runs of different suites: {', '.join(sorted(names))}")
    for source, run in zip(sources, runs, strict=True):  # read once: a damaged, missing or oversized file raises
        for cell in run.cells:
            source.find_for(cell)
            for read in (source.samples, source.trajectories, source.curve):
                read(cell.key)
    own = {k: {str(r.suite.get(k)) for r in runs} for k in ("budget", "replicates", "seed", "particles", "samples")}
    notes = [f"the parts differ in {k}: {' and '.join(sorted(said))}" for k, said in own.items() if len(said) > 1]
    with into.locked():
        for source, run in zip(sources, runs, strict=True):
            for key in dict.fromkeys(c.key for c in run.cells):
                notes += _copy(source, into, key, samples=samples)
        merged = into.last(_joined(runs))
        into.write_run(merged)
    records = (into.usable(cell.key) for cell in merged.cells)
    machines = {r.hardware for r in records if r is not None and r.hardware}
    if len(machines) > 1:
        notes.append(f"seconds are not compared: they come from {' and '.join(sorted(machines))}")
    return merged, notes


def copy_run(source: Store, run: RunRecord, into: Store, curves: Mapping[str, Collection[str]]) -> None:
    """Copy a run's records, and ``curves`` of some metrics by task with seven digits, without samples; errors as of reading."""
    with into.locked():
        for key, task in {c.key: c.task for c in run.cells}.items():
            _copy(source, into, key, samples=False, only=curves.get(task, ()))
        into.write_run(run)


def _copy(source: Store, into: Store, key: str, *, samples: bool, only: Collection[str] | None = None) -> list[str]:
    """Copy one cell, of its curve ``only`` some metrics in single precision, unless as good a result is there; notes for the user."""
    found, held = source.find(key), into.usable(key)
    if found is None:
        return []
    if held is not None and (found.status.failed or not held.status.failed):
        same = held.values == found.values or held.hardware != found.hardware
        twice = f"{found.task}/{found.label} was already there"
        return [] if same else [f"{twice}, with other values: the first result stays"]
    curve = source.curve(key) if found.values else None
    arrays = (source.samples(key), source.trajectories(key)) if samples else ()
    if curve is not None and only is not None:
        curve = single_precision(curve[curve["metric"].isin(only)])
    into.write_cell(found, curve, *arrays)
    return []


def _joined(runs: Sequence[RunRecord]) -> RunRecord:
    """One run of all cells, in the suite's order where every part names it."""
    cells = list({(c.task, c.label): c for run in runs for c in run.cells}.values())
    suite = runs[0].suite
    labels = [a.get("label") or a["name"] for a in suite.get("algorithms", ())]
    order = [(t["name"], label) for t in suite.get("tasks", ()) for label in labels]
    order += [(r["task"], r.get("label") or r["algorithm"]) for r in suite.get("rows", ())]
    cells.sort(key=lambda c: order.index(own) if (own := (c.task, c.label)) in order else len(order))
    times: dict[str, Any] = {"started": min(run.started for run in runs), "finished": max(run.finished for run in runs)}
    facts = runs[0].provenance | {"merged from": [run.id for run in runs]}
    return RunRecord(
        id=new_run_id(suite["name"]), suite=suite, profile=runs[0].profile, cells=cells, provenance=facts, **times
    )
