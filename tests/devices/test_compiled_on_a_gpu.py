"""Compiled steps on a real GPU are the plain ones; skipped without one."""

import pytest
import torch
from sampler_toys import Run
from torch import Tensor

from parvibench.core import registry
from parvibench.core.algorithm import floating_tensors
from parvibench.harness.run.compiling import RecordedStep

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("ignore"),  # of PyTorch's compiler
]
METHODS = {n: registry.load_method(n) for n, row in registry.algorithms().items() if row.kind != "anchor"}
COMPILED = [n for n, m in METHODS.items() if not m.library and not m.host_bound and m.max_chunk != 1]


def states(name: str, task: str, dtype: torch.dtype, steps: int, *, compiled: bool) -> list[list[Tensor]]:
    """What a sampler holds after every step, on the CPU."""
    method, target = registry.load_algorithm(name), registry.load_task(task)
    full = "full-batch" in method.needs
    problem = target.problem((0, 1, 2), 0, "cuda", dtype, particles=20, full_batch=full)
    run = Run(name, problem, 80, **dict(method.example.quick))
    if compiled:
        run.advance = RecordedStep(run.advance)
    found = []
    for _ in range(steps):
        run.steps(1)
        found.append([t.double().cpu() for t in floating_tensors(run.state) if t.numel()])
    return found


@pytest.mark.parametrize("task", ["gmm5-2d", "bnn-diabetes-sklearn"])
@pytest.mark.parametrize("name", COMPILED)
def test_compiled_steps_are_the_plain_ones(name: str, task: str) -> None:
    """In single precision, where a compiler contracts and reorders."""
    if METHODS[name].needs - registry.load_task(task).provides:
        pytest.skip(f"{task} lacks what {name} needs")
    pairs = zip(*(states(name, task, torch.float32, 6, compiled=c) for c in (False, True)), strict=True)
    for number, (plain, compiled) in enumerate(pairs):
        for a, b in zip(plain, compiled, strict=True):
            apart = float((a - b).abs().max() / a.abs().max().clamp_min(1))
            assert apart < 2e-3, f"step {number + 1}: {apart:.2g} apart"


@pytest.mark.parametrize("task", ["gmm5-2d", "funnel-10d", "blr-breast-cancer"])
def test_the_trees_of_the_cuda_program_are_the_plain_ones(task: str) -> None:
    plain, compiled = (states("nuts", task, torch.float64, 50, compiled=c) for c in (False, True))
    for a, b in zip(plain[::10], compiled[::10], strict=True):
        for ours, theirs in zip(a, b, strict=True):
            torch.testing.assert_close(theirs, ours, rtol=1e-5, atol=1e-6)
