"""Annealed SMC: resampling, temperatures, weights, laws, and a plain program; log Z of every method that estimates it."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from few import each
from plain_tempering import base, bent, plain_mala
from sampler_toys import Bent, Gaussian, Regression, Run, Skewed, make_problem, points
from scipy import stats
from torch import Tensor

from parvibench.baselines import smc
from parvibench.baselines._tempering import Base, Points, fitted_base
from parvibench.core import registry

#: Probability with which each test of a law fails although the law is right.
FALSE_ALARM = 1e-4


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
@pytest.mark.parametrize(
    "name", each(["gaussian", "gmm5-2d", "x-shaped", "banana", "correlated-2d"], ["gaussian", "regression", *TASKS])
)
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
        b: Tensor = Run("smc", problem, annealing=share, ess_share=0.5, base_sd=3.0).steps(steps).state.b
        return b

    for share, end in ((0.5, 50), (0.8, 80)):
        first, half = after(share, 1), after(share, end // 2)
        torch.testing.assert_close(half.log(), first.log() * (end - end // 2) / (end - 1))
        assert (after(share, end - 1) < 1).all()
        assert (after(share, end) == 1).all()
    quick = Run(
        "smc", make_problem(Gaussian([1.0, 4.0]), particles=200), annealing=0.0, ess_share=0.5, base_sd=3.0
    ).steps(20)
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
    """Unit precision: s = 1, so the start is the noise itself; a setting goes before; its density is PyTorch's."""
    declared = Run("smc", make_problem(Regression()))
    assert torch.equal(declared.state.x, declared.problem.streams.normal("init", (8, 3)))
    given = Run("smc", make_problem(Regression()), base_sd=0.5)
    torch.testing.assert_close(given.state.x, 0.5 * declared.state.x)
    x, mean, sd = points(2, 5, 3), points(2, 1, 3, seed=1), points(2, 1, 3, seed=2).exp()
    torch.testing.assert_close(Base(mean, sd).log_density(x), torch.distributions.Normal(mean, sd).log_prob(x).sum(-1))


def test_a_fitted_base_is_wider_than_the_points_and_ignores_stragglers() -> None:
    """Mean and 1 + D^(-1/4) standard deviations, of the points within 10 + 2 D nats of the best, per replicate."""
    x, log_density = points(2, 50, 3), points(2, 50)
    strayed, low = x.clone(), log_density.clone()
    strayed[0, 7], low[0, 7] = 1e6, log_density[0].max() - 17
    strayed[1, :3], low[1, :3] = math.inf, math.nan
    found = fitted_base(Points(strayed, low, x))
    for r, rows in enumerate(([i for i in range(50) if i != 7], range(3, 50))):
        kept = x[r, list(rows)]
        torch.testing.assert_close(found.mean[r, 0], kept.mean(0))
        torch.testing.assert_close(found.sd[r, 0], (1 + 3**-0.25) * kept.std(0, correction=0))


def test_after_the_warm_up_particles_are_draws_from_the_fitted_base() -> None:
    """Far from N(0, 9 I): a narrow Gaussian at 20, with scales of 10 and 0.1; then log Z within 5 errors, most within 2."""
    target, truth = Gaussian([0.01, 100.0], mean=20.0), math.log(2 * math.pi)
    problem = make_problem(target, range(12), particles=200, limit=200 * 301)
    run = Run("smc", problem)
    begin = run.state.begin
    assert begin == 60
    run.steps(begin + 1)
    base = run.state.base
    z = (run.state.x - base.mean) / base.sd
    assert stats.kstest(z.flatten().numpy(), "norm").pvalue > FALSE_ALARM
    run.steps(300 - begin - 1)
    info: Any = run.info
    off = (info.log_z - truth).abs() / info.log_z_se
    assert off.max() < 5
    assert off.median() < 2
    assert (info.log_z_doubt == 0).all()


def test_few_ancestors_put_log_z_in_doubt() -> None:
    """A base far too wide for so few particles, moves that cannot follow: ancestors by hand, and the doubt they raise."""
    run = Run("smc", make_problem(Gaussian([1e4] * 12), particles=40), base_sd=30.0, annealing=0.0, ess_share=0.5)
    run.steps(60)
    info: Any = run.info
    for r, ancestors in enumerate(run.state.ancestor.tolist()):
        shares = [ancestors.count(a) / 40 for a in set(ancestors)]
        assert info.ancestors[r].item() == pytest.approx(1 / sum(v * v for v in shares))
        assert info.log_z_se[r].item() ** 2 >= sum(v * v for v in shares) - 1 / 40 - 1e-9
    assert (info.ancestors < 8).all()
    assert (info.log_z_doubt == 1).all()


def test_few_ancestors_enlarge_the_error_until_none_can_be_stated() -> None:
    """Three resamplings of N sum W^2 = 2 by hand, with 2, 1 and 50 ancestors; then doubt of weights and of moves."""
    run = Run("smc", make_problem(Gaussian([1.0] * 2), particles=40), base_sd=1.0).steps(1)
    shares, density = torch.tensor([0.5, 0.99, 0.02], dtype=torch.float64), run.state.log_density
    state = run.state._replace(growth=0 * shares + math.log(8.0), variance=0 * shares + 0.075, arrival=density.mean(1))
    error, doubt = smc._error(state, shares)
    few = [math.log(1 + (8 - 1) / 40 + share - 1 / 40) for share in (0.5, 0.99)]
    assert error.tolist() == pytest.approx([2 * math.sqrt(g + g**2 / 4) for g in few] + [0.075**0.5])
    assert doubt.tolist() == [0, 0, 0]
    error, doubt = smc._error(state._replace(growth=0 * shares + 900.0), shares)
    assert error.tolist() == pytest.approx([0.475**0.5, 0.965**0.5, 0.075**0.5])
    assert doubt.tolist() == [1, 1, 0]
    for rise, expected in ((0.7, [0, 0, 0]), (0.9, [1, 1, 0])):
        arrival = state.arrival - rise * density.std(1, correction=0)
        assert smc._error(state._replace(arrival=arrival), shares)[1].tolist() == expected


class PlainSMC:
    """One replicate, weights as plain numbers."""

    def __init__(self, s: Any, x: Tensor, sd: float, end: int) -> None:
        self.s, self.sd, self.n, self.end = s, sd, len(x), end
        self.x, self.w = list(x), [1 / self.n] * self.n
        self.b, self.log_z, self.t, self.after = 0.0, 0.0, 0, 0
        self.log_eta = math.log(1.36 * 2 ** (-1 / 3))

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
            given = (self.b, math.exp(self.log_eta) * self.sd**2, self.sd, noise[i], uniform[i].item())
            self.x[i], chance = plain_mala(self.x[i], *given)
            chances.append(chance)
        self.log_eta += (1 + self.after) ** -0.6 * (sum(chances) / self.n - 0.574)
        self.after += self.b == 1
        self.t += 1


@pytest.mark.ci
@pytest.mark.parametrize(
    "settings",
    each([{}, {"annealing": 0.0}], [{}, {"moves": 3}, {"annealing": 0.0}, {"ess_share": 0.3, "annealing": 1.0}]),
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
