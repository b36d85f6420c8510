"""Data files: verified wherever they come from, clear about what is missing."""

import contextlib
import hashlib
import http.server
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import requests

from parvibench.core.errors import DataMissingError, InputError
from parvibench.data import fetch as module
from parvibench.data.fetch import FOLDER_VARIABLE, DataSet, fetch, registry, status

CONTENT = b"1 2 3\n4 5 6\n"


class Handler(http.server.BaseHTTPRequestHandler):
    """The content, behind as many redirects as a path names, or with something after it."""

    def do_GET(self) -> None:
        redirects = self.path.rpartition("/redirects-")[2]
        more = b"7" * {"/longer.txt": 1, "/much-longer.txt": 2**20, "/endless.txt": 2**30}.get(self.path, 0)
        if redirects.isdecimal() and int(redirects):
            self.send_response(302)
            self.send_header("Location", f"/redirects-{int(redirects) - 1}")
            self.end_headers()
            return
        self.send_response(200)
        if self.path != "/endless.txt":
            self.send_header("Content-Length", str(len(CONTENT + more)))
        self.end_headers()
        with contextlib.suppress(OSError):  # who has enough hangs up
            self.wfile.write(CONTENT + more)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_port}/tiny.txt"
        httpd.shutdown()
        thread.join()


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Callable[[DataSet], None]:
    """Makes an entry the only registered one."""
    return lambda entry: monkeypatch.setattr(module, "registry", lambda: {entry.name: entry})


@pytest.fixture
def tiny(register, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> DataSet:
    """A registry of one set, an empty cache, no folder, and an address without a server."""
    entry = DataSet(
        name="tiny", file="tiny/data.txt", url="http://127.0.0.1:9/tiny.txt", sha256=hashlib.sha256(CONTENT).hexdigest(),
        bytes=len(CONTENT), rows=2, features=2, target_column=2, licence="none", source="a test",
    )  # fmt: skip
    register(entry)
    monkeypatch.setattr(module, "cache_folder", lambda: tmp_path / "cache")
    for variable in (FOLDER_VARIABLE, "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    return entry


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder, as named by the environment."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "given"))
    return tmp_path / "given"


def put(folder: Path, entry: DataSet, content: bytes = CONTENT) -> Path:
    path = folder / entry.file
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return path


def test_every_registered_set_is_pinned() -> None:
    """Catches a row that would download whatever a branch holds today."""
    assert len(registry()) == 50
    for name, entry in registry().items():
        assert entry.name == name
        assert (len(entry.sha256), len(entry.git_blob)) in ((64, 0), (0, 40))
        assert entry.url.startswith("https://raw.githubusercontent.com/")
        assert len(entry.url.split("/")[5]) == 40, "the address names no commit"
        assert entry.features > 0
        assert entry.target_column in (0, None) or entry.target_column >= entry.features
        assert entry.bytes is None or entry.bytes > 0
        assert entry.licence
        assert entry.source


def test_folder_comes_first(tiny: DataSet, given: Path, tmp_path: Path) -> None:
    path = put(given, tiny)
    assert fetch("tiny") == path
    assert not (tmp_path / "cache").exists()


def test_tampered_file_is_named_with_both_hashes_and_the_remedy(tiny: DataSet, given: Path) -> None:
    path = put(given, tiny, b"1 2 3\n4 5 7\n")
    with pytest.raises(InputError) as caught:
        fetch("tiny")
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    for part in (str(path), tiny.sha256, found, "parvibench data fetch tiny", FOLDER_VARIABLE):
        assert part in str(caught.value)
    assert status()[0].state == "damaged"


def test_offline_says_how_to_get_it_and_tries_once(tiny: DataSet, monkeypatch: pytest.MonkeyPatch) -> None:
    """No retries, and no wait without an end."""
    sent, send = [], requests.Session.send
    monkeypatch.setattr(
        requests.Session, "send", lambda self, *a, **k: sent.append(k["timeout"]) or send(self, *a, **k)
    )
    with pytest.raises(DataMissingError, match="parvibench data fetch tiny"):
        fetch("tiny")
    assert len(sent) == 1
    assert all(sent)


def test_an_address_that_does_not_answer_is_tried_once(
    tiny: DataSet, server: str, register, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A preview of a suite asks once a cell; a minute later a network that came back is noticed."""
    with pytest.raises(DataMissingError) as first:
        fetch("tiny")
    register(replace(tiny, url=server))
    with pytest.raises(DataMissingError) as second:
        fetch("tiny")
    assert str(second.value) == str(first.value)
    monkeypatch.setattr(module, "_PAUSE_S", 0.0)
    assert fetch("tiny").read_bytes() == CONTENT


def test_download_fills_the_cache_and_is_used_again(tiny: DataSet, server: str, register, tmp_path) -> None:
    register(replace(tiny, url=server))
    path = fetch("tiny")
    assert path == (tmp_path / "cache" / tiny.file).resolve()
    assert path.read_bytes() == CONTENT
    register(tiny)  # offline from here on
    assert fetch("tiny") == path


def test_damaged_cache_is_downloaded_again(tiny: DataSet, server: str, register, tmp_path: Path) -> None:
    put(tmp_path / "cache", tiny, b"half a fi")
    register(replace(tiny, url=server))
    assert fetch("tiny").read_bytes() == CONTENT


def test_download_of_other_bytes_is_refused(tiny: DataSet, server: str, register, tmp_path: Path) -> None:
    """Catches a captive portal's page being kept as data."""
    register(replace(tiny, url=server, sha256="0" * 64))
    with pytest.raises(DataMissingError, match="does not match"):
        fetch("tiny")
    assert not (tmp_path / "cache" / tiny.file).exists()


@pytest.mark.parametrize(
    ("page", "told"),
    [
        ("redirects-1", ""),
        pytest.param("redirects-3", "", marks=pytest.mark.ci),
        ("redirects-4", "3 redirects"),
        pytest.param("redirects-1000", "3 redirects", marks=pytest.mark.ci),
        ("longer.txt", "longer than the registered 12 bytes"),
        ("much-longer.txt", "longer than the registered 12 bytes"),
        pytest.param("endless.txt", "longer than the registered 12 bytes", marks=pytest.mark.ci),
    ],
)
def test_redirects_and_bytes_are_limited(
    page: str, told: str, tiny: DataSet, server: str, register, tmp_path: Path
) -> None:
    register(replace(tiny, url=server.replace("tiny.txt", page)))
    if not told:
        assert fetch("tiny").read_bytes() == CONTENT
        return
    with pytest.raises(DataMissingError, match=told):
        fetch("tiny")
    assert [p for p in (tmp_path / "cache").rglob("*") if p.is_file()] == []


def test_a_git_hash_is_accepted(tiny: DataSet, server: str, register, tmp_path: Path) -> None:
    """`git hash-object` of the content. Catches the length left out of the hash, and an unchecked download."""
    blob = replace(tiny, sha256="", git_blob="b9d569380ba6d9c18f0bb4b5b16e0e4ff91fb0f0", url=server)
    assert blob.hash_of(b"hello\n") == "git blob ce013625030ba8dba906f756967f9e9ca394464a"
    register(blob)
    with pytest.raises(DataMissingError, match="does not match") as caught:
        fetch("tiny")
    true = blob.hash_of(CONTENT)
    assert true in str(caught.value)
    assert blob.hash in str(caught.value)
    blob = replace(blob, git_blob=true.removeprefix("git blob "))
    register(blob)
    damaged = tmp_path / "cache" / blob.file
    damaged.write_bytes(b"half a fi")
    assert status()[0].state == "damaged"
    assert fetch("tiny").read_bytes() == CONTENT
    assert (status()[0].state, status()[0].path) == ("ok", damaged)


def test_damaged_cache_offline_names_both_hashes(tiny: DataSet, tmp_path: Path) -> None:
    path = put(tmp_path / "cache", tiny, b"half a fi")
    with pytest.raises(DataMissingError) as caught:
        fetch("tiny")
    for part in (tiny.hash, tiny.hash_of(b"half a fi"), tiny.file, "parvibench data fetch tiny"):
        assert part in str(caught.value)
    assert not path.exists()


def test_status_says_where_each_file_is(tiny: DataSet, given: Path, tmp_path: Path) -> None:
    row = status()[0]
    assert (row.name, row.rows, row.bytes, row.state, row.path) == ("tiny", 2, 12, "missing", None)
    cached = put(tmp_path / "cache", tiny)
    assert (status()[0].state, status()[0].path) == ("ok", cached)
    path = put(given, tiny)
    assert (status()[0].state, status()[0].path) == ("ok", path)
