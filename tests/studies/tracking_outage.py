"""An MLflow server on loopback, killed half-way: the run goes on, ``sync`` delivers the rest, nothing is doubled.

``python tests/studies/tracking_outage.py``
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from small_runs import run, suite_of

from parvibench.core.result import Status
from parvibench.harness.store.store import Store
from parvibench.harness.suite.cells import expand
from parvibench.tracking.archive import rebuild
from parvibench.tracking.mirror import MirrorObserver, sync


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def server(folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """``mlflow server`` on a database in ``folder``; killed at the end, if it is not already."""
    command = [
        *(sys.executable, "-m", "mlflow", "server", "--backend-store-uri", f"sqlite:///{folder}/server.db"),
        *("--artifacts-destination", str(folder / "artifacts"), "--host", "127.0.0.1", "--port", str(port)),
        *("--workers", "1"),
    ]
    quiet = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    process = subprocess.Popen(
        command, env=quiet, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(240):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2)
                break
            time.sleep(0.5)
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """The server and all its workers."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)


class KillsTheServer:
    """An observer that waits for some deliveries and kills the server when half of the cells are done."""

    def __init__(self, process: subprocess.Popen[bytes], mirror: MirrorObserver, at: int) -> None:
        self._process, self._mirror, self._at, self._seen = process, mirror, at, 0

    def started(self, *_: object) -> None: ...
    def progress(self, *_: object) -> None: ...
    def ended(self, *_: object) -> None: ...
    def finished(self, *_: object) -> None:
        self._seen += 1
        if self._seen == self._at:
            queue: Any = self._mirror._mirror
            deadline = time.monotonic() + 120
            while queue._done < self._at - 1 and time.monotonic() < deadline:
                time.sleep(0.1)
            kill(self._process)


def study(folder: Path) -> list[str]:
    """Run while the server dies, deliver the rest; differences at the end, a line each."""
    port = free_port()
    uri = f"http://127.0.0.1:{port}"
    os.environ |= {"MLFLOW_TRACKING_URI": uri, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1"}
    suite = suite_of(
        ["banana", "multimodal"], ["svgd", "sgld", "initial", "exact"],
        replicates=2, particles=20, budget={"iterations": 30}, metrics=["ksd", "mean_error"],
    )  # fmt: skip
    cells = expand(suite)
    store = Store(folder / "store")
    found = []
    with server(folder, port) as process:
        mirror = MirrorObserver(store.root)
        observers = [mirror, KillsTheServer(process, mirror, len(cells) // 2)]
        results = run(suite, store.root, observers=observers)
        warning = mirror.close()
    if any(c.status is not Status.OK for c in results.cells):
        found.append("cells failed when the server died")
    if "parvibench sync" not in warning:
        found.append(f"told: {warning!r}")
    print(f"after the kill: {warning.splitlines()[0][:160] if warning else 'everything delivered'}")
    with server(folder, port):
        for _ in range(2):
            if warning := sync(store):
                found.append(warning)
        from mlflow import MlflowClient

        client = MlflowClient(tracking_uri=uri)
        experiment = client.get_experiment_by_name("parvibench/study")
        runs = client.search_runs([experiment.experiment_id])
        tagged = (r.data.tags.get("parvibench.cell_key") for r in runs)
        keys = sorted(key for key in tagged if key is not None)
        if keys != sorted(c.key for c in cells) or len(runs) != len(cells) + 1:
            found.append(f"{len(runs)} MLflow runs for {len(cells)} cells, {len(set(keys))} of them distinct")
        if {r.info.status for r in runs} != {"FINISHED"}:
            found.append(f"statuses {[r.info.status for r in runs]}")
        there = Store(folder / "there")
        rebuild(uri, there)
        for cell in cells:
            if not np.array_equal(there.samples(cell.key), store.samples(cell.key)):
                found.append(f"{cell.label}: rebuilt samples differ")
        print(f"after sync: {len(runs)} MLflow runs for {len(cells)} cells and their parent")
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        problems = study(Path(name))
        print(f"{len(problems)} problems", *problems, sep="\n")
        raise SystemExit(bool(problems))
