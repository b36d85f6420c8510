"""Comparison of two runs, and of a store with reruns: ``compare``, ``verify``."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from typer import Argument, Option

from parvibench.harness.execution import DEFAULT_STORE, DEFAULT_TIMEOUT_S

from .shared import EXIT_FAILED, Json, Out, answer, names_of, new_table, out_console, print_json

if TYPE_CHECKING:
    import pandas as pd

    from parvibench.harness.store.results import StoredRun
    from parvibench.harness.verification import Verification

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
    metric: Annotated[
        str | None, Option(help="Default: each task's primary metric.", autocompletion=names_of("metric"))
    ] = None,
    to: Annotated[Path | None, Option(help="Folder of table and figures; default: OUT/compare.")] = None,
    as_json: Json = False,
) -> None:
    """What two runs did differently, then the second against the first, cell by cell, paired where they share replicates."""
    from parvibench.reporting.page import comparison_files
    from parvibench.reporting.tables import run_differences

    a, b = _load(run_a, out), _load(run_b, out)
    frame = run_differences.compare(a, b, metric)
    files = comparison_files.write(frame, to or out / "compare")
    if as_json:
        print_json(comparison_files.document(a, b, frame, files))
        return
    _print_conditions(run_differences.conditions(a, b))
    _print_cells(frame)
    for path in files:
        answer(str(path))


def _print_conditions(differs: pd.DataFrame) -> None:
    """What was done differently, before any number."""
    if not len(differs):
        answer("The runs did the same: same cells, settings, budgets, versions and hardware.")
        return
    table = new_table("differs", "first", "second", "in")
    for row in differs.to_dict("records"):
        where = f"{row['cells']} of {row['shared']} cells, such as {row['example']}" if row["cells"] else "the run"
        table.add_row(*map(escape, (row["what"], row["first"][:40], row["second"][:40], where)))
    out_console.print(table)


def _print_cells(frame: pd.DataFrame) -> None:
    from parvibench.reporting.formatting import interval, number

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
    store: Annotated[Path, Argument(help="A result store; its latest run is verified.")],
    replicates: Annotated[int, Option(min=1, help="Replicates to choose at random and run again.")] = 60,
    seed: Annotated[int | None, Option(help="Of the choice; default: one that nobody can know beforehand.")] = None,
    workers: Annotated[int | None, Option(help="Worker processes; 0: in this process. Default: one per CPU.")] = None,
    timeout: Annotated[float, Option(help="Wall-clock limit of one chunk of replicates, s.")] = DEFAULT_TIMEOUT_S,
    as_json: Json = False,
) -> None:
    """Run randomly chosen replicates of a store again and compare them with the record. Exit code 1 if one differs.

    Nothing in a store is run as code: plug-ins stay unverified, and so do seconds. The outcome is kept in the store as
    verification.json, for the page.
    """
    from parvibench.harness import verification
    from parvibench.harness.execution import Execution
    from parvibench.harness.store.store import Store

    found = verification.verify(Store(store), replicates, Execution(workers=workers, timeout=timeout), seed)
    verification.keep(found, store)
    if as_json:
        print_json(found.document())
    else:
        _print_verification(found)
    if found.falsified or any(c.verdict == "not run" for c in found.checks):
        raise typer.Exit(EXIT_FAILED)


def _print_verification(found: Verification) -> None:
    for check in found.checks:
        if check.reason:
            answer(f"{check.verdict}: {check.task} / {check.label}, replicate {check.replicate}: {check.reason}")
    for why in dict.fromkeys(found.skipped.values()):
        labels = [pair for pair, reason in found.skipped.items() if reason == why]
        answer(
            f"not verified ({why}): {', '.join(labels[:5])}{f' and {len(labels) - 5} more' if len(labels) > 5 else ''}"
        )
    counts = Counter(c.verdict for c in found.checks)
    said = ", ".join(f"{n} {verdict}" for verdict, n in counts.items()) or "nothing was checked"
    answer(f"{len(found.checks)} of {found.replicates} replicates that can be verified: {said}")
    answer(
        f"if 5% of them were falsified, these would all miss it with probability {100 * found.chance_of_missing:.2g}%"
    )


def _load(run: str, out: Path) -> StoredRun:
    """A run of the store ``out`` by id, or the latest run of another store."""
    from parvibench.harness.store.results import StoredRun
    from parvibench.harness.store.store import Store

    elsewhere = Path(run)
    return StoredRun.load(Store(elsewhere)) if elsewhere.is_dir() else StoredRun.load(Store(out), run)
