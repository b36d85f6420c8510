"""Data sets: ``data status``, ``data fetch``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from parvibench.core.errors import UnknownNameError

from .shared import Json, names_of, new_table, note, out_console, print_json

app = typer.Typer(no_args_is_help=True, help="Data sets: status and download.")


@app.command("status")
def data_status(as_json: Json = False) -> None:
    """List the data sets and whether they are on disk."""
    from parvibench.data.fetch import status

    rows = [asdict(r) | {"path": str(r.path) if r.path else None} for r in status()]
    if as_json:
        print_json(rows)
        return
    table = new_table("name", "rows", "kB", "state", "path")
    for row in rows:
        size = "?" if row["bytes"] is None else f"{row['bytes'] / 1e3:.0f}"
        table.add_row(row["name"], str(row["rows"]), size, row["state"], row["path"] or "")
    out_console.print(table)


@app.command("fetch")
def data_fetch(
    names: Annotated[
        list[str] | None, typer.Argument(help="Data sets; all when none is named.", autocompletion=names_of("data"))
    ] = None,
) -> None:
    """Download data sets, verified by their registered hash, into the user's cache."""
    from parvibench.data import fetch

    known = fetch.registry()
    for name in names or []:
        if name not in known:
            raise UnknownNameError("data set", name, known)
    for name in names or known:
        note(f"{name}: {fetch.fetch(name)}")
