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
from parvibench.targets.jax_models import NumpyroTask
from parvibench.targets.pymc_models import PymcTask
from parvibench.targets.pyro_models import PyroTask
from parvibench.targets.stan_models import StanTask

from .facts import agreement
from .formatting import name, named, number
from .presented import Results

#: Methods that are compared, and named in a sentence; p of KSD below which a method is not trusted.
_COMPARED, _NAMED, _REFUTED = 20, 6, 0.001

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
    """KSD with its p-values, diagnostics and agreement of the methods, the one to trust, and what would settle it."""
    if not any("ksd" in cell.values for cell in cells):
        return []  # ranked by what they predict
    draws = {c.label: found for c in cells[:_COMPARED] if (found := agreement.draws_of(results, c)) is not None}
    p_values: dict[str, float] = {}
    for label, found in draws.items():
        row = evaluate_samples(task, torch.tensor(found.samples[0]), metrics=["ksd"])["metrics"][0]
        p_values |= {} if row["p_value"] is None else {label: row["p_value"]}
    tested = ", ".join(f"{label} {value:.2g}" for label, value in p_values.items())
    p = f" p of KSD by wild bootstrap (first replicate): {tested}." if tested else ""
    agree = agreement.agreements(draws)
    passing = [
        c.label
        for c in cells
        if c.label in draws and p_values.get(c.label, 1.0) >= _REFUTED and agreement.sound(results, c)
    ]
    chosen = agreement.trusted(cells, agree, passing)
    return [
        f"{task.name} has no reference. A rank by KSD is weak evidence: it sees neither wrong weights of separated modes nor a "
        f"mode that was missed.{p}",
        *(_method(cell, agree[cell.label]) for cell in cells if cell.label in draws),
        _trust(chosen, passing, agree),
        _settled(task, place, chosen),
    ]


def _method(cell: CellRecord, others: Mapping[str, bool | None]) -> str:
    """Diagnostics of a method at its cost, and the methods that it agrees with."""
    known = {metric: median_of(cell, metric) for metric in ("rhat", "ess_bulk", "ess_tail", "divergences")}
    said = [] if known["rhat"] is None else [f"R-hat {number(known['rhat'])}"]
    for metric, short in (("ess_bulk", "bulk ESS"), ("ess_tail", "tail ESS")):
        if (ess := known[metric]) is not None and cell.score_evaluations and cell.seconds:
            per_second = number(ess * cell.n_replicates / cell.seconds)
            said.append(
                f"{short} {number(1000 * ess / cell.score_evaluations)} per 1,000 evaluations, {per_second} per second"
            )
    said += [] if known["divergences"] is None else [f"{100 * known['divergences']:.2g}% divergences"]
    agreeing = [label for label, same in others.items() if same]
    unclear = others and all(same is None for same in others.values())
    said.append(
        "too few effective draws to compare"
        if unclear
        else f"agrees with {named(agreeing, _NAMED) or 'no other method'}"
    )
    return f"  {name(cell.label)}: {'; '.join(said)}"


def _trust(chosen: CellRecord | None, passing: list[str], agree: agreement.Agreements) -> str:
    if chosen is not None:
        others = [label for label, same in agree[chosen.label].items() if same]
        return (
            f"Trust {name(chosen.label)}: its R-hat, ESS, divergences and KSD pass, and it agrees with {named(others, _NAMED)} "
            "in means and standard deviations. Agreement cannot show a mode that all of them missed."
        )
    why = f"{named(passing, _NAMED)} alone" if len(passing) == 1 else f"{named(passing, _NAMED)}, which do not agree"
    return f"Trust none: by R-hat, ESS, divergences and KSD passes {why if passing else 'no method'}."


def _settled(task: Task, place: str, chosen: CellRecord | None) -> str:
    """Commands that settle which method is right; calibration where the model draws data."""
    sampler = shlex.quote(chosen.algorithm if chosen else "nuts")
    more = " --simulator SIMULATOR.stan" if isinstance(task, StanTask) else ""
    calibrate = f" or calibrate: parvibench calibrate {shlex.quote(place)} -a {sampler}{more}"
    draws_data = isinstance(task, NumpyroTask | PymcTask | PyroTask | StanTask)
    return f"Build a reference: parvibench reference build {shlex.quote(place)}{calibrate if draws_data else ''}"


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
