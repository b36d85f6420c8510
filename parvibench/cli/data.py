"""Data sets: ``data status``, ``data fetch``."""

from typing import Annotated

import typer

from parvibench.api import listing

from .shared import Json, names_of, new_table, note, out_console, print_json

app = typer.Typer(no_args_is_help=True, help="Data sets: status and download.")


@app.command("status", epilog="Example: `parvibench data status --json`")
def data_status(as_json: Json = False) -> None:
    """List the data sets and whether they are on disk."""
    rows = listing.data_sets()
    if as_json:
        print_json(rows)
        return
    table = new_table("name", "rows", "kB", "state", "path")
    for row in rows:
        size = "?" if row["bytes"] is None else f"{row['bytes'] / 1e3:.0f}"
        table.add_row(row["name"], str(row["rows"]), size, row["state"], row["path"] or "")
    out_console.print(table)


@app.command("fetch", epilog="Example: `parvibench data fetch yacht energy`")
def data_fetch(
    names: Annotated[list[str] | None, typer.Argument(help="Names of data sets. Default: all.", autocompletion=names_of("data"))] = None,
) -> None:  # fmt: skip
    """Download data sets into the user's cache and verify their hashes."""
    for name, file in listing.fetch_data(names or ()):
        note(f"{name}: {file}")
