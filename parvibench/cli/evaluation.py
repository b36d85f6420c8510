"""Samples from a file against a task's reference: ``evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from parvibench.core import registry

from .shared import Json, answer, key_value, new_table, out_console, parse_number, print_json

app = typer.Typer()


@app.command(epilog="Example: `parvibench evaluate --task banana samples.npy`")
def evaluate(
    samples: Annotated[Path, typer.Argument(help=".npy, .npz with array 'samples', .csv or .parquet; shape (n, d).")],
    task: Annotated[str, typer.Option(help="The task whose target the samples should follow.")],
    cost: Annotated[
        list[str] | None, typer.Option(metavar="score_evaluations=N", help="Cost of the samples (repeatable).")
    ] = None,
    metric: Annotated[
        list[str] | None, typer.Option(help="Judge by this metric (repeatable); default: the task's.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare samples from a file with a task's reference, metric by metric."""
    registry.load_task(task)
    from parvibench import api
    from parvibench.data.samples import read_samples

    costs = {k: parse_number(k, v) for k, v in (key_value(c, "--cost") for c in cost or [])}
    document = api.evaluate(read_samples(samples), task, metrics=metric)
    if as_json:
        print_json(document)
        return
    table = new_table("metric", "value", "floor", "ratio", "p", "equivalent n", "against exact draws")
    for row in document["metrics"]:
        if row["value"] is not None:
            table.add_row(*_evaluation_cells(row))
    out_console.print(table)
    for row in document["metrics"]:
        if row["value"] is None:
            answer(f"not applicable: {row['metric']} ({row['reason']})")
    legend = (
        "floor: median of exact draws; equivalent n, a global measure: how many exact draws do as well [95% interval]"
    )
    out_console.print(legend, style="dim")
    out_console.print(f"{document['n']} samples of {document['task']}: {_verdict(document)}")
    spent = costs.get("score_evaluations")
    sizes = (row["equivalent_sample_size"] for row in document["metrics"])
    best = next(filter(None, sizes), None)
    if spent and best:
        out_console.print(f"{1e3 * best / spent:.3g} equivalent exact draws per 1000 score evaluations")


def _verdict(document: dict[str, Any]) -> str:
    """The verdict with the number of samples and the metrics it rests on."""
    if not document["judged_by"]:
        return f"[bold]no verdict[/] ({document['reason']})"
    rests = f"{document['n_judged']} of them by {', '.join(document['judged_by'])}"
    if document["reason"]:
        return f"[bold]no verdict[/] ({document['reason']}; {rests})"
    return f"[bold]{document['verdict']}[/] from exact draws (Holm, 5%; {rests})"


def _evaluation_cells(row: dict[str, Any]) -> list[str]:
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
    numbers = map(text, (row["value"], floor.get("median"), row["ratio"], row["p_value"]))
    return [row["metric"], *numbers, equivalent, row["verdict"] if row["floor"] else "no floor"]
