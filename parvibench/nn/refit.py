"""Flows of particles along a small network, refitted by a few optimiser steps within every iteration."""

from collections.abc import Iterable
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import torch
from pydantic import Field
from torch import Tensor

from parvibench.core.algorithm import Algorithm, Kind, Problem, SteppedSettings, Streams
from parvibench.kernels.gram import mixture_score

from .mlp import MLP, Activation
from .optim import Moments, adam, rms_normalised, sgd_nesterov, step_decay


class Flow(NamedTuple):
    """Network of a refitted flow and the memories of both optimisers."""

    network: Tensor  # parameters of f, (R, P)
    moments: Moments  # of f's optimiser
    moved: Tensor  # running average of the velocity, (R, N, D); (R, 0) but with the adam rule
    moved_square: Tensor  # of its square; (R, 0) with the plain rule
    t: int  # iterations so far


class Particles(NamedTuple):
    """Particles and the network that moves them."""

    x: Tensor  # (R, N, D)
    flow: Flow


class RefitSettings(SteppedSettings):
    """Settings of samplers whose velocity comes from a refitted network of D inputs and D outputs."""

    step_size: float = Field(0.01, gt=0, description="h, in x^2 (plain) or x (rms, adam); SIFG paper's toys")
    particle_rule: Literal["plain", "rms", "adam"] = Field(
        "plain",
        description="plain: x + h v (papers); rms: v over its running rms (SIFG code on networks); adam (SIFG code's "
        "baselines on Monomial Gamma)",
    )

    hidden: int = Field(32, ge=1, description="units in each of two hidden layers; 32 toys, 300 networks")
    activation: Activation = Field("tanh", description="tanh on toys, leaky-relu on networks; SIFG paper")
    inner_steps: int = Field(5, ge=1, description="N', optimiser steps per iteration; SIFG paper's toys")
    warmup_inner_steps: int = Field(10, ge=0, description="optimiser steps before iteration 0; SIFG code")
    net_optimiser: Literal["sgd-nesterov", "sgd", "adam"] = Field(
        "sgd-nesterov", description="optimiser of f: toys sgd-nesterov with momentum 0.9, ICA sgd, networks adam"
    )
    net_learning_rate: float = Field(1e-3, gt=0, description="of f's optimiser; SIFG paper 1e-3 toys, 1e-4 networks")
    net_decay: float = Field(1.0, gt=0, le=1, description="learning rate factor every 1000 inner steps; SIFG code 0.9")

    def network(self, dim: int) -> MLP:
        """Shape of f: R^dim -> R^dim."""
        return MLP((dim, self.hidden, self.hidden, dim), self.activation)

    def started(self, problem: Problem, streams: Streams) -> Particles:
        """Initial points, and f before its first step."""
        x, net = problem.init(), self.network(problem.dim)
        network = net.initialise(streams.uniform("init", (net.n_parameters,)))
        moments = Moments.start(network, second=self.net_optimiser == "adam")
        nothing, zeros = x.new_zeros(len(x), 0), torch.zeros_like(x)
        moved = zeros if self.particle_rule == "adam" else nothing
        moved_square = nothing if self.particle_rule == "plain" else zeros
        return Particles(x, Flow(network, moments, moved, moved_square, 0))

    def descend(self, flow: Flow, grad: Tensor, inplace: bool = False) -> Flow:
        """One optimiser step of f along its gradient, (R, P); ``inplace`` may overwrite what a step before returned."""
        network, moments = flow.network, flow.moments
        rate = self.net_learning_rate * step_decay(moments.steps, self.net_decay, 1000)
        if self.net_optimiser == "adam":
            network, moments = adam(network, grad, moments, rate, inplace=inplace)
        else:
            momentum = 0.9 if self.net_optimiser == "sgd-nesterov" else 0.0
            network, moments = sgd_nesterov(network, grad, moments, rate, momentum)
        return flow._replace(network=network, moments=moments)

    def move(self, x: Tensor, velocity: Tensor, flow: Flow) -> Particles:
        """One step of all particles along their velocity, (R, N, D) each; ends the iteration."""
        moved, moved_square = flow.moved, flow.moved_square
        if self.particle_rule == "adam":
            x, (moved, moved_square, _) = adam(x, -velocity, Moments(moved, moved_square, flow.t), self.rate)
        else:
            if self.particle_rule == "rms":
                velocity, moved_square = rms_normalised(velocity, moved_square, first=flow.t == 0)
            x = x.add(velocity, alpha=self.rate)
        return Particles(x, flow._replace(moved=moved, moved_square=moved_square, t=flow.t + 1))

    @property
    def rate(self) -> float:
        """Factor of the velocity, before a rule that rescales it."""
        return self.step_size


S = TypeVar("S", bound=RefitSettings)
T = TypeVar("T")


class Refitted(Algorithm[S, T]):
    """Base of flows along a refitted network."""

    kind: ClassVar[Kind] = "particles"

    def effective_step(self, settings: S) -> float | None:
        """Factor of the velocity; None with a rule that rescales it."""
        return settings.rate if settings.particle_rule == "plain" else None


class PerturbedFlowSettings(RefitSettings):
    """Settings of samplers whose particles z carry a law mu^ = mu * N(0, sigma^2 I), with f -> grad log mu^."""

    sigma: float = Field(0.1, gt=0, description="sd of the perturbation (the first, if it moves), in x; SIFG paper")
    score: Literal["network", "exact"] = Field(
        "network", description="score of mu^: learnt (paper) or of the finite mixture (oracle for tests)"
    )
    noise: Literal["kept", "redrawn"] = Field(
        "kept",
        description="kept: one w for all of an iteration (paper); redrawn: a new one in every inner step, and two for "
        "the particles' step, where f and s are taken at different points (SIFG code on networks)",
    )

    def draw(self, streams: Streams, shape: torch.Size, index: int = 0) -> tuple[Tensor, Tensor]:
        """The noises w of f and of s in one velocity, (R, N, D) each: the same unless redrawn."""
        w = streams.normal("noise", shape, index)
        return w, w if self.noise == "kept" else streams.normal("noise", shape, index + 1)

    def warm_up(self, flow: Flow, z: Tensor, sigma: Tensor | float, streams: Streams) -> Flow:
        """Fit f before the first iteration, to one perturbation."""
        w = streams.normal("init", z.shape[1:])
        return self.fit(flow, ((z + sigma * w, w / sigma),) * self.warmup_inner_steps)

    def perturbed(
        self, z: Tensor, sigma: Tensor | float, w: Tensor, streams: Streams
    ) -> Iterable[tuple[Tensor, Tensor]]:
        """Points x = z + sigma w of every inner step with w / sigma, minus the score of the perturbation."""
        if self.noise == "kept":
            return ((z + sigma * w, w / sigma),) * self.inner_steps
        draws = streams.normal("algorithm", (self.inner_steps, *w.shape[1:])).unbind(1)
        return ((z + sigma * w, w / sigma) for w in draws)

    def fit(self, flow: Flow, points: Iterable[tuple[Tensor, Tensor]]) -> Flow:
        """Descend the denoising score matching loss mean_i || f(x_i) + w_i / sigma ||^2, one step for each item.

        An item of ``points`` is x and w / sigma, (R, N, D) each; none are used with the exact score.
        """
        if self.score == "exact":
            return flow
        for i, (x, noise_score) in enumerate(points):
            net = self.network(x.shape[2])
            values = net.forward(flow.network, x)
            residual = (values[-1] + noise_score).mul_(2 / x.shape[1])
            flow = self.descend(flow, net.backward(flow.network, values, residual), inplace=i > 0)
        return flow

    def velocity(
        self, problem: Problem, flow: Flow, z: Tensor, sigma: Tensor | float, w: Tensor, w_score: Tensor
    ) -> Tensor:
        """The velocity s(z + sigma w_score) - f(z + sigma w), (R, N, D)."""
        x = z + sigma * w
        x_score = x if w_score is w else z + sigma * w_score
        if self.score == "exact":
            return problem.score(x_score) - mixture_score(x, z, sigma)
        return problem.score(x_score) - self.network(problem.dim).forward(flow.network, x)[-1]


P = TypeVar("P", bound=PerturbedFlowSettings)


class Perturbed(Refitted[P, T]):
    """Base of flows whose particles carry mu^ = mu * N(0, sigma^2 I), sigma in the state where it moves."""

    def output(self, problem: Problem, settings: P, state: Any, n: int, streams: Streams) -> Tensor:
        """Fresh draws from mu^, (R, n, D); particles are taken in turn when n is not their number."""
        rows = torch.arange(n, device=state.x.device) % state.x.shape[1]
        sigma = getattr(state, "sigma", settings.sigma)
        return state.x[:, rows] + sigma * streams.normal("output", (n, state.x.shape[2]))


class FunctionalFlowSettings(RefitSettings):
    """Settings of samplers that fit the velocity itself, its divergence estimated along random directions."""

    step_size: float = Field(0.01, gt=0, description="h before the division, in x^2 (plain) or x (rms, adam); ours")
    velocity_divisor: float = Field(1.0, gt=0, description="of f; 1 (papers), 1000 in the SIFG paper's mixture scripts")
    probe: Literal["rademacher", "gaussian"] = Field(
        "rademacher", description="law of e in the divergence; SIFG code rademacher, on ICA and elsewhere gaussian"
    )

    def steps_at(self, t: int) -> int:
        """Optimiser steps of iteration t: the first one has the warm-up too."""
        return self.inner_steps + (self.warmup_inner_steps if t == 0 else 0)

    def probes(self, streams: Streams, steps: int, x: Tensor) -> tuple[Tensor, ...]:
        """Directions e of the next ``steps`` divergence estimates, (R, N, D) each."""
        probes = streams.normal("algorithm", (steps, *x.shape[1:]))
        if self.probe == "rademacher":
            probes = torch.ones_like(probes).copysign_(probes)
        return probes.unbind(1)

    @property
    def rate(self) -> float:
        """The step size h over the divisor."""
        return self.step_size / self.velocity_divisor
