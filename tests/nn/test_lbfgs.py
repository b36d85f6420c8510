"""L-BFGS on many paths: its matrices against the recursion they stand for, its searches against SciPy's."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from parvibench.nn import lbfgs

LogDensity = Callable[[Tensor], Tensor]


def points(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def with_score(log_density: LogDensity, x: Tensor) -> tuple[Tensor, Tensor]:
    leaf = x.clone().requires_grad_()
    value = log_density(leaf)
    return value.detach(), torch.autograd.grad(value.sum(), leaf)[0]


def valley(x: Tensor) -> Tensor:
    """Minus Rosenbrock's function over pairs of coordinates."""
    a, b = x[..., ::2], x[..., 1::2]
    return -((1 - a).square() + 20 * (b - a.square()).square()).sum(-1)


def ridge(x: Tensor) -> Tensor:
    """A normal of condition 1000 in turned axes."""
    return -0.5 * ((x @ TURN).square() * torch.logspace(-1.5, 1.5, 6, dtype=x.dtype)).sum(-1)


TURN = torch.linalg.qr(points(6, 6, seed=9)).Q


def trace(log_density: LogDensity, x: Tensor, steps: int, history: int = 6) -> list[lbfgs.Paths]:
    """Paths after every step."""
    found = [lbfgs.start(x, history)]
    for _ in range(steps):
        found.append(lbfgs.advance(found[-1], *with_score(log_density, found[-1].trial), longest=1000)[0])
    return found


@pytest.mark.parametrize("pairs", [0, 1, 3])
def test_the_compact_form_equals_the_recursion(pairs: int) -> None:
    """H <- (I - rho s z^T) H (I - rho z s^T) + rho s s^T, from the oldest pair; three places for pairs.

    Catches the order of pairs, R transposed, and pairs that are not there counted.
    """
    dim = 5
    hessian = points(dim, dim, seed=1)
    hessian = hessian @ hessian.T + torch.eye(dim)
    s = torch.zeros(1, 1, 3, dim, dtype=torch.float64)
    z, alpha = s.clone(), 0.5 + points(1, 1, dim, seed=3).abs()
    for j in range(3 - pairs, 3):
        s[0, 0, j] = points(dim, seed=10 + j)
        z[0, 0, j] = hessian @ s[0, 0, j]
    dense = alpha[0, 0].diag()
    for j in range(3 - pairs, 3):
        u, v = s[0, 0, j], z[0, 0, j]
        left = torch.eye(dim) - torch.outer(u, v) / (u @ v)
        dense = left @ dense @ left.T + torch.outer(u, u) / (u @ v)
    estimate = lbfgs.inverse_hessian(alpha, s, z)
    torch.testing.assert_close(
        estimate.alpha[0, 0].diag() + estimate.b[0, 0] @ estimate.g[0, 0] @ estimate.b[0, 0].T, dense
    )
    vector = points(1, 1, dim, seed=4)
    torch.testing.assert_close(estimate.times(vector)[0, 0], dense @ vector[0, 0])


def test_the_diagonal_follows_the_papers_formula_and_pairs_are_scaled() -> None:
    """1 / alpha_i <- a / (b alpha_i) + z_i^2 / b - a s_i^2 / (b c alpha_i^2), a = z.alpha z, b = z.s, c = s.s / alpha.

    Catches a diagonal from the scaled pair of another step.
    """
    path = trace(ridge, points(2, 3, 6), 12)
    checked = 0
    for before, after in pairwise(path):
        moved = (after.accepted > before.accepted) & (before.accepted > 0)
        s, z = after.x - before.x, before.score - after.score
        b = (s * z).sum(-1, keepdim=True)
        a = (z.square() * before.alpha).sum(-1, keepdim=True)
        c = (s.square() / before.alpha).sum(-1, keepdim=True)
        expected = 1 / (a / (b * before.alpha) + z**2 / b - a * s**2 / (b * c * before.alpha**2))
        torch.testing.assert_close(after.alpha[moved], expected[moved], rtol=1e-6, atol=1e-12)
        torch.testing.assert_close(after.s[..., -1, :][moved], (s / b.sqrt())[moved], rtol=1e-6, atol=1e-12)
        checked += int(moved.sum())
    assert checked > 40


@pytest.mark.parametrize("log_density", [valley, ridge])
def test_paths_end_at_the_maximum_in_about_as_many_evaluations_as_scipys(log_density: LogDensity) -> None:
    """Catches a direction without curvature (hundreds of evaluations), and a search that gives up early."""
    x = points(2, 3, 6, seed=2)
    path = trace(log_density, x, 150)
    last = path[-1]
    assert last.done.all()
    used = torch.stack([~p.done for p in path]).sum(0)
    for r in range(2):
        for p in range(3):

            def negative(v: np.ndarray) -> tuple[float, np.ndarray]:
                value, score = with_score(log_density, torch.from_numpy(v))
                return -value.item(), -score.numpy()

            options = {"maxcor": 6, "ftol": 2e-14, "gtol": 0}
            theirs = minimize(negative, x[r, p].numpy(), jac=True, method="L-BFGS-B", options=options)
            assert last.log_density[r, p].item() == pytest.approx(-theirs.fun, abs=1e-9)
            assert used[r, p] <= 2 * theirs.nfev
    assert last.score.abs().max() < 1e-4


def test_accepted_points_meet_the_weak_wolfe_conditions() -> None:
    path = trace(valley, 2 * points(2, 4, 6, seed=5), 100)
    accepted = 0
    for before, after in pairwise(path):
        moved = (after.accepted > before.accepted) & (before.accepted > 0) & (before.trials < lbfgs.MOST_TRIALS - 1)
        slope = (before.score * before.direction).sum(-1)
        rise = after.log_density - before.log_density
        assert (rise >= 1e-4 * before.t * slope - 1e-15)[moved].all()
        assert ((after.score * before.direction).sum(-1) <= 0.9 * slope + 1e-15)[moved].all()
        assert (rise >= 0)[before.accepted > 0].all()
        accepted += int(moved.sum())
    assert accepted > 100


def test_a_density_with_an_edge_is_climbed_from_within() -> None:
    """log x - x on x > 0, NaN or minus infinity elsewhere. A path that starts outside ends at once, where it is."""
    x = torch.tensor([0.01, 30.0, -1.0], dtype=torch.float64).view(1, 3, 1)
    last = trace(lambda x: (x.log() - x).sum(-1), x, 60)[-1]
    assert last.x[0, :2, 0].tolist() == pytest.approx([1.0, 1.0], abs=1e-5)
    assert last.x[0, 2, 0] == -1
    assert last.done.all()


def test_paths_do_not_depend_on_each_other_and_end_where_they_are() -> None:
    """Alone and together to rounding; further steps change nothing."""
    x = points(2, 3, 6, seed=6)
    together = trace(valley, x, 120)
    for r in range(2):
        alone = trace(valley, x[r : r + 1], 120)[-1]
        torch.testing.assert_close(alone.x[0], together[-1].x[r], rtol=1e-9, atol=1e-9)
    assert all(torch.equal(a, b) for a, b in zip(together[-1], trace(valley, x, 125)[-1], strict=True))


def test_bad_pairs_are_left_out_and_a_path_stops_at_its_longest() -> None:
    """From a convex stretch of 1 - cos: where s.z <= 0 the pair is dropped, and the estimate stays positive definite."""
    path = trace(lambda x: x.cos().sum(-1) - 1e-3 * x.square().sum(-1), 3 + 0.1 * points(1, 20, 2, seed=7), 60)
    for p in path:
        assert (torch.linalg.vecdot(p.score, p.direction) >= 0).all()
        assert (p.alpha > 0).all()
    paths = lbfgs.start(points(1, 2, 6), 4)
    for _ in range(40):
        paths, _ = lbfgs.advance(paths, *with_score(ridge, paths.trial), longest=3)
    assert paths.done.all()
    assert paths.accepted.tolist() == [[4.0, 4.0]]
