"""Chunks on a Ray cluster: many machines, GPUs in shares.

A task on the cluster runs its chunk in a worker process of its own (``workers``), so a hostile sampler takes no Ray
worker down, limits hold there as here, and the bits are those of a local run. News, snapshots and results are streamed
to the driver, which alone writes. A task whose machine or Ray worker dies is sent again, with the latest snapshot.
"""

import contextlib
import importlib
import logging
import os
import queue
import socket
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from parvibench.core.errors import InputError, install_hint
from parvibench.core.reference import home_of
from parvibench.core.result import Status
from parvibench.data import fetch
from parvibench.harness.store.files import EVERY_S, SnapshotFile

from .executors import MAX_ATTEMPTS, News, OnProgress, Outcome
from .jobs import ChunkJob, Ended
from .processes import Workers

_WAIT_S = 0.5


@dataclass(frozen=True)
class Parcel:
    """A job as it travels: it needs no path of the driver's machine."""

    job: ChunkJob  #: its snapshot file stays behind
    data: dict[str, bytes]  #: data set -> its file, where the driver has it: the remote side may be offline
    plugins: dict[str, bytes]  #: path -> source of the files that algorithm and task come from, where they do
    references: dict[str, bytes]  #: file name -> content of the reference of a user's task
    snapshot: bytes | None  #: to go on from
    every: float  #: seconds between two snapshots
    version: str  #: of ParVIBench at the driver
    timeout: float
    memory: float | None


@dataclass
class _Sent:
    """A job on the cluster."""

    number: int
    job: ChunkJob
    stream: Any
    attempts: int = 1


class Cluster:
    """Runs jobs on Ray.

    ``local`` starts Ray on this machine, else ``address`` is a cluster's, or ``auto``. At most ``count`` jobs at a time
    (0: as many as the cluster takes), each within ``timeout`` s of wall-clock time, ``memory`` MiB with all it starts,
    and on a share ``gpus`` of a GPU (0: on CPUs).

    Raises:
        InputError: Ray is not installed.
    """

    def __init__(self, address: str, count: int, timeout: float, memory: float | None, gpus: float) -> None:
        _ray()
        if not 0 <= gpus <= 8:
            raise InputError(f"--gpus is the share of a GPU a chunk takes, at most 8; got {gpus:g}")
        self._address, self._count = address, count
        self._timeout, self._memory, self._gpus = timeout, memory, gpus

    def run(self, jobs: Sequence[ChunkJob], on_progress: OnProgress) -> Iterator[tuple[int, Ended]]:
        """Outcomes as they come in; on leaving early everything on the cluster is cancelled.

        Raises:
            InputError: the cluster cannot be reached, or a job cannot travel.
        """
        ray = _ray()
        for job in jobs:
            if any(job.cell.objects):
                raise InputError(f"{job.cell.label}: objects cannot be sent to a cluster; name a file.py:Class")
        started = self._connect()
        task = ray.remote(num_cpus=1, num_gpus=self._gpus, max_retries=0)(serve)
        limit = self._count or 4 * max(1, int(ray.cluster_resources().get("CPU", 1)))
        running: list[_Sent] = []
        waiting = list(enumerate(jobs))
        try:
            while waiting or running:
                while waiting and len(running) < limit:
                    number, job = waiting.pop(0)
                    running.append(_Sent(number, job, task.remote(self._parcel(job))))
                ready, _ = ray.wait([s.stream for s in running], num_returns=1, timeout=_WAIT_S, fetch_local=False)
                for sent in [s for s in running if s.stream in ready]:
                    outcome = self._listen(sent, task, on_progress)
                    if outcome is not None:
                        running.remove(sent)
                        yield sent.number, outcome
        finally:
            for sent in running:
                ray.cancel(sent.stream, force=True)
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
        cell, file = job.cell, job.snapshot
        files = [
            Path(p) for p in (cell.algorithm.rpartition(":")[0], cell.place.rpartition(":")[0]) if p.endswith(".py")
        ]
        home = home_of(cell.task) if cell.place else None
        names = [
            f"{cell.task}.json",
            f"{cell.task}.npz",
            *(p.name for p in Path(str(home)).glob(f"{cell.task}.floors-*")),
        ]
        kept = [Path(str(home / name)) for name in names] if home is not None else []
        try:
            plugins = {str(path): path.read_bytes() for path in files}
            references = {path.name: path.read_bytes() for path in kept}
        except OSError as error:
            raise InputError(f"{error.filename}: cannot be read to be sent to the cluster ({error.strerror})") from None
        return Parcel(
            job=replace(job, snapshot=None),
            data={name: content for name in cell.load_task().data if (content := fetch.held(name)) is not None},
            plugins=plugins,
            references=references,
            snapshot=file.load() if file else None,
            every=file.every if file else EVERY_S,
            version=version("parvibench"),
            timeout=self._timeout,
            memory=self._memory,
        )

    def _listen(self, sent: _Sent, task: Any, on_progress: OnProgress) -> Ended | None:
        """Take one message; the outcome if the job has ended."""
        ray = _ray()
        try:
            message = ray.get(next(sent.stream))
        except StopIteration:
            return Outcome(None, Status.CRASHED, "the task on the cluster ended without a result")
        except ray.exceptions.RayTaskError as error:
            return Outcome(None, Status.CRASHED, str(error.cause or error).split("\n")[0], str(error))
        except ray.exceptions.RayError as error:  # the worker, its machine or the object store is gone
            if sent.attempts < MAX_ATTEMPTS:
                sent.attempts += 1
                sent.stream = task.remote(self._parcel(sent.job))
                return None
            first = str(error).split("\n")[0]
            reason = f"lost {sent.attempts} times on the cluster: {type(error).__name__}: {first}"
            return Outcome(None, Status.CRASHED, reason[:500], str(error))
        if isinstance(message, Outcome):
            return message
        if isinstance(message, bytes):
            if sent.job.snapshot is not None:
                sent.job.snapshot.save(message)
        else:
            on_progress(sent.number, message)
        return None


def _ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise InputError(f"--ray needs Ray; {install_hint('ray')}") from None


def serve(parcel: Parcel) -> Iterator[News | bytes | Ended]:
    """Body of a task on the cluster: news, snapshots, and the outcome at last."""
    mine = version("parvibench")
    if mine != parcel.version:
        raise InputError(
            f"{socket.gethostname()} has ParVIBench {mine}, the driver {parcel.version}: install the same everywhere"
        )
    with tempfile.TemporaryDirectory(prefix="parvibench-ray-") as folder:
        file = SnapshotFile(Path(folder, "snapshot.pt"), parcel.every)
        if parcel.snapshot is not None:
            file.save(parcel.snapshot)
        for name, sent in parcel.data.items():
            fetch.keep(name, sent)
        job = _unpacked(parcel, Path(folder), file)
        executor = Workers(1, parcel.timeout, parcel.memory)
        events: queue.SimpleQueue[News | Ended] = queue.SimpleQueue()

        def work() -> None:
            for _, outcome in executor.run([job], lambda _, news: events.put(news)):
                events.put(outcome)

        threading.Thread(target=work, daemon=True).start()
        seen = _written(file)
        while True:
            with contextlib.suppress(queue.Empty):
                event = events.get(timeout=1.0)
                if isinstance(event, Outcome):
                    failed_at = "" if event.result is not None else f" (on {socket.gethostname()})"
                    yield replace(event, reason=event.reason + failed_at)
                    return
                yield event
            if (now := _written(file)) != seen and (content := file.load()) is not None:
                seen = now
                yield content


def _unpacked(parcel: Parcel, folder: Path, file: SnapshotFile) -> ChunkJob:
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

    # The name is part of the key, which is of no use here: the driver knows whose result it is.
    cell = cell.varied(algorithm=moved(cell.algorithm))
    if cell.place:
        for name, content in parcel.references.items():
            (folder / name).write_bytes(content)
        cell = replace(cell, place=moved(cell.place), references=str(folder))
    return replace(parcel.job, cell=cell, snapshot=file)


def _written(file: SnapshotFile) -> int:
    try:
        return file.path.stat().st_mtime_ns
    except OSError:
        return 0
