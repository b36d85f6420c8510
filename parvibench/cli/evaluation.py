"""Samples from a file against a task's reference: ``evaluate``."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from parvibench import api
from parvibench.api.listing import DEFAULT_STORE

from . import shared
from .shared import Json, Out, answer, listed, names_of, new_table, note, out_console, print_json

app = typer.Typer()


@app.command(
    epilog="Examples:\n\n`parvibench evaluate --task banana samples.npy`\n\n"
    "`parvibench evaluate --task file.py:OBJECT output_*.csv --variables mu,tau`\n\n"
    "`parvibench evaluate --reference trusted.npy samples.csv`\n\n"
    "`parvibench evaluate --task banana samples.npy --cost score_evaluations=20000 --label mine`"
)
def evaluate(
    samples: Annotated[list[Path], typer.Argument(help="Samples, (n, d) or (chains, draws, d), as .npy, .npz, .csv, .txt, .tsv, .parquet, .nc, .zarr or .pt; several files are one chain each.")],
    task: Annotated[str | None, typer.Option(help="Task that defines the target; file.py:OBJECT for an unregistered one.", autocompletion=names_of("task"))] = None,
    reference: Annotated[list[Path] | None, typer.Option(help="File of trusted reference draws, instead of the reference of the task (repeatable).")] = None,
    columns: Annotated[str | None, typer.Option(help="Columns to use, as a,b,c, in the order of the task's coordinates.")] = None,
    variables: Annotated[str | None, typer.Option(help="Variables to use, as mu,theta.")] = None,
    axes: Annotated[str | None, typer.Option(help="Names of the dimensions of an array, as draw,chain,dim.")] = None,
    weights: Annotated[str | None, typer.Option(help="Column of weights, or of their logarithms: rows are kept with probability w / max w.")] = None,
    cost: Annotated[list[str] | None, typer.Option(metavar="score_evaluations=N", help="Self-reported cost of the samples (also seconds=S): adds them to the leaderboard.")] = None,
    stan_library: shared.StanLibrary = None,
    label: Annotated[str | None, typer.Option(help="Name in the leaderboard. Default: that of the file.")] = None,
    metric: Annotated[list[str] | None, typer.Option(help="Metric to compute (repeatable). Default: those of the task.", autocompletion=names_of("metric"))] = None,
    out: Out = DEFAULT_STORE,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Compare samples with the reference of a task, or with trusted reference draws, by several metrics."""
    stated = shared.parse_numbers(cost, "--cost")
    found = api.evaluate.evaluate_files(
        samples, task, metric, reference=reference or (), columns=listed(columns), variables=listed(variables),
        axes=axes or "", weights=weights or "", cost=stated, label=label, out=out, command=shared.command_line(),
        notify=lambda what, done, _: None if done else note(f"{what}, simulated once"),
    )  # fmt: skip
    document = found.document
    if as_json:
        print_json(document | ({"report": str(found.report)} if found.report else {}))
        return
    _print(document, found.doubt)
    sizes = (row["equivalent_sample_size"] for row in document["metrics"])
    best = next(filter(None, sizes), None)
    if stated and best:
        per = 1e3 * best / stated["score_evaluations"]
        out_console.print(f"{per:.3g} equivalent exact draws per 1000 score evaluations")
    if found.report:
        answer(f"stored as {label or samples[0].stem} (external), cost self-reported; report: {found.report}")


_EQUIVALENT = {
    True: "equivalent n: number of exact draws with the same error [95% interval]",
    False: "equivalent n by metric, which also counts bias and is cruder than ESS: --json",
}


def _print(document: dict[str, Any], doubt: str) -> None:
    if document["read"]:
        answer(f"read: {document['read']}")
    if document["chains"]:
        _print_chains(document["chains"])
    rows = [row for row in document["metrics"] if row["value"] is not None]
    thinned = any(row["floor"] and row["n_judged"] < document["n"] for row in rows)
    judged = ["judged"] if thinned else []
    equivalent = [] if document["chains"] else ["equivalent n"]
    table = new_table("metric", "value", *judged, "floor", "ratio", "p", *equivalent, "exact?")
    for row in rows:
        *cells, size, mark = _evaluation_cells(row, thinned)
        table.add_row(*cells, *[size] * bool(equivalent), mark)
    out_console.print(table)
    for reason, names in _by_reason(row for row in document["metrics"] if row["value"] is None):
        answer(f"not applicable: {names} ({reason})")
    legend = ["floor: median of exact draws"] if any(row["ratio"] is not None for row in rows) else []
    legend += ["judged: the value at the sample size of the floor"] if thinned else []
    legend += ["p: adjusted for the number of metrics (Holm)", _EQUIVALENT[bool(equivalent)]]
    legend += ["exact?: ≈ indistinguishable from exact draws, ≠ distinguishable"]
    out_console.print("; ".join(legend), style="dim")
    if doubt:
        answer(doubt)
    for reason, names in _by_reason(row for row in document["metrics"] if row["reason"].startswith("not computed")):
        answer(f"{names}: {reason}")
    out_console.print(Text.assemble(f"{document['n']} samples of {document['task']}: ", *_verdict(document)))


def _by_reason(rows: Iterable[dict[str, Any]]) -> list[tuple[str, str]]:
    """Every reason with the metrics that it is of."""
    names: dict[str, list[str]] = {}
    for row in rows:
        names.setdefault(row["reason"], []).append(row["metric"])
    return [(reason, ", ".join(found)) for reason, found in names.items()]


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
    worth = f"worth {found['worth']:,} independent draws (bulk ESS of the slowest coordinate)"
    answer(f"{found['chains']} chains of {found['draws']} draws, {worth}; at most so many are judged{more}")


def _verdict(document: dict[str, Any]) -> tuple[tuple[str, str], str]:
    """The verdict, styled, with the number of samples and the metrics behind it."""
    if not document["judged_by"]:
        return ("no verdict", "bold"), f" ({document['reason']})"
    judged, n = document["n_judged"], document["n"]
    rests = f"judged on {judged if judged == n else f'{judged} of {n}'} samples by {', '.join(document['judged_by'])}"
    if document["reason"] and document["verdict"] == "not applicable":
        return ("no verdict", "bold"), f" ({document['reason']}; {rests})"
    note = f"; {document['reason']}" if document["reason"] else ""
    return (document["verdict"], "bold"), f" from exact draws ({rests}; Holm, 5%{note})"


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
