"""NUTS's program for a GPU grows the trees of the plain step; skipped without one."""

import pytest
import torch
from sampler_toys import Run
from torch import Tensor

from parvibench.core import registry
from parvibench.core.algorithm import floating_tensors
from parvibench.harness.run.compiling import RecordedStep


def states(task: str, steps: int, *, compiled: bool) -> list[list[Tensor]]:
    """What NUTS holds after every step, on the CPU."""
    problem = registry.load_task(task).problem((0, 1, 2), 0, "cuda", torch.float64, particles=20, full_batch=True)
    run = Run("nuts", problem, 80, **registry.load_algorithm("nuts").example.quick)
    if compiled:
        run.advance = RecordedStep(run.advance)
    found = []
    for _ in range(steps):
        run.steps(1)
        found.append([t.double().cpu() for t in floating_tensors(run.state) if t.numel()])
    return found


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.filterwarnings("ignore")  # of PyTorch's compiler
@pytest.mark.parametrize("task", ["gmm5-2d", "funnel-10d", "blr-breast-cancer"])
def test_the_trees_of_the_cuda_program_are_the_plain_ones(task: str) -> None:
    plain, compiled = (states(task, 50, compiled=c) for c in (False, True))
    for a, b in zip(plain[::10], compiled[::10], strict=True):
        for ours, theirs in zip(a, b, strict=True):
            torch.testing.assert_close(theirs, ours, rtol=1e-5, atol=1e-6)
