"""Posteriors of posteriordb: where their files come from, and what is told of those that cannot be run."""

import functools
import hashlib
import http.server
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import Run
from stan_twins import write_posteriordb

from parvibench.core.errors import DataMissingError, InputError, UnknownNameError
from parvibench.data import fetch
from parvibench.reporting.text import described
from parvibench.targets import posteriordb

NAME = "line-line"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A local copy of two posteriors, one of them broken."""
    folder = write_posteriordb(tmp_path / "copy", ["line"])
    monkeypatch.setenv(posteriordb.FOLDER_VARIABLE, str(folder))
    return folder / "posterior_database"


@pytest.fixture
def served(copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The same on a server, with a manifest of its files, an empty cache and no local copy."""
    paths = [p for p in copy.rglob("*") if p.is_file()]
    lines = [f"{hashlib.sha256(p.read_bytes()).hexdigest()} {p.relative_to(copy).as_posix()}" for p in paths]
    (tmp_path / "manifest.txt").write_text("\n".join(["commit", *lines]))
    monkeypatch.setattr(posteriordb, "MANIFEST", tmp_path / "manifest.txt")
    for module in (fetch, posteriordb):
        monkeypatch.setattr(module, "cache_folder", lambda: tmp_path / "cache")
    proxies = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")
    for variable in (posteriordb.FOLDER_VARIABLE, fetch.FOLDER_VARIABLE, *proxies):
        monkeypatch.delenv(variable, raising=False)
    with http.server.HTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(copy))) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setattr(posteriordb, "ADDRESS", f"http://127.0.0.1:{httpd.server_port}/{{path}}?{{commit}}")
        posteriordb._manifest.cache_clear()
        yield copy
        posteriordb._manifest.cache_clear()
        httpd.shutdown()
        thread.join()


def test_the_pinned_commit_has_147_posteriors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(posteriordb.FOLDER_VARIABLE, raising=False)
    assert len(posteriordb.names()) == 147
    assert "eight_schools-eight_schools_centered" in posteriordb.names()
    assert len(posteriordb._manifest()[0]) == 40
    with pytest.raises(UnknownNameError, match="did you mean 'eight_schools-eight_schools_centered'"):
        posteriordb.posterior("eight_schools-eight_schools_centred")


def test_entries_of_a_local_copy(copy: Path) -> None:
    assert posteriordb.names() == ["broken-broken", NAME]
    assert posteriordb.posterior(NAME) == (NAME, "line", "line", "")
    assert [row["status"] for row in posteriordb.rows()] == ["here", "here"]
    (copy / f"posteriors/{NAME}.json").write_text('{"name": 1}')
    with pytest.raises(InputError, match="line-line: the entry is damaged: KeyError\\('model_name'\\)"):
        posteriordb.posterior(NAME)
    (copy / f"posteriors/{NAME}.json").write_text("{")
    with pytest.raises(InputError, match=r"posteriors/line-line\.json: expected JSON"):
        posteriordb.posterior(NAME)
    for outside in ("../secret", "/etc/passwd"):
        with pytest.raises(InputError, match="there is no"):
            posteriordb._file(outside)


def test_a_variable_that_names_something_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(posteriordb.FOLDER_VARIABLE, str(tmp_path))
    with pytest.raises(InputError, match="expected a copy of posteriordb, with a folder 'posteriors'"):
        posteriordb.names()


def test_files_are_downloaded_one_by_one_and_verified(served: Path, tmp_path: Path) -> None:
    assert [row["status"] for row in posteriordb.rows()] == ["not downloaded", "not downloaded"]
    assert posteriordb.posterior(NAME).model == "line"
    here = [p.name for p in (tmp_path / "cache").rglob("*") if p.is_file()]
    assert here == [f"{NAME}.json"]
    (served / "models/stan/line.stan").write_text("model { }")
    with pytest.raises(DataMissingError, match="does not match"):
        posteriordb._file("models/stan/line.stan")
    with pytest.raises(InputError, match=r"there is no models/stan/other\.stan"):
        posteriordb._file("models/stan/other.stan")


def test_without_stanli_the_extra_is_named(copy: Path, call: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "stanli", None)
    answer = call("run", "--task", "posteriordb:*", "--algorithm", "nuts")
    assert answer.code == 2
    assert "broken-broken, line-line are left out: stanli is not installed; install it in a checkout" in answer.err
    assert "pip install '.[stan]'" in answer.err
    row = call("list", "posteriordb", "--json").json[1]
    assert row == {"name": NAME, "status": "here", "draws": "no", "built-in": ""}


def test_damaged_chains_of_posteriordb_are_refused(copy: Path) -> None:
    path = copy / f"reference_posteriors/draws/draws/{NAME}.json"
    path.write_text('[{"a": [1.0]}, {"b": [1.0]}]')
    task = object.__new__(posteriordb.PosteriordbTask)
    object.__setattr__(task, "posterior", posteriordb.posterior(NAME)._replace(draws=NAME))
    with pytest.raises(InputError, match="expected chains"):
        task.given_draws()


def test_a_built_in_task_is_known_by_the_posterior_that_it_cites() -> None:
    for name, native in (
        ("eight_schools-eight_schools_centered", "eight-schools-centered"),
        ("garch-garch11", "garch11"),
        ("normal_5-normal_mixture_k", "normal-mixture-5"),
        ("GLM_Binomial_data-GLM_Binomial_model", ""),  # no task
        ("kennel-dogs", ""),  # a name of somebody's own
    ):
        assert posteriordb.native_of(name) == native
    assert "the built-in task garch11 is the same" in described.own_task((), "garch11")
