"""The MLflow mirror: ``sync``, ``ui``."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import webbrowser
from typing import TYPE_CHECKING, Annotated

import typer

from parvibench.core.errors import InputError
from parvibench.harness.execution import DEFAULT_STORE
from parvibench.harness.workers.interrupts import ENDING

from .shared import EXIT_FAILED, Out, note, warn

if TYPE_CHECKING:
    from parvibench.harness.store.results import StoredRun

app = typer.Typer()


@app.command(epilog="Example: `MLFLOW_TRACKING_URI=http://127.0.0.1:5000 parvibench sync`")
def sync(out: Out = DEFAULT_STORE) -> None:
    """Mirror to MLflow the cells of the store that it does not hold yet."""
    from parvibench.harness.store.store import Store
    from parvibench.tracking import observer as mirroring

    store = Store(out)
    store.run()
    warning = mirroring.sync(store, tell=warn, note=_leaderboard)
    if warning:
        warn(warning)
        raise typer.Exit(EXIT_FAILED)
    note(f"{len(store.runs())} runs mirrored")


def _leaderboard(results: StoredRun) -> str:
    from parvibench.reporting.page.text_tables import to_markdown
    from parvibench.reporting.tables.leaderboard import table

    return to_markdown(results, table(results))


@app.command(epilog="Example: `parvibench ui --port 5001`")
def ui(
    out: Out = DEFAULT_STORE,
    host: Annotated[
        str, typer.Option(help="Address to listen on; others than this machine's own can then read all.")
    ] = ("127.0.0.1"),
    port: Annotated[int, typer.Option(min=1, max=65535)] = 5000,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser, where the terminal has one.")] = True,
) -> None:
    """Serve MLflow's web pages for the store: one run per suite run, a child run per cell, tagged by task and method."""
    from parvibench.harness.store.store import Store
    from parvibench.tracking import database, ui_command
    from parvibench.tracking.connection import default_uri, experiment_page

    run = Store(out).run()
    _check_free(host, port)
    uri = default_uri(out)
    if (file := database.file_of(uri)) is not None:
        database.prepare(file, own=False)
    page = f"http://{f'[{host}]' if ':' in host else host}:{port}/{experiment_page(uri, run.suite['name'])}"
    note(f"{page} (Ctrl-C stops it)")
    if browser and sys.stdout.isatty():
        threading.Thread(target=_open_when_served, args=(host, port, page), daemon=True).start()
    raise typer.Exit(_serve(ui_command(out, host, port)))


def _open_when_served(host: str, port: int, page: str) -> None:
    """Open a page in the browser as soon as something listens there."""
    for _ in range(120):
        with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1):
            webbrowser.open(page)
            return
        time.sleep(0.5)


def _check_free(host: str, port: int) -> None:
    """Raise where nothing can listen there: another program does, or the address is not this machine's."""
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(
            f"{host}:{port}: cannot listen there ({reason}); choose another with --port or --host"
        ) from None


def _serve(command: list[str]) -> int:
    """Run a server with all it starts until it ends or a signal does; its exit code, 0 after a signal of ours."""
    server = subprocess.Popen(command, start_new_session=sys.platform != "win32")
    asked: list[int] = []

    def forward(number: int, _: object) -> None:
        asked.append(number)
        if sys.platform == "win32":
            server.terminate()
        else:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGTERM)

    before = {number: signal.signal(number, forward) for number in (signal.SIGINT, *ENDING)}
    try:
        code = server.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if sys.platform != "win32":
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)  # what did not follow the server
    return 0 if asked else code
