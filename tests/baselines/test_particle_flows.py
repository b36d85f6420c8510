"""SVGD's variants, Blob, GFSD, GFSF, SPOS: velocities by loops and autograd, fixed points, laws.

Every |z| < 5 raises a false alarm with probability 6e-7; seeds are fixed. The bug that each test catches stands in its
docstring.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from few import each
from sampler_toys import Bent, Gaussian, Run, make_problem, points
from torch import Tensor

from parvibench.baselines import svgd
from parvibench.core.registry import load_algorithm
from parvibench.kernels.gram import self_distances
from parvibench.kernels.heat import RATIO, heat_bandwidth, heat_error

SMOOTHED = ["blob", "gfsd", "gfsf"]


def bandwidth_by_numpy(x: Tensor, bandwidth: str | float) -> float:
    """H of one replicate, (n, d)."""
    if bandwidth != "median":
        return float(bandwidth)
    squares = (x.unsqueeze(1) - x.unsqueeze(0)).square().sum(-1)
    return float(np.median(squares.numpy()) / np.log(len(x) + 1))


def kernel(x: Tensor, y: Tensor, h: float) -> Tensor:
    """Matrix of exp(-||x_i - y_j||^2 / h)."""
    return torch.exp(-(x.unsqueeze(1) - y.unsqueeze(0)).square().sum(-1) / h)


def by_loops(name: str, x: Tensor, score: Tensor, h: float, ridge: float = 0.01) -> Tensor:
    """The velocity of one replicate, (n, d), from the definitions: no formula of the methods' files."""
    n = len(x)
    if name == "gfsd":
        smoothed = torch.empty_like(x)
        for i in range(n):
            leaf = x[i : i + 1].clone().requires_grad_()
            (smoothed[i : i + 1],) = torch.autograd.grad(kernel(leaf, x, h).sum().log(), leaf)
        return score - smoothed
    if name == "blob":
        leaf = x.clone().requires_grad_()
        (entropy,) = torch.autograd.grad(kernel(leaf, leaf, h).sum(1).log().sum(), leaf)
        return score - entropy
    right = torch.empty_like(x)
    for i in range(n):
        leaf = x.clone().requires_grad_()
        right[i] = torch.autograd.grad(kernel(leaf, x[i : i + 1], h).sum(), leaf)[0].sum(0)
    return score + torch.linalg.inv(kernel(x, x, h) + ridge * torch.eye(n, dtype=x.dtype)) @ right


def velocity(name: str, x: Tensor, score: Tensor, **settings: Any) -> Tensor:
    """The velocity of all replicates, without a bandwidth from before."""
    algorithm: Any = load_algorithm(name)
    return algorithm.velocity(algorithm.make_settings(settings), x, score, x.new_zeros(len(x), 0))[0]


@pytest.mark.parametrize("bandwidth", ["median", 0.7])
@pytest.mark.parametrize("name", SMOOTHED)
def test_velocities_follow_from_their_definitions(name: str, bandwidth: str | float) -> None:
    """GFSD: grad log q~ at fixed centres; Blob: n grad of the smoothed entropy; GFSF: the regularised inverse.

    Catches factors of the bandwidth, Blob's second term left out or transposed, and the sign of a repulsion.
    """
    x, score = points(2, 7, 3) + 5, points(2, 7, 3, seed=1)
    actual = velocity(name, x, score, bandwidth=bandwidth)
    for r in range(2):
        expected = by_loops(name, x[r], score[r], bandwidth_by_numpy(x[r], bandwidth))
        torch.testing.assert_close(actual[r], expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", SMOOTHED)
def test_velocities_permute_and_move_with_the_particles(name: str) -> None:
    """Catches the authors' GFSF, whose ridge makes the velocity depend on the origin."""
    x, score = points(2, 9, 2), points(2, 9, 2, seed=1)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(2))
    plain = velocity(name, x, score)
    torch.testing.assert_close(velocity(name, x[:, order], score[:, order]), plain[:, order])
    torch.testing.assert_close(velocity(name, x + 30, score), plain, rtol=1e-7, atol=1e-9)


def test_blob_repulsions_cancel_and_gfsf_is_svgd_without_its_last_smoothing() -> None:
    """Sum of Blob's repulsions: zero. K v / n of GFSF: SVGD's velocity, at a ridge near zero."""
    x, score = points(2, 6, 2), points(2, 6, 2, seed=1)
    pushes = velocity("blob", x, torch.zeros_like(x), bandwidth=0.4).sum(1)
    torch.testing.assert_close(pushes, torch.zeros_like(pushes), rtol=0, atol=1e-12)
    k = torch.stack([kernel(row, row, 0.4) for row in x])
    smoothed = k @ velocity("gfsf", x, score, bandwidth=0.4, ridge=1e-12) / 6
    torch.testing.assert_close(smoothed, svgd.stein_direction(x, score, 0.4), rtol=1e-8, atol=1e-9)


def heat_error_by_autograd(x: Tensor, h: float) -> float:
    """Squared differences of the Laplacian of q~ and its change as particles follow -grad log q~, at all particles."""
    kappa, dim = 2 / h, x.shape[1]

    def smoothed(at: Tensor, centres: Tensor) -> Tensor:
        return kappa ** (dim / 2) * torch.exp(-kappa / 2 * (at - centres).square().sum(-1)).sum()

    flow = torch.stack(
        [-torch.autograd.functional.jacobian(lambda at: smoothed(at, x).log(), row) for row in x]  # type: ignore[misc]
    )
    total = 0.0
    for row in x:
        laplacian = torch.autograd.functional.hessian(lambda at: smoothed(at, x), row).trace()
        by_centres = torch.autograd.functional.jacobian(lambda centres, at=row: smoothed(at, centres), x)
        total += float(laplacian - (by_centres * flow).sum()) ** 2
    return total / kappa ** (dim + 2)


@pytest.mark.parametrize("dim", [1, 3])
def test_heat_error_follows_from_the_heat_equation(dim: int) -> None:
    """Catches the sign of the second term, the mean under the kernel, and powers of the bandwidth."""
    x = 0.7 * points(2, 5, dim)
    h = torch.tensor([0.4, 1.5], dtype=x.dtype).view(2, 1, 1)
    actual = heat_error(x, self_distances(x), h).flatten()
    expected = [heat_error_by_autograd(x[r], float(h[r])) for r in range(2)]
    assert actual.tolist() == pytest.approx(expected, rel=1e-9)


def test_heat_bandwidth_settles_at_a_minimum_and_scales_with_the_particles() -> None:
    """The second replicate is the first 1.1^5 times as large. Catches a search that replicates share."""
    x = points(1, 40, 2).repeat(2, 1, 1) * torch.tensor([1.0, RATIO**5]).view(2, 1, 1)
    d, h = self_distances(x), torch.tensor([0.3, 0.3 * RATIO**10], dtype=x.dtype).view(2, 1, 1)
    start = h
    for _ in range(60):
        h = heat_bandwidth(x, d, h)
    assert ((h / start).log().abs() > 0.3).all()
    here = heat_error(x, d, h)
    assert all((here <= heat_error(x, d, h * factor)).all() for factor in (1 / RATIO, RATIO))
    assert (h[1] / h[0]).item() == pytest.approx(RATIO**10, rel=1e-6)


@pytest.mark.parametrize("name", [*SMOOTHED, "svgd"])
def test_the_search_for_the_bandwidth_goes_on_from_step_to_step(name: str) -> None:
    """It begins at the median and moves by 1.1 a step. Catches one that begins anew."""
    run = Run(name, make_problem(Bent()), step_size=0.02, bandwidth="he")
    x, moves = run.state.x.clone(), []
    run.steps(6)
    for r in range(3):
        y, h = x[r], bandwidth_by_numpy(x[r], "median")
        first = h
        for _ in range(6):
            tried = [h / RATIO, h, h * RATIO]
            h = min(tried, key=lambda at, y=y: heat_error_by_autograd(y, at))
            score = Bent().score(y.unsqueeze(0))[0].detach()
            if name == "svgd":
                y = y + 0.02 * svgd.stein_direction(y.unsqueeze(0), score.unsqueeze(0), h)[0]
            else:
                y = y + 0.02 * by_loops(name, y, score, h)
        moves.append(round(math.log(h / first) / math.log(RATIO)))
        torch.testing.assert_close(run.output()[r], y, rtol=1e-8, atol=1e-9)
    assert max(map(abs, moves)) > 1, moves  # farther than a search of one step


def program(name: str, x: Tensor, steps: int, eps: float, accelerate: Callable[[int, Tensor, Tensor, Tensor], Tensor]):
    """Algorithm 1 on one replicate: the samples x_k."""
    y = x
    for k in range(1, steps + 1):
        score, before = Bent().score(y.unsqueeze(0))[0].detach(), x
        x = y + eps * by_loops(name, y, score, bandwidth_by_numpy(y, "median"))
        y = accelerate(k, x, y, before)
    return x


def wag(k: int, x: Tensor, y: Tensor, before: Tensor) -> Tensor:
    return x + (k - 1) / k * (y - before) + (k + 3.8 - 2) / k * (x - y)


def wnes(k: int, x: Tensor, y: Tensor, before: Tensor) -> Tensor:
    """The scheme on a manifold that it is from, in Euclidean space: mu eps = 0.3, beta = 0.1 sqrt(mu eps)."""
    m = 0.3
    beta = 0.1 * math.sqrt(m)
    root = math.sqrt(beta**2 + 4 * (1 + beta) * m)
    alpha, gamma_over_mu = (root - beta) / 2, 1 - 2 * beta / (root + beta)
    momentum = y + (alpha - 1) / alpha * (before - y) + (x - y) / alpha
    return x + alpha * gamma_over_mu / (gamma_over_mu + alpha) * (momentum - x)


@pytest.mark.parametrize("accelerate", [wag, wnes])
@pytest.mark.parametrize("name", ["blob", "gfsf"])
def test_accelerated_steps_follow_algorithm_1(name: str, accelerate: Callable[..., Tensor]) -> None:
    """Catches k from zero, samples at y for those at x, and differences of the wrong pair."""
    settings = {"acceleration": accelerate.__name__, "wag_alpha": 3.8, "wnes_mu": 0.3, "wnes_beta": 0.1}
    run = Run(name, make_problem(Bent()), step_size=0.02, **settings)
    start = run.state.x
    run.steps(6)
    for r in range(3):
        torch.testing.assert_close(run.output()[r], program(name, start[r], 6, 0.02, accelerate), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", ["wag", "wnes"])
def test_acceleration_comes_closer_at_equal_steps(name: str) -> None:
    """KL's quadratic part on a Gaussian of condition 100: the flat direction's error falls at least three times.

    Catches a momentum of the wrong sign.
    """
    found = {}
    for acceleration in ("none", name):
        problem = make_problem(Gaussian([1.0, 0.01], mean=5.0), particles=30)
        run = Run("gfsd", problem, acceleration=acceleration, wnes_mu=0.001, step_size=0.2).steps(120)
        found[acceleration] = (run.output()[..., 1].mean(1) - 5).abs()
    assert (found[name] < found["none"] / 3).all(), found


# --- variants of SVGD --------------------------------------------------------------------------------


@pytest.mark.parametrize("bandwidth", ["median", 0.7])
def test_svgd_with_the_multiquadric_equals_its_double_loop(bandwidth: str | float) -> None:
    """Catches the slope's factor 2 and sign, and a power of the kernel."""
    x, score = points(2, 6, 3) + 4, points(2, 6, 3, seed=1)
    actual = svgd.stein_direction(x, score, bandwidth, "imq")
    for r in range(2):
        h, phi = bandwidth_by_numpy(x[r], bandwidth), torch.zeros(6, 3, dtype=x.dtype)
        for i in range(6):
            for j in range(6):
                leaf = x[r, j].clone().requires_grad_()
                k = 1 / torch.sqrt(1 + (leaf - x[r, i]).square().sum() / h)
                phi[i] += k.detach() * score[r, j] + torch.autograd.grad(k, leaf)[0]
        torch.testing.assert_close(actual[r], phi / 6, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("kernel_name", ["gaussian", "imq"])
def test_svgd_by_adam_is_torchs_optimiser_on_the_negative_velocity(kernel_name: str) -> None:
    """Catches descent for ascent, and moments lost between steps."""
    run = Run("svgd", make_problem(Bent()), rule="adam", kernel=kernel_name, step_size=0.03)
    x = run.state.x.clone().requires_grad_()
    optimiser = torch.optim.Adam([x], lr=0.03)
    for _ in range(5):
        at = x.detach().clone()
        x.grad = -svgd.stein_direction(at, Bent().score(at), "median", kernel_name)
        optimiser.step()
    torch.testing.assert_close(run.steps(5).output(), x.detach(), rtol=1e-9, atol=1e-10)


def test_svgd_by_the_heat_equation_takes_that_bandwidth_and_keeps_it() -> None:
    run = Run("svgd", make_problem(Bent()), bandwidth="he", step_size=0.05).steps(2)
    h, x = run.state.h, run.output()
    moved = run.steps(1).output()
    h = heat_bandwidth(x, self_distances(x), h)
    torch.testing.assert_close(run.state.h, h)
    expected = torch.stack(
        [svgd.stein_direction(x[r : r + 1], Bent().score(x[r : r + 1]), float(h[r]))[0] for r in range(3)]
    )
    torch.testing.assert_close(moved, x + 0.05 * expected)


# --- fixed points and laws ---------------------------------------------------------------------------


@pytest.mark.ci
@pytest.mark.parametrize(
    ("name", "variance", "step_size", "steps"),
    [("gfsd", 1 - 0.4 / 2, 0.1, 300), ("gfsf", 1.0, 0.01, 1500), ("svgd", 1.0, 0.5, 400)],
    ids=["gfsd", "gfsf", "svgd"],
)
def test_fixed_points_on_a_normal_with_a_fixed_bandwidth(
    name: str, variance: float, step_size: float, steps: int
) -> None:
    """N(2, 1), h = 0.4, in the limit of many particles: q * N(0, h/2) is the target for GFSD, q itself for the others.

    150 particles: means within 0.01, variances within 0.03. Catches GFSF without the inverse, and GFSD smoothed twice.
    """
    problem = make_problem(Gaussian([1.0], mean=2.0), particles=150)
    x = Run(name, problem, bandwidth=0.4, step_size=step_size).steps(steps).output()
    assert (x.mean(1) - 2).abs().max() < 0.01
    assert (x.var(1, correction=0) - variance).abs().max() < 0.03


def test_blob_descends_its_divergence_to_rest() -> None:
    """At fixed h, (1/n) sum_i [ log sum_j k_ij - log p(x_i) ] falls at every step, and the velocity vanishes."""
    run = Run("blob", make_problem(Bent(), particles=20), bandwidth=0.5, step_size=0.05)

    def speed(x: Tensor) -> float:
        return velocity("blob", x, Bent().score(x), bandwidth=0.5).abs().max().item()

    start, energies = speed(run.state.x), []
    for _ in range(600):
        x = run.state.x
        entropies = torch.stack([kernel(row, row, 0.5).sum(1).log().mean() for row in x])
        energies.append(entropies - Bent().log_density(x).mean(1))
        run.steps(1)
    path = torch.stack(energies)
    assert (path.diff(dim=0) < 1e-12).all()
    assert speed(run.state.x) < start / 100


#: Limits of |sd / exact - 1|: a smoothed density makes GFSD too narrow, by half of h in the variance.
WIDTHS = {"blob": 0.15, "gfsd": 0.35, "gfsf": 0.15}


@pytest.mark.parametrize("settings", each(["median"], [{"bandwidth": "median"}, {"bandwidth": "he"}], ["median", "he"]))
@pytest.mark.parametrize("name", SMOOTHED)
def test_particles_settle_on_a_gaussian(name: str, settings: dict[str, Any]) -> None:
    """N(1, diag(1, 1/4)), 60 particles: means within 0.02, standard deviations within the limits above.

    GFSF takes short steps: its inverse makes the flow stiff.
    """
    target = Gaussian([1.0, 4.0], mean=1.0)
    step_size = 0.01 if name == "gfsf" else 0.05
    run = Run(name, make_problem(target, particles=60), step_size=step_size, **settings)
    x = run.steps(int(20 / step_size)).output()
    assert (x.mean(1) - 1).abs().max() < 0.02
    sd = torch.tensor([1.0, 0.5], dtype=x.dtype)
    assert (x.std(1) / sd - 1).abs().max() < WIDTHS[name], x.std(1) / sd


def test_spos_is_svgd_plus_a_langevin_step() -> None:
    """Catches beta on the wrong terms, and noise of sqrt(h)."""
    problem, h, beta = make_problem(Bent()), 0.03, 4.0
    run = Run("spos", problem, step_size=h, beta=beta)
    x = run.state.x
    score, noise = Bent().score(x), problem.streams.normal("noise", (8, 2))
    phi = svgd.stein_direction(x, score, "median")
    expected = x + h * score / beta + h * phi + math.sqrt(2 * h / beta) * noise
    torch.testing.assert_close(run.steps(1).output(), expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("beta", [0.5, 3.0])
def test_a_single_particle_of_spos_has_the_law_of_theory(beta: float) -> None:
    """N(0, 1): x <- a x + sqrt(2 h / beta) xi, a = 1 - h (1 + 1 / beta), whose variance is (2 h / beta) / (1 - a^2).

    4000 replicates, |z| < 5. Catches a temperature that multiplies the density, and self-interaction left out.
    """
    h = 0.2
    problem = make_problem(Gaussian([1.0]), range(4000), particles=1)
    x = Run("spos", problem, step_size=h, beta=beta, bandwidth=1.0).steps(60).output().flatten()
    variance = (2 * h / beta) / (1 - (1 - h * (1 + 1 / beta)) ** 2)
    assert abs((x.square().mean().item() / variance - 1) / math.sqrt(2 / 4000)) < 5


def test_spos_of_a_flat_kernel_has_the_law_of_theory() -> None:
    """k = 1: means and deviations of n particles are independent autoregressions of variance known for each.

    Catches a sum for the mean over particles, and noise shared by them.
    """
    h, beta, n = 0.2, 2.0, 5
    problem = make_problem(Gaussian([1.0]), range(3000), particles=n)
    x = Run("spos", problem, step_size=h, beta=beta, bandwidth=1e9).steps(100).output().squeeze(2)
    noise = 2 * h / beta
    of_mean = noise / n / (1 - (1 - h * (1 + 1 / beta)) ** 2)
    of_rest = noise / (1 - (1 - h / beta) ** 2)
    mean, rest = x.mean(1), x.var(1)
    assert abs((mean.square().mean().item() / of_mean - 1) / math.sqrt(2 / 3000)) < 5
    assert abs((rest.mean().item() / of_rest - 1) / math.sqrt(2 / (3000 * (n - 1)))) < 5


@pytest.mark.ci
@pytest.mark.parametrize(("beta", "step_size"), [(0.5, 0.01), (5.0, 0.05)])
def test_spos_comes_to_the_target_with_many_particles_at_any_temperature(beta: float, step_size: float) -> None:
    """N(1, diag(1, 1/4)), 200 particles: means within 0.1, standard deviations within 7%.

    The bias of discretisation is 2% at most, that of the missing noise of order 1 / n.
    """
    problem = make_problem(Gaussian([1.0, 4.0], mean=1.0), particles=200)
    run = Run("spos", problem, step_size=step_size, beta=beta).steps(600)
    x = torch.cat([run.steps(15).output() for _ in range(20)], 1)
    assert (x.mean(1) - 1).abs().max() < 0.1
    assert (x.std(1) / torch.tensor([1.0, 0.5]) - 1).abs().max() < 0.07, x.std(1)


@pytest.mark.parametrize("bandwidth", ["median-sampled", 0.7])
def test_many_particles_go_in_blocks(bandwidth: str | float, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the whole kernel, whatever the blocks."""
    x = points(2, 300, 3, seed=1)
    score = -x - 0.1 * x.pow(3)
    whole = svgd.stein_direction(x, score, bandwidth)
    monkeypatch.setattr(svgd, "_IN_BLOCKS", 100)
    monkeypatch.setattr(svgd, "_ENTRIES", 7 * 300)
    assert not torch.equal(svgd.stein_direction(x, score, bandwidth), whole)
    torch.testing.assert_close(svgd.stein_direction(x, score, bandwidth), whole, rtol=1e-10, atol=1e-12)
