"""Neither an offset nor single precision changes what a metric measures, unless it is said."""

import pytest
import torch
from torch import Generator

import parvibench as pb
from parvibench.core.errors import InputError
from parvibench.core.reference import Reference
from parvibench.core.registry import load_metric, load_task
from parvibench.metrics.evaluate import evaluate_samples


@pytest.mark.parametrize("name", ["w1", "w2", "sliced_w2", "mmd2", "kl_knn", "ks_marginal", "worst_coordinate"])
def test_an_offset_of_a_billion_sds_changes_no_value(name: str, make_context, randn) -> None:
    x, rows = randn(60, 2) + 0.3, randn(200, 2)
    values = [load_metric(name)(x[None] + o, make_context(2, rows + o)).item() for o in (0.0, 1e9)]
    assert values[1] == pytest.approx(values[0], rel=1e-5)


def test_single_precision_far_from_zero_is_refused(randn) -> None:
    rows = randn(500, 2) + 1e6
    reference = Reference(rows, True, {"bandwidth": 1.0})
    task = pb.task(
        lambda x: -0.5 * (x - 1e6).square().sum(), dim=2, initial=[1e6, 1e6], name="far", coordinates=("mu", "tau")
    )
    evaluate_samples(task, rows[:100] + 0.1, metrics=["mean_error"], reference=reference)
    with pytest.raises(InputError, match=r"^mu: numbers near 1e\+06 in the precision of the samples are 0\.1"):
        evaluate_samples(task, rows[:100].float(), metrics=["mean_error"], reference=reference)


def test_a_wrong_coordinate_is_named_in_the_verdict() -> None:
    """The seventh of 32 sds 25% too small; Holm's family is the task's."""
    task = load_task("brownian-32")
    x = task.exact(500, Generator().manual_seed(1))
    x[:, 6] = x[:, 6].mean() + 0.75 * (x[:, 6] - x[:, 6].mean())
    found = evaluate_samples(task, x)
    assert found["verdict"] == "distinguishable"
    assert found["reason"].startswith("sd of x7: 0.7")


def _mixture(x: torch.Tensor) -> torch.Tensor:
    return (-0.5 * (x - torch.tensor([[-2.0, 0.0], [2.0, 0.0]]).to(x)).square().sum(-1)).logsumexp(-1)


def test_logsumexp_in_single_precision_is_reported() -> None:
    with pytest.warns(UserWarning, match=r"mix: the score in single precision is \d+% too long at a distance of"):
        pb.task(_mixture, dim=2, name="mix")
    pb.task(lambda x: _mixture(x.double()), dim=2, name="double")  # a warning would be an error


@pytest.mark.parametrize("name", ["multimodal", "x-shaped", "gmm2-2d", "student-mixture-50d"])
def test_mixtures_of_ours_differentiate_right_far_out(name: str) -> None:
    """On the axes, where components tie; PyTorch's logsumexp is twice too long at 1e4."""
    task, scores = load_task(name), []
    for dtype in (torch.float32, torch.float64):
        x = (torch.eye(task.dim, dtype=dtype)[None] * 1e4).requires_grad_()
        density = task.target([0], "cpu", dtype).log_density(x)
        scores.append(torch.autograd.grad(density.sum(), x)[0].double())
    torch.testing.assert_close(*scores, rtol=1e-3, atol=1e-3 * float(scores[1].abs().max()))
