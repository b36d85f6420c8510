"""The short version of the study of Ray; skipped where Ray is not installed."""

import hashlib
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
import ray_cluster

import parvibench as pb
from parvibench.core.errors import InputError
from parvibench.core.result import Status
from parvibench.data import fetch
from parvibench.harness.suite.cells import expand
from parvibench.harness.workers import cluster
from parvibench.harness.workers.cluster import Cluster, serve
from parvibench.harness.workers.jobs import ChunkJob

#: Tests of studies, which are no part of the product.
pytestmark = pytest.mark.ci

REASON = "Ray is not installed (pip install '.[ray]')"
needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason=REASON)


@needs_ray
@pytest.mark.slow
def test_two_ray_workers_give_the_bits_of_this_process(tmp_path: Path) -> None:
    assert ray_cluster.same_bits(tmp_path) == []


@needs_ray
@pytest.mark.slow
def test_the_cell_of_a_killed_ray_worker_is_done_again(tmp_path: Path) -> None:
    found, killed = ray_cluster.killed_worker(tmp_path)
    assert found == []
    assert killed == 1


@needs_ray
def test_a_plugin_travels_as_its_source(tmp_path: Path) -> None:
    """The other side of the wire, without Ray: the file is not there, the job runs, the driver's job comes back."""
    plugin = tmp_path / "mine.py"
    plugin.write_bytes(ray_cluster.PLUGIN.read_bytes())
    suite = ray_cluster.make_suite([f"{plugin}:Good"], tasks=["multimodal"])
    parcel = Cluster("local", 1, 60.0, None, 0.0)._parcel(ChunkJob(expand(suite)[0], 0))
    plugin.unlink()
    outcome = serve(parcel)
    assert outcome.status is Status.OK, outcome.reason


def test_a_data_set_travels_to_a_node_without_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node has an empty cache and no way out; bytes that are not the registered ones are refused."""
    text = b"".join(b"1.0 2.0 3.0\n" for _ in range(40))
    entry = replace(fetch.registry()["yacht"], sha256=hashlib.sha256(text).hexdigest(), git_blob="", bytes=len(text))
    monkeypatch.setattr(fetch, "registry", lambda: {"yacht": entry})
    file = tmp_path / "driver" / entry.file
    file.parent.mkdir(parents=True)
    file.write_bytes(text)
    monkeypatch.setenv(fetch.FOLDER_VARIABLE, str(tmp_path / "driver"))
    suite = ray_cluster.make_suite(["initial"], tasks=["bnn-yacht"])
    driver = Cluster.__new__(Cluster)  # without Ray
    driver._timeout, driver._memory = 60.0, None
    parcel = driver._parcel(ChunkJob(expand(suite)[0], 0))
    assert parcel.data == {"yacht": text}
    monkeypatch.delenv(fetch.FOLDER_VARIABLE)
    monkeypatch.setattr(fetch, "cache_folder", lambda: tmp_path / "node")
    assert fetch.held("yacht") is None
    fetch.keep("yacht", parcel.data["yacht"])
    assert fetch.held("yacht") == text
    with pytest.raises(InputError, match="not the registered file"):
        fetch.keep("yacht", text + b"4.0 5.0 6.0\n")


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install '\.\[ray\]'"):
        pb.run(tasks=["banana"], algorithms=["svgd"], ray="local", out=tmp_path)


def test_a_node_that_does_not_start_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray raises a bare exception after its time for that."""

    def init(**_: object) -> None:
        raise Exception("the node timed out\nmore")

    monkeypatch.setattr(cluster, "_ray", lambda: SimpleNamespace(is_initialized=lambda: False, init=init))
    with pytest.raises(InputError, match=r"no cluster there \(the node timed out\)"):
        Cluster("local", 1, 60.0, None, 0.0)._connect()


def test_objects_of_local_classes_are_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Local(type(pb.load_algorithm("svgd"))):  # type: ignore[misc]
        name = "local"

    # it is refused before Ray is called
    monkeypatch.setattr(cluster, "_ray", lambda: SimpleNamespace(is_initialized=lambda: False))
    with pytest.raises(InputError, match=r"file\.py:Class"):
        pb.run(tasks=["banana"], algorithms=[Local()], ray="local", out=tmp_path)
