"""ChEES-HMC: equal to plain trajectories, the criterion's gradient, what warm-up learns, exact laws."""

import math

import numpy as np
import pytest
import torch
from sampler_toys import Bent, Gaussian, Run, make_problem, points
from scipy import stats

from parvibench.baselines.chees_hmc import _learnt, chees_gradient
from parvibench.core.streams import Streams


def test_the_gradient_is_that_of_the_criterion() -> None:
    """By finite differences along the exact flow of N(0, I); a set of chains that is symmetric about 0 has fixed means."""
    x, p = (torch.cat((a, -a))[None] for a in points(2, 30, 4, seed=1))
    time = torch.tensor([0.7], dtype=torch.float64)

    def flow(t: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * t.cos() + p * t.sin(), p * t.cos() - x * t.sin()

    def criterion(log_time: float) -> float:
        y, _ = flow(torch.tensor(math.exp(log_time), dtype=torch.float64))
        return float((y.square().sum(-1) - x.square().sum(-1)).square().mean() / 4)

    at, h = math.log(0.7), 1e-5
    slope = (criterion(at + h) - criterion(at - h)) / (2 * h)
    ones = torch.ones(1, 60, dtype=torch.float64)
    assert chees_gradient(x, *flow(time), ones, time).item() == pytest.approx(slope, rel=1e-6)
    lost = (
        torch.cat((flow(time)[0], torch.full((1, 2, 4), math.nan)), 1),
        torch.cat((flow(time)[1], torch.ones(1, 2, 4)), 1),
    )
    starts, weights = torch.cat((x, torch.zeros(1, 2, 4)), 1), torch.cat((ones, torch.zeros(1, 2)), 1)
    assert chees_gradient(starts, *lost, weights, time).item() == pytest.approx(slope, rel=1e-6)


def test_it_is_plain_trajectories_of_halton_s_lengths() -> None:
    """Without warm-up, 2 replicates of different T, 60 leapfrog steps each, against one chain at a time in numpy."""
    target, K, steps = Bent(), 4, 15
    run = Run("chees-hmc", make_problem(target, [0, 3], particles=3), 0, leapfrogs=K)
    eps, T = np.array([0.1, 0.15]), np.array([1.3, 0.4])
    run.state = run.state._replace(
        dual=run.state.dual._replace(log_step=torch.from_numpy(eps).log()),
        length=run.state.length._replace(log=torch.from_numpy(T).log()),
    )
    start = run.state.x.numpy().copy()
    end = run.steps(steps).state.x.numpy()
    halton = stats.qmc.Halton(1, scramble=False).random(101)[1:, 0]

    def at(q: np.ndarray) -> tuple[float, np.ndarray]:
        density, score = target.log_density_and_score(torch.from_numpy(q)[None, None])
        return float(density), score[0, 0].numpy()

    for r in range(2):
        for chain in range(3):
            streams = Streams(7, [0, 3], dtype=torch.float64)
            x, leaf, begun = start[r, chain], 0, {}
            for h in halton:
                L = math.ceil(h * T[r] / eps[r] - 1e-6)
                streams.step = leaf // K
                p = streams.normal("noise", (3, 2), index=begun.get(streams.step, 0))[r, chain].numpy()
                begun[streams.step] = begun.get(streams.step, 0) + 1
                q, momentum = x, p
                for _ in range(L):
                    momentum = momentum + eps[r] / 2 * at(q)[1]
                    q = q + eps[r] * momentum
                    momentum = momentum + eps[r] / 2 * at(q)[1]
                leaf += L
                if leaf > K * steps:
                    break
                streams.step, k = divmod(leaf - 1, K)
                u = float(streams.uniform("algorithm", (K, 3))[r, k, chain])
                change = at(q)[0] - momentum @ momentum / 2 - at(x)[0] + p @ p / 2
                x = q if u < math.exp(min(0.0, change)) else x
            assert leaf > K * steps
            np.testing.assert_allclose(end[r, chain], x, rtol=1e-9, atol=1e-10)


@pytest.mark.ci
def test_warm_up_finds_step_and_length() -> None:
    """The harmonic mean of the acceptances, which the mean exceeds; T grows with the scale of the target."""
    lengths = []
    for scale in (1.0, 8.0):
        problem = make_problem(Gaussian([1 / scale**2] * 8), particles=20)
        run = Run("chees-hmc", problem, 4 * 250, leapfrogs=8).steps(250)
        kept = run.state.length.log
        accepted = torch.stack([run.steps(1).info.acceptance for _ in range(40)]).mean()
        assert torch.equal(run.state.length.log, kept)
        assert 0.6 < accepted < 0.95
        lengths.append(kept.exp().mean().item() / scale)
    assert all(0.7 < length < 5 for length in lengths)


def test_the_law_is_exact() -> None:
    """N(1, diag(1, 1/9)), 3 rows in 40 replicates after warm-up: four p > 1e-6, false alarm 4e-6."""
    problem = make_problem(Gaussian([1.0, 9.0], mean=1.0), range(40), particles=3)
    run = Run("chees-hmc", problem, 4 * 60, leapfrogs=8).steps(90)
    sums = 0.0
    for _ in range(200):
        z = (run.steps(1).state.x - 1) * torch.tensor([1.0, 3.0])
        sums = sums + torch.stack((z, z.square())).mean(2)
    for moment, expected in zip(sums / 200, (0.0, 1.0), strict=True):
        for d in range(2):
            assert stats.ttest_1samp(moment[:, d].numpy(), expected).pvalue > 1e-6


def test_the_step_is_adapted_by_the_harmonic_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the chains' acceptances in each replicate, of which those near 0 count most."""
    run = Run("chees-hmc", make_problem(Gaussian([1.0] * 2), [0, 3], particles=3), 4)
    state, seen = run.state, []
    update = type(state.dual).update
    monkeypatch.setattr(
        type(state.dual), "update", lambda self, mean, *more: seen.append(mean) or update(self, mean, *more)
    )
    acceptances = torch.tensor([[1.0, 0.5, 0.25], [0.9, 0.9, 0.01]], dtype=torch.float64)
    _learnt(run.settings, state, torch.tensor([True, True]), acceptances, False)
    np.testing.assert_allclose(seen[0].numpy(), stats.hmean(acceptances.numpy(), axis=1), rtol=1e-9)
