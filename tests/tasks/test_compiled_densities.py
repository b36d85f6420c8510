"""A compiled density is the plain one: its numbers, its charges, and wherever it cannot be recorded itself."""

from pathlib import Path

import pytest
import torch
from few import needs_data
from torch import Tensor

import parvibench as pb
from parvibench.core.registry import load_task
from parvibench.harness.run.compiling import Fused

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.mark.ci
@pytest.mark.parametrize(
    "task",
    [
        "banana",
        "bnn-diabetes-sklearn",
        *(pytest.param(t, marks=[pytest.mark.slow, *needs_data(t)]) for t in ("garch11", "hmm-example")),
    ],
)
def test_a_compiled_density_is_the_plain_one_at_the_same_price(task: str) -> None:
    """At points that it was not made at; by hand, of a network, and through autograd."""
    plain, fast = (load_task(task).problem((0, 1), 0, "cpu", torch.float64, particles=3) for _ in range(2))
    reasons: list[str] = []
    fast.evaluate_by(lambda evaluate: Fused(evaluate, reasons.append))
    x = plain.init()
    for points in (x, 0.9 * x, x[:, :2], x.mT.contiguous().mT):  # the last of another shape, and of other strides
        for a, b in zip(fast.log_density_and_score(points), plain.log_density_and_score(points), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
    assert not reasons
    assert fast.meter == plain.meter


def test_a_density_that_decides_by_values_stays_plain() -> None:
    def evaluate(x: Tensor) -> tuple[Tensor, Tensor]:
        scale = 1.0 if x.sum() > 0 else 2.0
        return -scale * x.square().sum(-1) / 2, -scale * x

    reasons: list[str] = []
    compiled, x = Fused(evaluate, reasons.append), torch.ones(1, 2, 3)
    for points in (x, -x):
        assert torch.equal(compiled(points)[1], evaluate(points)[1])
    assert reasons == ["values decide which operations follow"]


def test_a_long_density_stays_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling would take minutes."""
    monkeypatch.setattr("parvibench.harness.run.compiling._MOST_FUSED", 2)
    target = load_task("banana").target((0,), "cpu", torch.float64)
    reasons: list[str] = []
    compiled = Fused(target.log_density_and_score, reasons.append)
    x = torch.ones(1, 2, 2, dtype=torch.float64)
    assert torch.equal(compiled(x)[1], target.log_density_and_score(x)[1])
    assert "more than 2 operations" in reasons[0]


@pytest.mark.ci
def test_a_run_says_that_its_density_stayed_plain(tmp_path: Path) -> None:
    deciding = pb.task(
        lambda x: -x.square().sum(-1) * (0.5 if x.sum() > 0 else 1.0), dim=2, name="deciding", batched=True
    )
    run = {"particles": 4, "workers": 0, "tracking": False, "out": tmp_path, "budget": {"iterations": 12}}
    for task, told in ((deciding, True), ("banana", False)):
        (cell,) = pb.run(tasks=[task], algorithms=["nuts"], replicates=1, compiled=True, **run).cells
        assert any("plain density" in flag for flag in cell.flags) is told
