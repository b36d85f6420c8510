"""Chunks on a Ray cluster: many machines, GPUs in shares.

A task on the cluster runs its chunk in a worker process of its own (``workers``), so a hostile sampler takes no Ray
worker down, limits hold there as here, and the bits are those of a local run. Ray runs a task again from its start when its
machine or Ray worker dies.
"""

import importlib
import logging
import os
import socket
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

from parvibench.core.errors import InputError, install_hint
from parvibench.core.reference import home_of
from parvibench.core.result import Status
from parvibench.data import fetch

from .executors import MAX_ATTEMPTS, OnProgress, Outcome
from .jobs import ChunkJob, Ended
from .processes import Workers


@dataclass(frozen=True)
class Parcel:
    """A job as it travels: it needs no path of the driver's machine."""

    job: ChunkJob  #: without a snapshot
    data: dict[str, bytes]  #: data set -> its file, where the driver has it: the remote side may be offline
    plugins: dict[str, bytes]  #: path -> source of the files that algorithm and task come from, where they do
    references: dict[str, bytes]  #: file name -> content of the reference of a user's task
    version: str  #: of ParVIBench at the driver
    timeout: float  #: wall-clock limit, s
    memory: float | None  #: limit, MiB


class Cluster:
    """Runs jobs on Ray.

    ``local`` starts Ray on this machine, else ``address`` is a cluster's, or ``auto``. At most ``count`` jobs at a time
    (0: as many as the cluster takes), each within ``timeout`` s of wall-clock time, ``memory`` MiB with all it starts,
    and on a share ``gpus`` of a GPU (0: on CPUs). ``InputError`` where Ray is not installed.
    """

    def __init__(self, address: str, count: int, timeout: float, memory: float | None, gpus: float) -> None:
        _ray()
        self._address, self._count = address, count
        self._timeout, self._memory, self._gpus = timeout, memory, gpus

    def run(self, jobs: Sequence[ChunkJob], on_progress: OnProgress) -> Iterator[tuple[int, Ended]]:
        """Outcomes as they come, without progress; ``InputError`` where the cluster is out of reach, or a job cannot travel."""
        ray = _ray()
        for job in jobs:
            if any(job.cell.objects):
                raise InputError(f"{job.cell.label}: objects cannot be sent to a cluster; name a file.py:Class")
        started = self._connect()
        task = ray.remote(num_cpus=1, num_gpus=self._gpus, max_retries=MAX_ATTEMPTS - 1)(serve)
        limit = self._count or 4 * max(1, int(ray.cluster_resources().get("CPU", 1)))
        waiting = enumerate(jobs)
        running: dict[Any, int] = {}
        try:
            while True:
                running |= {task.remote(self._parcel(job)): n for n, job in islice(waiting, limit - len(running))}
                if not running:
                    return
                (ready,), _ = ray.wait(list(running), num_returns=1)
                yield running.pop(ready), _received(ready)
        finally:
            for sent in running:
                ray.cancel(sent, force=True)
            if started:
                ray.shutdown()

    def _connect(self) -> bool:
        """Whether Ray was started here."""
        ray = _ray()
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        if ray.is_initialized():
            return False
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if self._address == "local":
            options |= {"include_dashboard": False, "num_cpus": self._count or None}
        try:
            ray.init(address=self._address, **options)
        except Exception as error:  # also a bare one, where a node takes too long to start
            first = str(error).split("\n")[0]
            raise InputError(f"--ray {self._address}: no cluster there ({first:.200})") from None
        return True

    def _parcel(self, job: ChunkJob) -> Parcel:
        cell = job.cell
        places = (cell.algorithm.rpartition(":")[0], cell.place.rpartition(":")[0])
        files = [Path(place) for place in places if place.endswith(".py")]
        home = home_of(cell.task) if cell.place else None
        kept = []
        if home is not None:
            folder = Path(str(home))
            kept = [folder / f"{cell.task}.json", folder / f"{cell.task}.npz", *folder.glob(f"{cell.task}.floors-*")]
        try:
            plugins = {str(path): path.read_bytes() for path in files}
            references = {path.name: path.read_bytes() for path in kept}
        except OSError as error:
            raise InputError(f"{error.filename}: cannot be read to be sent to the cluster ({error.strerror})") from None
        data = {name: content for name in cell.load_task().data if (content := fetch.held(name)) is not None}
        job = replace(job, snapshot=None)
        return Parcel(job, data, plugins, references, version("parvibench"), self._timeout, self._memory)


def _ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise InputError(f"--ray needs Ray; {install_hint('ray')}") from None


def _received(sent: Any) -> Ended:
    """The outcome of a task that has ended."""
    ray = _ray()
    try:
        outcome: Ended = ray.get(sent)
    except ray.exceptions.RayTaskError as error:
        return Outcome(None, Status.CRASHED, str(error.cause or error).split("\n")[0], str(error))
    except ray.exceptions.RayError as error:  # the worker, its machine or the object store is gone
        first = str(error).split("\n")[0]
        reason = f"lost {MAX_ATTEMPTS} times on the cluster: {type(error).__name__}: {first}"
        return Outcome(None, Status.CRASHED, reason[:500], str(error))
    return outcome


def serve(parcel: Parcel) -> Ended:
    """Body of a task on the cluster."""
    mine, host = version("parvibench"), socket.gethostname()
    if mine != parcel.version:
        raise InputError(f"{host} has ParVIBench {mine}, the driver {parcel.version}: install the same everywhere")
    for name, content in parcel.data.items():
        fetch.keep(name, content)
    with tempfile.TemporaryDirectory(prefix="parvibench-ray-") as folder:
        job = _unpacked(parcel, Path(folder))
        ((_, outcome),) = Workers(1, parcel.timeout, parcel.memory).run([job], lambda _, news: None)
    return outcome if outcome.result is not None else replace(outcome, reason=f"{outcome.reason} (on {host})")


def _unpacked(parcel: Parcel, folder: Path) -> ChunkJob:
    """The job with the files of its plug-ins, and the reference of its task, where there are any."""
    cell, places = parcel.job.cell, {}
    for number, (path, source) in enumerate(parcel.plugins.items()):
        if not (Path(path).is_file() and Path(path).read_bytes() == source):
            copy = folder / f"plugin-{number}" / Path(path).name
            copy.parent.mkdir()
            copy.write_bytes(source)
            places[path] = str(copy)

    def moved(place: str) -> str:
        path, _, name = place.rpartition(":")
        return f"{places[path]}:{name}" if path in places else place

    # The name is part of the key, which is of no use here: the driver assigns the result.
    cell = cell.varied(algorithm=moved(cell.algorithm))
    if cell.place:
        for name, content in parcel.references.items():
            (folder / name).write_bytes(content)
        cell = replace(cell, place=moved(cell.place), references=str(folder))
    return replace(parcel.job, cell=cell)
