"""The MLflow mirror: ``sync``, ``ui``."""

from __future__ import annotations

import contextlib
from typing import Annotated

import typer

from parvibench.harness.execution import DEFAULT_STORE

from .shared import EXIT_FAILED, Out, note, warn

app = typer.Typer()


@app.command(epilog="Example: `MLFLOW_TRACKING_URI=http://127.0.0.1:5000 parvibench sync`")
def sync(out: Out = DEFAULT_STORE) -> None:
    """Mirror to MLflow the cells of the store that it does not hold yet."""
    from parvibench.harness.store.store import Store
    from parvibench.tracking import observer as mirroring

    store = Store(out)
    store.run()
    warning = mirroring.sync(store, tell=warn)
    if warning:
        warn(warning)
        raise typer.Exit(EXIT_FAILED)
    note(f"{len(store.runs())} runs mirrored")


@app.command(epilog="Example: `parvibench ui --port 5001`")
def ui(
    out: Out = DEFAULT_STORE,
    port: Annotated[int, typer.Option(min=1, max=65535, help="On this machine only (127.0.0.1).")] = 5000,
) -> None:
    """Serve MLflow's web pages for the store: one run per suite run, a child run per cell, tagged by task and method."""
    import subprocess

    from parvibench.harness.store.store import Store
    from parvibench.tracking import ui_command

    Store(out).run()
    note(f"http://127.0.0.1:{port} (Ctrl-C stops it)")
    with contextlib.suppress(KeyboardInterrupt):
        raise typer.Exit(subprocess.call(ui_command(out, port)))
