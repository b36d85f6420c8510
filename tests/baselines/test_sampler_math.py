"""Updates against autograd or loops in float64, and exact identities."""

import math

import pytest
import torch
from sampler_toys import Bent, Gaussian, Regression, Run, Skewed, make_problem, points
from torch import Tensor

from parvibench.baselines import ksivi, srld, svgd
from parvibench.kernels.gram import median_bandwidth, self_distances
from parvibench.kernels.mixture import mixture_score


def svgd_by_loops(x: Tensor, score: Tensor, h: float) -> Tensor:
    phi = torch.zeros_like(x)
    for i in range(len(x)):
        for j in range(len(x)):
            leaf = x[j].clone().requires_grad_()
            k = torch.exp(-(leaf - x[i]).square().sum() / h)
            phi[i] += k.detach() * score[j] + torch.autograd.grad(k, leaf)[0]
    return phi / len(x)


@pytest.mark.parametrize("bandwidth", ["median", 0.7])
def test_svgd_equals_its_double_loop(bandwidth: str | float) -> None:
    x, score = points(2, 6, 3), points(2, 6, 3, seed=1)
    h = median_bandwidth(self_distances(x)).flatten() if bandwidth == "median" else torch.full((2,), 0.7)
    expected = torch.stack([svgd_by_loops(x[r], score[r], h[r].item()) for r in range(2)])
    actual = svgd.stein_direction(x, score, bandwidth)
    torch.testing.assert_close(actual, expected, rtol=1e-6 if bandwidth == 0.7 else 1e-11, atol=1e-12)


def test_svgd_permutes_with_its_particles() -> None:
    x, score = points(2, 9, 3), points(2, 9, 3, seed=1)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(2))
    permuted = svgd.stein_direction(x[:, order], score[:, order], "median")
    torch.testing.assert_close(permuted, svgd.stein_direction(x, score, "median")[:, order])


def test_svgd_adagrad_first_step_has_length_eps_in_every_coordinate() -> None:
    run = Run("svgd", make_problem(Bent()), rule="adagrad", step_size=0.01)
    start = run.state.x
    moved = (run.steps(1).state.x - start).abs()
    torch.testing.assert_close(moved, torch.full_like(start, 0.01), rtol=1e-3, atol=0)


def test_ksivi_keeps_its_variance_above_the_floor_and_its_gradient_within_the_clip() -> None:
    """Adam's first moment after one step is a tenth of the (clipped) gradient."""
    run = Run("ksivi", make_problem(Bent()), clip_norm=1e-3, log_var_init=-3.0, log_var_floor=-3.0).steps(1)
    assert (run.state.parameters[:, -2:] >= -3).all()
    torch.testing.assert_close(run.state.first.norm(dim=1), torch.full((3,), 1e-4, dtype=torch.float64))


def test_ksivi_anneals_from_a_tenth_to_one() -> None:
    """Over 50 iterations, whatever the horizon. Catches a share of the horizon in place of a number."""
    state = Run("ksivi", make_problem(Bent()), horizon=7).state
    settings = ksivi.Settings(annealing=50)
    factors = [settings.temper(state._replace(t=t)) for t in (0, 19, 44, 99)]
    assert factors == pytest.approx([0.12, 0.5, 1.0, 1.0])


def test_ula_and_sgld_are_one_without_data() -> None:
    ula, sgld = (Run(name, make_problem(Bent())).steps(5).state.x for name in ("ula", "sgld"))
    assert torch.equal(ula, sgld)


def test_srld_repels_from_its_past() -> None:
    """On a flat target the force is a positive sum of (x - b): away from a past on one side."""
    past = points(2, 5, 3).abs()
    x = torch.zeros(2, 1, 3, dtype=torch.float64)
    assert (srld.repulsion(x, past, torch.zeros_like(past)) < 0).all()


def test_srld_force_equals_its_sum() -> None:
    x, past, scores = points(2, 1, 3), points(2, 4, 3, seed=1), points(2, 4, 3, seed=2)
    for r in range(2):
        d = sorted((x[r, 0] - b).square().sum().item() for b in past[r])
        sigma = d[1] / math.log(4)  # the lower median of four
        expected = torch.zeros(3, dtype=torch.float64)
        for b, s in zip(past[r], scores[r], strict=True):
            leaf = b.clone().requires_grad_()
            k = torch.exp(-(leaf - x[r, 0]).square().sum() / sigma)
            expected += (k.detach() * s + torch.autograd.grad(k, leaf)[0]) / 4
        torch.testing.assert_close(srld.repulsion(x, past, scores)[r, 0], expected, rtol=1e-10, atol=1e-12)


def test_srld_remembers_every_cth_state_with_its_score() -> None:
    target = Gaussian([1.0, 4.0])
    run = Run("srld", make_problem(target), memory=3, spacing=2)
    visited = []
    for _ in range(9):
        visited.append(run.state.x)
        run.steps(1)
    expected = torch.cat([visited[k] for k in (4, 6, 8)], 1)
    assert torch.equal(run.state.memory.past, expected)
    assert torch.equal(run.state.memory.past_scores, target.score(expected))


@pytest.mark.parametrize(("horizon", "spacing"), [(1, 1), (400, 10), (100_000, 100)])
def test_srld_thins_less_in_short_runs(horizon: int, spacing: int) -> None:
    assert Run("srld", make_problem(Bent()), horizon, memory=10, spacing=100).state.memory.spacing == spacing


def test_lapd_tends_to_ula_as_m_vanishes() -> None:
    ula = Run("ula", make_problem(Bent())).steps(20).state.x
    lapd = Run("lapd", make_problem(Bent()), prior_precision=1e-12).steps(20).state.x
    torch.testing.assert_close(lapd, ula, rtol=1e-9, atol=1e-9)


def test_lapd_is_a_langevin_step_with_less_noise() -> None:
    """x + eta' s(x) + sqrt(eta' (2 - m eta')) xi, eta' = (1 - exp(-m eta)) / m."""
    run = Run("lapd", make_problem(Bent()), step_size=0.3, prior_precision=2.0)
    x = run.state.x
    rate = (1 - math.exp(-0.6)) / 2
    noise = run.problem.streams.normal("noise", (8, 2))
    expected = x + rate * Bent().score(x.clone()) + math.sqrt(rate * (2 - 2 * rate)) * noise
    torch.testing.assert_close(run.steps(1).state.x, expected, rtol=1e-12, atol=1e-12)


def test_lapd_takes_the_prior_the_task_declares() -> None:
    declared = Run("lapd", make_problem(Regression()), prior_precision=1.0).steps(3)
    with pytest.warns(UserWarning, match="is ignored"):
        ignored = Run("lapd", make_problem(Regression()), prior_precision=7.0).steps(3)
    assert torch.equal(declared.state.x, ignored.state.x)


def test_hmc_with_one_leapfrog_step_is_mala() -> None:
    mala = Run("mala", make_problem(Bent()), step_size=0.2).steps(10)
    hmc = Run("hmc", make_problem(Bent()), step_size=0.2, leapfrog_steps=1, jitter=0.0).steps(10)
    torch.testing.assert_close(hmc.state.x, mala.state.x, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(hmc.info.acceptance, mala.info.acceptance, rtol=1e-10, atol=0)
    assert ((hmc.info.acceptance > 0) & (hmc.info.acceptance < 1)).all()
    assert (hmc.info.divergences == 0).all()


def test_hmc_trajectories_run_backwards() -> None:
    """Leapfrog is reversible: from the end with the momentum turned round, back to the start."""
    run = Run("hmc", make_problem(Bent()), leapfrog_steps=7, jitter=0.0)
    algorithm, problem, settings, state = run.algorithm, run.problem, run.settings, run.state
    momentum = points(3, 8, 2)
    y, p, _, score = algorithm._trajectory(problem, settings, state, momentum, problem.streams)  # type: ignore[attr-defined]
    end = state._replace(x=y, score=score)
    x, back, _, _ = algorithm._trajectory(problem, settings, end, -p, problem.streams)  # type: ignore[attr-defined]
    torch.testing.assert_close(x, state.x, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(back, -momentum, rtol=1e-10, atol=1e-10)


class Walled(Skewed):
    """A density that is zero, or not a number, beyond a wall."""

    def __init__(self, beyond: float) -> None:
        super().__init__(dim=1)
        self.beyond = beyond

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        return torch.where(x[..., 0].abs() < 5, super().log_density(x), self.beyond)


@pytest.mark.parametrize("name", ["mala", "hmc"])
@pytest.mark.parametrize("beyond", [-math.inf, math.nan])
def test_proposals_without_density_are_rejected(name: str, beyond: float) -> None:
    run = Run(name, make_problem(Walled(beyond), particles=200), step_size=2.0).steps(20)
    assert run.state.x.abs().max() < 5
    assert run.state.log_density.isfinite().all()


def test_sifg_mixture_score_equals_autograd() -> None:
    x, z = points(2, 5, 3), points(2, 4, 3, seed=1)
    leaf = x.clone().requires_grad_()
    log_mixture = (-(leaf.unsqueeze(2) - z.unsqueeze(1)).square().sum(-1) / (2 * 0.6**2)).logsumexp(-1)
    (expected,) = torch.autograd.grad(log_mixture.sum(), leaf)
    torch.testing.assert_close(mixture_score(x, z, 0.6), expected, rtol=1e-10, atol=1e-11)


def test_sifg_moves_by_the_difference_of_scores_at_the_perturbed_points() -> None:
    run = Run("sifg", make_problem(Bent()), score="exact", sigma=0.5, step_size=0.1)
    z = run.state.x
    x = z + 0.5 * run.problem.streams.normal("noise", (8, 2))
    expected = z + 0.1 * (Bent().score(x) - mixture_score(x, z, 0.5))
    torch.testing.assert_close(run.steps(1).state.x, expected, rtol=1e-12, atol=1e-12)


def test_sifg_takes_particles_in_turn() -> None:
    samples = Run("sifg", make_problem(Bent()), sigma=1e-9).steps(1)
    torch.testing.assert_close(samples.output(19), samples.state.x.repeat(1, 3, 1)[:, :19], rtol=0, atol=1e-7)
