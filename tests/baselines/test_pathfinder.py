"""Pathfinder and the Laplace approximation: their normals, bounds, weights and Hessians by other means.

Every |z| < 5 raises a false alarm with probability 6e-7; seeds are fixed. The bug that each test catches stands in its
docstring.
"""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from arviz_stats.base import array_stats
from few import each
from sampler_toys import Bent, Gaussian, Run, Skewed, make_problem, points
from scipy.optimize import minimize
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence

from parvibench.baselines import laplace, pathfinder
from parvibench.core.target import Target
from parvibench.nn import lbfgs


class Turned(Target):
    """N(1, inverse precision), five correlated coordinates; the density is normalised."""

    dim = 5

    def __init__(self) -> None:
        turn = torch.linalg.qr(points(5, 5, seed=3)).Q
        self.precision = turn @ torch.diag(torch.tensor([0.2, 0.5, 1.0, 4.0, 30.0], dtype=torch.float64)) @ turn.T

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        precision = self.precision.to(x)
        constant = (torch.logdet(precision) - 5 * math.log(2 * math.pi)) / 2
        return constant - 0.5 * ((x - 1) * ((x - 1) @ precision)).sum(-1)


class TwoModes(Target):
    """0.3 N(-4, 1/4) + 0.7 N(4, 1/4) in the first of two coordinates, N(0, 1) in the other."""

    dim = 2

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        a, b = x.unbind(-1)
        parts = torch.stack([math.log(w) - 2 * (a - m).square() for w, m in ((0.3, -4.0), (0.7, 4.0))])
        return parts.logsumexp(0) - 0.5 * b.square()


class Earnings(Target):
    """Linear regression of earnings in dollars on heights in inches, flat priors; intercept, slope and log sigma."""

    dim = 3

    def __init__(self) -> None:
        noise = points(2, 1192, seed=4)
        self.height = 66.6 + 3.8 * noise[0]
        self.earnings = -61_000 + 1_260 * self.height + 18_900 * noise[1]

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        intercept, slope, log_sigma = (v.unsqueeze(-1) for v in x.unbind(-1))
        residual = self.earnings.to(x) - intercept - slope * self.height.to(x)
        return (-0.5 * (residual / log_sigma.exp()).square() - log_sigma).sum(-1)


#: With standard deviations from 0.01 to 100, and a regression in its own units.
BADLY_SCALED = [Gaussian([1e4, 1.0, 1e-4], mean=3.0), Gaussian(np.logspace(4, -4, 7).tolist()), Earnings()]


def in_single(target: Target) -> Any:
    """A problem in single precision whose density takes both."""
    return make_problem(target, dtype=torch.float32, double=lambda: target)


def top(target: Target) -> tuple[float, Tensor]:
    """SciPy's maximum of the log density, searched from several scales, and the negative Hessian there by autograd."""

    def negative(x: np.ndarray) -> tuple[float, np.ndarray]:
        leaf = torch.from_numpy(x).requires_grad_()
        value = -target.log_density(leaf[None, None]).sum()
        return value.item(), torch.autograd.grad(value, leaf)[0].numpy()

    start = np.array([-60_000.0, 1_250.0, 9.0]) if isinstance(target, Earnings) else np.full(target.dim, 2.0)
    for _ in range(10):
        found = minimize(negative, start, jac=True, method="BFGS", options={"gtol": 1e-10})
        start = found.x
    hessian = torch.autograd.functional.hessian(
        lambda x: -target.log_density(x[None, None]).sum(), torch.from_numpy(found.x)
    )
    return -found.fun, hessian


def dense(paths: lbfgs.Paths, r: int, p: int) -> Tensor:
    """The estimate of the inverse negative Hessian by the recursion over the pairs."""
    found = paths.alpha[r, p].diag()
    for s, z in zip(paths.s[r, p], paths.z[r, p], strict=True):
        if s.any():
            left = torch.eye(len(s), dtype=s.dtype) - torch.outer(s, z) / (s @ z)
            found = left @ found @ left.T + torch.outer(s, s) / (s @ z)
    return found


# --- Pathfinder --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dim", "history"), [(5, 6), (5, 1), (2, 6)])
def test_normals_have_the_mean_covariance_and_density_of_the_recursion(dim: int, history: int) -> None:
    """More and fewer pairs than half of the dimensions. Catches L transposed, alpha for its root, and log det halves."""
    target = Turned() if dim == 5 else Bent()
    run = Run("pathfinder", make_problem(target), paths=4, history=history).steps(6)
    paths = run.state.paths
    normals = pathfinder.normal_at(paths)
    directions = torch.eye(dim, dtype=torch.float64).expand(3, 4, dim, dim)
    columns = pathfinder.normal_draws(normals, directions)[0] - normals.mean.unsqueeze(2)
    u = points(3, 4, 6, dim, seed=1)
    draws, log_q = pathfinder.normal_draws(normals, u)
    for r in range(3):
        for p in range(4):
            covariance = dense(paths, r, p)
            torch.testing.assert_close(columns[r, p].T @ columns[r, p], covariance, rtol=1e-6, atol=1e-8)
            mean = paths.x[r, p] + covariance @ paths.score[r, p]
            torch.testing.assert_close(normals.mean[r, p], mean, rtol=1e-7, atol=1e-9)
            law = MultivariateNormal(mean, (covariance + covariance.T) / 2)
            torch.testing.assert_close(log_q[r, p], law.log_prob(draws[r, p]), rtol=1e-6, atol=1e-6)


def test_the_best_normal_is_that_of_the_highest_bound_along_the_path() -> None:
    """Bounds by dense normals at every accepted point, from the noise of its step. Catches a bound of the last
    path point, of log q - log p, or of a point that was rejected.
    """
    target, k = Bent(), 5
    run = Run("pathfinder", make_problem(target), paths=4, elbo_draws=k, draws=9)
    bounds: dict[tuple[int, int], list[tuple[float, Tensor, Tensor]]] = {}
    for step in range(25):
        before = run.state.paths
        run.steps(1)
        paths = run.state.paths
        run.problem.streams.step = step
        u = run.problem.streams.normal("noise", (4, k + 1, 2))[:, :, 1:]
        x, _ = pathfinder.normal_draws(pathfinder.normal_at(paths), u)
        for r in range(3):
            for p in range(4):
                if paths.accepted[r, p] > max(1, before.accepted[r, p]):
                    covariance = dense(paths, r, p)
                    mean = paths.x[r, p] + covariance @ paths.score[r, p]
                    law = MultivariateNormal(mean, (covariance + covariance.T) / 2)
                    ratios = target.log_density(x[r, p]) - law.log_prob(x[r, p])
                    bounds.setdefault((r, p), []).append((ratios.mean().item(), mean, x[r, p]))
    assert run.state.paths.done.all()
    for (r, p), along in bounds.items():
        bound, mean, x = max(along, key=lambda b: b[0])
        assert run.state.best.elbo[r, p].item() == pytest.approx(bound, rel=1e-6, abs=1e-8)
        torch.testing.assert_close(run.state.best.mean[r, p], mean, rtol=1e-6, atol=1e-8)
    assert len(bounds) == 12


def test_after_its_end_a_path_gathers_draws_of_its_best_normal_with_their_ratios() -> None:
    """Catches draws of the last normal, ratios of other draws, and a count past M."""
    run = Run("pathfinder", make_problem(Turned()), paths=3, draws=20).steps(80)
    state = run.state
    assert (state.kept == 20).all()
    drawn, ratios = state.draws[..., :-1], state.draws[..., -1]
    directions = torch.eye(5, dtype=torch.float64).expand(3, 3, 5, 5)
    columns = pathfinder.normal_draws(state.best, directions)[0] - state.best.mean.unsqueeze(2)
    law = MultivariateNormal(state.best.mean.unsqueeze(2), (columns.mT @ columns).unsqueeze(2))
    torch.testing.assert_close(ratios, Turned().log_density(drawn) - law.log_prob(drawn), rtol=1e-6, atol=1e-6)
    assert len(drawn.reshape(-1, 5).unique(dim=0)) == 180
    later = run.steps(1).state
    assert torch.equal(later.draws[:, :, 3:], state.draws[:, :, :-3])


@pytest.mark.parametrize("resampling", ["psis", "none"])
def test_pathfinder_is_near_exact_on_a_gaussian(resampling: str) -> None:
    """Correlated, condition 150: divergences of all paths' normals below 1 and half of them below 0.15; of 4000 draws
    means within 0.1 sd, standard deviations within 6% and correlations within 0.08; without resampling 15% and 0.25.

    Catches a normal about the path's point in place of its Newton step, and weights of the wrong sign.
    """
    problem = make_problem(Turned(), range(3))
    run = Run("pathfinder", problem, paths=10, draws=400, elbo_draws=20, resampling=resampling).steps(150)
    best, covariance = run.state.best, torch.linalg.inv(Turned().precision)
    columns = pathfinder.normal_draws(best, torch.eye(5, dtype=torch.float64).expand(3, 10, 5, 5))[0]
    columns = columns - best.mean.unsqueeze(2)
    divergence = kl_divergence(
        MultivariateNormal(best.mean, columns.mT @ columns), MultivariateNormal(torch.ones(5).double(), covariance)
    )
    assert divergence.max() < 1, divergence
    assert divergence.median() < 0.15, divergence
    x = run.output(4000)
    sd = covariance.diagonal().sqrt()
    assert ((x.mean(1) - 1) / sd).abs().max() < 0.1
    assert (x.std(1) / sd - 1).abs().max() < (0.06 if resampling == "psis" else 0.15), x.std(1) / sd
    correlations = torch.stack([torch.corrcoef(rows.T) for rows in x])
    assert (correlations - covariance / torch.outer(sd, sd)).abs().max() < (0.08 if resampling == "psis" else 0.25)


def test_resampling_mends_what_a_normal_leaves_out() -> None:
    """On a skewed density the mean of the weighted draws is nearer the exact one than that of the normals.

    Skewed: mean -1, sd sqrt(pi^2 / 3 - 1).
    """
    errors = {}
    for resampling in ("psis", "none"):
        problem = make_problem(Skewed(2), range(4))
        run = Run("pathfinder", problem, paths=10, draws=300, resampling=resampling).steps(140)
        x = run.output(3000)
        errors[resampling] = ((x.mean(1) + 1).abs().mean() / math.sqrt(math.pi**2 / 3 - 1)).item()
    assert errors["psis"] < 0.1 < errors["none"], errors


def test_paths_find_both_modes_and_their_weights_count_the_paths() -> None:
    """Each mode's share is proportional to its mass and to how many paths ended there.

    Catches the ratio of the mixture of all normals where the docstring promises each draw's own.
    """
    problem = make_problem(TwoModes(), range(20))
    run = Run("pathfinder", problem, paths=10, draws=400, elbo_draws=20).steps(60)
    right = (run.state.best.mean[..., 0] > 0).sum(1)
    share = (run.output(5000)[..., 0] > 0).double().mean(1)
    for count, found in zip(right.tolist(), share.tolist(), strict=True):
        expected = 0.7 * count / (0.7 * count + 0.3 * (10 - count))
        assert found == pytest.approx(expected, abs=0.07), (count, found)
    assert len(set(right.tolist())) > 2


def test_rows_are_drawn_by_their_weights() -> None:
    """Few rows: the weights themselves; many: the mean of N(0, 1) from draws of N(0.3, 1.3^2), |z| < 5."""
    place = (torch.arange(1000).double() + 0.5).div(1000).numpy()
    log_ratios = torch.tensor([[0.0, math.log(3), 9.0], [-math.inf, math.log(4), 9.0]], dtype=torch.float64)
    rows = pathfinder.resampled(log_ratios, torch.tensor([2.0, 2.0]), place)
    assert rows is not None
    assert rows.bincount(minlength=6).tolist() == [125, 375, 0, 0, 500, 0]
    assert pathfinder.resampled(log_ratios, torch.zeros(2), place) is None
    rows = pathfinder.resampled(torch.zeros(2, 50).double(), torch.tensor([50.0, 50.0]), place)
    assert rows is not None
    assert (rows.bincount(minlength=100) == 10).all()  # equal ratios: no tail to smooth
    x = 0.3 + 1.3 * points(10, 500)
    log_ratios = -x.square() / 2 + ((x - 0.3) / 1.3).square() / 2 + 700
    rows = pathfinder.resampled(log_ratios, torch.full((10,), 500.0), place)
    assert rows is not None
    every = pathfinder.resampled(
        log_ratios, torch.full((10,), 500.0), np.random.default_rng(1).random(5000), distinct=True
    )
    assert every is not None
    assert sorted(every.tolist()) == list(range(5000))  # without replacement
    assert abs(x.flatten()[every[:300]].mean().item()) < 0.3 < x.flatten()[every[-300:]].mean().item()
    error = x.flatten()[rows].mean().item()
    assert abs(error / math.sqrt(1 / 1000 + 1.5 / 5000)) < 5


@pytest.mark.ci
@pytest.mark.parametrize("target", each(["3", "regression"], BADLY_SCALED, ["3", "7", "regression"]))
def test_paths_climb_badly_scaled_densities_to_the_top(target: Target) -> None:
    """In a problem of single precision: every path that does not say otherwise ends within 0.01 nats of SciPy's maximum.

    Catches an end by rounding of single precision, steps as long as a score of 1e12, and draws in double precision.
    """
    run = Run("pathfinder", in_single(target), paths=8).steps(900)
    settled = run.state.paths.log_density[~run.state.paths.stopped_early(1000)]
    assert len(settled) > 20
    assert settled.sub(top(target)[0]).abs().max() < 0.01
    assert run.output(10).dtype == torch.float32


@pytest.mark.ci
def test_pathfinder_in_single_precision_has_the_scales_of_a_regression() -> None:
    """Standard deviations of 9,600, 140 and 0.02 within 15%."""
    x = Run("pathfinder", in_single(Earnings()), paths=10, draws=300, elbo_draws=10).steps(250).output(3000)
    sd = torch.linalg.inv(top(Earnings())[1]).diagonal().sqrt()
    assert (x.double().std(1) / sd - 1).abs().max() < 0.15


@pytest.mark.slow
def test_pareto_k_is_arvizs_and_tells_of_normals_that_do_not_fit() -> None:
    """Twenty standard deviations from 0.01 to 100 have more directions than pairs: the smallest ratio of sds is below
    0.1, and k above 0.7. Catches ratios q / p, and draws that are not there.
    """
    log_ratios = points(2, 3, 100, seed=8).square() * torch.tensor([0.1, 1.0], dtype=torch.float64).view(2, 1, 1)
    kept = torch.tensor([[100.0, 60.0, 24.0], [100.0, 30.0, 0.0]])
    found = pathfinder.pareto_k(log_ratios, kept)
    assert (found[:, 2] == 1).all()
    for r in range(2):
        for p in range(2):
            there = log_ratios[r, p, : int(kept[r, p])].numpy()
            assert found[r, p].item() == pytest.approx(array_stats.psislw(-there)[1].item(), abs=0.05)
    assert (pathfinder.pareto_k(torch.zeros(2, 3, 50), torch.full((2, 3), 50.0)) == 0).all()

    options = {"paths": 20, "draws": 100, "elbo_draws": 5}
    sd = torch.logspace(-2, 2, 20, dtype=torch.float64)
    run = Run("pathfinder", in_single(Gaussian((sd**-2).tolist())), **options).steps(1200)
    assert (run.output(1000).std(1) / sd).min() < 0.1
    assert (run.info.pareto_k > 0.7).all()
    run = Run("pathfinder", in_single(Turned()), **options).steps(150)
    assert (run.info.pareto_k < 0.7).all()
    assert (run.info.stopped_early == 0).all()


# --- Laplace -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_laplace_is_exact_on_a_gaussian(dtype: torch.dtype) -> None:
    """Mode and precision: relative errors below 1e-7 in double precision and 1e-3 in single.

    Catches a factor of 2 in the differences, rows for columns where they differ, and a Hessian at another point.
    """
    run = Run("laplace", make_problem(Turned(), dtype=dtype), starts=4).steps(60)
    tolerance = 1e-7 if dtype is torch.float64 else 1e-3
    precision = Turned().precision.to(dtype)
    assert (run.state.columns >= 5).all()
    assert (run.state.precision - precision).abs().max() < tolerance * precision.abs().max()
    mode, _ = laplace.highest(run.state.paths)
    assert (mode - 1).abs().max() < 10 * tolerance
    x = run.output(6)
    noise = run.problem.streams.normal("output", (6, 5))
    whitened = torch.einsum("rni,ij,rnj->rn", x - 1, precision, x - 1)
    torch.testing.assert_close(whitened, noise.square().sum(-1), rtol=30 * tolerance, atol=30 * tolerance)


@pytest.mark.ci
@pytest.mark.parametrize("target", each(["3"], BADLY_SCALED, ["3", "7", "regression"]))
def test_laplace_in_single_precision_is_right_on_badly_scaled_densities(target: Target) -> None:
    """Mode within 0.01 nats of SciPy's, standard deviations within 1%."""
    run = Run("laplace", in_single(target), starts=4).steps(1500)
    assert (run.state.columns >= 2 * target.dim).all()
    mode, _ = laplace.highest(run.state.paths)
    maximum, hessian = top(target)
    assert (target.log_density(mode.unsqueeze(1)) - maximum).abs().max() < 0.01
    sd = torch.linalg.inv(hessian).diagonal().sqrt()
    measured = torch.linalg.inv((run.state.precision + run.state.precision.mT) / 2).diagonal(dim1=1, dim2=2).sqrt()
    assert (measured / sd - 1).abs().max() < 0.01
    x = run.output(4000)
    assert x.dtype == torch.float32
    assert (x.double().std(1) / sd - 1).abs().max() < 0.06


def test_laplace_tells_that_a_search_stopped_early() -> None:
    """A density that takes single precision only ends below the top; so does a search of three iterations."""
    run = Run("laplace", make_problem(Earnings(), dtype=torch.float32), starts=4).steps(300)
    mode, _ = laplace.highest(run.state.paths)
    below = top(Earnings())[0] - Earnings().log_density(mode.double().unsqueeze(1)).squeeze(1)
    assert (below > 1).all()
    assert (run.info.stopped_early == 1).all()
    assert (Run("laplace", in_single(Earnings()), starts=4).steps(300).info.stopped_early == 0).all()
    assert (Run("laplace", make_problem(Turned()), longest=3).steps(20).info.stopped_early == 1).all()


def test_laplace_measures_the_hessian_of_the_highest_mode() -> None:
    """Searches from both sides: the end is the higher of two modes. Bent: the Hessian by autograd at the mode."""
    run = Run("laplace", make_problem(TwoModes(), range(8)), starts=6).steps(60)
    mode, _ = laplace.highest(run.state.paths)
    ends = run.state.paths.x[..., 0]
    assert ((ends > 0).any(1) & (ends < 0).any(1)).sum() > 4
    assert (mode[:, 0] - 4).abs().max() < 1e-3
    run = Run("laplace", make_problem(Bent()), starts=2).steps(60)
    mode, _ = laplace.highest(run.state.paths)
    for r in range(3):
        exact = -torch.autograd.functional.hessian(lambda at: Bent().log_density(at), mode[r])
        torch.testing.assert_close(run.state.precision[r], exact, rtol=1e-5, atol=1e-5)


def test_laplace_counts_columns_after_the_last_search_has_ended() -> None:
    """Before: L-BFGS's diagonal. Two columns a step of four points; replicates at their own time."""
    run = Run("laplace", make_problem(Turned()), starts=4)
    ended = torch.full((3,), -1)
    for step in range(1, 60):
        run.steps(1)
        settled = run.state.paths.done.all(1)
        ended = torch.where(settled & (ended < 0), step, ended)
        expected = torch.where(settled, 2 * (step - ended), 0)
        assert run.state.columns.tolist() == expected.tolist()
        fresh = settled & (ended == step)
        alpha = laplace.highest(run.state.paths)[1]
        torch.testing.assert_close(run.state.precision[fresh], (1 / alpha).diag_embed()[fresh])
    assert (ended > 0).all()


def test_a_precision_that_is_not_positive_is_raised() -> None:
    matrix = points(4, 4, seed=2)
    matrix = matrix + matrix.T
    factor = laplace.raised(matrix)
    values, vectors = torch.linalg.eigh(matrix)
    assert values.min() < 0
    raised = vectors @ values.clamp(min=1e-6 * values.abs().max()).diag() @ vectors.T
    torch.testing.assert_close(factor @ factor.T, raised)
    assert torch.equal(factor, factor.tril())
    assert laplace.raised(torch.full((2, 2), torch.nan)).isnan().all()
    run: Any = Run("laplace", make_problem(Bent()), starts=2, longest=1).steps(10)
    assert run.output(50).isfinite().all()


def test_costs_are_known_before_a_step() -> None:
    """P (K + 1) of Pathfinder, S of Laplace, whatever the paths do. Catches draws that are not charged."""
    for name, settings, cost in (("pathfinder", {"paths": 3, "elbo_draws": 4}, 15), ("laplace", {"starts": 6}, 6)):
        problem = make_problem(Turned())
        run, charged = Run(name, problem, **settings), [0.0]
        for _ in range(50):
            run.steps(1)
            charged.append(problem.meter.charged)
        run.output(100)
        assert {b - a for a, b in pairwise(charged)} == {cost}
        assert problem.meter.charged == 50 * cost
