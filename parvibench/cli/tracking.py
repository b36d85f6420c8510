"""The MLflow mirror: ``sync``, ``ui``."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from .shared import EXIT_FAILED, Out, console, warn

app = typer.Typer()


@app.command(epilog="Example: `MLFLOW_TRACKING_URI=http://127.0.0.1:5000 parvibench sync`")
def sync(out: Out = Path("parvibench-runs")) -> None:
    """Mirror to MLflow whatever of the store it does not hold yet."""
    from parvibench.harness.store.store import Store
    from parvibench.tracking import observer as mirroring

    store = Store(out)
    store.run()
    warning = mirroring.sync(store)
    if warning:
        warn(warning)
        raise typer.Exit(EXIT_FAILED)
    console.print(f"{len(store.runs())} runs mirrored", highlight=False)


@app.command(epilog="Example: `parvibench ui --port 5001`")
def ui(
    out: Out = Path("parvibench-runs"),
    port: Annotated[int, typer.Option(min=1, max=65535, help="On this machine only (127.0.0.1).")] = 5000,
) -> None:
    """Serve MLflow's pages on the store's mirror: one run per suite run, a child per cell, tagged by task and method."""
    import subprocess

    from parvibench.harness.store.store import Store
    from parvibench.tracking import ui_command

    Store(out).run()
    console.print(f"http://127.0.0.1:{port} (Ctrl-C ends it)", highlight=False)
    with contextlib.suppress(KeyboardInterrupt):
        raise typer.Exit(subprocess.call(ui_command(out, port)))
