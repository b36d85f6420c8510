"""What to know of the results of a run: tasks without a reference, starts far from the mass, and log Z in doubt."""

import shlex

import torch
from torch import Generator

from parvibench.core import registry
from parvibench.core.errors import ParVIBenchError
from parvibench.core.reference import Reference
from parvibench.core.result import CellRecord, Status
from parvibench.core.task import Task
from parvibench.harness.marks.log_z import verdicts
from parvibench.metrics.evaluate import evaluate_samples

from .presented import Results

FAR, UNMOVED = 10.0, 5.0  # standard deviations of the start from the mass; floors above which no method came near


def doubts(results: Results) -> list[str]:
    """Sentences about the tasks of a run, for the terminal; files of tasks that the suite names are imported."""
    places = [str(row["name"]) for row in results.run.suite.get("tasks", ())]
    found = []
    for place in places or dict.fromkeys(cell.task for cell in results.cells):
        try:
            task = registry.load_task(place)
            cells = [c for c in results.cells if c.task == task.name and c.status is Status.OK and c.kind != "anchor"]
            found += verdicts(task.name, task.facts.log_z, cells)
            if cells and task.floored() is None:
                found += _untested(results, task, cells, place)
            elif cells and all(c.spec.start == task.begins == "task" for c in cells):
                found += _far(results, task)
        except ParVIBenchError:  # the task's data are not here
            continue
    return found


def _untested(results: Results, task: Task, cells: list[CellRecord], place: str) -> list[str]:
    """That a rank is by KSD alone, with its p-values."""
    if not any("ksd" in cell.values for cell in cells):
        return []  # ranked by what they predict
    tested = []
    for cell in cells[:20]:
        if (x := results.samples(cell)) is not None and bool(torch.tensor(x[0]).isfinite().all()):
            row = evaluate_samples(task, torch.tensor(x[0], dtype=torch.float64), metrics=["ksd"])["metrics"][0]
            tested += [] if row["p_value"] is None else [f"{cell.label} {row['p_value']:.2g}"]
    p = f" p of KSD by wild bootstrap (first replicate): {', '.join(tested)}." if tested else ""
    return [
        f"{task.name} has no reference. A rank by KSD is weak evidence: it sees neither wrong weights of separated modes nor a "
        f"mode that was missed.{p} Build a reference: parvibench reference build {shlex.quote(place)}"
    ]


def _far(results: Results, task: Task) -> list[str]:
    """How far the start is from the mass, where no method came near it."""
    reference = task.reference()
    ratios = results.board.query("task == @task.name and not anchor")["floor_ratio"].dropna()
    if not isinstance(reference, Reference) or not len(ratios) or ratios.min() < UNMOVED:
        return []
    start = task.initial(task.target([0], "cpu", torch.float64), 100, [Generator().manual_seed(0)])[0].double()
    apart = (start.mean(0) - reference.mean).abs() / reference.sd
    far, worst = (v.item() for v in apart.nan_to_num(0.0).max(0))
    names = getattr(task, "coordinates", ()) or [f"x{i + 1}" for i in range(task.dim)]
    if not FAR < far < float("inf"):
        return []
    return [
        f"{task.name}: the start is {far:,.0f} posterior standard deviations from the mean in {names[int(worst)]}, and no method "
        f"came within {UNMOVED:g} floors. Start nearer (--start pathfinder, laplace or prior; "
        "in a suite start: pathfinder, in Python initial='pathfinder'), or standardise the coordinates"
    ]
