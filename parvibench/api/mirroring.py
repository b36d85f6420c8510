"""The MLflow mirror of a store: ``sync`` completes it, ``serve`` shows it in a browser."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from parvibench.core.errors import InputError
from parvibench.harness.execution import DEFAULT_STORE
from parvibench.harness.store.store import Store
from parvibench.harness.workers.interrupts import ENDING
from parvibench.reporting.facts.run import Facts
from parvibench.tracking import database, mirror

from .report import ranking


def sync(out: str | Path = DEFAULT_STORE, warn: Callable[[str], None] = warnings.warn) -> bool:
    """Mirror to MLflow (``MLFLOW_TRACKING_URI``, by default SQLite in the store) the runs that it does not hold yet.

    Returns:
        Whether everything was delivered; if not, ``warn`` is called with a message.

    Raises:
        StoreError: the store has no runs.
    """
    store = Store(Path(out))
    store.run()
    if database.file_of(database.default_uri(store.root)) == store.root.resolve() / "mlflow.db":
        store.check_writable()
    if warning := mirror.sync(store, rank=lambda results: ranking(Facts.of(results))):
        warn(warning)
    return not warning


def serve(
    out: str | Path = DEFAULT_STORE, host: str = "127.0.0.1", port: int = 5000, starting: Callable[[str], None] = print
) -> int:
    """Serve MLflow's pages for a store until a signal ends the server; its exit code, 0 after a signal.

    ``starting`` is called with the address of the page before the server starts.

    Raises:
        StoreError: the store has no runs, or has been moved since they were mirrored.
        InputError: the address is in use or not this machine's.
    """
    root = Path(out)
    run = Store(root).run()
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"{host}:{port}: cannot listen there ({reason}); choose another --port or --host") from None
    uri = database.default_uri(root)
    page = database.experiment_page(uri, root, run.suite["name"])
    address = f"[{host}]" if ":" in host else host
    starting(f"http://{address}:{port}/{page}")
    return serve_until_signal(*database.ui_command(root, host, port))


@contextlib.contextmanager
def _ending_with_us(group: int) -> Iterator[None]:
    """Another process waits for the end of this one, however it ends, and kills a process group then."""
    if sys.platform == "win32":
        yield
        return
    code = f"import os, sys; sys.stdin.read(); os.killpg({group}, 9)"
    # Its standard input is closed when this process is gone.
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    ):  # fmt: skip
        yield


def serve_until_signal(command: list[str], environment: Mapping[str, str]) -> int:
    """Run a server and its child processes until it ends or a signal arrives; its exit code, 0 after a signal."""
    server = subprocess.Popen(command, env=environment, start_new_session=sys.platform != "win32")
    caught: list[int] = []

    def forward(number: int, _: object) -> None:
        caught.append(number)
        if sys.platform == "win32":
            server.terminate()
        else:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGTERM)

    before = {number: signal.signal(number, forward) for number in (signal.SIGINT, *ENDING)}
    try:
        with _ending_with_us(server.pid):
            code = server.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if sys.platform != "win32":
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)  # child processes that outlived the server
    return 0 if caught else code
