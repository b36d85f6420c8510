"""Parallel tempering and annealed SMC: swaps, weights, normalising constants, laws, and plain programs of both."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from few import every
from sampler_toys import Bent, Gaussian, Regression, Run, Skewed, make_problem, points
from scipy import stats
from torch import Tensor

from parvibench.baselines import _tempering, smc
from parvibench.baselines._tempering import Points, log_base, moved
from parvibench.baselines.parallel_tempering import swapped
from parvibench.core import registry

#: Probability with which each test of a law fails although the law is right.
FALSE_ALARM = 1e-4


def bent(x: Tensor) -> float:
    return Bent().log_density(x.view(1, 1, -1)).item()


def bent_score(x: Tensor) -> Tensor:
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(Bent().log_density(leaf.view(1, 1, -1)).sum(), leaf)[0]


def base(x: Tensor, sd: float) -> float:
    return torch.distributions.Normal(0.0, sd).log_prob(x).sum().item()


def plain_mala(x: Tensor, b: float, eta: float, sd: float, noise: Tensor, uniform: float) -> tuple[Tensor, float]:
    """One chain at one temperature, proposal densities written out."""

    def log_p(v: Tensor) -> float:
        return b * bent(v) + (1 - b) * base(v, sd)

    def drift(v: Tensor) -> Tensor:
        return v + eta * (b * bent_score(v) - (1 - b) / sd**2 * v)

    def log_q(to: Tensor, start: Tensor) -> float:
        return torch.distributions.Normal(drift(start), math.sqrt(2 * eta)).log_prob(to).sum().item()

    y = drift(x) + math.sqrt(2 * eta) * noise
    chance = min(1.0, math.exp(min(0.0, log_p(y) - log_p(x) + log_q(x, y) - log_q(y, x))))
    return (y if uniform < chance else x), chance


def test_a_move_is_mala_at_its_own_temperature() -> None:
    """Every point against the proposal densities; the first two are draws from the base."""
    problem = make_problem(Bent())
    x, noise = points(3, 8, 2), points(3, 8, 2, seed=1)
    b, log_eta = torch.rand(2, 3, 8, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    uniform = torch.rand(3, 8, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    start = Points(x, *problem.log_density_and_score(x))
    end, acceptance = moved(problem, start, b, log_eta, 1.7, noise, uniform, drawn=2)
    torch.testing.assert_close(end.x[:, :2], 1.7 * noise[:, :2])
    assert (acceptance[:, :2] == 1).all()
    for r in range(3):
        for i in range(2, 8):
            given = (b[r, i].item(), log_eta[r, i].exp().item(), 1.7, noise[r, i], uniform[r, i].item())
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


class PlainTempering:
    """One replicate, one ladder after another; the ladder is shared by its N chains."""

    def __init__(self, s: Any, x: Tensor, others: Tensor, sd: float) -> None:
        self.s, self.sd, self.n = s, sd, len(x)
        rows = others.view(s.temperatures - 1, self.n, -1)
        self.x = [[*rows[:, i], x[i]] for i in range(self.n)]
        self.b = [0.0, *(s.hottest ** (1 - k / max(1, s.temperatures - 2)) for k in range(s.temperatures - 1))]
        self.b[-1] = 1.0
        self.log_eta = [math.log(_tempering.first_step(sd, 2) * max(b, s.hottest)) for b in self.b]
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
                given = (self.b[k], math.exp(self.log_eta[k]), self.sd, noise[row], uniform[row].item())
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


@pytest.mark.parametrize("count", every(2, [3, 2, 5]))
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


def test_systematic_resampling_rounds_the_expected_numbers() -> None:
    """Floor or ceiling of n w, their mean n w over uniform numbers, and never a point without weight."""
    w = torch.tensor([[0.0, 0.31, 0.02, 0.0, 0.5, 0.17, 0.0]], dtype=torch.float64)
    places = torch.linspace(0, 1, 2001, dtype=torch.float64)[:-1]
    counts = torch.stack([torch.bincount(smc.systematic(w.log(), u.view(1, 1), 9)[0], minlength=7) for u in places])
    assert ((counts >= (9 * w).floor()) & (counts <= (9 * w).ceil())).all()
    torch.testing.assert_close(counts.double().mean(0), 9 * w[0], atol=2e-3, rtol=0)
    equal = torch.zeros(1, 64, dtype=torch.float32)
    assert smc.systematic(equal, torch.tensor([[0.3]]), 64)[0].tolist() == list(range(64))


def test_the_next_temperature_keeps_the_conditional_effective_sample_size() -> None:
    """Written out with weights that are not equal; or the most, where that suffices."""
    ratio = 20 * points(2, 300)
    ratio[1, :100] = -math.inf
    log_w = points(2, 300, seed=1).log_softmax(1)
    most = torch.tensor([1.0, 0.7], dtype=torch.float64)
    change = smc.next_change(ratio, log_w, most, 0.8)
    for r in range(2):
        held = log_w[r].exp()
        w = torch.where(ratio[r] > -math.inf, (change[r] * ratio[r]).exp(), 0.0)
        share = (held * w).sum() ** 2 / (held * w**2).sum() / held[ratio[r] > -math.inf].sum()
        assert share.item() == pytest.approx(0.8, abs=1e-6)
    tiny = torch.full((2,), 1e-6, dtype=torch.float64)
    assert torch.equal(smc.next_change(ratio, log_w, tiny, 0.8), tiny)


class Unnormalised(Gaussian):
    """exp(-p |x - m|^2 / 2) / 7: log Z = D / 2 log(2 pi / p) - log 7."""

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        return super().log_density(x) - math.log(7)


def regression_evidence(target: Regression) -> float:
    """log of the integral of exp(-|y - X b|^2 / 2 - |b|^2 / 2), complete squares."""
    X, y = target.design.double(), target.response.double()
    precision = X.T @ X + torch.eye(3, dtype=torch.float64)
    least = y @ y - y @ X @ torch.linalg.solve(precision, X.T @ y)
    return (1.5 * math.log(2 * math.pi) - 0.5 * torch.logdet(precision) - 0.5 * least).item()


def evidence(run: Run, steps: int) -> Tensor:
    run.steps(steps)
    assert (run.state.b == 1).all()
    return run.state.log_z


TASKS = ["gmm5-2d", "multimodal", "x-shaped", "gmm2-20d", "banana", "student-t", "correlated-2d"]


@pytest.mark.ci
@pytest.mark.parametrize("name", ["gaussian", "regression", *TASKS])
def test_the_normalising_constant_is_covered_by_its_interval(name: str) -> None:
    """The interval of the mean of Z over 24 replicates, log-normal for the heavier-tailed, contains the known one.

    The densities of these tasks are normalised, as their module docstrings state: log Z = 0. E Z is right up to the
    adaptation (order 1/N). Student's interval at a rate of 1e-4; its width is below 0.5, so that it says something.
    """
    ids, settings = range(24), {}
    if name == "gaussian":
        truth = math.log(2 * math.pi) - 0.5 * math.log(4 * 0.25) - math.log(7)
        problem = make_problem(Unnormalised([4.0, 0.25], mean=1.0), ids, particles=300)
    elif name == "regression":
        target = Regression()
        truth, problem = regression_evidence(target), make_problem(target, ids, particles=300)
    else:
        truth, settings = 0.0, {"base_sd": 2.5}
        task = registry.load_task(name)
        problem = make_problem(task.target(ids, "cpu", torch.float64), ids, particles=300)
    z = (evidence(Run("smc", problem, horizon=150, ess_share=0.9, **settings), 150) - truth).exp()
    half = stats.t.isf(5e-5, 23) * z.std().item() / math.sqrt(24)
    assert half < 0.5
    assert abs(z.mean().item() - 1) < half


ESTIMATORS: dict[str, tuple[int, dict[str, Any]]] = {
    "smc": (60, {"base_sd": 2.0}),
    "parallel-tempering": (80, {"temperatures": 4, "base_sd": 2.0, "warmup_steps": 30}),
    "realnvp": (400, {"flows": 1, "hidden": 4, "batch": 20, "step_size": 0.05}),
    "iaf": (400, {"flows": 1, "hidden": 4, "batch": 20, "step_size": 0.05}),
    "pathfinder": (40, {"paths": 4, "elbo_draws": 5, "draws": 100}),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_log_z_of_a_gaussian_within_its_standard_error(name: str) -> None:
    """Errors of 24 runs in standard errors: at most one beyond 5, the median below 1.5.

    Without the base's constant, or with weights relative to another law, errors are above 20 of them.
    """
    steps, settings = ESTIMATORS[name]
    truth = math.log(2 * math.pi) - 0.5 * math.log(4 * 0.25)
    problem = make_problem(Gaussian([4.0, 0.25], mean=1.0), range(24), particles=100)
    info: Any = Run(name, problem, horizon=steps, **settings).steps(steps).info
    error, se = info.log_z - truth, info.log_z_se
    assert (se < 0.5).all()
    z = error / se.clamp_min(1e-6)  # normals of Pathfinder become exact
    assert (z.abs() > 5).sum() <= 1  # weights have heavy tails
    assert z.abs().median() < 1.5


def test_smc_samples_a_skewed_law_by_tempering() -> None:
    """Mean -1 and variance pi^2 / 3 - 1 of 3 x 4 replicates of 500; 5 standard errors of the replicates' means."""
    problem = make_problem(Skewed(dim=2), range(12), particles=500)
    x = Run("smc", problem, horizon=100).steps(100).output(500)
    for found, exact in ((x.mean((1, 2)), -1.0), ((x + 1).square().mean((1, 2)), math.pi**2 / 3 - 1)):
        error = (found.std() / math.sqrt(12)).item()
        assert abs(found.mean().item() - exact) < stats.t.isf(FALSE_ALARM, 11) * error


def test_temperatures_are_spread_over_the_annealing() -> None:
    """b is a power of the first b, to b = 1 when the share of the budget is spent; without a pace, soon."""

    def after(share: float, steps: int) -> Tensor:
        problem = make_problem(Gaussian([1.0, 4.0]), particles=200, limit=200 * 101)
        b: Tensor = Run("smc", problem, annealing=share, ess_share=0.5).steps(steps).state.b
        return b

    for share, end in ((0.5, 50), (0.8, 80)):
        first, half = after(share, 1), after(share, end // 2)
        torch.testing.assert_close(half.log(), first.log() * (end - end // 2) / (end - 1))
        assert (after(share, end - 1) < 1).all()
        assert (after(share, end) == 1).all()
    quick = Run("smc", make_problem(Gaussian([1.0, 4.0]), particles=200), annealing=0.0, ess_share=0.5).steps(20)
    assert (quick.state.b == 1).all()


@pytest.mark.ci
def test_particles_before_the_end_are_resampled_for_what_they_are() -> None:
    """At b < 1 the output has the law of pi_b, weights included: its variance on a Gaussian, within the stated rate."""
    sd = 3.0
    problem = make_problem(Gaussian([4.0, 4.0]), range(10), particles=1000, limit=1000 * 1001)
    run = Run("smc", problem, base_sd=sd, annealing=1.0).steps(500)
    assert ((run.state.b > 0.05) & (run.state.b < 0.9)).all()
    q = run.state.b * 4 + (1 - run.state.b) / sd**2
    found = run.output(1000).square().mean((1, 2)) * q
    assert abs(found.mean().item() - 1) < stats.t.isf(FALSE_ALARM, 9) * found.std().item() / math.sqrt(10)
    assert run.info is not None
    assert torch.equal(run.info.inverse_temperature, run.state.b)


@pytest.mark.parametrize("beyond", [-math.inf, math.nan])
def test_particles_without_density_die(beyond: float) -> None:
    class Walled(Skewed):
        def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
            return torch.where(x[..., 0].abs() < 2, super().log_density(x), beyond)

    run = Run("smc", make_problem(Walled(), particles=200), horizon=60).steps(60)
    assert (run.state.b == 1).all()
    assert run.state.x.abs().max() < 2
    assert run.state.log_z.isfinite().all()
    run = Run("parallel-tempering", make_problem(Walled(), particles=200), temperatures=4).steps(60)
    inside = run.state.x.abs() < 2
    start = make_problem(Walled(), particles=200).init().abs() < 2
    assert inside[start].all()


def test_the_base_is_the_declared_prior() -> None:
    """Unit precision: s = 1, so the start is the noise itself; a setting goes before, a default comes last."""
    declared, undeclared = Run("smc", make_problem(Regression())), Run("smc", make_problem(Bent()))
    assert torch.equal(declared.state.x, declared.problem.streams.normal("init", (8, 3)))
    sd = _tempering.DEFAULT_SD
    torch.testing.assert_close(undeclared.state.x, sd * undeclared.problem.streams.normal("init", (8, 2)))
    given = Run("smc", make_problem(Regression()), base_sd=0.5)
    torch.testing.assert_close(given.state.x, 0.5 * declared.state.x)
    x = points(2, 5, 3)
    expected = torch.distributions.Normal(0.0, 0.7).log_prob(x).sum(-1)
    torch.testing.assert_close(log_base(x, 0.7), expected.double())


class PlainSMC:
    """One replicate, weights as plain numbers."""

    def __init__(self, s: Any, x: Tensor, sd: float, end: int) -> None:
        self.s, self.sd, self.n, self.end = s, sd, len(x), end
        self.x, self.w = list(x), [1 / self.n] * self.n
        self.b, self.log_z, self.t, self.after = 0.0, 0.0, 0, 0
        self.log_eta = math.log(1.36 * sd**2 * 2 ** (-1 / 3))

    def share(self, ratios: list[float], change: float) -> float:
        top = max(ratios)
        w = [math.exp(change * (r - top)) for r in ratios]
        first = sum(a * b for a, b in zip(self.w, w, strict=True))
        return first**2 / sum(a * b * b for a, b in zip(self.w, w, strict=True))

    def anneal(self, uniform: float) -> None:
        ratios = [bent(v) - base(v, self.sd) for v in self.x]
        left = max(1, (self.end - self.t) // self.s.moves)
        target = self.b ** (1 - 1 / left) if self.b > 0 and left > 1 else 1.0
        change = target - self.b
        if self.share(ratios, change) < self.s.ess_share:
            low, high = 0.0, change
            for _ in range(smc.HALVINGS):
                middle = (low + high) / 2
                low, high = (middle, high) if self.share(ratios, middle) >= self.s.ess_share else (low, middle)
            target = self.b + low
        w = [a * math.exp((target - self.b) * r) for a, r in zip(self.w, ratios, strict=True)]
        self.log_z += math.log(sum(w))
        self.w, self.b = [v / sum(w) for v in w], target
        if self.b == 1 or 1 / sum(v * v for v in self.w) < self.n / 2:
            chosen, total, k = [], self.w[0], 0
            for i in range(self.n):
                while total <= (i + uniform) / self.n:
                    k += 1
                    total += self.w[k]
                chosen.append(self.x[k])
            self.x, self.w = chosen, [1 / self.n] * self.n

    def step(self, noise: Tensor, uniform: Tensor, resampling: float) -> None:
        if self.t % self.s.moves == 0 and self.b < 1:
            self.anneal(resampling)
        chances = []
        for i in range(self.n):
            given = (self.b, math.exp(self.log_eta), self.sd, noise[i], uniform[i].item())
            self.x[i], chance = plain_mala(self.x[i], *given)
            chances.append(chance)
        self.log_eta += (1 + self.after) ** -0.6 * (sum(chances) / self.n - 0.574)
        self.after += self.b == 1
        self.t += 1


@pytest.mark.ci
@pytest.mark.parametrize(
    "settings", [{}, {"moves": 3}, {"annealing": 0.0}, {"ess_share": 0.3, "annealing": 1.0}], ids=str
)
def test_smc_equals_a_plain_program(settings: dict[str, Any]) -> None:
    problem = make_problem(Bent(), particles=12)
    given = {"moves": 1, "ess_share": 0.8, "annealing": 0.6, "base_sd": 2.0} | settings
    run = Run("smc", problem, horizon=30, **given)
    end = int(given["annealing"] * 30)
    programs = [PlainSMC(SimpleNamespace(**given), run.state.x[r], 2.0, end) for r in range(3)]
    for t in range(40):
        streams = problem.streams
        streams.step = t
        noise, uniform = streams.normal("noise", (12, 2)).clone(), streams.uniform("algorithm", (12,))
        resampling = streams.uniform("algorithm", (1,), index=1)
        run.steps(1)
        for r, program in enumerate(programs):
            program.step(noise[r], uniform[r], resampling[r].item())
    for r, program in enumerate(programs):
        torch.testing.assert_close(run.state.x[r], torch.stack(program.x), rtol=1e-6, atol=1e-6)
        assert run.state.b[r].item() == pytest.approx(program.b, rel=1e-6)
        assert run.state.log_z[r].item() == pytest.approx(program.log_z, rel=1e-6, abs=1e-8)
        assert run.state.log_eta[r].item() == pytest.approx(program.log_eta, rel=1e-6)
