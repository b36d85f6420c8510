"""MCLMC and its adjusted form: the integrator's exact identities, the laws, and plain programs of both."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from few import every
from sampler_toys import Bent, Gaussian, Run, Skewed, make_problem, points
from scipy import stats
from torch import Tensor

from parvibench.baselines import _isokinetic, adjusted_mclmc
from parvibench.baselines._isokinetic import Point, moved, turned, unit
from parvibench.core import registry
from parvibench.core.errors import UnsupportedError

INTEGRATORS = ["leapfrog", "minimal-norm"]
EACH_INTEGRATOR = pytest.mark.parametrize("integrator", INTEGRATORS)
#: Probability with which each test of a law fails although the law is right.
FALSE_ALARM = 1e-4


def point_of(problem: Any) -> Point:
    x = problem.init()
    return Point(x, unit(points(*x.shape, seed=3)), *problem.log_density_and_score(x))


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).view(-1, 1, 1)


def test_a_turn_stays_on_the_sphere_and_its_energy_is_the_change_of_volume() -> None:
    """K' - K = -log |det| of the map of the sphere, from autograd on tangent vectors. Catches D in place of D - 1."""
    u, force = unit(points(4)), 3 * points(4, seed=1)
    eps = torch.tensor(0.7, dtype=torch.float64)

    def turn(v: Tensor) -> Tensor:
        return turned(v.view(1, 1, 4), force.view(1, 1, 4), eps)[0].flatten()

    after, energy = turned(u.view(1, 1, 4), force.view(1, 1, 4), eps)
    assert after.norm().item() == pytest.approx(1)
    jacobian = torch.autograd.functional.jacobian(turn, u)

    def tangent(v: Tensor) -> Tensor:
        return torch.linalg.qr(torch.cat((v.view(-1, 1), points(4, 3, seed=2)), 1))[0][:, 1:]

    volume = torch.linalg.det(tangent(after.flatten()).T @ jacobian @ tangent(u)).abs().log()
    assert energy.item() == pytest.approx(-volume.item(), rel=1e-10)


def test_a_turn_solves_its_equation() -> None:
    """du/dt = (I - u u^T) s / (D - 1), by Runge and Kutta; a strong force, and one straight ahead, overflow nothing."""
    u, force, eps = unit(points(1, 1, 5)), 2 * points(1, 1, 5, seed=1), 0.9

    def slope(v: Tensor) -> Tensor:
        return (force - v * (v * force).sum(-1, keepdim=True)) / 4

    v, h = u, eps / 200
    for _ in range(200):
        k1 = slope(v)
        k2 = slope(v + h / 2 * k1)
        k3 = slope(v + h / 2 * k2)
        v = v + h / 6 * (k1 + 2 * k2 + 2 * k3 + slope(v + h * k3))
    torch.testing.assert_close(turned(u, force, column(eps))[0], v, rtol=1e-8, atol=1e-10)
    strong, energy = turned(u, 1e6 * force, column(1.0))
    torch.testing.assert_close(strong, unit(force))
    assert energy.item() == pytest.approx(1e6 * force.norm().item(), rel=1e-4)
    against, energy = turned(-unit(force), force, column(20.0))
    torch.testing.assert_close(against, -unit(force), rtol=0, atol=1e-6)
    assert energy.item() == pytest.approx(-20 * force.norm().item(), rel=1e-6)


@EACH_INTEGRATOR
def test_the_energy_error_is_what_a_metropolis_ratio_needs(integrator: Any) -> None:
    """exp(-W) = pi(x') / pi(x) |det| of the map of (x, angle), in two dimensions, by autograd through the step."""
    problem = make_problem(Bent(), [0], particles=1)
    start, scale = point_of(problem), torch.tensor([[[0.5, 2.0]]], dtype=torch.float64)

    def step(z: Tensor) -> Tensor:
        x, angle = z[:2].view(1, 1, 2), z[2]
        u = torch.stack((angle.cos(), angle.sin())).view(1, 1, 2)
        score = torch.autograd.grad(Bent().log_density(x).sum(), x, create_graph=True)[0]
        end, _ = moved(problem, Point(x, u, Bent().log_density(x), score), column(0.4), scale, integrator)
        return torch.cat((end.x.flatten(), torch.atan2(end.direction[..., 1], end.direction[..., 0]).flatten()))

    u = start.direction.flatten()
    z = torch.cat((start.x.flatten(), torch.atan2(u[1], u[0]).view(1))).requires_grad_()
    volume = torch.linalg.det(torch.autograd.functional.jacobian(step, z)).abs().log()
    end, error = moved(problem, start, column(0.4), scale, integrator)
    assert error.item() == pytest.approx((start.log_density - end.log_density - volume).item(), rel=1e-8)


@EACH_INTEGRATOR
def test_steps_run_backwards_with_the_opposite_error(integrator: Any) -> None:
    problem = make_problem(Bent())
    start, eps, scale = point_of(problem), column(0.3, 0.1, 0.5), points(3, 1, 2, seed=5).abs() + 0.5
    end, error = moved(problem, start, eps, scale, integrator)
    back, undone = moved(problem, end._replace(direction=-end.direction), eps, scale, integrator)
    torch.testing.assert_close(back.x, start.x, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(-back.direction, start.direction, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(undone, -error, rtol=1e-8, atol=1e-10)


def test_energy_errors_have_the_order_that_the_tuning_assumes() -> None:
    """A step's error is of order eps^3, so its variance of eps^6; minimal-norm has much the smaller one."""
    problem = make_problem(Bent(), particles=200)
    start, one = point_of(problem), torch.ones(3, 1, 2, dtype=torch.float64)
    sizes = {}
    for integrator in INTEGRATORS:
        a, b = (
            moved(problem, start, column(e, e, e), one, integrator)[1].abs().median().item()  # type: ignore[arg-type]
            for e in (0.005, 0.01)
        )
        assert math.log2(b / a) == pytest.approx(3, abs=0.2)
        sizes[integrator] = b
    assert sizes["minimal-norm"] < sizes["leapfrog"] / 4


def invariance_z(task_name: str, steps: int, chains: int, **settings: Any) -> tuple[Tensor, float]:
    """Chains from exact draws: standardised differences, end minus fresh draws, of first and second moments."""
    task = registry.load_task(task_name)
    generator = torch.Generator().manual_seed(11)
    start, fresh = task.exact(chains, generator), task.exact(chains, generator)
    problem = make_problem(task.target([0], "cpu", torch.float64), [0], particles=chains)
    problem._start = lambda _, n, __: start[None, :n]
    run = Run("adjusted-mclmc", problem, warmup_steps=0, **settings)
    accepted = []
    for _ in range(steps):
        run.steps(1)
        accepted.append(run.info.acceptance.item())  # type: ignore[union-attr]
    ends = run.state.x[0]

    def moments(x: Tensor) -> Tensor:
        y = torch.cat((x, x.square(), x[:, :1] * x[:, 1:2], (x[:, :1].square() * x[:, 1:2]).tanh()), 1)
        return y

    a, b = moments(ends), moments(fresh)
    return (a.mean(0) - b.mean(0)) / ((a.var(0) + b.var(0)) / chains).sqrt(), sum(accepted[20:]) / (steps - 20)


@pytest.mark.ci
@pytest.mark.parametrize(("task", "eps"), [("banana", 0.4), ("multimodal", 2.0)])
@EACH_INTEGRATOR
def test_adjusted_chains_keep_their_target(task: str, eps: float, integrator: str) -> None:
    """Bonferroni over the moments at the stated rate. Half of the proposals or so are rejected."""
    z, acceptance = invariance_z(task, 60, 6000, first_length=eps, integrator=integrator)
    assert 0.2 < acceptance < 0.97
    assert z.abs().max().item() < stats.norm.isf(FALSE_ALARM / len(z) / 2)


def test_without_the_kinetic_energy_they_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail: here is a Metropolis ratio of densities alone."""

    def densities_alone(problem: Any, point: Point, *given: Any) -> tuple[Point, Tensor]:
        end, _ = moved(problem, point, *given)
        return end, point.log_density - end.log_density

    monkeypatch.setattr(adjusted_mclmc, "moved", densities_alone)
    z, _ = invariance_z("multimodal", 60, 6000, first_length=2.0)
    assert z.abs().max().item() > 10


def test_mclmc_samples_a_gaussian_up_to_its_energy_error() -> None:
    """Tuned, on N(1, diag(1, 1/4, 4, 1)): 3 x 1000 chains at one time; 5 standard errors and 2% of bias in the sd.

    False alarms below 1e-5. Catches nu with the wrong dimension (variances 20% off) and a step in units of no scale.
    """
    target = Gaussian([1.0, 4.0, 0.25, 1.0], mean=1.0)
    run = Run("mclmc", make_problem(target, particles=1000), horizon=800, warmup_steps=200).steps(500)
    z = (run.state.x.flatten(0, 1) - 1) * target.precision.sqrt()
    assert (z.mean(0).abs() < 5 / math.sqrt(3000)).all()
    assert (z.square().mean(0) - 1).abs().max() < 0.04 + 5 * math.sqrt(2 / 3000)


@pytest.mark.ci
@EACH_INTEGRATOR
def test_mclmc_tunes_its_energy_error_and_its_scales(integrator: str) -> None:
    """On scales 1 : 10. The controller weights predictions, so that the variance comes out within a factor of 4."""
    target = Gaussian([1.0, 1e-2, 1.0, 1.0])
    problem = make_problem(target, particles=100)
    run = Run("mclmc", problem, warmup_steps=1600, integrator=integrator).steps(1600)
    kept = run.state
    found = torch.stack([run.steps(1).info.energy_variance for _ in range(200)]).mean(0)  # type: ignore[union-attr]
    assert (found / 5e-4).log().abs().max() < math.log(4)
    ratio = run.state.scale[:, 1] / run.state.scale[:, 0]
    assert ((ratio > 7) & (ratio < 14)).all()
    assert torch.equal(kept.eps, run.state.eps)
    assert torch.equal(kept.length, run.state.length)


def test_the_autocorrelation_sets_the_decoherence_length() -> None:
    """A slow chain, of L = 0.4 eps tau: as long as its own tau says, from paths kept beside it, within a factor 2."""
    target = Gaussian([1.0] * 10)
    given: dict[str, Any] = {"first_length": 0.5, "energy_variance": 1e-5}
    run = Run("mclmc", make_problem(target, particles=200), warmup_steps=400, **given).steps(300)
    path = [run.state.x]
    for _ in range(100):
        path.append(run.steps(1).state.x)
    anchor = path[0]
    rho = [(anchor * x).mean((1, 2)) / anchor.square().mean((1, 2)) for x in path]
    for r in range(3):
        tau = 1.0
        for value in rho[1:]:
            if value[r] <= 0:
                break
            tau += 2 * value[r].item()
        expected = 0.4 * run.state.eps[r].item() * tau
        assert run.state.length[r].item() == pytest.approx(expected, rel=0.3)


@pytest.mark.ci
@pytest.mark.parametrize("acceptance", [0.9, 0.95])
def test_adjusted_tunes_its_acceptance(acceptance: float) -> None:
    """Within 0.05 of the target on scales 1 : 30, in the 300 steps after the warm-up."""
    problem = make_problem(Gaussian([1.0, 1e-3, 1.0, 1.0, 1.0]), particles=100)
    run = Run("adjusted-mclmc", problem, warmup_steps=1500, target_acceptance=acceptance).steps(1500)
    found = torch.stack([run.steps(1).info.acceptance for _ in range(300)]).mean(0)  # type: ignore[union-attr]
    assert (found - acceptance).abs().max() < 0.05
    expected = torch.full_like(run.state.length, 1.3 * math.sqrt(5))
    torch.testing.assert_close(run.state.length, expected)


@pytest.mark.parametrize(("name", "scores"), [("mclmc", 2), ("adjusted-mclmc", 1)])
def test_the_tuning_takes_a_quarter_of_the_charged_budget(name: str, scores: int) -> None:
    limit = 8 * 400
    problem = make_problem(Bent(), limit=limit)
    algorithm = registry.load_algorithm(name)
    state = algorithm.init(problem, algorithm.make_settings(), problem.streams, 7)
    assert state.warmup == (limit // 4 - 8) // (8 * scores)
    unlimited = make_problem(Bent())
    assert algorithm.init(unlimited, algorithm.make_settings(), unlimited.streams, 40).warmup == 10


@pytest.mark.parametrize("name", ["mclmc", "adjusted-mclmc"])
def test_a_line_is_refused(name: str) -> None:
    with pytest.raises(UnsupportedError, match="two dimensions"):
        Run(name, make_problem(Skewed()))


class Plain:
    """One chain after another, with the hyperbolic functions as printed."""

    def __init__(self, s: Any, x: Tensor, u: Tensor) -> None:
        self.s, self.n, self.d = s, *x.shape
        self.x, self.u = list(x), [v / math.sqrt(float(v @ v)) for v in u]
        self.scale = torch.ones(self.d, dtype=torch.float64)
        self.log_p, self.score = zip(*(self.target(v) for v in self.x), strict=True)
        self.log_p, self.score = list(self.log_p), list(self.score)

    @staticmethod
    def target(x: Tensor) -> tuple[float, Tensor]:
        leaf = x.clone().requires_grad_()
        value = Bent().log_density(leaf.view(1, 1, -1)).sum()
        return value.item(), torch.autograd.grad(value, leaf)[0]

    def turn(self, u: Tensor, score: Tensor, h: float) -> tuple[Tensor, float]:
        force = self.scale * score
        size = float(force.norm())
        e, delta = force / size, h * size / (self.d - 1)
        c = float(e @ u)
        below = math.cosh(delta) + c * math.sinh(delta)
        return (u + e * (math.sinh(delta) + c * (math.cosh(delta) - 1))) / below, (self.d - 1) * math.log(below)

    def integrate(self, x: Tensor, u: Tensor, log_p: float, score: Tensor, eps: float) -> tuple[Any, ...]:
        turns, drifts = [0.5, 0.5], [1.0]
        if self.s.integrator == "minimal-norm":
            low = _isokinetic.LAMBDA
            turns, drifts = [low, 1 - 2 * low, low], [0.5, 0.5]
        kinetic, now = 0.0, log_p
        for turn, drift in zip(turns, [*drifts, None], strict=True):
            u, more = self.turn(u, score, turn * eps)
            kinetic += more
            if drift is not None:
                x = x + drift * eps * self.scale * u
                now, score = self.target(x)
        return x, u, now, score, kinetic - (now - log_p)


class PlainMCLMC(Plain):
    """The algorithm of the module docstring, the chains of one replicate."""

    def __init__(self, s: Any, x: Tensor, u: Tensor) -> None:
        super().__init__(s, x, u)
        self.eps = s.first_length or math.sqrt(self.d) / 4
        self.length = s.first_decoherence or math.sqrt(self.d)
        self.predictions: list[tuple[float, float]] = []
        self.seen: list[Tensor] = []
        self.rho: list[float] = []
        self.t = 0

    def step(self, noise: Tensor) -> None:
        errors = []
        for i in range(self.n):
            *state, error = self.integrate(self.x[i], self.u[i], self.log_p[i], self.score[i], self.eps)
            self.x[i], u, self.log_p[i], self.score[i] = state
            nu = math.sqrt((math.exp(2 * self.eps / self.length) - 1) / self.d)
            v = u + nu * noise[i]
            self.u[i] = v / v.norm()
            errors.append(error)
        self.t += 1
        w = self.s.warmup_steps
        if self.t <= w:
            self.tune(errors, [round(w / 4), round(w / 2), round(3 * w / 4), w])

    def tune(self, errors: list[float], ends: list[int]) -> None:
        correlated = self.s.length_rule == "autocorrelation"
        if self.t <= ends[2] or not correlated:
            found = []
            for error in errors:
                xi = error**2 / (self.d * self.s.energy_variance) + 1e-8
                trust = math.exp(-0.5 * (math.log(xi) / 9) ** 2)
                found.append((trust * xi / self.eps**6, trust))
            self.predictions.append(tuple(sum(f[k] for f in found) / self.n for k in (0, 1)))  # type: ignore[arg-type]
            ages = range(len(self.predictions) - 1, -1, -1)
            faded = [(149 / 151) ** age for age in ages]
            above = sum(f * p for f, (p, _) in zip(faded, self.predictions, strict=True))
            below = sum(f * q for f, (_, q) in zip(faded, self.predictions, strict=True))
            self.eps = (above / below) ** (-1 / 6)
        if ends[0] < self.t <= ends[1]:
            self.seen += [v.clone() for v in self.x]
        if self.t == ends[1]:
            self.variance = torch.stack(self.seen).var(0, correction=0)
            self.mean = torch.stack(self.seen).mean(0)
            size = math.sqrt(float(self.variance.sum()))
            if self.s.precondition:
                self.scale, self.length = self.variance.sqrt(), math.sqrt(self.d)
                self.eps, self.predictions = self.eps * math.sqrt(self.d) / size, []
            else:
                self.length = size
        if correlated and self.t == ends[2]:
            self.anchor = [v.clone() for v in self.x]
        elif correlated and self.t > ends[2]:
            products = [(a - self.mean) * (v - self.mean) for a, v in zip(self.anchor, self.x, strict=True)]
            self.rho.append(float((sum(products) / self.n / self.variance).mean()))  # type: ignore[operator]
        if correlated and self.t == ends[3] and any(r <= 0 for r in self.rho):
            first = next(k for k, r in enumerate(self.rho) if r <= 0)
            self.length = 0.4 * self.eps * (1 + 2 * sum(self.rho[:first]))


@pytest.mark.parametrize("length_rule", ["autocorrelation", "size"])
@pytest.mark.parametrize("precondition", every([True], [True, False]))
@EACH_INTEGRATOR
def test_mclmc_equals_a_plain_program(integrator: str, precondition: bool, length_rule: str) -> None:
    """Through the whole tuning and beyond. The errors of a chaotic path grow; 60 steps agree to 1e-6."""
    problem = make_problem(Bent(), particles=5)
    given: dict[str, Any] = {
        "integrator": integrator, "precondition": precondition, "length_rule": length_rule,
        "warmup_steps": 48, "first_length": 0.1, "first_decoherence": 0.8, "energy_variance": 0.01,
    }  # fmt: skip
    run = Run("mclmc", problem, **given)
    programs = [PlainMCLMC(SimpleNamespace(**given), run.state.x[r], run.state.direction[r]) for r in range(3)]
    for t in range(60):
        problem.streams.step = t
        noise = problem.streams.normal("noise", (5, 2)).clone()
        run.steps(1)
        for r, program in enumerate(programs):
            program.step(noise[r])
    for r, program in enumerate(programs):
        torch.testing.assert_close(run.state.x[r], torch.stack(program.x), rtol=1e-6, atol=1e-6)
        assert run.state.eps[r].item() == pytest.approx(program.eps, rel=1e-6)
        assert run.state.length[r].item() == pytest.approx(program.length, rel=1e-6)


class PlainAdjusted(Plain):
    """Whole trajectories in turn; ``draw`` gives the numbers of step t."""

    def __init__(self, s: Any, x: Tensor, u: Tensor, first: float) -> None:
        super().__init__(s, x, u)
        self.eps = s.first_length or math.sqrt(self.d) / 5
        self.length, self.t, self.first = 5 * self.eps, 0, first
        self.begin_averaging()
        w = s.warmup_steps
        self.ends = [round(w * k / 5) for k in range(1, 6)]
        self.seen: list[Tensor] = []

    def begin_averaging(self) -> None:
        self.m, self.h, self.mu, self.log_mean = 0, 0.0, math.log(self.eps), math.log(self.eps)

    def trajectories(self, steps: int, draw: Any) -> None:
        left = self.number(self.first)
        moving = [(self.x[i], self.u[i], self.log_p[i], self.score[i]) for i in range(self.n)]
        work = [0.0] * self.n
        while self.t < steps:
            accept, number, fresh = draw(self.t)
            for i in range(self.n):
                *end, error = self.integrate(*moving[i], self.eps)
                moving[i], work[i] = tuple(end), work[i] + error
            self.t, left = self.t + 1, left - 1
            done = left == 0
            if done:
                chances = [min(1.0, math.exp(-w)) for w in work]
                for i in range(self.n):
                    if accept[i] < chances[i]:
                        self.x[i], _, self.log_p[i], self.score[i] = moving[i]
                self.last = sum(chances) / self.n
            if self.t <= self.ends[-1]:
                done = self.tune(done) or done
            if done:
                moving = [(self.x[i], fresh[i] / fresh[i].norm(), self.log_p[i], self.score[i]) for i in range(self.n)]
                work, left = [0.0] * self.n, self.number(float(number))

    def number(self, uniform: float) -> int:
        return max(1, math.ceil(2 * self.length / self.eps * uniform))

    def tune(self, done: bool) -> bool:
        part = next(k for k, end in enumerate(self.ends) if self.t <= end)
        if part % 2 == 0 and done:
            self.m += 1
            self.h = (1 - 1 / (self.m + 10)) * self.h + (self.s.target_acceptance - self.last) / (self.m + 10)
            log_eps = self.mu - math.sqrt(self.m) / 0.05 * self.h
            if part > 0:
                log_eps = min(log_eps, math.log(self.length / 1.1))
            eta = self.m**-0.75
            self.log_mean = eta * log_eps + (1 - eta) * self.log_mean
            self.eps = math.exp(log_eps)
            if part == 0:
                self.length = 5 * self.eps
        if part % 2 == 1:
            self.seen += [v.clone() for v in self.x]
        if self.t != self.ends[part]:
            return False
        if part % 2 == 0:
            self.eps = math.exp(self.log_mean)
            if part == 0:
                self.length = 5 * self.eps
        else:
            variance = torch.stack(self.seen).var(0, correction=0)
            size = math.sqrt(float(variance.sum()))
            if self.s.precondition:
                self.eps *= math.sqrt(float((self.scale**2).sum())) / size
                self.scale, self.length = variance.sqrt(), self.s.length_factor * math.sqrt(self.d)
            else:
                self.length = self.s.length_factor * size
            self.seen = []
            self.begin_averaging()
        return True


@pytest.mark.parametrize("precondition", every([True], [True, False]))
@EACH_INTEGRATOR
def test_adjusted_equals_a_plain_program(integrator: str, precondition: bool) -> None:
    problem = make_problem(Bent(), particles=5)
    given: dict[str, Any] = {
        "integrator": integrator, "precondition": precondition, "target_acceptance": 0.8, "length_factor": 0.9,
        "warmup_steps": 60, "first_length": 0.2,
    }  # fmt: skip
    run = Run("adjusted-mclmc", problem, **given)
    streams = problem.streams
    streams.step = 0
    first = streams.uniform("init", ()).clone()
    begin = [(run.state.x[r], run.state.moving.direction[r]) for r in range(3)]
    run.steps(80)
    for r in range(3):

        def draw(t: int, r: int = r) -> tuple[Any, ...]:
            streams.step = t
            accept, number = streams.uniform("algorithm", (5,))[r], streams.uniform("algorithm", (), index=1)[r]
            return accept.tolist(), number, streams.normal("noise", (5, 2))[r].clone()

        program = PlainAdjusted(SimpleNamespace(**given), *begin[r], float(first[r]))
        program.trajectories(80, draw)
        torch.testing.assert_close(run.state.x[r], torch.stack(program.x), rtol=1e-6, atol=1e-6)
        assert run.state.eps[r].item() == pytest.approx(program.eps, rel=1e-6)
        assert run.state.length[r].item() == pytest.approx(program.length, rel=1e-6)
