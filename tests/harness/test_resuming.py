"""Interrupted runs go on to the same bits; what cannot be trusted is begun again."""

import io
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from ascent import Ascent
from torch.utils._pytree import tree_leaves

from parvibench.core import registry
from parvibench.core.errors import StoreError
from parvibench.core.result import Status
from parvibench.harness.run import stepping
from parvibench.harness.run.chunks import NotWritableError, pack, rebuilt, unpack
from parvibench.harness.run.loop import run_chunk
from parvibench.harness.session import run_cells
from parvibench.harness.store.files import SnapshotFile
from parvibench.harness.store.store import Store
from parvibench.harness.suite.cells import Cell, expand
from parvibench.harness.suite.suite import Suite
from parvibench.harness.workers.executors import InProcess


class Inner(NamedTuple):
    a: torch.Tensor
    n: int


class Outer(NamedTuple):
    inner: Inner
    rest: tuple[Any, ...]
    none: None


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0)),
        torch.arange(24.0).reshape(2, 3, 4).transpose(1, 2),
        torch.arange(24.0, dtype=torch.float64)[5:17:3],
        torch.zeros(3, 1).expand(3, 4),
        torch.tensor([True, False]),
        torch.tensor(3),
        torch.empty(2, 0),
        torch.tensor([np.inf, np.nan, -0.0]),
    ],
)
def test_tensors_come_back_with_bits_and_layout(tensor: torch.Tensor) -> None:
    back = unpack(pack(tensor))
    assert (back.dtype, back.shape, back.stride()) == (tensor.dtype, tensor.shape, tensor.stride())
    assert back.data_ptr() % 64 == tensor.data_ptr() % 64 or not tensor.numel()
    as_bytes = [t.contiguous().flatten().view(torch.uint8) if t.dim() else t for t in (back, tensor)]
    assert torch.equal(*as_bytes)


def test_nested_states_come_back_as_their_types() -> None:
    state = Outer(Inner(torch.ones(2), 7), (1.5, "x", [True, {"k": torch.zeros(1)}], float("inf")), None)
    back = rebuilt(unpack(pack(tree_leaves(state))), state)
    assert (type(back), type(back.inner)) == (Outer, Inner)
    assert (back.rest[0], back.rest[2][0], back.rest[3]) == (1.5, True, float("inf"))
    assert (back.inner.n, back.none) == (7, None)


@pytest.mark.parametrize("value", [object(), torch.ones(1, requires_grad=True), [len], np.array(["x"])])
def test_what_cannot_be_written_is_refused(value: object) -> None:
    with pytest.raises(NotWritableError):
        pack(value)


class Runs:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os._exit, (3,)


def test_untrusted_snapshots_run_no_code() -> None:
    """Pickled code, a type of its own, noise and half a file are refused; so is another number of values."""
    contents = [b"", b"noise", pack(torch.ones(4))[:-30], pickle.dumps(Runs())]
    for value in (Runs(), Inner(torch.ones(4), 1)):
        torch.save(value, buffer := io.BytesIO())
        contents.append(buffer.getvalue())
    for content in contents:
        with pytest.raises(StoreError):
            unpack(content)
    with pytest.raises(StoreError, match="1 values for a state of 2"):
        rebuilt([1], Inner(torch.ones(1), 1))


SUITE = {
    "name": "t", "tasks": ["multimodal"], "algorithms": ["sgld"], "replicates": 2, "particles": 20,
    "budget": {"iterations": 300}, "metrics": ["ksd", "ess_bulk", "displacement", "score_evaluations"],
}  # fmt: skip


def make_cell(**values: object) -> Cell:
    return expand(Suite.model_validate({**SUITE, **values}))[0]


class Pulled(Exception):
    """The plug."""


def run_in_two(cell: Cell, path: Path, monkeypatch: pytest.MonkeyPatch, stop: int) -> Any:
    """Run a chunk that keeps its state after every look, pull the plug at step ``stop``, go on from the file."""
    file = SnapshotFile(path, every=0.0)
    algorithm = type(cell.load()[1])
    step = algorithm.step

    def plug(self: Any, problem: Any, settings: Any, state: Any, streams: Any) -> Any:
        if streams.step == stop:
            raise Pulled
        return step(self, problem, settings, state, streams)

    with monkeypatch.context() as patch:
        patch.setattr(algorithm, "step", plug)
        with pytest.raises(Pulled):
            run_chunk(cell, cell.chunks[0], snapshot=file)
    begun = []
    init = algorithm.init

    def watch(self: Any, problem: Any, *rest: Any) -> Any:
        begun.append(problem.meter.limit)
        return init(self, problem, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(algorithm, "init", watch)
        patch.setattr(stepping, "_TRIAL_STEPS", 1)
        return run_chunk(cell, cell.chunks[0], snapshot=SnapshotFile(path)), len(begun)


@pytest.mark.parametrize("name", ["sgld", "svgd", "srld", "ada-sifg", "ksivi", "psgld", "hmc", "mied"])
def test_a_resumed_run_has_the_bits_of_a_whole_one(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """State, meter, recorded path, curve and budget: all as if nothing had happened."""
    cell = make_cell(algorithms=[name], budget={"iterations": 24}, samples=10)
    whole = run_chunk(cell, cell.chunks[0])
    resumed, inits = run_in_two(cell, tmp_path / "s.pt", monkeypatch, stop=17)
    assert inits == 1  # the warm-up's: the run itself began from the file
    assert np.array_equal(resumed.samples, whole.samples)
    assert (resumed.iterations, resumed.score_evaluations) == (whole.iterations, whole.score_evaluations)
    timeless = [[(*row[:4], *row[5:]) for row in r.curve if row[5] != "peak_memory"] for r in (resumed, whole)]
    assert timeless[0] == timeless[1]


BANDIT = {"tasks": ["bandit-wheel"], "particles": 3, "contexts": 400, "metrics": ["regret", "contexts"]}


@pytest.mark.parametrize(
    "values",
    [
        {"tasks": ["bnn-diabetes-sklearn"], "particles": 5, "metrics": ["nll"]},
        *({**BANDIT, "algorithms": [{"name": n, "settings": {"step_size": 1e-7}}]} for n in ("srld", "svgd")),
    ],
    ids=["mini-batches", "srld on a bandit", "svgd on a bandit"],
)
def test_mini_batches_and_decisions_resume_to_the_bit(values: Any, tmp_path: Path, monkeypatch: Any) -> None:
    cell = make_cell(**values, budget={"iterations": 30})
    whole = run_chunk(cell, cell.chunks[0])
    resumed, _ = run_in_two(cell, tmp_path / "s.pt", monkeypatch, stop=17)
    assert np.array_equal(resumed.samples, whole.samples)
    for metric in values["metrics"]:
        assert resumed.values[metric] == whole.values[metric]


def test_a_state_that_cannot_be_written_restarts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(registry.load_algorithm("ula")), "resumable", False)
    cell = make_cell(algorithms=["ula"], budget={"iterations": 4}, samples=2)
    _, inits = run_in_two(cell, tmp_path / "s.pt", monkeypatch, stop=3)
    assert inits == 2
    assert not (tmp_path / "s.pt").exists()


def test_snapshots_of_other_runs_are_not_taken_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other settings, other metrics, a damaged file: the chunk begins again and gives the right numbers."""
    budget = {"iterations": 40}
    cell, other = make_cell(budget=budget), make_cell(budget=budget, metrics=["ksd"])
    path = tmp_path / "s.pt"
    run_in_two(other, path, monkeypatch, stop=30)
    right = run_chunk(cell, cell.chunks[0])
    for content in (path.read_bytes(), path.read_bytes()[:-100], b""):
        path.write_bytes(content)
        found = run_chunk(cell, cell.chunks[0], snapshot=SnapshotFile(path))
        assert np.array_equal(found.samples, right.samples)
        assert set(found.values) == set(right.values)


class Counts(Ascent):
    """Tells which chunks it began."""

    name = "counts"
    max_chunk = 1
    began: list[int] = []
    fails_at = -1

    def init(self, problem, settings, streams, horizon):
        if problem.meter.limit:
            self.began.append(streams.replicates[0])
        return super().init(problem, settings, streams, horizon)

    def step(self, problem, settings, state, streams):
        if streams.step == 3 and streams.replicates[0] == self.fails_at:
            raise KeyboardInterrupt
        return super().step(problem, settings, state, streams)


def test_finished_chunks_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    budget = {"score_evaluations": 200}
    cells = [make_cell(algorithms=[f"{__name__}:Counts"], replicates=4, budget=budget)]
    store, suite = Store(tmp_path), {"name": "t"}
    monkeypatch.setattr(Counts, "fails_at", 2)
    stopped = run_cells(cells, store, InProcess(), suite=suite)
    assert [c.status for c in stopped.cells] == [Status.INTERRUPTED]
    monkeypatch.setattr(Counts, "fails_at", -1)
    Counts.began.clear()
    assert run_cells(cells, store, InProcess(), suite=suite).cells[0].status is Status.OK
    assert Counts.began == [2, 3]
    assert not list((tmp_path / "unfinished").iterdir())


KILLED = """
import sys
from pathlib import Path
from parvibench.harness.session import run_cells
from parvibench.harness.store.files import SnapshotFile
from parvibench.harness.store.store import Store
from parvibench.harness.suite.cells import expand
from parvibench.harness.suite.suite import Suite
from parvibench.harness.workers.processes import Workers
suite = Suite.model_validate({suite!r})
place = Store.snapshot
Store.snapshot = lambda self, *a: SnapshotFile(place(self, *a).path, every=0.0)
if __name__ == "__main__":
    run_cells(expand(suite), Store(sys.argv[1]), Workers(1, 60), suite=suite.resolved())
"""


def test_a_killed_run_goes_on_in_the_middle_of_a_cell(tmp_path: Path) -> None:
    """SIGKILL while the only cell runs: its worker dies too, the next run starts from the snapshot."""
    suite = {**SUITE, "budget": {"iterations": 12_000}, "metrics": ["ksd"]}
    script = tmp_path / "script.py"
    script.write_text(KILLED.format(suite=suite))
    command = [sys.executable, str(script), str(tmp_path / "store")]
    with subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}) as driver:
        deadline = time.monotonic() + 60
        while not (saved := list(tmp_path.glob("store/unfinished/*/0.pt"))) and time.monotonic() < deadline:
            time.sleep(0.05)
        driver.send_signal(signal.SIGKILL)
    assert saved
    time.sleep(1)
    written = saved[0].stat().st_mtime_ns
    time.sleep(0.5)
    assert saved[0].stat().st_mtime_ns == written  # no process writes it any more
    cells = expand(Suite.model_validate(suite))
    results = run_cells(cells, Store(tmp_path / "store"), InProcess(), suite={"name": "t"})
    whole = run_chunk(cells[0], cells[0].chunks[0])
    assert np.array_equal(results.samples(results.cells[0]), whole.samples)
    assert not saved[0].exists()
