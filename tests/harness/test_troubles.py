"""A disk that is full, flipped bits of snapshots, a density that fails in the middle of a run: one message, no wrong result."""

import errno
import math
import os
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from few import every
from torch import Tensor

import parvibench as pb
from parvibench.core.errors import StoreError
from parvibench.core.result import Status
from parvibench.harness.session import run_cells
from parvibench.harness.store.files import SnapshotFile
from parvibench.harness.store.results import StoredRun
from parvibench.harness.store.store import Store
from parvibench.harness.suite.cells import expand
from parvibench.harness.suite.suite import Suite
from parvibench.harness.workers.executors import InProcess

SUITE = Suite.model_validate({
    "name": "full", "tasks": ["banana"], "algorithms": ["sgld", "ula", "mala"], "replicates": 2, "particles": 5,
    "budget": {"iterations": 4}, "metrics": ["mean_error"],
})  # fmt: skip


def run(root: Path) -> StoredRun:
    return run_cells(expand(SUITE), Store(root), InProcess(), suite=SUITE.resolved())


def test_a_full_disk_keeps_the_cells_before_and_the_run_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the space ends within the first cell or within the third."""
    right = run(tmp_path / "right")
    for room in (1, 9):
        root, fsync, written = tmp_path / str(room), os.fsync, []

        def full(handle: int, room: int = room, fsync: Any = fsync, written: list[int] = written) -> None:
            written.append(handle)
            if len(written) > room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            fsync(handle)

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(StoreError, match="No space left on device"):
                run(root)
        kept = [c for c in right.cells if Store(root).find(c.key) is not None]
        assert len(kept) == (0 if room == 1 else 2)
        assert not [p for p in root.rglob("*") if p.name.startswith((".new", ".old"))]
        after = run(root)
        for before, cell in zip(right.cells, after.cells, strict=True):
            assert cell.status is Status.OK
            assert np.array_equal(after.samples(cell), right.samples(before))


def test_any_flipped_bit_of_a_snapshot_is_found(tmp_path: Path) -> None:
    """In the checksum, at both ends of the content and within: such a snapshot is none."""
    chance, file = Random(0), SnapshotFile(tmp_path / "1.pt")
    file.save(content := bytes(range(256)) * 8)
    assert file.load() == content
    whole = file.path.read_bytes()
    for at in (0, 31, 32, -1, *(chance.randrange(len(whole)) for _ in range(60))):
        harmed = bytearray(whole)
        harmed[at] ^= 1 << chance.randrange(8)
        file.path.write_bytes(harmed)
        assert file.load() is None


@pytest.mark.parametrize("wrong", ["nan", "inf", "-inf", "raises"])
@pytest.mark.parametrize("algorithm", every(["ula"], ["ula", "svgd"]))
def test_a_density_that_fails_from_a_call_on_is_no_silent_result(algorithm: str, wrong: str, tmp_path: Path) -> None:
    """In one of eight rows, after half of the run; nothing that is not finite passes as a result."""
    calls = []

    def density(x: Tensor) -> Tensor:
        calls.append(len(x))
        found = -(x**2).sum(-1) / 2
        if len(calls) < 30:
            return found
        if wrong == "raises":
            raise ValueError("no density here")
        return found * torch.where(torch.arange(found.numel()).view(found.shape) == 0, -float(wrong), 1.0)

    found = pb.run(
        tasks=[pb.task(density, 2, name="mine", batched=True)], algorithms=[algorithm], replicates=2, particles=8,
        budget={"iterations": 48}, workers=0, tracking=False, out=tmp_path,
    )  # fmt: skip
    (cell,) = found.cells
    told = " ".join((cell.reason, *cell.flags))
    if wrong == "raises":
        assert cell.status is Status.CRASHED
        assert "no density here" in told
    else:
        lost = [r for r in cell.spec.replicates if r in cell.diverged]
        assert told or lost
        kept = [r for r in cell.spec.replicates if r not in lost]
        assert cell.status is not Status.OK or np.isfinite(found.samples(cell)[kept]).all()
        assert not any(math.isnan(v) for values in cell.values.values() for v in values if v is not None)
