"""What to know of the results of a run: tasks without a reference, starts far from the mass, and log Z in doubt."""

import shlex
from collections.abc import Mapping

import torch
from torch import Generator

from parvibench.core import registry
from parvibench.core.errors import ParVIBenchError
from parvibench.core.reference import Reference
from parvibench.core.result import CellRecord, Status
from parvibench.core.task import Task
from parvibench.harness.marks.log_z import verdicts
from parvibench.harness.store.results import median_of
from parvibench.metrics.evaluate import evaluate_samples
from parvibench.targets.generative import DOORS
from parvibench.targets.stan_models import StanTask

from .facts import agreement
from .formatting import name, named, number
from .presented import Results

FAR, UNMOVED = 10.0, 5.0  # standard deviations of the start from the mass; floors above which no method came near


def doubts(results: Results) -> list[str]:
    """Sentences about the tasks of a run, for the terminal; files of tasks that the suite names are imported."""
    places = [str(row["name"]) for row in results.run.suite.get("tasks", ())]
    found, log_z = [], list[tuple[str, float | None, list[CellRecord]]]()
    for place in places or dict.fromkeys(cell.task for cell in results.cells):
        try:
            task = registry.load_task(place)
            cells = [c for c in results.cells if c.task == task.name and c.status is Status.OK and c.kind != "anchor"]
            log_z += [(task.name, task.facts.log_z, cells)] * task.has_constant
            if cells and task.floored() is None:
                found += _untested(results, task, cells, place)
            elif cells and all(c.spec.start == task.begins == "task" for c in cells):
                found += _far(results, task)
        except ParVIBenchError:  # the task's data are not here
            continue
    return verdicts(log_z) + found


def _untested(results: Results, task: Task, cells: list[CellRecord], place: str) -> list[str]:
    """KSD with its p-values, diagnostics and agreement of the methods, the one to trust, and what would settle it."""
    if not any("ksd" in cell.values for cell in cells):
        return []  # ranked by what they predict
    draws = {c.label: found for c in cells[:20] if (found := agreement.draws_of(results, c)) is not None}
    tested = []
    for label, found in draws.items():
        row = evaluate_samples(task, torch.tensor(found[0][0]), metrics=["ksd"])["metrics"][0]
        tested += [] if row["p_value"] is None else [f"{label} {row['p_value']:.2g}"]
    p = f" p of KSD by wild bootstrap (first replicate): {', '.join(tested)}." if tested else ""
    compared = [cell for cell in cells if cell.label in draws]
    agree = agreement.agreements(draws)
    passing = [cell.label for cell in compared if agreement.sound(results, cell)]
    chosen = agreement.trusted(compared, agree, passing)
    trust = f"Trust none: R-hat, ESS and divergences pass for {named(passing, 6) or 'no method'}{', without agreement' * bool(passing)}."
    if chosen is not None:
        trust = (
            f"Trust {name(chosen.label)}: its R-hat, ESS and divergences pass, and another method agrees with its means and standard "
            "deviations. Agreement cannot show a mode that all methods missed."
        )
    return [
        f"{task.name} has no reference. A rank by KSD is weak evidence: it sees neither wrong weights of separated modes nor a "
        f"mode that was missed.{p}",
        *(_method(cell, agree[cell.label]) for cell in compared),
        trust,
        _settled(task, place, chosen),
    ]


def _method(cell: CellRecord, others: Mapping[str, bool | None]) -> str:
    """Diagnostics of a method at its cost, and the methods that it agrees with."""
    rhat, divergences = median_of(cell, "rhat"), median_of(cell, "divergences")
    said = [] if rhat is None else [f"R-hat {number(rhat)}"]
    for metric, short in (("ess_bulk", "bulk ESS"), ("ess_tail", "tail ESS")):
        if (ess := median_of(cell, metric)) is not None and cell.score_evaluations and cell.seconds:
            each = number(1000 * ess / cell.score_evaluations), number(ess * cell.n_replicates / cell.seconds)
            said.append(f"{short} {each[0]} per 1,000 evaluations, {each[1]} per second")
    said += [] if divergences is None else [f"{100 * divergences:.2g}% divergences"]
    without = "no other method" if not others or False in others.values() else "none: too few effective draws to tell"
    said.append(f"agrees with {named([label for label, same in others.items() if same], 6) or without}")
    return f"  {name(cell.label)}: {'; '.join(said)}"


def _settled(task: Task, place: str, chosen: CellRecord | None) -> str:
    """Commands that settle which method is right; calibration where the model draws data."""
    text = f"Build a reference: parvibench reference build {shlex.quote(place)}"
    if isinstance(task, (StanTask, *DOORS)):
        text += f"; or calibrate: parvibench calibrate {shlex.quote(place)} -a {shlex.quote(chosen.algorithm if chosen else 'nuts')}"
    return text + (" --simulator SIMULATOR.stan" if isinstance(task, StanTask) else "")


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
