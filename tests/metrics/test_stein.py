"""Kernel Stein discrepancy against Stein kernels written with autograd, its mean, and its behaviour."""

import numpy as np
import pytest
import torch
from torch import Tensor

from parvibench.core.metric import Context, NotApplicable
from parvibench.core.reference import Floor
from parvibench.core.registry import load_task
from parvibench.metrics import common as pairwise
from parvibench.metrics.floors import p_value
from parvibench.metrics.stein import bootstrapped_ksd, ksd


def stein_kernel(x: Tensor, y: Tensor, c: float) -> Tensor:
    """k_p(x, y) for the standard normal, all derivatives by autograd."""
    x, y = x.clone().requires_grad_(), y.clone().requires_grad_()
    k = (1 + (x - y).square().sum() / c**2) ** -0.5
    kx, ky = torch.autograd.grad(k, (x, y), create_graph=True)
    trace = sum(torch.autograd.grad(kx[i], y, retain_graph=True)[0][i] for i in range(len(x)))
    return (k * (x @ y) - x @ ky - y @ kx + trace).detach()


def test_against_autograd(make_context, randn) -> None:
    """Catches every sign, each of the four terms being nonzero here, and a bandwidth taken for a variance."""
    x = randn(12, 3) + 0.4
    context = make_context(3, randn(40, 3))
    c = context.reference.bandwidth
    expected = torch.stack([stein_kernel(a, b, c) for a in x for b in x]).mean().sqrt()
    assert ksd(x[None], context).item() == pytest.approx(expected.item(), rel=1e-10)


def test_block_size_does_not_matter(make_context, monkeypatch: pytest.MonkeyPatch, randn) -> None:
    x = randn(1, 50, 4)
    whole = ksd(x, make_context(4))
    monkeypatch.setattr(pairwise, "BLOCK_ENTRIES", 120)
    assert ksd(x, make_context(4)).item() == pytest.approx(whole.item(), rel=1e-12)


def test_no_target(make_context) -> None:
    with pytest.raises(NotApplicable, match="density"):
        ksd(torch.zeros(1, 3, 2, dtype=torch.float64), Context(make_context().task))


def test_the_wild_bootstrap_has_its_level_and_finds_a_shift() -> None:
    """Of 200 sets of exact draws at most 20 are rejected at 5% (binomial, 0.3%); of shifted ones at least 190."""
    task, g = load_task("correlated-2d"), torch.Generator().manual_seed(1)
    target = task.target([0], "cpu", torch.float64)
    rejected = {0.0: 0, 0.5: 0}
    for shift in rejected:
        for _ in range(200):
            x = task.exact(60, g) + shift * task.facts.sd
            value, values = bootstrapped_ksd(x, target, 300, g)
            rejected[shift] += p_value("ksd", value, Floor(60, values)) <= 0.05
    assert rejected[0.0] <= 20
    assert rejected[0.5] >= 190


def test_the_bootstrapped_value_is_the_metric_s() -> None:
    task, g = load_task("correlated-2d"), torch.Generator().manual_seed(2)
    target, x = task.target([0], "cpu", torch.float64), task.exact(700, g)
    value, values = bootstrapped_ksd(x, target, 50, g)
    assert value == pytest.approx(float(ksd(x[None], Context(task, None, target))[0]))
    assert len(values) == 50
    assert (np.diff(values) >= 0).all()
