"""Chains against plain programs: one chain at a time, one coordinate loop a formula, as the papers print them.

Both read the same noise and the same mini-batches; every option is off its default. A float64 run of a few
steps agrees to rounding.
"""

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from sampler_toys import Bent, Regression, Run, Skewed, make_problem
from torch import Tensor

from parvibench.core.registry import load_algorithm

STEPS = 9
Score = Callable[[Tensor], Tensor]
Noise = Callable[..., Tensor]


class SGLD:
    """Welling & Teh (2011), Eq. 4, with eps = 2 eta."""

    def __init__(self, s: Any, x: Tensor, noise: Noise) -> None:
        self.s, self.x, self.eta = s, x, s.step_size

    def step(self, score: Score, noise: Noise) -> None:
        eps = 2 * self.eta
        self.x = self.x + eps / 2 * score(self.x) + math.sqrt(eps) * noise("noise")


class PSGLD(SGLD):
    """Li et al. (2016), Algorithm 1, without Gamma."""

    def __init__(self, s: Any, x: Tensor, noise: Noise) -> None:
        super().__init__(s, x, noise)
        self.v = torch.zeros_like(x)

    def step(self, score: Score, noise: Noise) -> None:
        eps, a, g = 2 * self.eta, self.s.decay, score(self.x)
        self.v = a * self.v + (1 - a) * g**2
        scale = 1 / (self.s.damping + torch.sqrt(self.v))
        self.x = self.x + eps / 2 * scale * g + torch.sqrt(eps * scale) * noise("noise")


class SGHMC(SGLD):
    """Chen et al. (2014), Eq. 15, beta^ = 0."""

    def __init__(self, s: Any, x: Tensor, noise: Noise) -> None:
        super().__init__(s, x, noise)
        self.v = math.sqrt(self.eta) * noise("init")

    def force(self, score: Score) -> Tensor:
        return score(self.x)

    def step(self, score: Score, noise: Noise) -> None:
        eta, b = self.eta, self.s.friction
        self.v = self.v - b * self.v + eta * self.force(score) + math.sqrt(2 * b * eta) * noise("noise")
        self.x = self.x + self.v


class ULD(SGHMC):
    """Cheng et al. (2018), Algorithm 1: h = 1, gamma = friction, u = eta; Cholesky of the joint noise."""

    def step(self, score: Score, noise: Noise) -> None:
        u, g, grad = self.eta, self.s.friction, -self.force(score)
        e = math.exp(-g)
        mean_v = self.v * e - u / g * (1 - e) * grad
        mean_x = self.x + (1 - e) / g * self.v - u / g * (1 - (1 - e) / g) * grad
        var_v = u * (1 - e**2)
        var_x = u / g**2 * (2 * g - 3 + 4 * e - e**2)
        both = u / g * (1 - e) ** 2
        first, second = noise("noise", 0), noise("noise", 1)
        self.v = mean_v + math.sqrt(var_v) * first
        self.x = mean_x + both / math.sqrt(var_v) * first + math.sqrt(var_x - both**2 / var_v) * second


class Repulsive:
    """Ye, Ren & Liu (2020): the Stein force of M past states, c steps apart, median bandwidth of the code."""

    s: Any
    x: Tensor

    def repelled(self, score: Score) -> Tensor:
        if not hasattr(self, "past"):
            self.past: list[tuple[Tensor, Tensor]] = []
            self.k = 0
        own = score(self.x)
        force = own
        if self.k >= self.s.memory * self.s.spacing:
            buffer = self.past[-self.s.memory :]
            d = sorted(float(((b - self.x) ** 2).sum()) for b, _ in buffer)
            sigma = d[(len(d) - 1) // 2] / math.log(len(d))
            g = torch.zeros_like(own)
            for b, at_b in buffer:
                kernel = math.exp(-float(((b - self.x) ** 2).sum()) / sigma)
                g += kernel * at_b + 2 / sigma * (self.x - b) * kernel
            force = own + self.s.alpha * g / len(buffer)
        if self.k % self.s.spacing == 0:
            self.past.append((self.x, own))
        self.k += 1
        return force


class SRLD(Repulsive, SGLD):
    def step(self, score: Score, noise: Noise) -> None:
        eta = self.eta
        self.x = self.x + eta * self.repelled(score) + math.sqrt(2 * eta) * noise("noise")


class SRSGHMC(Repulsive, SGHMC):
    def force(self, score: Score) -> Tensor:
        return self.repelled(score)


class SRULD(Repulsive, ULD):
    def force(self, score: Score) -> Tensor:
        return self.repelled(score)


class LAPD(SGLD):
    """Huang et al. (2024), Algorithm 1; ``prior`` is m. Decaying steps as in Theorem 4.2."""

    prior, k = 0.0, 0

    def length(self) -> float:
        return self.eta

    def step(self, score: Score, noise: Noise) -> None:
        m, eta = self.prior, self.length()
        grad_f = -(score(self.x) + m * self.x)
        w = self.x - (math.exp(m * eta) - 1) / m * grad_f
        self.x = math.exp(-m * eta) * w + math.sqrt((1 - math.exp(-2 * m * eta)) / m) * noise("noise")
        self.k += 1


class LAPDDecay(LAPD):
    def length(self) -> float:
        late = max(0, self.k - self.s.constant_steps)
        return 8 * self.eta / (9 + 3 * late * self.eta * self.s.log_sobolev)


REPULSION = {"alpha": 3.7, "memory": 3, "spacing": 2}
PROGRAMS: list[tuple[str, type[SGLD], dict[str, Any]]] = [
    ("sgld", SGLD, {"step_size": 0.023}),
    ("ula", SGLD, {"step_size": 0.029}),
    ("psgld", PSGLD, {"step_size": 0.013, "decay": 0.83, "damping": 0.21}),
    ("sghmc", SGHMC, {"step_size": 0.017, "friction": 0.37}),
    ("uld", ULD, {"step_size": 0.019, "friction": 1.3}),
    ("srld", SRLD, {"step_size": 0.021} | REPULSION),
    ("sr-sghmc", SRSGHMC, {"step_size": 0.011, "friction": 0.29} | REPULSION),
    ("sr-uld", SRULD, {"step_size": 0.027, "friction": 0.81} | REPULSION),
    ("lapd", LAPD, {"step_size": 0.031, "prior_precision": 1.7}),
    ("lapd-decay", LAPDDecay,
     {"step_size": 0.043, "prior_precision": 0.6, "log_sobolev": 2.3, "constant_steps": 4}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "program", "settings"), PROGRAMS, ids=[row[0] for row in PROGRAMS])
@pytest.mark.parametrize("data", [False, True], ids=["density", "data"])
def test_chains_do_what_the_plain_program_does(
    name: str, program: type[SGLD], settings: dict[str, Any], data: bool
) -> None:
    """Catches a factor, a sign, a stale score, a shared bandwidth, an option that does nothing."""
    if data and name.startswith("lapd"):
        settings = settings | {"prior_precision": 1.0}  # the task's own
    chains = 1 if name.startswith("sr") else 3
    size = 4 if data and "full-batch" not in load_algorithm(name).needs else None

    def make() -> Any:
        return make_problem(Regression() if data else Bent(), [0, 1], particles=chains, batch_size=size)

    run, other = Run(name, make(), horizon=10**6, **settings), make()
    start = other.init(chains)
    plain: dict[tuple[int, int], Any] = {}
    for k in range(STEPS):
        run.steps(1)
        other.streams.step = k
        for at in product(range(2), range(chains)):

            def noise(stream: str, index: int = 0, at: Any = at) -> Tensor:
                return other.streams.normal(stream, start.shape[1:], index)[at]

            def score(x: Tensor, at: Any = at) -> Tensor:
                points = torch.zeros_like(start)
                points[at] = x
                return other.score(points)[at]

            if k == 0:
                plain[at] = program(run.settings, start[at], noise)
                plain[at].prior = settings.get("prior_precision")
            plain[at].step(score, noise)
            torch.testing.assert_close(run.state.x[at], plain[at].x, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("name", ["lapd", "lapd-decay"])
def test_a_prior_precision_that_is_ignored_is_told(name: str, recwarn: pytest.WarningsRecorder) -> None:
    Run(name, make_problem(Regression()))
    declared = Run(name, make_problem(Regression()), prior_precision=1.0)
    Run(name, make_problem(Bent()), prior_precision=7.0)
    assert not recwarn
    with pytest.warns(UserWarning, match=r"prior_precision=7.0 is ignored: the task's prior has 1.0"):
        ignored = Run(name, make_problem(Regression()), prior_precision=7.0)
    assert torch.equal(declared.steps(3).state.x, ignored.steps(3).state.x)


def test_lapd_tends_to_ula_as_m_vanishes() -> None:
    """Catches exp(m eta) - 1 that has lost its digits."""
    ula = Run("ula", make_problem(Bent())).steps(20).state.x
    lapd = Run("lapd", make_problem(Bent()), prior_precision=1e-12).steps(20).state.x
    torch.testing.assert_close(lapd, ula, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("horizon", "spacing"), [(1, 1), (400, 10), (100_000, 100)])
def test_srld_thins_less_in_short_runs(horizon: int, spacing: int) -> None:
    assert Run("srld", make_problem(Bent()), horizon, memory=10, spacing=100).state.memory.spacing == spacing


@pytest.mark.parametrize("data", [False, True], ids=["density", "data"])
def test_a_deep_ensemble_is_adam_by_pytorch(data: bool) -> None:
    """Held coordinates, both betas, mini-batches."""
    settings = {"step_size": 0.07, "held": 1, "beta1": 0.7, "beta2": 0.9}

    def make() -> Any:
        return make_problem(Regression() if data else Bent(), [0, 1], particles=3, batch_size=4 if data else None)

    run, other = Run("deep-ensemble", make(), **settings), make()
    x = other.init(3).clone().requires_grad_()
    adam = torch.optim.Adam([x], lr=0.07, betas=(0.7, 0.9), eps=1e-8)
    for k in range(STEPS):
        run.steps(1)
        other.streams.step = k
        x.grad = -other.score(x.detach())
        x.grad[..., -1] = 0
        adam.step()
        torch.testing.assert_close(run.state.x, x.detach(), rtol=1e-10, atol=1e-11)


def test_map_is_a_point_mass_on_one_run() -> None:
    one = Run("map", make_problem(Bent())).steps(20)
    ensemble = Run("deep-ensemble", make_problem(Bent(), particles=1)).steps(20)
    assert torch.equal(one.output(5), ensemble.state.x.expand(-1, 5, -1))


def test_mala_accepts_by_the_printed_ratio() -> None:
    """Both proposal densities written out."""
    eta, target = 0.31, Bent()
    run, other = (make_problem(target, [0, 1], particles=3) for _ in range(2))
    run, x = Run("mala", run, step_size=eta), other.init(3)

    def log_q(to: Tensor, start: Tensor) -> Tensor:
        return -(to - start - eta * target.score(start)).square().sum(-1) / (4 * eta)

    moved = 0
    for k in range(STEPS):
        run.steps(1)
        other.streams.step = k
        y = x + eta * target.score(x) + math.sqrt(2 * eta) * other.streams.normal("noise", x.shape[1:])
        ratio = target.log_density(y) - target.log_density(x) + log_q(x, y) - log_q(y, x)
        accept = other.streams.uniform("algorithm", x.shape[1:2]) < ratio.exp()
        moved += int(accept.sum())
        x = torch.where(accept.unsqueeze(-1), y, x)
        torch.testing.assert_close(run.state.x, x, rtol=1e-10, atol=1e-11)
        torch.testing.assert_close(run.info.acceptance, ratio.exp().clamp(max=1).mean(1), rtol=1e-9, atol=0)
    assert 0 < moved < 6 * STEPS


@pytest.mark.parametrize(("step_size", "wild"), [(0.02, False), (50.0, True)])
def test_hmc_is_the_leapfrog_that_neal_prints(step_size: float, wild: bool) -> None:
    """With jitter, the momenta's energies and the divergences."""
    target, leaps = Bent(), 3
    settings = {"step_size": step_size, "leapfrog_steps": leaps, "jitter": 0.3}
    run, other = (make_problem(target, [0, 1], particles=3) for _ in range(2))
    run, x = Run("hmc", run, **settings), other.init(3)
    for k in range(STEPS):
        run.steps(1)
        other.streams.step = k
        draw = other.streams.uniform("algorithm", (3, 1), index=1)
        eps = math.sqrt(2 * step_size) * (0.7 + 0.6 * draw)
        p = start = other.streams.normal("noise", x.shape[1:])
        y = x
        for _ in range(leaps):
            p = p + eps / 2 * target.score(y)
            y = y + eps * p
            p = p + eps / 2 * target.score(y)
        energy = target.log_density(x) - 0.5 * start.square().sum(-1)
        gain = target.log_density(y) - 0.5 * p.square().sum(-1) - energy
        accept = other.streams.uniform("algorithm", (3,)) < gain.exp().nan_to_num(nan=0.0)
        x = torch.where(accept.unsqueeze(-1), y, x)
        torch.testing.assert_close(run.state.x, x, rtol=1e-9, atol=1e-10)
        rates = gain.clamp(max=0).exp().nan_to_num(nan=0.0).mean(1)
        torch.testing.assert_close(run.info.acceptance, rates, rtol=1e-9, atol=1e-12)
        lost = (gain.isnan() | (gain < -1000)).double().mean(1)
        torch.testing.assert_close(run.info.divergences, lost)
        assert bool(lost.any()) == wild


class Walled(Skewed):
    """A density that is zero, or not a number, beyond a wall."""

    def __init__(self, beyond: float) -> None:
        super().__init__()
        self.beyond = beyond

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        return torch.where(x[..., 0].abs() < 5, super().log_density(x), self.beyond)


@pytest.mark.parametrize("name", ["mala", "hmc"])
@pytest.mark.parametrize("beyond", [-math.inf, math.nan])
def test_proposals_without_density_are_rejected(name: str, beyond: float) -> None:
    run = Run(name, make_problem(Walled(beyond), particles=200), step_size=2.0).steps(20)
    assert run.state.x.abs().max() < 5
    assert run.state.log_density.isfinite().all()


def test_srld_reports_the_size_of_its_drift() -> None:
    """Every c-th step, by hand: without repulsion the root mean square of the score where the step began."""
    problem = make_problem(Bent())
    algorithm = load_algorithm("srld")
    settings = algorithm.make_settings({"alpha": 0.0, "memory": 2, "spacing": 3})
    state = algorithm.init(problem, settings, problem.streams, 1000)
    for k in range(7):
        problem.streams.step = k
        score = problem.score(state.x)
        found = algorithm.step(problem, settings, state, problem.streams)
        state, info = found if k % 3 == 0 else (found, None)
        assert (k % 3 == 0) == (info is not None)
        if info is not None:
            torch.testing.assert_close(info.drift_rms, score.square().mean((1, 2)).sqrt())
