"""Adaptive semi-implicit functional gradient flow (Ada-SIFG): SIFG that moves its noise level too.

Zhang, Cheng & Zhang (2024), arXiv:2410.17935, Algorithm 2. With F(sigma) = KL(mu * N(0, sigma^2 I) || pi), carried
particles z_i from mu and f -> grad log mu^ as in SIFG, each iteration

    x_i = z_i + sigma w_i,   w_i ~ N(0, I)
    N' optimiser steps on  mean_i || f(x_i) + w_i / sigma ||^2
    sigma <- clip( sigma + eta_s mean_i [ (s(x_i) - f(x_i)) . w_i ] )        = sigma - eta_s F'(sigma)
    z_i <- z_i + h ( s(x_i) - f(x_i) )

Output: fresh z_i + sigma w. Every replicate has its own sigma. Options as in SIFG; with ``noise="redrawn"`` the
particles move with noises of their own, at the new sigma.

Traps: (1) Algorithm 2 prints the update of f as an ascent, and a minus inside the norm; both would turn the particles
round. (2) eta_s has three scales: the text dots with sigma w (a factor sigma), the code on ICA and networks averages
over coordinates too (a factor 1/D): ``sigma_rule="kl-code"``; "kl" is the derivative itself. (3) The authors' mixture
scripts move sigma along another quantity, the gradient in sigma of mean_i || f(z_i + sigma w_i) + w_i / sigma^2 ||^2 at
fixed f (sigma^2 where the residual has sigma): ``sigma_rule="dsm-code"``. It lets sigma only grow, by about 4 D eta_s /
sigma^5 per iteration. (4) With one w, f may fit the noise of the very points at which F' is taken, which biases sigma
upwards. (5) The script on gmm5-2d moves sigma in every inner step, along the gradient of the matching loss itself,
mean_i || f(z_i + sigma w_i) + w_i sigma / sigma^2 ||^2, about -2 D / sigma^3: ``sigma_rule="dsm-inner-code"``.
"""

from __future__ import annotations

from typing import ClassVar, Literal, NamedTuple

from pydantic import Field, model_validator
from torch import Tensor

from parvibench.core.algorithm import Example, Presets, Problem, Streams, code, paper
from parvibench.nn.refit import Flow, Perturbed, PerturbedFlowSettings

from ._sifg_runs import ICA, NETWORK, TOY, on_networks


class Settings(PerturbedFlowSettings):
    """Settings of Ada-SIFG."""

    sigma_step_size: float = Field(1e-4, ge=0, description="eta_s, in x^2; ours (paper's 1e-9: of the rule dsm-code)")
    sigma_min: float = Field(1e-3, gt=0, description="lower bound of sigma, in x; paper")
    sigma_max: float = Field(1.0, gt=0, description="upper bound of sigma, in x; paper")
    sigma_rule: Literal["kl", "kl-code", "dsm-code", "dsm-inner-code"] = Field(
        "kl",
        description="kl: gradient of the divergence (paper); kl-code: over D (SIFG code on ICA and networks); dsm-code, "
        "dsm-inner-code: gradients of f's loss (SIFG code on toys and on gmm5-2d)",
    )

    @model_validator(mode="after")
    def _in_bounds(self) -> Settings:
        if not self.sigma_min <= self.sigma <= self.sigma_max:
            raise ValueError("sigma must lie between sigma_min and sigma_max")
        if self.score == "exact" and self.sigma_rule.startswith("dsm"):
            raise ValueError(f"the rule {self.sigma_rule} differentiates the network: it needs score = network")
        if self.noise == "redrawn" and self.sigma_rule == "dsm-inner-code":
            raise ValueError("the rule dsm-inner-code moves sigma along one noise: it needs noise = kept")
        return self

    def moved(self, sigma: Tensor, slope: Tensor) -> Tensor:
        """One step of sigma against a slope, within its bounds: (R, 1, 1) each."""
        return sigma.sub(slope, alpha=self.sigma_step_size).clamp_(self.sigma_min, self.sigma_max)


class State(NamedTuple):
    """Carried particles, noise level and the score network."""

    x: Tensor  # z, (R, N, D)
    sigma: Tensor  # (R, 1, 1)
    flow: Flow  # f and both optimisers' memories


class Info(NamedTuple):
    """Per-step diagnostics."""

    sigma: Tensor  # (R,) noise level


_TOY = TOY | paper(step_size=0.01) | code(sigma_rule="dsm-code")
_2D = _TOY | code(sigma_rule="dsm-inner-code")
_KL = code(sigma_rule="kl-code")


class AdaSIFG(Perturbed[Settings, State]):
    """Semi-implicit functional gradient flow with adaptive noise."""

    name = "ada-sifg"
    version = 3
    citation = "Zhang, Cheng & Zhang (2024), arXiv:2410.17935"
    example = Example(
        quick={"hidden": 6, "sigma_step_size": 0.01},
        settings={"step_size": 0.1, "hidden": 16, "sigma": 0.3, "net_optimiser": "adam", "net_learning_rate": 0.01},
    )
    presets: ClassVar[Presets] = {
        "gmm5-2d": _2D | paper(iterations=2000, sigma=0.12, sigma_step_size=1e-9),
        "gmm5-2d-code": _2D | code(iterations=2300, step_size=0.005, sigma=0.1, sigma_step_size=1e-9),
        "gmm5-10d": _TOY | code(iterations=2200) | paper(sigma=0.1, sigma_step_size=1e-9),
        "monomial-gamma": _TOY | code(iterations=20000) | paper(sigma=0.1, sigma_step_size=1e-10),
        # 1e-6, 2e-6 and 4e-6 were tried
        "ica-meg-tempered": ICA | _KL | paper(sigma=0.03) | code(sigma_step_size=1e-6),
        # 2e-5, 4e-5 and 1e-4 were tried, and sigma 0.1
        **on_networks(NETWORK | _KL | code(noise="redrawn", sigma=0.01, sigma_step_size=2e-5)),
    }

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> State:
        """Particles at the task's initial points, f warmed up on them."""
        z, flow = settings.started(problem, streams)
        sigma = z.new_full((len(z), 1, 1), settings.sigma)
        return State(z, sigma, settings.warm_up(flow, z, sigma, streams))

    def step(self, problem: Problem, settings: Settings, state: State, streams: Streams) -> tuple[State, Info]:
        """Perturb, fit f, move sigma, move the particles."""
        z, sigma, flow = state
        w, _ = settings.draw(streams, z.shape[1:])
        if settings.sigma_rule == "dsm-inner-code":
            flow, moved = fit_both(settings, flow, z, sigma, w)
            velocity = settings.velocity(problem, flow, z, sigma, w, w)
        else:
            flow = settings.fit(flow, settings.perturbed(z, sigma, w, streams))
            velocity = settings.velocity(problem, flow, z, sigma, w, w)
            moved = settings.moved(sigma, slope_of_sigma(settings, flow, z, sigma, w, velocity))

        if settings.noise == "redrawn":
            velocity = settings.velocity(problem, flow, z, moved, *settings.draw(streams, z.shape[1:], index=1))
        z, flow = settings.move(z, velocity, flow)
        return State(z, moved, flow), Info(moved.flatten())


def fit_both(settings: Settings, flow: Flow, z: Tensor, sigma: Tensor, w: Tensor) -> tuple[Flow, Tensor]:
    """f and sigma, (R, 1, 1), after inner steps that move both, the points staying where the first sigma put them.

    Along mean_i || f(z_i + sigma' w_i) + sigma' w_i / sigma^2 ||^2, sigma' the first sigma, with respect to it too.
    """
    net, first = settings.network(z.shape[2]), sigma
    x = z + first * w
    for i in range(settings.inner_steps):
        values = net.forward(flow.network, x)
        residual = values[-1] + first * w / sigma**2
        through_x = net.backward_input(flow.network, values, residual) * w
        beside = residual * w * (1 / sigma**2 - 2 * first / sigma**3)
        slope = 2 * (through_x + beside).sum(-1, keepdim=True).mean(1, keepdim=True)
        grad = net.backward(flow.network, values, residual.mul_(2 / x.shape[1]))
        flow, sigma = settings.descend(flow, grad, inplace=i > 0), settings.moved(sigma, slope)
    return flow, sigma


def slope_of_sigma(settings: Settings, flow: Flow, z: Tensor, sigma: Tensor, w: Tensor, velocity: Tensor) -> Tensor:
    """Slope of sigma by the rule, (R, 1, 1)."""
    if settings.sigma_rule == "dsm-code":
        return _code_gradient(settings, flow.network, z + sigma * w, w, sigma)
    slope = sigma_gradient(velocity, w)
    return slope if settings.sigma_rule == "kl" else slope / z.shape[2]


def sigma_gradient(velocity: Tensor, w: Tensor) -> Tensor:
    """F'(sigma) = E[ (grad log mu^(x) - s(x)) . w ], (R, 1, 1): the part through the density integrates to zero."""
    return -(velocity * w).sum(-1, keepdim=True).mean(1, keepdim=True)


def _code_gradient(settings: Settings, network: Tensor, x: Tensor, w: Tensor, sigma: Tensor) -> Tensor:
    """Derivative in sigma of mean_i || f(z_i + sigma w_i) + w_i / sigma^2 ||^2, (R, 1, 1)."""
    f, slope = settings.network(x.shape[2]).forward_tangent(network, x, w)[-1].chunk(2, 1)
    product = (f + w / sigma**2) * (slope - 2 * w / sigma**3)
    return 2 * product.sum(-1, keepdim=True).mean(1, keepdim=True)
