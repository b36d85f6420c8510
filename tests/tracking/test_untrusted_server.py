"""Servers that lie: what arrives is counted, and nothing but their own artifacts is read."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from parvibench.core.errors import StoreError
from parvibench.harness.store.store import Store
from parvibench.tracking.archive import rebuild

_OWN = "mlflow-artifacts:/1/u/artifacts"


class Server(ThreadingHTTPServer):
    """As much of MLflow's protocol as ``rebuild`` speaks.

    Attributes:
        run: ``run.json`` as it is sent, piece by piece.
        place: the artifact URI it names.
        tags: of its only run.
        sent: bytes of ``run.json`` sent.
        asked: paths of the requests.
    """

    run: Callable[[], Iterator[bytes]]
    place: str = _OWN
    tags: dict[str, str]
    sent = 0
    asked: list[str]


class Answers(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if "runs/get" in self.path:
            self._json({"run": self._run()})
        elif self.path.endswith("run.json"):
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(OSError):
                for piece in self.server.run():
                    self.wfile.write(piece)
                    self.server.sent += len(piece)
        elif "mlflow-artifacts" in self.path:
            self._json({"files": [{"path": "run.json", "is_dir": False, "file_size": 10}]})
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append(self.path)
        if "experiments/search" in self.path:
            self._json({"experiments": [{"experiment_id": "1", "name": "parvibench/x", "lifecycle_stage": "active"}]})
        else:
            self._json({"runs": [self._run()]})

    def _run(self) -> dict[str, Any]:
        info = {
            "run_id": "u", "run_uuid": "u", "experiment_id": "1", "status": "FINISHED", "start_time": 1,
            "lifecycle_stage": "active", "artifact_uri": self.server.place,
        }  # fmt: skip
        tags = [{"key": k, "value": v} for k, v in self.server.tags.items()]
        return {"info": info, "data": {"tags": tags, "metrics": [], "params": []}}

    def _json(self, answer: Any) -> None:
        content = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with Server(("127.0.0.1", 0), Answers) as served:
        served.tags, served.asked = {"parvibench.run_id": "r"}, []
        served.run = lambda: iter([b"{}"])
        threading.Thread(target=served.serve_forever, daemon=True).start()
        yield served
        served.shutdown()


def uri(server: Server) -> str:
    return f"http://127.0.0.1:{server.server_port}"


def test_what_arrives_is_counted(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says 10 bytes and goes on for ever."""
    monkeypatch.setattr("parvibench.tracking.archive._RUN_FILES", {"run.json": 5 * 2**20})

    def endless() -> Iterator[bytes]:
        while True:
            yield bytes(2**20)

    server.run = endless
    with pytest.raises(StoreError, match=r"run\.json has more than 5242880 bytes"):
        rebuild(uri(server), Store(tmp_path / "store"))
    assert server.sent < 100 * 2**20


@pytest.mark.parametrize(
    "place", ["file:///etc", "s3://bucket/x", "http://127.0.0.1:9/x", "mlflow-artifacts://other/x", "/etc"]
)
def test_artifacts_elsewhere_are_not_fetched(place: str, server: Server, tmp_path: Path) -> None:
    server.place = place
    with pytest.raises(StoreError, match="its artifacts are not its own"):
        rebuild(uri(server), Store(tmp_path / "store"))
    assert not any("mlflow-artifacts" in path for path in server.asked)


@pytest.mark.parametrize(
    ("content", "told"),
    [(b"[" * 100_000, "damaged there"), (b"{}", "damaged there"), (b"\xff", "damaged there")],
    ids=["deep", "empty", "no text"],
)
def test_odd_documents_give_one_line(content: bytes, told: str, server: Server, tmp_path: Path) -> None:
    server.run = lambda: iter([content])
    with pytest.raises(StoreError, match=told) as refused:
        rebuild(uri(server), Store(tmp_path / "store"))
    assert "\n" not in str(refused.value)


def test_a_run_without_our_tag_is_none_of_ours(server: Server, tmp_path: Path) -> None:
    server.tags = {}
    with pytest.raises(StoreError, match="holds no finished run"):
        rebuild(uri(server), Store(tmp_path / "store"))


def test_no_database_is_made_where_one_should_be_read(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no such file"):
        rebuild(f"sqlite:///{tmp_path}/none.db", Store(tmp_path / "store"))
    assert not (tmp_path / "none.db").exists()
