"""Unbiased implicit variational inference (UIVI).

Titsias & Ruiz (2019), arXiv:1808.02078, Algorithm 1. Samples x = mu(z) + sigma xi as in SIVI. The gradient of
the evidence bound

    E_{z, xi} [ ( s(x) - grad log q(x) ) dx/dparameters ]
    grad log q(x) = E_{z' ~ q(z' | x)} [ -(x - mu(z')) / sigma^2 ]

needs draws from the reverse conditional q(z' | x) ~ N(x; mu(z'), sigma^2) N(z'; 0, I). HMC makes them for
every sample of the batch, started at the z that made x: that z is itself a draw from q(z' | x), so all
states of the chain are, and the estimate is unbiased however short the chain. The chain calls the network
only: an iteration costs one score per sample.

HMC: ``warmup`` transitions whose states are dropped and during which the leapfrog step is adapted (it keeps
the states from being exact draws, slightly, and makes them less dependent on z), then ``kept`` whose
conditional scores are averaged.

Departures: Adam where the code moves by rho g / (1 + sqrt(G)), G <- 0.9 G + 0.1 g^2; log sigma^2 is trained, in the
code sigma; the rule that adapts the leapfrog step, one per replicate, is ours; the task's initial distribution is
not used. No settings are known for the diffusion of the KSIVI paper (its Table 6), so there is no preset.
"""

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from parvibench.core.algorithm import Example, Presets, Problem, Streams, code, ours
from parvibench.nn.masks import where
from parvibench.nn.mlp import MLP
from parvibench.nn.semi_implicit import SamplerState, SemiImplicit, SemiImplicitSettings, split


class Settings(SemiImplicitSettings):
    """Settings of UIVI."""

    batch: int = Field(100, ge=1, description="samples in a batch; code 1")
    warmup: int = Field(5, ge=0, description="HMC transitions before those kept; code")
    kept: int = Field(5, ge=1, description="HMC transitions whose states are averaged; code")
    leapfrog_steps: int = Field(5, ge=1, description="leapfrog steps per transition; code")
    leapfrog_step: float = Field(0.2, gt=0, description="leapfrog step at the start, in z; code")
    acceptance: float = Field(0.9, gt=0, lt=1, description="acceptance at which the leapfrog step stays as it is; ours")
    adaptation: float = Field(0.05, ge=0, description="rate of log leapfrog step per unit of excess acceptance; ours")


#: The code's rates are of mu 0.01 and of sigma 0.002.
_TOY = (
    code(iterations=50_000, batch=1, latent_dim=3, hidden=50, log_var_init=-1.386)
    | code(step_size=0.01, log_var_rate=0.2, decay=0.9, decay_every=3000)
    | code(warmup=5, kept=5, leapfrog_steps=5, leapfrog_step=0.2)
    | ours(beta2=0.9)
)


class State(NamedTuple):
    """The sampler and the leapfrog step."""

    sampler: SamplerState
    leapfrog_step: Tensor  # (R, 1, 1)


class UIVI(SemiImplicit[Settings, State]):
    """Unbiased implicit variational inference."""

    name = "uivi"
    version = 3
    citation = "Titsias & Ruiz (2019), arXiv:1808.02078"
    example = Example(
        quick={"batch": 8, "hidden": 6, "warmup": 2, "kept": 2, "leapfrog_steps": 2}, steps=150, points=200,
        brief_steps=3,
        settings={
            "step_size": 0.01, "batch": 32, "hidden": 16, "beta2": 0.99, "warmup": 2, "kept": 2, "leapfrog_steps": 3,
        },
    )  # fmt: skip
    presets: ClassVar[Presets] = dict.fromkeys(("banana", "multimodal", "x-shaped"), _TOY)

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> State:
        """Random network, constant sigma."""
        sampler = settings.start(problem.dim, streams)
        step = sampler.parameters.new_full((len(sampler.parameters), 1, 1), settings.leapfrog_step)
        return State(sampler, step)

    def step(self, problem: Problem, settings: Settings, state: State, streams: Streams) -> State:
        """Draw a batch, estimate grad log q at it by HMC, one step of Adam."""
        sampler = state.sampler
        if sampler.t < 0:
            return state._replace(sampler=settings.pretrain(problem, sampler, streams))
        z, xi = settings.noise(problem, streams, settings.batch)
        made = settings.draw(sampler.parameters, z, xi)
        network, _ = split(sampler.parameters, problem.dim)
        net = settings.network(problem.dim)
        q_score, step = mixture_score(net, network, settings, made.x, made.sigma, z, state.leapfrog_step, streams)
        target = settings.temper(sampler) * problem.score(made.x)
        grad = settings.pull_back(sampler.parameters, made, (q_score - target) / settings.batch)
        return State(settings.descend(sampler, grad, problem.dim), step)


class Conditional(NamedTuple):
    """A point of the reverse conditional q(z | x), one per sample."""

    z: Tensor  # (R, n, latent_dim)
    energy: Tensor  # -log q(z | x) up to a constant, (R, n)
    slope: Tensor  # its gradient in z, (R, n, latent_dim)
    score: Tensor  # grad_x log q(x | z), (R, n, D)


def mixture_score(
    net: MLP, network: Tensor, settings: Settings, x: Tensor, sigma: Tensor, z: Tensor, step: Tensor, streams: Streams
) -> tuple[Tensor, Tensor]:
    """Unbiased estimate of grad log q at the samples, (R, n, D), and the adapted leapfrog step, (R, 1, 1).

    ``network`` (R, P) is mu's, x the samples (R, n, D), sigma (R, 1, D), z their latents, (R, n, latent_dim).
    """

    def at(z: Tensor) -> Conditional:
        values = net.forward(network, z)
        residual = (x - values[-1]) / sigma
        score = residual / -sigma
        energy = 0.5 * (residual.square().sum(-1) + z.square().sum(-1))
        return Conditional(z, energy, net.backward_input(network, values, score) + z, score)

    transitions = settings.warmup + settings.kept
    momenta = streams.normal("algorithm", (transitions, *z.shape[1:]), index=1)
    uniforms = streams.uniform("algorithm", (transitions, z.shape[1]))
    held, total = at(z), torch.zeros_like(x)
    for j in range(transitions):
        end, acceptance = _leapfrog(at, held, momenta[:, j], step, settings.leapfrog_steps)
        accept = uniforms[:, j] < acceptance
        held = where(accept, end, held)
        if j < settings.warmup:
            excess = acceptance.mean(1).view(-1, 1, 1) - settings.acceptance
            step = step * (settings.adaptation * excess).exp()
        else:
            total += held.score
    return total / settings.kept, step


def _leapfrog(
    at: Callable[[Tensor], Conditional], held: Conditional, momentum: Tensor, step: Tensor, count: int
) -> tuple[Conditional, Tensor]:
    """End of a trajectory and the probability to accept it, (R, n)."""
    p, end = momentum - 0.5 * step * held.slope, held
    for leap in range(count):
        end = at(end.z + step * p)
        p = p - (0.5 if leap == count - 1 else 1.0) * step * end.slope
    drop = held.energy - end.energy + 0.5 * (momentum.square() - p.square()).sum(-1)
    return end, drop.clamp(max=0).exp_().nan_to_num_(nan=0.0)
