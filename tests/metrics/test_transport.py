"""Wasserstein distances against closed forms, SciPy and POT, and inside a window."""

import math
import sys
import warnings
from pathlib import Path

import numpy as np
import ot
import pytest
import torch
from scipy import stats
from torch import Generator

from parvibench.core.metric import NotApplicable
from parvibench.core.registry import load_metric
from parvibench.metrics.transport import optimal_transport, projections, sliced_w2, w1, w2, w2sq_window


@pytest.mark.parametrize("escape", [r"\p", r"\777"])
def test_an_invalid_escape_in_pot_is_no_error(escape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ot.py").write_text(f'"""{escape}"""\n')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "ot")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert optimal_transport.__wrapped__().__file__ == str(tmp_path / "ot.py")


HEAVY = {"tags": frozenset({"heavy-tailed"})}


@pytest.mark.parametrize("metric", [sliced_w2, w2, w1])
def test_a_shift_of_the_reference_itself(metric, make_context, randn) -> None:
    """W1 and W2 between a set and its translate are |t| exactly; sliced, the root mean square of theta . t."""
    draws = randn(200, 3)
    shift = torch.tensor([0.3, -1.0, 0.5], dtype=torch.float64)
    found = metric((draws + shift)[None], make_context(3, draws))
    expected = (projections(3) @ shift).square().mean().sqrt() if metric is sliced_w2 else shift.norm()
    assert found.item() == pytest.approx(expected.item(), rel=1e-9)


@pytest.mark.parametrize(("n", "m"), [(7, 7), (5, 12), (12, 5), (100, 64), (2, 999)])
def test_unequal_sizes_are_exact(n: int, m: int, make_context, randn) -> None:
    """Against POT's one-dimensional solver, projection by projection."""
    x, y = randn(n, 2) + 3, randn(m, 2)
    theta = projections(2).T.numpy()
    expected = np.sqrt(np.mean(ot.wasserstein_1d(x.numpy() @ theta, y.numpy() @ theta, p=2)))
    found = sliced_w2(x[None], make_context(2, y)).item()
    assert found == pytest.approx(expected, rel=1e-9)  # POT's tolerance


def test_w2_agrees_with_pot(make_context, randn) -> None:
    x, y = randn(60, 4), 1 + randn(90, 4)
    exact = math.sqrt(ot.emd2([], [], ot.dist(x.numpy(), y.numpy())))
    assert w2(x[None], make_context(4, y)).item() == pytest.approx(exact, rel=1e-12)


def test_projections_are_fixed_unit_and_uniform() -> None:
    """Catches directions drawn from a cube: the mean of theta_1^4 is 3 / (D (D + 2)) on the sphere."""
    theta = projections(3)
    assert theta.shape == (500, 3)
    assert torch.allclose(theta.norm(dim=1), torch.ones(500, dtype=torch.float64))
    fourth = theta[:, 0].pow(4)
    assert abs(stats.ttest_1samp(fourth.numpy(), 3 / 15).statistic) < 4
    assert torch.equal(theta, projections.__wrapped__(3))


def test_excluded_rows_are_left_out(make_context, randn) -> None:
    draws = randn(50, 2)
    rows = torch.arange(10)[None]
    found = sliced_w2(draws[None, :10], make_context(2, draws, excluded_rows=rows))
    assert torch.equal(found, sliced_w2(draws[None, :10], make_context(2, draws[10:].clone())))


def test_no_reference(make_context) -> None:
    with pytest.raises(NotApplicable, match="no reference"):
        sliced_w2(torch.zeros(1, 3, 2, dtype=torch.float64), make_context())


def test_w1_agrees_with_scipy(make_context, randn) -> None:
    """In one dimension by quantiles, in three by another linear programme; catches squared costs."""
    for dim, expected in ((1, lambda a, b: stats.wasserstein_distance(a[:, 0], b[:, 0])),
                          (3, stats.wasserstein_distance_nd)):  # fmt: skip
        x, y = randn(25, dim) + 1, randn(30, dim)
        found = w1(x[None], make_context(dim, y)).item()
        assert found == pytest.approx(expected(x.numpy(), y.numpy()), rel=1e-7)


def test_only_the_window_counts(make_context, generator: Generator) -> None:
    """A shift inside gives its square; rows beyond, in any one coordinate, change nothing."""
    draws = torch.rand(100, 2, generator=generator, dtype=torch.float64) - 0.5
    shift = torch.tensor([0.3, -0.2], dtype=torch.float64)
    far = torch.tensor([[0.0, 5.0], [-9.0, 0.0], [40.0, 40.0]], dtype=torch.float64)
    context = make_context(2, torch.cat([draws, far]), task=HEAVY)
    for name in ("w2sq_window_5", "w2sq_window_8", "w2sq_window_10"):
        assert load_metric(name).compute is not None
    x = torch.cat([draws + shift, far[[0]].expand(50, 2)])
    found = load_metric("w2sq_window_5").compute(x[None], context).item()
    assert found == pytest.approx(shift.square().sum().item(), rel=1e-9)
    # The window of 8 holds (0, 5) as well.
    expected = w2(x[None], make_context(2, torch.cat([draws, far[:1]]))).item() ** 2
    assert load_metric("w2sq_window_8").compute(x[None], context).item() == pytest.approx(expected)


def test_windows_without_rows_and_other_tasks(make_context, randn) -> None:
    draws = randn(20, 2)
    context = make_context(2, draws, task=HEAVY)
    assert w2sq_window(draws[None] + 100, context, 5.0).item() == math.inf
    with pytest.raises(NotApplicable, match="no reference row"):
        w2sq_window(draws[None], make_context(2, draws + 100, task=HEAVY), 5.0)
    with pytest.raises(NotApplicable, match="heavy-tailed"):
        w2sq_window(draws[None], make_context(2, draws), 5.0)
