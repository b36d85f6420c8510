"""Every rule that the SIFG authors' code has beside the papers', against a plain program of that code in float64.

The programs are written with PyTorch's modules, autograd, optimisers and schedules, one replicate at a time, from the
samplers' own draws. Networks start at random parameters; learning rates are large, so that every rule acts within a
few iterations.
"""

from typing import Any

import numpy as np
import pytest
import torch
from plain_programs import modules
from sampler_toys import Bent, Run, make_problem
from torch import Tensor, optim

from parvibench.baselines import ada_gwg
from parvibench.core import registry
from parvibench.core.errors import SettingsError
from parvibench.kernels.gram import sampled_pairs

REPLICATES = range(2)
PARTICLES, DIM = 8, 2


class Program:
    """The state of one replicate of a run, as the code keeps it: particles, a network, its optimiser and schedule."""

    def __init__(self, run: Run, replicate: int) -> None:
        self.settings: Any = run.settings
        self.streams, self.replicate = run.problem.streams, replicate
        self.x = run.state.x[replicate].clone()
        self.net = modules(self.settings.network(DIM), run.state.flow.network[replicate])
        rate = self.settings.net_learning_rate
        self.optimiser: optim.Optimizer = {
            "adam": lambda p: optim.Adam(p, lr=rate),
            "sgd": lambda p: optim.SGD(p, lr=rate),
            "sgd-nesterov": lambda p: optim.SGD(p, lr=rate, momentum=0.9, nesterov=True),
        }[self.settings.net_optimiser](self.net.parameters())
        self.schedule = optim.lr_scheduler.StepLR(self.optimiser, 1000, self.settings.net_decay)
        self.mover = optim.Adam([self.x], lr=self.settings.step_size / self.divisor)
        self.history = torch.zeros(())
        self.t = 0

    @property
    def divisor(self) -> float:
        return getattr(self.settings, "velocity_divisor", 1.0)

    def draw(self, stream: str, *shape: int, index: int = 0) -> Tensor:
        self.streams.step = self.t
        return self.streams.normal(stream, shape, index)[self.replicate].clone()

    def score(self, x: Tensor) -> Tensor:
        return Bent().score(x.detach().unsqueeze(0))[0].detach()

    def descend(self, loss: Tensor) -> None:
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        self.schedule.step()

    @torch.no_grad()
    def move(self, velocity: Tensor) -> None:
        rate = self.settings.step_size / self.divisor
        if self.settings.particle_rule == "adam":
            self.x.grad = -velocity
            self.mover.step()
        elif self.settings.particle_rule == "rms":
            first = self.t == 0
            self.history = velocity**2 if first else 0.9 * self.history + 0.1 * velocity**2
            self.x += rate * velocity / (1e-6 + torch.sqrt(self.history))
        else:
            self.x += rate * velocity
        self.t += 1


# --- SIFG and Ada-SIFG -------------------------------------------------------------------------------


class Perturbed(Program):
    """SIFG, and Ada-SIFG where the settings have a rule for sigma."""

    def __init__(self, run: Run, replicate: int) -> None:
        super().__init__(run, replicate)
        self.sigma = torch.tensor(self.settings.sigma, dtype=torch.float64)

    def fit(self, noise: Tensor) -> None:
        perturbed = self.x + noise * self.sigma
        difference = perturbed - self.x
        residual = self.net(perturbed) + difference / self.sigma**2
        self.descend(torch.mean(torch.norm(residual, dim=1, keepdim=True) ** 2))

    def iterate(self) -> None:
        kept, adapts = self.settings.noise == "kept", hasattr(self.settings, "sigma_rule")
        noises = [self.draw("noise", PARTICLES, DIM, index=i) for i in range(3)]
        fresh = self.draw("algorithm", self.settings.inner_steps, PARTICLES, DIM)
        if getattr(self.settings, "sigma_rule", "") == "dsm-inner-code":
            self.iterate_both(noises[0])
            return
        for i in range(self.settings.inner_steps):
            self.fit(noises[0] if kept else fresh[i])
        f, s = (noises[0], noises[0]) if kept else noises[1:] if adapts else noises[:2]
        sigma = self.sigma
        if adapts:
            self.adapt(noises[0])
        if not kept:
            sigma = self.sigma
        with torch.no_grad():
            velocity = -self.net(self.x + f * sigma) + self.score(self.x + s * sigma)
        self.move(velocity)

    def iterate_both(self, noise: Tensor) -> None:
        """The script on gmm5-2d: sigma is a parameter with an optimiser, and part of the points' graph."""
        sigma = self.sigma.clone().requires_grad_()
        mover = optim.SGD([sigma], lr=self.settings.sigma_step_size, momentum=0.0)
        points = self.x + noise * sigma
        for _ in range(self.settings.inner_steps):
            residual = self.net(points) + (points - self.x) / sigma**2
            loss = torch.mean(torch.norm(residual, dim=1, keepdim=True) ** 2)
            self.optimiser.zero_grad()
            mover.zero_grad()
            loss.backward(retain_graph=True)
            self.optimiser.step()
            mover.step()
        self.sigma = sigma.detach().clone()
        with torch.no_grad():
            velocity = self.score(points) - self.net(points)
        self.move(velocity)

    def adapt(self, noise: Tensor) -> None:
        rate = self.settings.sigma_step_size
        if self.settings.sigma_rule == "dsm-code":
            sigma = self.sigma.clone().requires_grad_()
            residual = self.net(self.x + noise * sigma) + noise / sigma**2
            loss = torch.mean(torch.norm(residual, dim=1, keepdim=True) ** 2)
            change = -torch.autograd.grad(loss, sigma)[0]
        else:
            perturbed = self.x + noise * self.sigma
            product = (self.score(perturbed) - self.net(perturbed).detach()) * noise
            change = product.mean() if self.settings.sigma_rule == "kl-code" else product.sum(1).mean()
        self.sigma = (self.sigma + rate * change).clamp(self.settings.sigma_min, self.settings.sigma_max)


SIFG = [
    {"noise": "redrawn", "particle_rule": "rms", "net_optimiser": "adam", "activation": "leaky-relu"},
    {"noise": "redrawn", "activation": "relu", "net_optimiser": "sgd"},
    {"noise": "kept", "particle_rule": "rms"},
    {"noise": "kept", "particle_rule": "adam", "net_optimiser": "sgd"},
    {"noise": "kept", "net_optimiser": "adam", "activation": "leaky-relu"},
]


@pytest.mark.parametrize("settings", SIFG)
@pytest.mark.parametrize("rule", [None, "kl", "kl-code", "dsm-code", "dsm-inner-code"])
def test_sifg_is_the_codes_program(settings: dict[str, Any], rule: str | None) -> None:
    """Catches one noise for s and f, noise kept in the inner steps, the old sigma for the move, and the factor 1/D."""
    rate = 1e-4 if rule is not None and rule.startswith("dsm") else 0.02
    more: dict[str, Any] = {} if rule is None else {"sigma_rule": rule, "sigma_step_size": rate}
    if rule == "dsm-inner-code" and settings["noise"] == "redrawn":
        with pytest.raises(SettingsError, match="needs noise = kept"):
            registry.load_algorithm("ada-sifg").make_settings(settings | more)
        return
    run = Run(
        "sifg" if rule is None else "ada-sifg",
        make_problem(Bent(), REPLICATES, particles=PARTICLES),
        hidden=5, sigma=0.4, step_size=0.03, net_learning_rate=0.02, warmup_inner_steps=0, **settings, **more,
    )  # fmt: skip
    programs = [Perturbed(run, r) for r in REPLICATES]
    run.steps(5)
    for r, program in zip(REPLICATES, programs, strict=True):
        for _ in range(5):
            program.iterate()
        torch.testing.assert_close(run.state.x[r], program.x, rtol=1e-9, atol=1e-9)
        if rule is not None:
            torch.testing.assert_close(run.state.sigma[r, 0, 0], program.sigma, rtol=1e-9, atol=1e-9)
            assert abs(program.sigma - 0.4) > 1e-4


@pytest.mark.ci
def test_the_learning_rate_decays_by_inner_steps() -> None:
    """A thousand of them, not iterations; 1500 in all."""
    run = Run(
        "sifg", make_problem(Bent(), REPLICATES, particles=PARTICLES), hidden=3, inner_steps=300, net_decay=0.5,
        net_optimiser="sgd", net_learning_rate=0.02, sigma=0.5, noise="redrawn", warmup_inner_steps=0,
    )  # fmt: skip
    program = Perturbed(run, 1)
    run.steps(5)
    for _ in range(5):
        program.iterate()
    torch.testing.assert_close(run.state.x[1], program.x, rtol=1e-9, atol=1e-9)
    assert program.schedule.get_last_lr() == [0.01]


@pytest.mark.parametrize("name", ["sifg", "ada-sifg"])
def test_warming_up_fits_one_perturbation_of_the_start(name: str) -> None:
    """By as many steps of f's optimiser, whose memory goes on."""
    start = {"hidden": 5, "sigma": 0.4, "net_learning_rate": 0.02}
    problem = make_problem(Bent(), REPLICATES, particles=PARTICLES)
    program = Perturbed(Run(name, problem, warmup_inner_steps=0, **start), 1)
    warm = Run(name, problem, warmup_inner_steps=7, **start)
    noise = program.draw("init", PARTICLES, DIM)
    for _ in range(7):
        program.fit(noise)
    learnt = warm.settings.network(DIM).forward(warm.state.flow.network, warm.state.x)[-1][1]  # type: ignore[attr-defined]
    torch.testing.assert_close(learnt, program.net(program.x).detach(), rtol=1e-9, atol=1e-9)
    assert warm.state.flow.moments.steps == 7


def test_network_noise_costs_another_score_where_sigma_adapts() -> None:
    """Per iteration and particle: one score, and Ada-SIFG with redrawn noise two."""
    for name, noise, expected in (("sifg", "redrawn", 1), ("ada-sifg", "kept", 1), ("ada-sifg", "redrawn", 2)):
        problem = make_problem(Bent(), REPLICATES, particles=PARTICLES)
        Run(name, problem, noise=noise).steps(3)
        assert problem.meter.scores == 3 * PARTICLES * expected


# --- L2-GF and Ada-GWG -------------------------------------------------------------------------------


class Functional(Program):
    """L2-GF, and Ada-GWG where the settings have an exponent."""

    def __init__(self, run: Run, replicate: int) -> None:
        super().__init__(run, replicate)
        self.p = torch.tensor(getattr(self.settings, "p", 2.0), dtype=torch.float64)
        self.rule = getattr(self.settings, "p_rule", None)
        rate = getattr(self.settings, "p_step_size", 0.0)
        self.p_optimiser = optim.SGD([self.p.requires_grad_()], lr=rate, momentum=0.9)

    def iterate(self) -> None:
        warm = self.settings.warmup_inner_steps if self.t == 0 else 0
        score = self.score(self.x)
        probes = self.draw("algorithm", warm + self.settings.inner_steps, PARTICLES, DIM)
        if self.settings.probe == "rademacher":
            probes = probes.sign()
        for i, e in enumerate(probes):
            x = self.x.detach().clone().requires_grad_()
            f = self.net(x)
            divergence = torch.autograd.grad(f, x, e, create_graph=True)[0] * e
            p = self.p.item()
            loss = -torch.sum(score * f) - torch.sum(divergence) + torch.norm(f, p=p) ** p / p
            self.descend(loss / len(x))
            if i >= warm and self.t >= getattr(self.settings, "p_start", 0):
                self.move_within(f.detach())
        velocity = self.net(self.x).detach()
        if self.rule is not None and self.t >= self.settings.p_start:
            self.move_after(velocity)
        self.move(velocity)

    def move_within(self, f: Tensor) -> None:
        """As the mixtures' scripts and the networks' do."""
        p, n = self.p.detach(), len(f)
        if self.rule == "mixture-code":
            power, logs = f.abs() ** p, torch.log(1 / f.abs() ** (p - 1))
            update = (1 / p**2) * power.sum() - (1 / ((p - 1) ** 2 * p)) * (power * logs).sum()
            update = self.settings.p_step_size * update / n
            if p - update > self.settings.p_min:
                self.set(p - update)
        elif self.rule == "network-code":
            self.p_optimiser.zero_grad()
            power = (f.abs() ** (self.p - 1)) ** (self.p / (self.p - 1))
            (-torch.mean(power.sum(-1) / self.p)).backward()
            if self.settings.p_clip is not None:
                self.p.grad.clamp_(-self.settings.p_clip, self.settings.p_clip)
            self.p_optimiser.step()
            self.set(self.p.detach().clamp(self.settings.p_min, self.settings.p_max))

    def move_after(self, v: Tensor) -> None:
        """As the text of the first paper has it, and the script on ICA."""
        p, guard = self.p.detach(), 1e-7 if self.rule == "ica-code" else 0.0
        power, logs = v.abs() ** p, torch.log(guard + 1 / (v.abs() ** (p - 1) + guard))
        slope = (1 / p**2) * power.sum() - (1 / ((p - 1) ** 2 * p)) * (power * logs).sum()
        if self.rule == "paper":
            slope = -slope / len(v)
        if self.rule in ("paper", "ica-code"):
            if self.settings.p_clip is not None:
                slope = slope.clamp(-self.settings.p_clip, self.settings.p_clip)
            moved = p + self.settings.p_step_size * slope
            self.set(moved.clamp(self.settings.p_min, self.settings.p_max))

    def set(self, p: Tensor) -> None:
        with torch.no_grad():
            self.p.copy_(p)


RULES = [
    {"p_rule": "paper", "p_step_size": 0.005},
    {"p_rule": "paper", "p_step_size": 1.0, "p_clip": 0.02, "p_start": 3},
    {"p_rule": "mixture-code", "p_step_size": 0.02, "p_max": None, "warmup_inner_steps": 4, "p_start": 2},
    {"p_rule": "mixture-code", "p_step_size": 0.3, "p_max": None, "p": 1.3},
    {"p_rule": "ica-code", "p_step_size": 0.002, "probe": "gaussian"},
    {"p_rule": "ica-code", "p_step_size": 1.0, "p_clip": 0.1, "p_max": 2.3},
    {"p_rule": "network-code", "p_step_size": 0.01, "p_max": 4.0},
    {"p_rule": "network-code", "p_step_size": 0.5, "p_max": 2.5, "p_clip": 0.02},
]
NETWORKS = [
    {},
    {"net_optimiser": "adam", "particle_rule": "rms", "activation": "leaky-relu"},
    {"net_optimiser": "sgd", "particle_rule": "adam", "activation": "relu", "velocity_divisor": 3.0},
]


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("rule", [None, *RULES], ids=str)
def test_functional_flows_are_the_codes_program(network: dict[str, Any], rule: dict[str, Any] | None) -> None:
    """Catches the direction of p, a mean for a sum, no momentum, p moved by the new f, a clipped rejection."""
    problem = make_problem(Bent(), REPLICATES, particles=PARTICLES)
    given = {"warmup_inner_steps": 0, "hidden": 5, "step_size": 0.05, "net_learning_rate": 0.01} | network
    run = Run("l2-gf" if rule is None else "ada-gwg", problem, **(given | (rule or {})))
    programs = [Functional(run, r) for r in REPLICATES]
    run.steps(5)
    for r, program in zip(REPLICATES, programs, strict=True):
        for _ in range(5):
            program.iterate()
        torch.testing.assert_close(run.state.x[r], program.x, rtol=1e-6, atol=1e-7)
        if rule is not None:
            torch.testing.assert_close(run.state.p[r, 0, 0], program.p.detach(), rtol=1e-6, atol=1e-7)
            assert abs(program.p - rule.get("p", 2.0)) > 1e-4


def test_p_stays_where_a_move_would_take_it_to_its_bound() -> None:
    """The mixtures' rule rejects, all others clip."""
    f, p = torch.full((1, 4, 2), 3.0, dtype=torch.float64), torch.full((1, 1, 1), 1.2, dtype=torch.float64)
    make = registry.load_algorithm("ada-gwg").make_settings
    for rule, expected in (("mixture-code", 1.2), ("paper", 1.1), ("ica-code", 6.0), ("network-code", 6.0)):
        settings = make({"p_rule": rule, "p_step_size": 1e6})
        moved, _ = ada_gwg.move_exponent(settings, f, p, torch.zeros_like(p))  # type: ignore[arg-type]
        assert moved.item() == expected
    with pytest.raises(SettingsError, match="between p_min and p_max"):
        make({"p": 7.0})
    assert make({"p": 7.0, "p_max": None})


# --- SVGD --------------------------------------------------------------------------------------------


def bandwidth_of(x: Tensor, rule: str | float) -> float:
    """H of the options, from their description."""
    if not isinstance(rule, str):
        return rule
    squares = (x.unsqueeze(1) - x.unsqueeze(0)).square().sum(-1).flatten()
    if rule == "median-sampled":
        places = sampled_pairs(len(x), x.device)
        squares = squares if places is None else squares[places]
    return float(np.median(squares.numpy()) / np.log(len(x) + 1))


@pytest.mark.parametrize("n", [7, 110])
@pytest.mark.parametrize("bandwidth", ["median", "median-sampled", 0.7])
@pytest.mark.parametrize("rule", ["plain", "adagrad"])
def test_svgd_is_the_codes_program(n: int, bandwidth: str | float, rule: str) -> None:
    """Kernel gradients by autograd with h held fixed; above 100 particles not all pairs are sampled.

    Catches a kernel of half the width, the repulsion's sign, and a history that starts from zero.
    """
    run = Run("svgd", make_problem(Bent(), REPLICATES, particles=n), rule=rule, bandwidth=bandwidth, step_size=0.05)
    x, history = run.state.x[1].clone(), torch.zeros(())
    run.steps(3)
    for t in range(3):
        h, score = bandwidth_of(x, bandwidth), Bent().score(x.unsqueeze(0))[0].detach()
        phi = torch.empty_like(x)
        for i in range(n):
            leaf = x.clone().requires_grad_()
            k = torch.exp(-(leaf - x[i]).square().sum(-1) / h)
            phi[i] = (k.detach() @ score + torch.autograd.grad(k.sum(), leaf)[0].sum(0)) / n
        if rule == "adagrad":
            history = phi**2 if t == 0 else 0.9 * history + 0.1 * phi**2
            phi = phi / (1e-6 + torch.sqrt(history))
        x = x + 0.05 * phi
    torch.testing.assert_close(run.state.x[1], x, rtol=1e-8, atol=1e-9)


# --- presets -----------------------------------------------------------------------------------------

FAMILY = ["sifg", "ada-sifg", "l2-gf", "ada-gwg", "svgd", "sgld"]
OTHERS = {"bnn-liu-wang", "bnn-ksivi"}


@pytest.mark.parametrize("name", FAMILY)
def test_presets_of_the_paper_bear_their_tasks_names_and_hold_the_protocol(name: str) -> None:
    """Catches presets that no task finds by its name, and a table's set without one."""
    algorithm = registry.load_algorithm(name)
    presets = set(algorithm.presets) - OTHERS
    assert {preset.removesuffix("-code") for preset in presets} <= set(registry.tasks())
    assert {task for task in registry.tasks() if task.endswith("-sifg")} <= presets
    assert {"gmm5-2d", "ica-meg-tempered"} <= presets
    for preset in presets:
        assert {"iterations", "particles", "samples"} <= set(algorithm.protocol(preset))


def test_network_presets_do_as_the_script_does() -> None:
    """Read off the script's arguments and loops, once more."""
    loaded = {name: registry.load_algorithm(name) for name in FAMILY}
    for task in (t for t in registry.tasks() if t.endswith("-sifg")):
        values = {n: a.make_settings({"preset": task}).model_dump() for n, a in loaded.items()}
        assert {loaded[n].protocol(task)["iterations"] for n in FAMILY if n != "sgld"} == {2000}
        for name in ("sifg", "ada-sifg", "l2-gf", "ada-gwg"):
            found = values[name]
            assert (found["step_size"], found["net_learning_rate"], found["inner_steps"]) == (5e-4, 1e-4, 10)
            assert (found["warmup_inner_steps"], found["particle_rule"], found["hidden"]) == (0, "rms", 300)
        assert (values["ada-sifg"]["noise"], values["ada-sifg"]["sigma_rule"]) == ("redrawn", "kl-code")
        assert (values["ada-sifg"]["sigma"], values["ada-sifg"]["sigma_step_size"]) == (0.01, 2e-5)
        assert (values["ada-gwg"]["p_rule"], values["ada-gwg"]["p_max"]) == ("network-code", 4.0)
        assert (values["svgd"]["step_size"], values["sgld"]["step_size"]) == (5e-4, 2.5e-5)
