"""Samples from a file against a task's reference: ``evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from parvibench.core import registry
from parvibench.core.errors import InputError
from parvibench.harness.execution import DEFAULT_STORE

from .shared import (
    Json,
    Out,
    answer,
    command_line,
    key_value,
    listed,
    names_of,
    new_table,
    out_console,
    parse_number,
    print_json,
)

app = typer.Typer()


@app.command(
    epilog="Examples:\n\n`parvibench evaluate --task banana samples.npy`\n\n"
    "`parvibench evaluate --task file.py:OBJECT output_*.csv --variables mu,tau`\n\n"
    "`parvibench evaluate --reference trusted.npy samples.csv`\n\n"
    "`parvibench evaluate --task banana samples.npy --cost score_evaluations=20000 --label mine`"
)
def evaluate(
    samples: Annotated[
        list[Path],
        typer.Argument(
            help=".npy, .npz, .csv (Stan's and R's, too), .parquet, .nc or .zarr (ArviZ), .pt; shape (n, d) or "
            "(chains, draws, d). Several files are a chain each."
        ),
    ],
    task: Annotated[
        str | None,
        typer.Option(
            help="The task whose target the samples should follow; a file's is file.py:OBJECT.",
            autocompletion=names_of("task"),
        ),
    ] = None,
    reference: Annotated[
        list[Path] | None, typer.Option(help="Draws to compare with in place of the task's reference (repeatable).")
    ] = None,
    columns: Annotated[str | None, typer.Option(help="Columns to take, as a,b,c, in the order of the task.")] = None,
    variables: Annotated[str | None, typer.Option(help="Variables to take, as mu,theta.")] = None,
    axes: Annotated[
        str | None, typer.Option(help="Dimensions of an array without names of them, as draw,chain,dim.")
    ] = None,
    cost: Annotated[
        list[str] | None,
        typer.Option(
            metavar="score_evaluations=N",
            help="What the samples cost, by your own account (also seconds=S): stores them as a row of the leaderboard.",
        ),
    ] = None,
    label: Annotated[str | None, typer.Option(help="Name of that row; default: the file's.")] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(help="Judge by this metric (repeatable); default: the task's.", autocompletion=names_of("metric")),
    ] = None,
    out: Out = DEFAULT_STORE,
    as_json: Json = False,
) -> None:
    """Compare samples with a task's reference, or with draws that you trust, metric by metric."""
    found = None if task is None else registry.load_task(task)
    from parvibench import evaluating
    from parvibench.data.arrays import Choice
    from parvibench.data.samples import read_draws
    from parvibench.harness.external import costs_of

    stated = {k: parse_number(k, v) for k, v in (key_value(c, "--cost") for c in cost or [])}
    spent = costs_of(stated) if stated else None
    if spent is not None and found is None:
        raise InputError("--cost stores a row of a task's leaderboard: name the task with --task")
    choice = Choice(listed(columns), listed(variables), axes or "")
    draws = read_draws(samples, choice)
    named = any(path.suffix.lower() not in (".npy", ".pt") for path in reference or ())
    trusted = read_draws(reference, choice if named else Choice(axes=axes or "")) if reference else None
    document = evaluating.evaluate(draws, found, metrics=metric, reference=trusted, cost=spent)
    stored = None
    if spent is not None and found is not None:
        stored = _store(draws, found, label or samples[0].stem, spent, out)
    if as_json:
        print_json(document | ({"report": str(stored)} if stored else {}))
        return
    _print(document, found)
    sizes = (row["equivalent_sample_size"] for row in document["metrics"])
    best = next(filter(None, sizes), None)
    if spent and best:
        per = 1e3 * best / spent.score_evaluations
        out_console.print(f"{per:.3g} equivalent exact draws per 1000 score evaluations")
    if stored:
        answer(f"stored as {label or samples[0].stem} (external), cost self-reported; report: {stored}")


def _store(draws: Any, task: Any, label: str, cost: Any, out: Path) -> Path:
    """Put the samples into the store's latest run of the task, and write its report: the page."""
    import torch

    from parvibench import evaluating
    from parvibench.harness.external import store_external
    from parvibench.harness.store.results import Results
    from parvibench.harness.store.store import Store
    from parvibench.reporting.page import write_report

    values = evaluating.in_coordinates(draws, task).values
    x = torch.tensor(values).reshape(-1, values.shape[-1])
    store = Store(out)
    run = store_external(store, task, x, f"{label} (external)", cost, command_line())
    return write_report(Results.load(store, run.id), out / "report")


def _print(document: dict[str, Any], task: Any) -> None:
    if document["chains"]:
        _print_chains(document["chains"])
    rows = [row for row in document["metrics"] if row["value"] is not None]
    thinned = any(row["floor"] and row["n_judged"] < document["n"] for row in rows)
    judged = ["judged"] if thinned else []
    table = new_table("metric", "value", *judged, "floor", "ratio", "p", "equivalent n", "exact?")
    for row in rows:
        table.add_row(*_evaluation_cells(row, thinned))
    out_console.print(table)
    reasons: dict[str, list[str]] = {}
    for row in document["metrics"]:
        if row["value"] is None:
            reasons.setdefault(row["reason"], []).append(row["metric"])
    for reason, names in reasons.items():
        answer(f"not applicable: {', '.join(names)} ({reason})")
    legend = [
        "floor: median of exact draws" if any(row["ratio"] is not None for row in rows) else "",
        "judged: the value of as many samples as the floor is of" if thinned else "",
        "p: adjusted for the number of metrics (Holm)",
        "equivalent n, a global measure: how many exact draws do as well [95% interval]",
        "exact?: ≈ indistinguishable from exact draws, ≠ distinguishable",
    ]
    out_console.print("; ".join(filter(None, legend)), style="dim")
    known = None if task is None else task.reference()
    if known is not None and not known.certified:
        answer("the reference is not certified: draws that were given, and did not pass every gate")
    if document["read"]:
        answer(f"read: {document['read']}")
    left = [row for row in document["metrics"] if row["reason"].startswith("not computed")]
    for reason in dict.fromkeys(row["reason"] for row in left):
        answer(f"{', '.join(row['metric'] for row in left if row['reason'] == reason)}: {reason}")
    out_console.print(f"{document['n']} samples of {document['task']}: {_verdict(document)}")


#: Coordinates shown.
_MOST_COORDINATES = 20


def _print_chains(found: dict[str, Any]) -> None:
    table = new_table("coordinate", "R-hat", "bulk ESS", "tail ESS")
    rows = list(zip(found["names"], found["rhat"], found["ess_bulk"], found["ess_tail"], strict=True))
    worst = sorted(rows, key=lambda row: row[2])[:_MOST_COORDINATES] if len(rows) > _MOST_COORDINATES else rows
    for name, rhat, bulk, tail in worst:
        table.add_row(name, "-" if rhat is None else f"{rhat:.3f}", f"{bulk:,.0f}", f"{tail:,.0f}")
    out_console.print(table)
    more = f"; the worst {_MOST_COORDINATES} of {len(rows)} coordinates" if worst is not rows else ""
    answer(
        f"{found['chains']} chains of {found['draws']} draws, judged by at most {found['worth']:,}, the smallest bulk ESS; "
        f"equivalent n compares whole distributions and can differ from it{more}"
    )


def _verdict(document: dict[str, Any]) -> str:
    """The verdict with the number of samples and the metrics it rests on."""
    if not document["judged_by"]:
        return f"[bold]no verdict[/] ({document['reason']})"
    rests = f"{document['n_judged']} of them by {', '.join(document['judged_by'])}"
    if document["reason"] and document["verdict"] == "not applicable":
        return f"[bold]no verdict[/] ({document['reason']}; {rests})"
    note = f"; {document['reason']}" if document["reason"] else ""
    return f"[bold]{document['verdict']}[/] from exact draws (Holm, 5%; {rests}{note})"


def _evaluation_cells(row: dict[str, Any], thinned: bool) -> list[str]:
    def text(value: float | None) -> str:
        return "-" if value is None else f"{value:.3g}"

    floor = row["floor"] or {}
    equivalent = ""
    if row["equivalent_sample_size"] is not None:
        capped = "≥ " if row["reason"].startswith("at least") else ""
        equivalent = f"{capped}{row['equivalent_sample_size']:,.0f}"
        if row["equivalent_sample_size_interval"] is not None:
            low, high = (f"{v:,.0f}" for v in row["equivalent_sample_size_interval"])
            equivalent += f" [{low}, {high}]"
    judged = [row["judged"]] if thinned else []
    numbers = map(text, (row["value"], *judged, floor.get("median"), row["ratio"], row["p_adjusted"]))
    mark = {"indistinguishable": "≈", "distinguishable": "≠"}[row["verdict"]] if row["floor"] else "no floor"
    return [row["metric"], *numbers, equivalent, mark]
