"""Comparison of two runs, and of a store with a rerun: ``compare``, ``verify``."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from typer import Argument, Option

from parvibench.api.run import DEFAULT_STORE, DEFAULT_TIMEOUT_S
from parvibench.core.errors import InputError

from .shared import EXIT_FAILED, Json, Out, Timeout, Workers, answer, names_of, new_table, out_console, print_json

if TYPE_CHECKING:
    import pandas as pd

    from parvibench.api.report import Results
    from parvibench.api.stores import Verification

app = typer.Typer()
_Run = Annotated[str, Argument(help="Id of a run in the store, or folder of another store (its latest run).")]


@app.command(
    epilog="Examples:\n\n"
    "`parvibench compare before-store after-store`\n\n"
    "`parvibench compare 20260101-120000-000-quick 20260102-120000-000-quick --metric w2`"
)
def compare(
    run_a: _Run,
    run_b: _Run,
    out: Out = DEFAULT_STORE,
    metric: Annotated[str | None, Option(help="Metric to compare. Default: the primary metric of each task.", autocompletion=names_of("metric"))] = None,
    to: Annotated[Path | None, Option(help="Folder of the table and the figures. Default: OUT/compare.")] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Compare two runs: first their settings and versions, then the results of every cell.

    Replicates are paired where the runs share seed and particles.
    """
    from parvibench.api.compare import write_comparison

    found = write_comparison(_loaded(run_a, out), _loaded(run_b, out), to or out / "compare", metric)
    if as_json:
        print_json(found.document())
        return
    _print_conditions(found.conditions)
    _print_cells(found.cells)
    for path in found.files:
        answer(str(path))


def _loaded(run: str, out: Path) -> Results:
    """A run of the store ``out`` by its id, or the latest of another store by its folder."""
    from parvibench.api.report import load

    if Path(run).is_dir():
        return load(run)
    if not (out / "runs" / f"{run}.json").is_file():
        raise InputError(f"{run}: no folder of that name, and no run of that id in the store {out}")
    return load(out, run)


def _print_conditions(differs: pd.DataFrame) -> None:
    if not len(differs):
        answer("no difference in cells, settings, budgets, versions or hardware")
        return
    table = new_table("differs", "first", "second", "in")
    for row in differs.to_dict("records"):
        where = f"{row['cells']} of {row['shared']} cells, such as {row['example']}" if row["cells"] else "the run"
        table.add_row(*map(escape, (row["what"], row["first"][:40], row["second"][:40], where)))
    out_console.print(table)


def _print_cells(frame: pd.DataFrame) -> None:
    from parvibench.api.compare import interval, number

    table = new_table("task", "method", "metric", "first", "second", "change [95%]", "p", "second is")
    for row in frame.to_dict("records"):
        change = f"{number(row['change'])}{'%' if row['scale'] == '%' else ''} [{interval(row['low'], row['high'])}]"
        shown = row["note"] if math.isnan(row["change"]) else change
        numbers = [number(row[k]) for k in ("a", "b")]
        words = (row["task"], row["label"], row["unit"], *numbers, shown, number(row["p_value"]), row["verdict"])
        table.add_row(*map(escape, words))
    out_console.print(table)
    summary = ", ".join(f"{n} {verdict}" for verdict, n in frame["verdict"].value_counts().items())
    tested = frame[frame["n"] > 0]
    pairing = "paired by replicate" if tested["paired"].all() else "not all paired: seeds or particles differ"
    answer(f"{summary} ({pairing}; medians; 5%, Holm)")


@app.command(
    epilog="Examples:\n\n`parvibench verify their-store`\n\n`parvibench verify their-store --replicates 100 --workers 2 --json`"
)
def verify(
    store: Annotated[Path, Argument(help="Folder of a result store; its latest run is verified.")],
    replicates: Annotated[int, Option(min=1, help="Number of randomly chosen replicates to run again.")] = 60,
    seed: Annotated[int | None, Option(help="Seed of the choice. Default: unpredictable.")] = None,
    workers: Workers = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Run randomly chosen replicates of a store again and compare them with its records. Exit code 1 if one differs.

    No code from the store is run: plug-ins are not verified, nor are seconds. The result is written into the store as
    verification.json, and the report shows it.
    """
    from parvibench.api import stores as api

    found = api.verify(store, replicates, seed=seed, workers=workers, timeout=timeout, keep=False)
    if as_json:
        print_json(found.document())
    else:
        _print_verification(found)
    api.keep_verification(found, store)
    if found.falsified or any(c.verdict == "not run" for c in found.checks):
        raise typer.Exit(EXIT_FAILED)


def _print_verification(found: Verification) -> None:
    for check in found.checks:
        if check.reason:
            of = "" if check.replicate is None else f", replicate {check.replicate}"
            answer(f"{check.verdict}: {check.task} / {check.label}{of}: {check.reason}")
    for why in dict.fromkeys(found.skipped.values()):
        labels = [pair for pair, reason in found.skipped.items() if reason == why]
        more = f" and {len(labels) - 5} more" if len(labels) > 5 else ""
        answer(f"not verified ({why}): {', '.join(labels[:5])}{more}")
    counts = Counter(c.verdict for c in found.checks)
    said = ", ".join(f"{n} {verdict}" for verdict, n in counts.items()) or "nothing was checked"
    answer(f"{len(found.checks)} comparisons; {found.replicates} verifiable replicates: {said}")
    missed = f"{100 * found.chance_of_missing:.2g}%"
    answer(f"if 5% of the results were falsified, all comparisons would miss it with probability {missed}")
