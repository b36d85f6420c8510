"""A sampler that edits the references and data that cells share is found, and no later cell of its process is judged by them."""

import gc
from typing import Any

import pytest
import torch

import parvibench as pb
from parvibench.core.algorithm import Algorithm, AlgorithmSettings, ParticleState
from parvibench.core.registry import load_task
from parvibench.harness.run import shared_data


class Edits(Algorithm[AlgorithmSettings, ParticleState]):
    """Halves the tensors of references and tables that it finds."""

    name, kind = "edits", "particles"
    edit = True

    def init(self, problem: Any, settings: Any, streams: Any, horizon: int) -> ParticleState:
        return ParticleState.start(problem)

    def step(self, problem: Any, settings: Any, state: ParticleState, streams: Any) -> ParticleState:
        for found in gc.get_objects() if self.edit else ():
            if type(found) is torch.Tensor and found.dtype == torch.float64 and len(found) > 5000:
                found.mul_(0.5)
        return state


@pytest.mark.parametrize("edit", [True, False])
def test_edited_references_stop_the_process(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, edit: bool) -> None:
    sampler = Edits()
    sampler.edit = edit  # type: ignore[misc]
    draws = load_task("banana").reference().draws  # type: ignore[union-attr]
    kept = draws.clone()
    try:
        result = pb.run(
            tasks=["banana"],
            algorithms=[sampler, "ula"],
            replicates=1,
            budget={"iterations": 3},
            workers=0,
            out=tmp_path,
        )
        assert torch.equal(draws, kept) is not edit
        first, later = result.cells
        assert [c.status for c in (first, later)] == (["crashed"] * 2 if edit else ["ok"] * 2)
        assert not edit or (
            "changed reference or data" in first.reason and "edits on banana changed data" in later.reason
        )
    finally:
        draws.copy_(kept)
        shared_data._spoilt.clear()
