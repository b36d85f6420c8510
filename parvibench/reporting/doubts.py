"""What to know of the results of a run: tasks without a reference, starts far from the mass, and log Z in doubt."""

import torch
from torch import Generator

from parvibench.core import registry
from parvibench.core.errors import ParVIBenchError
from parvibench.core.reference import Reference
from parvibench.core.result import CellRecord, Status
from parvibench.core.task import Task
from parvibench.harness.marks.log_z import verdicts

from .formatting import name
from .presented import Results
from .tables.task_tables import trust_table
from .text.trusting import KSD

FAR, UNMOVED = 10.0, 5.0  # standard deviations of the start from the mass; floors above which no method came near


def doubts(results: Results) -> list[str]:
    """Sentences about the tasks of a run, for the terminal; files of tasks that the suite names are imported."""
    places = [str(row["name"]) for row in results.run.suite.get("tasks", ())]
    found, log_z = [], list[tuple[str, float | None, list[CellRecord]]]()
    for place in places or dict.fromkeys(cell.task for cell in results.cells):
        try:
            task = registry.load_task(place)
            cells = [c for c in results.cells if c.task == task.name and c.status is Status.OK and c.kind != "anchor"]
            rounded = next((flag for cell in cells for flag in cell.flags if "single precision" in flag), "")
            found += [f"{task.name}: {rounded}"] if rounded else []
            log_z += [(task.name, task.facts.log_z, cells)] * task.has_constant
            if answer := results.without_reference.get(task.name):
                table = trust_table(answer)
                facts = [zip(table.columns[1:], row.entries[1:], strict=True) for row in table.rows]
                known = ["; ".join(f"{c.title} {e.text}" for c, e in row if e.text) for row in facts]
                found += [f"  {name(m.label)}: {text}" for m, text in zip(answer.methods, known, strict=True)]
                found += [KSD, answer.sentence(task.name), f"To settle it: {'; or '.join(answer.commands)}"]
            elif cells and all(c.spec.start == task.begins == "task" for c in cells):
                found += _far(results, task)
        except ParVIBenchError:  # the task's data are not here
            continue
    return verdicts(log_z) + found


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
