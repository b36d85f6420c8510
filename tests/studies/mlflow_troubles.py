"""An MLflow server that stops in the middle, asks for a login or answers nonsense; a locked database; odd values.

``python tests/studies/mlflow_troubles.py --tries 5``. The server fails from a random request on. Every run ends with the
right statuses and a warning with one remedy; neither the warning nor a file of the store holds the password of the
server's address. Afterwards ``sync`` delivers the rest, every cell once, and a store that is rebuilt from the server
equals the first.
"""

import argparse
import contextlib
import logging
import os
import socket
import sqlite3
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from small_runs import run, suite_of
from werkzeug.serving import make_server

from parvibench.core.errors import StoreError
from parvibench.core.result import Status
from parvibench.harness.store.results import StoredRun
from parvibench.harness.store.store import Store
from parvibench.harness.suite.suite import Suite
from parvibench.tracking import database
from parvibench.tracking.archive import rebuild
from parvibench.tracking.mirror import MirrorObserver, sync

SECRET = "swordfish"
_PATIENCE_S = 10
FAULTS = ("stops", "closes", "silent", "login", "error", "page")
#: A sampler with a parameter of 10,000 characters, one that stops being finite, and one of whose replicates does.
ODD = """
import torch
from pydantic import Field
from parvibench.core.algorithm import Algorithm, ParticleState, SteppedSettings

class Settings(SteppedSettings):
    note: str = Field("", description="a note", json_schema_extra={"source": "ours", "unit": ""})
    lost: int = Field(0, description="replicates that are lost", json_schema_extra={"source": "ours", "unit": "count"})

class Odd(Algorithm):
    name, kind, settings_type = "odd", "particles", Settings

    def init(self, problem, settings, streams, horizon):
        return ParticleState.start(problem)

    def step(self, problem, settings, state, streams):
        x = state.x + 0.01 * problem.score(state.x)
        if streams.step == 3:
            x[: settings.lost] = torch.nan
        return ParticleState(x)
"""


class Faulty:
    """MLflow's server, in this process; from request number ``until`` on it has the ``fault``."""

    def __init__(self, folder: Path) -> None:
        os.environ |= {
            "_MLFLOW_SERVER_FILE_STORE": f"sqlite:///{folder}/server.db",
            "_MLFLOW_SERVER_REGISTRY_STORE": f"sqlite:///{folder}/server.db",
            "_MLFLOW_SERVER_ARTIFACT_ROOT": "mlflow-artifacts:/",
            "_MLFLOW_SERVER_ARTIFACT_DESTINATION": str(folder / "artifacts"),
            "_MLFLOW_SERVER_SERVE_ARTIFACTS": "true",
        }
        database.prepare(folder / "server.db")
        from mlflow.server import app

        self.app, self.fault, self.until, self.seen = app, "", 0, 0
        self.port = 0
        self.start()

    def start(self) -> None:
        """Listen, at the same port as before."""
        self.server = make_server("127.0.0.1", self.port, self, threaded=True)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        """Listen no longer."""
        self.server.shutdown()
        self.server.server_close()

    def heal(self) -> None:
        """Answer as MLflow does again."""
        if self.fault == "stops":
            self.start()
        self.fault = ""

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        self.seen += 1
        if not self.fault or self.seen <= self.until:
            return self.app(environ, start)
        if self.fault == "silent":
            time.sleep(_PATIENCE_S + 5)
        if self.fault == "stops" and self.seen == self.until + 1:
            self.stop()
        if self.fault in ("stops", "silent", "closes"):
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionAbortedError
        status, kind, content = {
            "login": ("401 Unauthorized", "text/plain", b"You are not authenticated."),
            "error": ("500 Internal Server Error", "application/json", b'{"message": "' + b"x" * 100_000 + b'"}'),
            "page": ("200 OK", "text/html", b"<html>Please log in</html>"),
        }[self.fault]
        start(status, [("Content-Type", kind), ("Content-Length", str(len(content)))])
        return [content]


def suite(number: int, plugin: Path) -> Suite:
    """Four cells, other ones for every number: two of them lose replicates, all have long notes."""
    odd = f"{plugin}:Odd"
    given = [
        {"name": odd, "label": f"lost-{k}", "settings": {"note": "n" * 10_000, "lost": k, "step_size": 1.0 + number}}
        for k in range(3)
    ]
    long = {"name": "ula", "label": "l" * 64, "settings": {"step_size": 0.001 + 0.001 * number}}
    return suite_of(
        ["multimodal"], [*given, long], replicates=2, particles=5, budget={"iterations": 8}, metrics=["ksd"]
    )


def warned(warning: str, expected: bool) -> list[str]:
    """What is wrong with a warning."""
    if bool(warning) != expected:
        return [f"told {warning[:300]!r}"]
    wrong = ["a secret is told"] if SECRET in warning else []
    wrong += ["no remedy"] if expected and "parvibench sync" not in warning else []
    return wrong + ([f"long: {warning[:300]!r}"] if len(warning) > 900 or "Traceback" in warning else [])


def delivered(store: Store, results: StoredRun, uri: str, folder: Path) -> list[str]:
    """What the server lacks of a run, after ``sync``, and files of the store with a secret."""
    found = warned(sync(store, 120), False) + warned(sync(store, 120), False)
    found += [f"secret in {p.name}" for p in store.root.rglob("*") if p.is_file() and SECRET.encode() in p.read_bytes()]
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("parvibench/study")
    for cell in results.cells:
        runs = client.search_runs([experiment.experiment_id], f"tags.`parvibench.cell_key` = '{cell.key}'")
        found += [] if len(runs) == 1 else [f"{cell.label[:9]}: {len(runs)} MLflow runs"]
        for r in runs:
            odd = [k for k, v in r.data.metrics.items() if not np.isfinite(v) or abs(v) > 1e300]
            found += [f"{cell.label[:9]}: {odd} not finite there"] if odd else []
    there = Store(folder)
    try:
        rebuild(uri, there, results.run.id)
    except StoreError as error:
        return [*found, f"not rebuilt: {error}"]
    for cell in results.cells:
        record = there.find(cell.key)
        if record is None or record.values != store.find(cell.key).values:
            found.append(f"{cell.label[:9]}: rebuilt otherwise")
    return found


def attempt(number: int, folder: Path, plugin: Path) -> tuple[StoredRun, str]:
    """A run and its mirror's warning."""
    mirror = MirrorObserver(folder)
    results = run(suite(number, plugin), folder, observers=[mirror])
    return results, mirror.close(60)


def expected_statuses(results: StoredRun) -> list[str]:
    """Cells with another status than without a mirror."""
    told = [c.status for c in results.cells]
    right = [Status.OK, Status.OK, Status.DIVERGED, Status.OK]
    return [] if told == right else [f"statuses {[str(t) for t in told]}"]


@contextlib.contextmanager
def locked(file: Path, mode: str = "EXCLUSIVE") -> Iterator[None]:
    """Another program holds the database."""
    with contextlib.closing(sqlite3.connect(file, isolation_level=None, timeout=60)) as other:
        other.execute(f"BEGIN {mode}")
        yield
        other.execute("ROLLBACK")


def study(folder: Path, tries: int, seed: int = 0) -> list[str]:
    """Problems, a line each."""
    chance, found, plugin = Random(seed), [], folder / "odd.py"
    plugin.write_text(ODD)
    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    os.environ |= {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": str(_PATIENCE_S)}
    proxy = Faulty(folder)
    # The first request lets the server import what it needs, and set this process's own address.
    first = f"http://127.0.0.1:{proxy.port}/api/2.0/mlflow/experiments/get-by-name?experiment_name=Default"
    urllib.request.urlopen(first, timeout=300).close()
    uri = f"http://me:{SECRET}@127.0.0.1:{proxy.port}"
    os.environ["MLFLOW_TRACKING_URI"] = uri
    attempt(1001, folder / "first", plugin)  # makes the experiment
    proxy.seen = 0
    results, warning = attempt(1000, folder / "whole", plugin)
    found += warned(warning, False) + expected_statuses(results)
    needed = proxy.seen
    found += delivered(Store(folder / "whole"), results, uri, folder / "whole-there")
    print(f"undisturbed: {needed} requests, {len(found)} problems", *found, sep="\n  ", flush=True)
    for number in range(tries * len(FAULTS)):
        fault, root = FAULTS[number % len(FAULTS)], folder / f"store-{number}"
        at = 0 if number < len(FAULTS) else chance.randrange(1, needed)
        proxy.fault, proxy.until, proxy.seen = fault, at, 0
        results, warning = attempt(number, root, plugin)
        new = warned(warning, True) + expected_statuses(results)
        proxy.heal()
        new += delivered(Store(root), results, uri, folder / f"there-{number}")
        found += [f"{fault} from request {at} of {needed}: {n}" for n in new]
        print(f"{number + 1} servers in trouble, {len(found)} problems", *new, sep="\n  ", flush=True)
    proxy.stop()
    del os.environ["MLFLOW_TRACKING_URI"]
    for number in range(tries):
        root = folder / f"locked-{number}"
        attempt(5000 + number, root, plugin)
        with locked(root / "mlflow.db", ("EXCLUSIVE", "IMMEDIATE")[number % 2]):
            mirror = MirrorObserver(root)
            results = run(suite(6000 + number, plugin), root, observers=[mirror])
            warning = mirror.close(5)
        new = warned(warning, True) + expected_statuses(results)
        new += delivered(Store(root), results, f"sqlite:///{root}/mlflow.db", folder / f"locked-there-{number}")
        found += [f"locked database: {n}" for n in new]
    print(f"locked databases: {tries} tries", flush=True)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        problems = study(Path(name), given.tries)
    print(f"{len(problems)} problems", *problems, sep="\n")
    raise SystemExit(bool(problems))
