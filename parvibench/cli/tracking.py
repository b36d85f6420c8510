"""The MLflow mirror: ``sync``, ``ui``."""

import contextlib
import socket
import sys
import threading
import time
import webbrowser
from typing import Annotated

import typer

from parvibench.api.run import DEFAULT_STORE

from .shared import EXIT_FAILED, Out, note, warn

app = typer.Typer()


@app.command(epilog="Example: `MLFLOW_TRACKING_URI=http://127.0.0.1:5000 parvibench sync`")
def sync(out: Out = DEFAULT_STORE) -> None:
    """Mirror to MLflow the runs of the store that it does not hold yet."""
    from parvibench.api import mirroring

    if not mirroring.sync(out, warn):
        raise typer.Exit(EXIT_FAILED)
    note("all runs are mirrored")


@app.command(epilog="Example: `parvibench ui --port 5001`")
def ui(
    out: Out = DEFAULT_STORE,
    host: Annotated[str, typer.Option(help="Address to listen on; any but the default lets other machines read all runs.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 5000,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser, if stdout is a terminal.")] = True,
) -> None:  # fmt: skip
    """Serve the MLflow pages of the store: one run per suite run, a child run per cell, tagged by task and method."""
    from parvibench.api import mirroring

    def starting(page: str) -> None:
        note(f"{page} (Ctrl-C stops the server)")
        if browser and sys.stdout.isatty():
            threading.Thread(target=_open_when_served, args=(host, port, page), daemon=True).start()

    raise typer.Exit(mirroring.serve(out, host, port, starting))


def _open_when_served(host: str, port: int, page: str) -> None:
    """Open a page in the browser as soon as something listens there."""
    for _ in range(120):
        with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1):
            webbrowser.open(page)
            return
        time.sleep(0.5)
