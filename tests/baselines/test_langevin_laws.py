"""Underdamped, preconditioned, self-repulsive and decaying Langevin methods beside simpler methods, and by hand.

Their laws are questions of `parvibench.check.truth.langevin_laws`.
"""

import math
from typing import Any

import pytest
import torch
from sampler_toys import Bent, Gaussian, Regression, Run, Skewed, make_problem

from parvibench.baselines import lapd_decay

N = 20_000


@pytest.mark.parametrize(("repulsive", "plain"), [("srld", "sgld"), ("sr-uld", "uld"), ("sr-sghmc", "sghmc")])
@pytest.mark.parametrize("target", [Gaussian([1.0, 4.0]), Regression()], ids=["exact", "mini-batch"])
def test_without_repulsion_nothing_changes_bit_for_bit(repulsive: str, plain: str, target: Any) -> None:
    batch_size = 5 if target.rows else None
    runs = [
        Run(name, make_problem(target, particles=1, dtype=torch.float32, batch_size=batch_size), **settings)
        for name, settings in ((plain, {}), (repulsive, {"alpha": 0.0}))
    ]
    a, b = (run.steps(30).state for run in runs)
    assert torch.equal(a.x, b.x)
    assert plain == "sgld" or torch.equal(a.v, b.v)


@pytest.mark.parametrize("name", ["srld", "sr-uld", "sr-sghmc"])
def test_repulsion_moves_away_from_the_past(name: str) -> None:
    """A flat target, a full memory on the positive side: repulsion makes every coordinate smaller.

    Catches the sign printed in the paper's Eq. 6.
    """
    moved = []
    for alpha in (0.0, 5.0):
        run = Run(name, make_problem(Gaussian([0.0, 0.0, 0.0])), alpha=alpha, memory=4, spacing=1)
        past = torch.rand(3, 4, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        x = torch.zeros_like(run.state.x)
        memory = run.state.memory._replace(past=past, past_scores=torch.zeros_like(past), k=4)
        run.state = run.state._replace(x=x, memory=memory)
        moved.append(run.steps(1).state.x)
    assert (moved[1] < moved[0]).all()


def test_sghmc_with_full_friction_is_sgld() -> None:
    sgld = Run("sgld", make_problem(Bent()), step_size=0.02).steps(20).state.x
    sghmc = Run("sghmc", make_problem(Bent()), step_size=0.02, friction=1.0).steps(20).state.x
    torch.testing.assert_close(sghmc, sgld, rtol=1e-10, atol=1e-12)


def test_psgld_with_a_frozen_preconditioner_is_sgld() -> None:
    """G = 1 / lambda: catches G missing from the noise, or its square in place of its root."""
    sgld = Run("sgld", make_problem(Bent()), step_size=0.04).steps(20).state.x
    psgld = Run("psgld", make_problem(Bent()), step_size=0.02, decay=1.0, damping=0.5).steps(20).state.x
    torch.testing.assert_close(psgld, sgld, rtol=1e-10, atol=1e-12)


def test_psgld_preconditions_by_the_running_mean_square() -> None:
    """Two steps by hand. Catches a V that enters one step late, and one shared by the chains."""
    run = Run("psgld", make_problem(Bent()), step_size=0.1, decay=0.7, damping=0.2)
    x, v = run.state.x, torch.zeros_like(run.state.x)
    for k in range(2):
        score = Bent().score(x.clone())
        v = 0.7 * v + 0.3 * score**2
        g = 1 / (0.2 + v**0.5)
        run.problem.streams.step = k
        x = x + 0.1 * g * score + (0.2 * g) ** 0.5 * run.problem.streams.normal("noise", (8, 2))
    torch.testing.assert_close(run.steps(2).state.x, x, rtol=1e-12, atol=1e-12)


def test_lapd_decay_follows_the_schedule_of_theorem_4_2() -> None:
    """8 h / (9 + 3 (k - K)_+ h a): constant for k <= K, then by hand."""
    settings = lapd_decay.Settings(step_size=0.3, log_sobolev=2.0, constant_steps=3)
    steps = [lapd_decay.scheduled_step(settings, k) for k in range(6)]
    assert steps == pytest.approx([2.4 / 9] * 4 + [2.4 / 10.8, 2.4 / 12.6])


def test_lapd_decay_with_a_constant_step_is_lapd() -> None:
    decay = Run("lapd-decay", make_problem(Bent()), step_size=0.09, constant_steps=1000).steps(20).state.x
    plain = Run("lapd", make_problem(Bent()), step_size=8 * 0.09 / 9).steps(20).state.x
    assert torch.equal(decay, plain)


def mala_acceptance(target: Any, eta: float) -> float:
    """Stationary acceptance rate by quadrature over start and end of a proposal."""
    x = torch.linspace(-25, 12, 4001, dtype=torch.float64)
    spacing = (x[1] - x[0]).item()
    log_density = target.log_density(x.unsqueeze(-1))
    score = target.score(x.view(1, -1, 1)).flatten()
    log_density = log_density - log_density.logsumexp(0) - math.log(spacing)
    # flow[i, j] = pi(x_i) q(x_j | x_i), a density in both
    apart = x.unsqueeze(0) - (x + eta * score).unsqueeze(1)
    log_q = -(apart**2) / (4 * eta) - 0.5 * math.log(4 * math.pi * eta)
    flow = (log_density.unsqueeze(1) + log_q).exp()
    return torch.minimum(flow, flow.T).sum().item() * spacing**2


@pytest.mark.parametrize(("target", "burn_in"), [(Gaussian([1.0]), 0), (Skewed(), 100)], ids=["gaussian", "skewed"])
def test_mala_accepts_at_the_rate_of_the_integral(target: Any, burn_in: int) -> None:
    """The start is exact for the Gaussian. Catches an acceptance that keeps the law but wastes proposals.

    (Barker's rule, or a ratio cut below one: invisible to every test of the law.)
    """
    eta = 0.8
    run = Run("mala", make_problem(target, [0], particles=N), step_size=eta).steps(burn_in)
    before = run.state.x
    rate = (run.steps(1).state.x != before).double().mean().item()
    expected = mala_acceptance(target, eta)
    assert 0.5 < expected < 0.95
    assert abs(rate - expected) < 5 * math.sqrt(expected * (1 - expected) / N)


def test_ensemble_members_reach_the_mode_alone() -> None:
    """On N(1, diag(1, 1/4)) all end at 1, and a member that is moved leaves the others' bits."""
    target = Gaussian([1.0, 4.0], mean=1.0)
    run = Run("deep-ensemble", make_problem(target), step_size=0.05).steps(600)
    torch.testing.assert_close(run.state.x, torch.ones_like(run.state.x), atol=1e-3, rtol=0)
    straight, moved = (Run("deep-ensemble", make_problem(target)) for _ in range(2))
    x = moved.state.x.clone()
    x[:, 0] += 1
    moved.state = moved.state._replace(x=x)
    a, b = straight.steps(10).state.x, moved.steps(10).state.x
    assert torch.equal(a[:, 1:], b[:, 1:])
    assert not torch.equal(a[:, 0], b[:, 0])


def test_held_coordinates_stay_where_they_started() -> None:
    run = Run("deep-ensemble", make_problem(Gaussian([1.0, 1.0, 1.0], mean=3.0)), held=1)
    start = run.state.x
    end = run.steps(5).state.x
    assert torch.equal(end[..., -1:], start[..., -1:])
    assert (end[..., :-1] != start[..., :-1]).all()


def test_map_is_a_point_mass_on_one_run() -> None:
    one = Run("map", make_problem(Bent())).steps(20)
    ensemble = Run("deep-ensemble", make_problem(Bent(), particles=1)).steps(20)
    assert torch.equal(one.output(5), ensemble.state.x.expand(-1, 5, -1))
