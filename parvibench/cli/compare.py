"""Comparison of two runs: ``compare``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from parvibench.harness.execution import DEFAULT_STORE

from .shared import Json, Out, answer, new_table, out_console, print_json

if TYPE_CHECKING:
    from parvibench.harness.store.results import Results

app = typer.Typer()
_Run = Annotated[str, Argument(help="Id of a run in the store, or the folder of another store (its latest run).")]


@app.command(
    epilog="Examples:\n\n"
    "`parvibench compare before-store after-store`\n\n"
    "`parvibench compare 20260101-120000-000-quick 20260102-120000-000-quick --metric w2`"
)
def compare(
    run_a: _Run,
    run_b: _Run,
    out: Out = DEFAULT_STORE,
    metric: Annotated[str | None, Option(help="Default: each task's primary metric.")] = None,
    to: Annotated[Path | None, Option(help="Folder of table and figures; default: OUT/compare.")] = None,
    as_json: Json = False,
) -> None:
    """Compare the second run with the first, cell by cell, paired where they share replicates."""
    from parvibench.report import run_differences

    a, b = _load(run_a, out), _load(run_b, out)
    frame = run_differences.compare(a, b, metric)
    files = run_differences.write(frame, to or out / "compare")
    if as_json:
        print_json(run_differences.document(a, b, frame, files))
        return
    from parvibench.report.formatting import interval, number

    table = new_table("task", "method", "metric", "first", "second", "difference [95%]", "p", "second is")
    for row in frame.to_dict("records"):
        ends = f"[{interval(row['low'], row['high'])}]"
        difference = f"{number(row['difference'])} {ends}" if row["n"] else row["note"]
        values = [number(row[k]) for k in ("a", "b")]
        p = number(row["p_value"])
        table.add_row(row["task"], row["label"], row["unit"], *values, difference, p, row["verdict"])
    out_console.print(table)
    counts = frame["verdict"].value_counts()
    summary = ", ".join(f"{n} {verdict}" for verdict, n in counts.items())
    pairing = "paired by replicate" if frame["paired"].all() else "not all paired: seeds or particles differ"
    answer(f"{summary} ({pairing}; 5%, Holm)")
    for path in files:
        answer(str(path))


def _load(run: str, out: Path) -> Results:
    """A run of the store ``out`` by id, or the latest run of another store."""
    from parvibench.harness.store.results import Results
    from parvibench.harness.store.store import Store

    elsewhere = Path(run)
    return Results.load(Store(elsewhere)) if elsewhere.is_dir() else Results.load(Store(out), run)
