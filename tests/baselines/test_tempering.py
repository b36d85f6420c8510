"""Parallel tempering: moves, swaps, the ladder, laws, and a plain program."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from few import every
from plain_tempering import base, bent, plain_mala
from sampler_toys import Bent, Gaussian, Run, make_problem, points
from scipy import stats
from torch import Tensor

from parvibench.baselines import _tempering
from parvibench.baselines._tempering import Base, Points, moved
from parvibench.baselines.parallel_tempering import log_normaliser, swapped
from parvibench.core import registry

#: Probability with which each test of a law fails although the law is right.
FALSE_ALARM = 1e-4


def test_a_move_is_mala_at_its_own_temperature() -> None:
    """Every point against the proposal densities; the first two are draws from the base."""
    problem = make_problem(Bent())
    x, noise = points(3, 8, 2), points(3, 8, 2, seed=1)
    b, log_eta = torch.rand(2, 3, 8, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    uniform = torch.rand(3, 8, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    start = Points(x, *problem.log_density_and_score(x))
    base = Base(x.new_zeros(3, 1, 2), x.new_full((3, 1, 2), 1.7))
    end, acceptance = moved(problem, start, b, log_eta, base, noise, uniform, drawn=2)
    torch.testing.assert_close(end.x[:, :2], 1.7 * noise[:, :2])
    assert (acceptance[:, :2] == 1).all()
    for r in range(3):
        for i in range(2, 8):
            given = (b[r, i].item(), log_eta[r, i].exp().item() * 1.7**2, 1.7, noise[r, i], uniform[r, i].item())
            y, chance = plain_mala(x[r, i], *given)
            torch.testing.assert_close(end.x[r, i], y)
            assert acceptance[r, i].item() == pytest.approx(chance)
    torch.testing.assert_close(end.log_density, Bent().log_density(end.x))
    torch.testing.assert_close(end.score, problem.score(end.x))


def test_swaps_are_in_detailed_balance() -> None:
    """pi_b(x) pi_c(y) P(swap | x, y) = pi_b(y) pi_c(x) P(swap | y, x), for random l and b; and are not both below 1."""
    generator = torch.Generator().manual_seed(1)
    ratio = 3 * torch.randn(4, 2, 50, generator=generator, dtype=torch.float64)
    b = torch.rand(4, 2, generator=generator, dtype=torch.float64).sort(1).values
    never = torch.ones(4, 1, 50, dtype=torch.float64)
    _, there = swapped(ratio, b, never, 0)
    _, back = swapped(ratio.flip(1), b, never, 0)
    log_before = (b.unsqueeze(-1) * ratio).sum(1)
    log_after = (b.unsqueeze(-1) * ratio.flip(1)).sum(1)
    torch.testing.assert_close(log_before.exp() * there[:, 0], log_after.exp() * back[:, 0])
    assert (torch.maximum(there, back) == 1).all()
    assert (there < 1).any()


@pytest.mark.parametrize("odd", [0, 1])
def test_only_pairs_of_this_parity_exchange(odd: int) -> None:
    """Against a loop; a swap with an l that is not a number is refused."""
    generator = torch.Generator().manual_seed(odd)
    ratio = torch.randn(2, 5, 6, generator=generator, dtype=torch.float64)
    ratio[0, 2, 3] = math.nan
    uniform = torch.rand(2, 4, 6, generator=generator, dtype=torch.float64)
    b = torch.linspace(0, 1, 5, dtype=torch.float64).square().expand(2, -1)
    partner, probability = swapped(ratio, b, uniform, odd)
    for r in range(2):
        for i in range(6):
            order = list(range(5))
            for k in range(odd, 4, 2):
                chance = math.exp(min(0.0, float((b[r, k + 1] - b[r, k]) * (ratio[r, k, i] - ratio[r, k + 1, i]))))
                chance = 0.0 if math.isnan(chance) or math.isnan(ratio[r, k : k + 2, i].sum()) else chance
                assert probability[r, k, i].item() == pytest.approx(chance)
                if uniform[r, k, i] < chance:
                    order[k], order[k + 1] = k + 1, k
            assert partner[r, :, i].tolist() == order


def test_without_rejections_a_point_climbs_a_rung_a_step() -> None:
    """Deterministic even-odd swaps: ballistic, where random ones would diffuse."""
    b, place = torch.linspace(0, 1, 6, dtype=torch.float64).view(1, -1), 0
    equal, zero = torch.zeros(1, 6, 1, dtype=torch.float64), torch.zeros(1, 5, 1, dtype=torch.float64)
    for t in range(5):
        partner, _ = swapped(equal, b, zero, t % 2)
        place = partner[0, :, 0].tolist().index(place)
    assert place == 5


@pytest.mark.ci
def test_every_temperature_has_its_law() -> None:
    """A Gaussian target: pi_b = N(b p m / q, 1 / q), q = b p + (1 - b) / s^2, at all temperatures at once.

    3 x 1500 chains at the last of 250 steps; Bonferroni over means and variances at the stated rate. Catches swaps
    by log pi in place of l, and a temperature on the score alone.
    """
    p, m, sd = 4.0, 1.0, 2.0
    problem = make_problem(Gaussian([p, p], mean=m), particles=1500)
    run = Run("parallel-tempering", problem, temperatures=4, warmup_steps=60, base_sd=sd).steps(250)
    state = run.state
    x = torch.cat((state.others, state.x), 1).unflatten(1, (4, 1500))
    q = state.b * p + (1 - state.b) / sd**2
    z = (x - (state.b * p * m / q)[..., None, None]) * q.sqrt()[..., None, None]
    limit = stats.norm.isf(FALSE_ALARM / (2 * 2 * 24))
    assert (z.mean(2).abs() * math.sqrt(1500) < limit).all()
    assert ((z.square().mean(2) - 1).abs() * math.sqrt(1500 / 2) < limit * 1.1).all()  # chi-square's skewness
    assert (state.b[:, 0] == 0).all()
    assert (state.b[:, -1] == 1).all()


@pytest.mark.ci
def test_the_ladder_equalises_rejections() -> None:
    """From a geometric ladder whose pairs differ by more, to rates within 0.08 of each other; barrier near its value.

    Between N(0, s^2) and N(0, 1) in D dimensions the rejection rates of a fine ladder sum to E|l - l'| / 2 along the
    path; here only that ladders of other lengths find the same sum within a fifth.
    """
    found = []
    for count in (6, 10):
        problem = make_problem(Gaussian([1.0] * 6), particles=300)
        run = Run("parallel-tempering", problem, temperatures=count, warmup_steps=160, base_sd=6.0).steps(300)
        rates = run.state.rejections / run.state.tries
        assert (rates.amax(1) - rates.amin(1)).max() < 0.08
        found.append(rates.sum(1).mean().item())
    assert found[0] == pytest.approx(found[1], rel=0.2)


@pytest.mark.ci
def test_tempering_weighs_distant_modes_right() -> None:
    """From a start beside one of five modes: shares of all within the stated rate, at 600 steps of 5 temperatures.

    MALA alone never leaves the first mode or two. Chains are independent: their last positions are counted.
    """
    task = registry.load_task("gmm5-2d")
    problem = task.problem(2, seed=3, particles=800, dtype=torch.float64)
    run = Run("parallel-tempering", problem, temperatures=5, warmup_steps=150).steps(600)
    modes = task.facts.modes
    assert modes is not None
    apart = (run.state.x.flatten(0, 1).unsqueeze(1) - modes.means) / modes.sds.view(-1, 1)
    likely = (-0.5 * apart.square().sum(-1) - 2 * modes.sds.log()).argmax(1)
    exact = task.exact(400_000, torch.Generator().manual_seed(4))
    apart = (exact.unsqueeze(1) - modes.means) / modes.sds.view(-1, 1)
    shares = torch.bincount((-0.5 * apart.square().sum(-1) - 2 * modes.sds.log()).argmax(1), minlength=5) / 400_000
    counts = torch.bincount(likely, minlength=5)
    assert stats.chisquare(counts.numpy(), 1600 * shares.numpy()).pvalue > FALSE_ALARM


def test_log_z_is_the_mean_of_both_directions() -> None:
    """Against a loop over factors: the first one upwards alone; the error is that of independent ladders; the gap."""
    stones, steps = points(2, 6, 5), 7
    log_z, error, gap = log_normaliser(stones, steps)
    for r in range(2):
        means = [math.log(sum(math.exp(v) for v in row) / (5 * steps)) for row in stones[r].tolist()]
        up, down = means[:3], means[3:]
        assert log_z[r].item() == pytest.approx(up[0] + (up[1] + up[2] - down[1] - down[2]) / 2)
        assert gap[r].item() == pytest.approx(-(up[1] + up[2] + down[1] + down[2]))
        moved = []
        for i in range(5):  # what log Z gains as the weight of a ladder grows
            heavier = stones.clone()
            heavier[:, :, i] += 1e-6
            moved.append(5 * (log_normaliser(heavier, steps)[0][r] - log_z[r]).item() / 1e-6)
        assert error[r].item() == pytest.approx(torch.tensor(moved).std().item() / math.sqrt(5), rel=1e-3)


def test_round_trips_are_arrivals_from_the_base() -> None:
    """Without a move or a rejection points climb a rung a step: one arrival a ladder every second step from the fifth on."""
    flat = Gaussian([1e-12] * 2)
    run = Run("parallel-tempering", make_problem(flat), temperatures=5, warmup_steps=0, base_sd=1e6).steps(20)
    info: Any = run.info
    assert info.round_trips.tolist() == [8.0, 8.0, 8.0]
    assert (info.log_z_doubt == 1).all()  # of few steps
    run.steps(40)
    info = run.info
    assert (info.log_z_doubt == 0).all()


@pytest.mark.ci
def test_a_ladder_without_communication_puts_log_z_in_doubt() -> None:
    """Six temperatures from N(0, 9 I) to a Gaussian in 60 dimensions: the stated error is far too small, and that is said."""
    problem = make_problem(Gaussian([25.0] * 60), range(6), particles=30, limit=30 * 1001 * 1.0)
    info: Any = Run("parallel-tempering", problem, base_sd=3.0).steps(150).info
    off = (info.log_z - 30 * math.log(2 * math.pi / 25)).abs() / info.log_z_se
    assert off.median() > 2
    assert (info.log_z_doubt == 1).all()


class PlainTempering:
    """One replicate, one ladder after another; the ladder is shared by its N chains."""

    def __init__(self, s: Any, x: Tensor, others: Tensor, sd: float) -> None:
        self.s, self.sd, self.n = s, sd, len(x)
        rows = others.view(s.temperatures - 1, self.n, -1)
        self.x = [[*rows[:, i], x[i]] for i in range(self.n)]
        self.b = [0.0, *(s.hottest ** (1 - k / max(1, s.temperatures - 2)) for k in range(s.temperatures - 1))]
        self.b[-1] = 1.0
        self.log_eta = [math.log(_tempering.first_step(2) * max(b, s.hottest)) for b in self.b]
        self.rejected: list[list[float]] = [[] for _ in range(s.temperatures - 1)]
        self.t = 0

    def ratio(self, x: Tensor) -> float:
        return bent(x) - base(x, self.sd)

    def step(self, noise: Tensor, uniform: Tensor, swaps: Tensor) -> None:
        count, n = self.s.temperatures, self.n
        chances = torch.ones(count, n, dtype=torch.float64)
        for i in range(n):
            for k in range(count):
                row = k * n + i
                if k == 0:
                    self.x[i][0] = self.sd * noise[row]
                    continue
                given = (self.b[k], math.exp(self.log_eta[k]) * self.sd**2, self.sd, noise[row], uniform[row].item())
                self.x[i][k], chances[k, i] = plain_mala(self.x[i][k], *given)
        for k in range(self.t % 2, count - 1, 2):
            rates = []
            for i in range(n):
                low, high = self.x[i][k], self.x[i][k + 1]
                a = (self.b[k + 1] - self.b[k]) * (self.ratio(low) - self.ratio(high))
                rates.append(1 - min(1.0, math.exp(min(a, 0.0))))
                if swaps[k, i] < 1 - rates[-1]:
                    self.x[i][k], self.x[i][k + 1] = high, low
            self.rejected[k].append(sum(rates) / n)
        self.t += 1
        w = self.s.warmup_steps
        if self.t <= w:
            for k in range(count):
                self.log_eta[k] += 2 / math.sqrt(self.t) * (chances[k].mean().item() - 0.574)
            if self.t in [round(w / 8), round(w / 4), round(w / 2), w]:
                self.renew()

    def renew(self) -> None:
        rates = [max(1e-3, sum(r) / len(r)) if r else 1e-3 for r in self.rejected]
        barrier = [sum(rates[:k]) for k in range(len(self.b))]
        b, log_eta = [0.0], [self.log_eta[0]]
        for j in range(1, len(self.b)):
            at = j / (len(self.b) - 1) * barrier[-1]
            k = max(i for i in range(len(rates)) if barrier[i] <= at + 1e-12)
            part = (at - barrier[k]) / rates[k]
            b.append(self.b[k] + part * (self.b[k + 1] - self.b[k]))
            log_eta.append(self.log_eta[k] + part * (self.log_eta[k + 1] - self.log_eta[k]))
        b[-1] = 1.0
        self.b, self.log_eta, self.rejected = b, log_eta, [[] for _ in rates]


@pytest.mark.parametrize("count", every([3, 5], [2, 3, 5]))
def test_tempering_equals_a_plain_program(count: int) -> None:
    problem = make_problem(Bent(), particles=4)
    given: dict[str, Any] = {"temperatures": count, "hottest": 0.1, "base_sd": 1.5, "warmup_steps": 16}
    run = Run("parallel-tempering", problem, **given)
    programs = [PlainTempering(SimpleNamespace(**given), run.state.x[r], run.state.others[r], 1.5) for r in range(3)]
    for t in range(20):
        streams = problem.streams
        streams.step = t
        noise, uniform = streams.normal("noise", (4 * count, 2)).clone(), streams.uniform("algorithm", (4 * count,))
        swaps = streams.uniform("algorithm", (count - 1, 4), index=1)
        run.steps(1)
        for r, program in enumerate(programs):
            program.step(noise[r], uniform[r], swaps[r])
    for r, program in enumerate(programs):
        torch.testing.assert_close(
            run.state.x[r], torch.stack([chain[-1] for chain in program.x]), rtol=1e-6, atol=1e-6
        )
        torch.testing.assert_close(run.state.b[r], torch.tensor(program.b, dtype=torch.float64), rtol=1e-8, atol=1e-10)
        torch.testing.assert_close(
            run.state.log_eta[r], torch.tensor(program.log_eta, dtype=torch.float64), rtol=1e-8, atol=1e-10
        )
