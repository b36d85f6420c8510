"""Semi-implicit samplers: x = mu(z) + sigma xi, one network and one sigma per coordinate and replicate.

z and xi are standard normal, mu is a network, so that q(x) = E_z N(x; mu(z), diag sigma^2) has no closed
form but easy draws. What the methods differ in is the gradient of their objective in x, in xi / sigma (the
negative score of the conditional) and in log sigma^2; the way back to the parameters is the same.

On regressions the network may first be fitted, as KSIVI's and SIVI-SM's codes do: ``pretraining`` steps of Adam on
the mean squared error of the samples' mean prediction. They are iterations of the run, numbered t < 0, and cost
``batch`` times the rows used over n each.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import torch
from pydantic import Field
from torch import Tensor

from parvibench.core.algorithm import Algorithm, Kind, Problem, SteppedSettings, Streams

from .mlp import MLP, Activation
from .optim import Moments, adam, step_decay


class SamplerState(NamedTuple):
    """A sampler's parameters, their average and Adam's memory."""

    parameters: Tensor  # (R, P + D): the network's, then log sigma^2
    average: Tensor  # (R, P + D); (R, 0) without ema
    first: Tensor  # (R, P + D)
    second: Tensor  # (R, P + D)
    t: int  # iterations after pre-training, negative during it


#: z (R, n, latent_dim) and xi (R, n, D), standard normal.
Noise = tuple[Tensor, Tensor]


class Draw(NamedTuple):
    """Samples and what led to them."""

    x: Tensor  # (R, n, D)
    sigma: Tensor  # (R, 1, D)
    xi: Tensor  # (R, n, D)
    noise: Tensor  # xi / sigma, the conditional's score at x with its sign changed: (R, n, D)
    values: list[Tensor]  # of the network's layers


def split(parameters: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The network's parameters (R, P) and log sigma^2 (R, 1, D)."""
    return parameters[:, :-dim], parameters[:, None, -dim:]


class SemiImplicitSettings(SteppedSettings):
    """Settings that all semi-implicit samplers share."""

    step_size: float = Field(1e-3, gt=0, description="Adam's learning rate, in parameters; paper's toys")
    batch: int = Field(100, ge=2, description="M, samples in a batch; KSIVI paper 100, 500 on the toys")
    latent_dim: int = Field(3, ge=1, description="dimension of z; KSIVI paper's toys")
    hidden: int = Field(50, ge=1, description="units in each of two hidden layers; KSIVI paper's toys")
    activation: Activation = Field("relu", description="of the hidden layers; KSIVI code")
    log_var_init: float = Field(0.0, description="initial log sigma^2; KSIVI code: 0 toys, -8 to 0 elsewhere")
    log_var_floor: float = Field(-20.0, description="least log sigma^2; KSIVI code")
    log_var_rate: float = Field(1.0, gt=0, description="rate of log sigma^2 over the network's; SIVI regression 0.1")
    beta1: float = Field(0.9, ge=0, lt=1, description="Adam's decay of the gradient; KSIVI code")
    beta2: float = Field(0.99, ge=0, lt=1, description="Adam's decay of its square; KSIVI code's toys, else 0.999")
    decay: float = Field(0.9, gt=0, le=1, description="learning rate factor every decay_every steps; KSIVI code")
    decay_every: int = Field(1000, ge=1, description="iterations between decays; KSIVI code: 1000 toys, else 3000")
    clip_norm: float | None = Field(None, gt=0, description="largest gradient norm per replicate; KSIVI networks 1")
    annealing: int = Field(
        0,
        ge=0,
        description="iterations; 0: off, else s is multiplied by min(1, 0.1 + (t + 1) / annealing), t = 0, 1, ...; "
        "KSIVI code: 25,000 on multimodal and student-t",
    )
    ema: float | None = Field(
        None, gt=0, lt=1, description="decay of the parameters' average, drawn from then; KSIVI code: 0.999 networks"
    )

    pretraining: int = Field(0, ge=0, description="iterations that fit the network to responses first; KSIVI code: 99")
    pretraining_rate: float = Field(0.01, gt=0, description="learning rate of these; KSIVI code")
    pretraining_rows: Literal["training", "development"] = Field(
        "training", description="whose responses; training: mini-batches; SIVI-SM code training, KSIVI code development"
    )

    def network(self, dim: int) -> MLP:
        """Shape of mu."""
        return MLP((self.latent_dim, self.hidden, self.hidden, dim), self.activation)

    def temper(self, state: SamplerState) -> float:
        """Factor of the target's score at this iteration."""
        if self.annealing == 0:
            return 1.0
        return min(1.0, 0.1 + (state.t + 1) / self.annealing)

    def start(self, dim: int, streams: Streams, delay: int = 0) -> SamplerState:
        """Random network, constant sigma; ``delay`` iterations lie between the network's pre-training and t = 0."""
        net = self.network(dim)
        network = net.initialise(streams.uniform("init", (net.n_parameters,)))
        log_var = network.new_full((len(network), dim), self.log_var_init)
        parameters = torch.cat((network, log_var), 1)
        average = parameters if self.ema is not None else parameters[:, :0]
        moments = Moments.start(parameters)
        return SamplerState(parameters, average, moments.first, moments.second, -self.pretraining - delay)

    def noise(self, problem: Problem, streams: Streams, samples: int, index: int = 0) -> Noise:
        """Fresh z (R, samples, latent_dim) and xi (R, samples, D)."""
        z = streams.normal("algorithm", (samples, self.latent_dim), index)
        return z, streams.normal("noise", (samples, problem.dim), index)

    def pretrain(self, problem: Problem, state: SamplerState, streams: Streams, delay: int = 0) -> SamplerState:
        """One step of Adam on the mean squared error of the samples' mean prediction, ``delay`` as given to ``start``.

        After the last one Adam's memory is empty again, and the average starts.
        """
        made = self.draw(state.parameters, *self.noise(problem, streams, self.batch))
        grad_x = problem.fit_gradient(made.x, self.pretraining_rows == "development")
        grad = self.pull_back(state.parameters, made, grad_x)
        done = state.t + delay + self.pretraining
        moments = Moments(state.first, state.second, done)
        parameters, moments = adam(state.parameters, grad, moments, self.pretraining_rate)
        parameters[:, -problem.dim :].clamp_(min=self.log_var_floor)
        if done + 1 == self.pretraining:
            moments = Moments.start(parameters)
        average = state.average if self.ema is None else parameters
        return SamplerState(parameters, average, moments.first, moments.second, state.t + 1)

    def draw(self, parameters: Tensor, z: Tensor, xi: Tensor) -> Draw:
        """Samples mu(z) + sigma xi by parameters (R, P + D), z (R, m, latent_dim), xi (R, n, D), from the first n z."""
        n, dim = xi.shape[1:]
        network, log_var = split(parameters, dim)
        sigma = (0.5 * log_var).exp()
        values = self.network(dim).forward(network, z)
        return Draw(values[-1][:, :n] + sigma * xi, sigma, xi, xi / sigma, values)

    def pull_back(
        self,
        parameters: Tensor,
        made: Draw,
        grad_x: Tensor,
        grad_noise: Tensor | None = None,
        grad_mu: Tensor | None = None,
        grad_log_var: Tensor | None = None,
    ) -> Tensor:
        """Gradient of an objective in the parameters, (R, P + D), from those in what ``draw`` returned.

        ``grad_x`` is that in the samples, (R, n, D); where the objective holds them explicitly, ``grad_noise`` is that
        in xi / sigma, (R, n, D), ``grad_mu`` that in the values of mu beyond that through x, (R, m, D),
        ``grad_log_var`` that in log sigma^2 beyond those, (R, D).
        """
        n, dim = grad_x.shape[1:]
        terms = grad_x * (made.sigma * made.xi)
        if grad_noise is not None:
            terms -= grad_noise * made.noise
        by_log_var = 0.5 * terms.sum(1)  # d sigma / d log sigma^2 = sigma / 2
        if grad_log_var is not None:
            by_log_var += grad_log_var
        if grad_mu is not None:
            grad_x = torch.cat((grad_x + grad_mu[:, :n], grad_mu[:, n:]), 1)
        network, _ = split(parameters, dim)
        return torch.cat((self.network(dim).backward(network, made.values, grad_x), by_log_var), 1)

    def descend(self, state: SamplerState, grad: Tensor, dim: int) -> SamplerState:
        """One step of Adam: clipped, decayed, log sigma^2 cut at its floor; the average follows."""
        if self.clip_norm is not None:
            norm = grad.norm(dim=1, keepdim=True)
            grad = grad * (self.clip_norm / (norm + 1e-6)).clamp(max=1)  # as torch.nn.utils
        rate = self.step_size * step_decay(state.t, self.decay, self.decay_every)
        moments = Moments(state.first, state.second, state.t)
        parameters, moments = adam(state.parameters, grad, moments, rate, (self.beta1, self.beta2))
        log_var = parameters[:, -dim:]
        if self.log_var_rate != 1:
            log_var.copy_(state.parameters[:, -dim:].lerp(log_var, self.log_var_rate))
        log_var.clamp_(min=self.log_var_floor)
        average = state.average
        if self.ema is not None:
            average = average.lerp(parameters, 1 - self.ema)
        return SamplerState(parameters, average, moments.first, moments.second, state.t + 1)


S = TypeVar("S", bound=SemiImplicitSettings)
T = TypeVar("T")


class SemiImplicit(Algorithm[S, T]):
    """Base of the semi-implicit methods: fresh draws."""

    kind: ClassVar[Kind] = "generator"

    def init(self, problem: Problem, settings: S, streams: Streams, horizon: int) -> Any:
        """Random network, constant sigma."""
        return settings.start(problem.dim, streams)

    @torch.no_grad()
    def output(self, problem: Problem, settings: S, state: T, n: int, streams: Streams) -> Tensor:
        """Fresh draws, (R, n, D), from the average of the parameters where there is one."""
        z = streams.normal("output", (n, settings.latent_dim))
        xi = streams.normal("output", (n, problem.dim), index=1)
        sampler: Any = getattr(state, "sampler", state)
        return settings.draw(sampler.parameters if settings.ema is None else sampler.average, z, xi).x
