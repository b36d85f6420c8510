"""A server that fails, hangs or lacks an experiment costs one warning with a remedy, and no password shows."""

import os
import re
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

import pytest
from mirrors import RUN, make_curve, make_record, mirror

from parvibench.harness.store.secrets import without_secrets
from parvibench.harness.store.store import RunRecord
from parvibench.tracking.mirror import MirrorObserver


def test_a_server_out_of_reach_costs_a_warning(tmp_path):
    warning = mirror(tmp_path, (make_record("good"), None), uri="http://user:secret@127.0.0.1:9")
    assert warning.startswith("2 of 2 records did not reach MLflow at http://127.0.0.1:9")
    assert "secret" not in warning
    assert "parvibench sync" in warning


@pytest.mark.parametrize("answer", ["401", "500", "a page", "nothing"])
def test_a_server_that_answers_otherwise_costs_a_warning(answer, tmp_path):
    """A login, an error of 100 kB, a page of HTML, a connection that is closed: one remedy, no password."""

    class Odd(BaseHTTPRequestHandler):
        def do_GET(self):
            if answer == "nothing":
                return
            content = b"<html>Please log in</html>" if answer == "a page" else b'{"message": "' + b"x" * 100_000 + b'"}'
            self.send_response(200 if answer == "a page" else int(answer))
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET
        log_message = lambda self, *_: None  # noqa: E731

    with ThreadingHTTPServer(("127.0.0.1", 0), Odd) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        uri = f"http://me:swordfish@127.0.0.1:{server.server_port}"
        warning = mirror(tmp_path, (make_record("good"), None), uri=uri)
        server.shutdown()
    assert warning.startswith("2 of 2 records did not reach MLflow")
    assert "parvibench sync" in warning
    assert "swordfish" not in warning
    assert len(warning) < 900
    assert "Traceback" not in warning


def test_a_slow_server_is_given_up_on_time(tmp_path, monkeypatch):
    answers = Event()
    monkeypatch.setattr("parvibench.tracking.database.connect", lambda uri: answers.wait(600))
    copy = MirrorObserver(tmp_path)
    copy.started(RunRecord(**RUN))
    warning = copy.close(timeout=0.5)
    answers.set()
    assert "no answer within 0.5 s" in warning
    assert "1 of 1 records" in warning


def test_the_server_of_the_environment_is_used(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    copy = MirrorObserver(tmp_path)
    assert copy.uri == "http://127.0.0.1:9"
    assert copy.close().startswith("0 of 0")


def test_credentials_never_show():
    assert without_secrets("postgresql://me:pw@host:1/db") == "postgresql://host:1/db"
    assert without_secrets("sqlite:////tmp/a@b.db") == "sqlite:////tmp/a@b.db"
    line = "parvibench run --set a.api_key=abc --token hidden http://u:p@h/x?access_token=t&b=1"
    assert without_secrets(line) == ("parvibench run --set a.api_key=*** --token *** http://h/x")


@pytest.mark.ci
def test_an_experiment_that_was_deleted_on_the_server_is_named_with_a_remedy_that_works(tmp_path):
    from mlflow import MlflowClient

    cells = ((make_record("good"), make_curve()),)
    assert mirror(tmp_path, *cells) == ""
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    client = MlflowClient(tracking_uri=uri)
    client.delete_experiment(client.get_experiment_by_name("parvibench/tiny").experiment_id)
    warning = mirror(tmp_path, *cells)
    assert "parvibench/tiny was deleted there" in warning
    assert "SQL" not in warning
    remedy = re.search(r"\((mlflow experiments restore -x \d+)", warning)[1]
    done = subprocess.run(
        [sys.executable, "-m", *remedy.split()], env=os.environ | {"MLFLOW_TRACKING_URI": uri}, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    assert mirror(tmp_path, *cells) == ""


@pytest.mark.parametrize("name", ["with blanks", "quo'te", "ünï-ço∂é", "100%", "a" * 200])
def test_an_experiment_of_any_name_can_be_restored(name, tmp_path):
    from mlflow import MlflowClient

    run, cells = RUN | {"suite": RUN["suite"] | {"name": name}}, ((make_record("good"), make_curve()),)
    assert mirror(tmp_path, *cells, run=run) == ""
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/mlflow.db")
    client.delete_experiment(client.get_experiment_by_name(f"parvibench/{name}").experiment_id)
    warning = mirror(tmp_path, *cells, run=run)
    assert f"parvibench/{name} was deleted there" in warning
    assert "SQL" not in warning
    client.restore_experiment(re.search(r"mlflow experiments restore -x (\d+)", warning)[1])
    assert mirror(tmp_path, *cells, run=run) == ""
