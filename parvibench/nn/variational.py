"""Variational families trained on the evidence bound: settings, state and optimiser they share.

Pyro's own inference loop is not used: its parameter store and random state belong to the process, and it
fits one model at a time, while here replicates must be independent, resumable and batched, and every score
metered. All three families are reparameterised, so the bound's gradient needs the target's score only.

Flows report log Z: in the last fifth of the steps foreseen the draws of the bound serve as importance samples, of the law
that they were drawn from. The meter gives their densities with their scores, where these are of all data.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch
from pydantic import Field
from torch import Tensor

from parvibench.core.algorithm import Algorithm, Example, Kind, Problem, SteppedSettings, Streams

from .optim import Moments, adam


class VariationalSettings(SteppedSettings):
    """Settings that all families share."""

    step_size: float = Field(0.01, gt=0, description="Adam's learning rate, in parameters; Pyro's tutorials")
    batch: int = Field(10, ge=1, description="samples per iteration; ours, 1 in Pyro")
    init_scale: float = Field(0.1, gt=0, description="initial standard deviation, in x; Pyro's guides")
    final_rate: float = Field(0.1, gt=0, le=1, description="learning rate at the horizon over the first; Pyro")


#: Share of the steps foreseen from which importance weights are gathered, and a value in place of the logarithm of zero.
LATE, NOTHING = 0.8, -1e30


class Info(NamedTuple):
    """Estimates of log Z, (R,) each."""

    log_z: Tensor
    log_z_se: Tensor  # its standard error, by the spread of the weights


class VariationalState(NamedTuple):
    """A family's parameters and Adam's memory."""

    parameters: Tensor  # (R, P)
    first: Tensor  # (R, P)
    second: Tensor  # (R, P)
    t: int
    horizon: int
    weights: Tensor  # (R, 3) logarithms of the sums of the importance weights and of their squares, and the number


S = TypeVar("S", bound=VariationalSettings)


class Variational(Algorithm[S, VariationalState]):
    """A family: where it starts, the gradient of its bound, and its draws."""

    kind: ClassVar[Kind] = "generator"
    example: ClassVar[Example] = Example(
        quick={"batch": 8}, settings={"step_size": 0.05}, steps=200, points=200, both_modes=False
    )

    @abstractmethod
    def gradient(self, problem: Problem, settings: S, parameters: Tensor, noise: Tensor) -> Tensor:
        """Gradient of the negative bound, (R, P), from standard normal noise (R, n, D)."""

    @abstractmethod
    def push(self, settings: S, parameters: Tensor, noise: Tensor) -> Tensor:
        """Samples from standard normal noise, (R, n, D) -> (R, n, D)."""

    def stretched(self, settings: S, parameters: Tensor, noise: Tensor) -> tuple[Tensor, Tensor] | None:
        """Samples from noise (R, n, D), and log determinants of their derivatives by it, (R, n); None: no log Z."""
        return None

    def step(
        self, problem: Problem, settings: S, state: VariationalState, streams: Streams
    ) -> VariationalState | tuple[VariationalState, Info]:
        """One step of Adam on the bound of a fresh batch."""
        noise = streams.normal("noise", (settings.batch, problem.dim))
        after = descend(settings, state, self.gradient(problem, settings, state.parameters, noise))
        late = state.t >= LATE * state.horizon and problem.share == 1
        if not late or (drawn := self.stretched(settings, state.parameters, noise)) is None:
            return after
        x, log_det = drawn
        log_q = -0.5 * noise.square().sum(-1) - 0.5 * problem.dim * math.log(2 * math.pi) - log_det
        log_w = (problem.log_density(x) - log_q).nan_to_num(nan=NOTHING).clamp(NOTHING, -NOTHING)
        first, second, draws = state.weights.unbind(1)
        weights = (log_w.logsumexp(1).logaddexp(first), (2 * log_w).logsumexp(1).logaddexp(second), draws + len(x[0]))
        return after._replace(weights=torch.stack(weights, 1)), Info(*log_normaliser(*weights))

    def output(self, problem: Problem, settings: S, state: VariationalState, n: int, streams: Streams) -> Tensor:
        """Fresh draws, (R, n, D)."""
        return self.push(settings, state.parameters, streams.normal("output", (n, problem.dim)))


class AffineFlow(Variational[S]):
    """Layers v' = exp(a) v + b, then x = m + sd y: parameters are the layers' networks, m and log sd in a row."""

    @abstractmethod
    def layers(self, settings: S, flat: Tensor, noise: Tensor) -> tuple[Tensor, Sequence[Any]]:
        """y (R, n, D) and the layers at work, with log scales ``a``, from networks (R, P - 2 D) and noise (R, n, D)."""

    @abstractmethod
    def back(self, settings: S, layers: Sequence[Any], grad: Tensor) -> list[Tensor]:
        """Gradients in the layers' networks, the last one first, from that in y (R, n, D)."""

    def through(self, settings: S, parameters: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Sequence[Any]]:
        """x (R, n, D), y (R, n, D) and the layers at work, from noise (R, n, D) and parameters (R, P)."""
        dim = noise.shape[2]
        y, layers = self.layers(settings, parameters[:, : -2 * dim], noise)
        m, log_sd = parameters[:, None, -2 * dim :].chunk(2, 2)
        return m + log_sd.exp() * y, y, layers

    def push(self, settings: S, parameters: Tensor, noise: Tensor) -> Tensor:
        """Samples from standard normal noise, (R, n, D) -> (R, n, D)."""
        return self.through(settings, parameters, noise)[0]

    def stretched(self, settings: S, parameters: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Samples, and the sum of all log scales."""
        x, _, layers = self.through(settings, parameters, noise)
        scales = [layer.a.sum(-1) for layer in layers]
        return x, sum(scales, parameters[:, -noise.shape[2] :].sum(-1, keepdim=True))

    def gradient(self, problem: Problem, settings: S, parameters: Tensor, noise: Tensor) -> Tensor:
        """Gradient of the negative bound, (R, P), from noise (R, n, D)."""
        x, y, layers = self.through(settings, parameters, noise)
        grad = problem.score(x) / -noise.shape[1]
        sd = parameters[:, None, -problem.dim :].exp()
        ends = grad.sum(1), (grad * sd * y).sum(1) - 1
        return torch.cat((*reversed(self.back(settings, layers, grad * sd)), *ends), 1)


def narrow(problem: Problem, settings: VariationalSettings, horizon: int, *networks: Tensor) -> VariationalState:
    """First state: networks, then m at the first of the task's initial points, and log sd."""
    m = problem.init()[:, 0]
    return begin(torch.cat((*networks, m, torch.full_like(m, math.log(settings.init_scale))), 1), horizon)


def begin(parameters: Tensor, horizon: int) -> VariationalState:
    """First state at the given parameters."""
    moments = Moments.start(parameters)
    weights = parameters.new_tensor([NOTHING, NOTHING, 0.0]).expand(len(parameters), 3)
    return VariationalState(parameters, moments.first, moments.second, 0, horizon, weights.contiguous())


def log_normaliser(first: Tensor, second: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
    """log Z and its standard error: logarithms of the sums of importance weights and of their squares, and the number."""
    return first - draws.log(), ((second - 2 * first).exp() - 1 / draws).clamp_min(0).sqrt()


def descend(settings: VariationalSettings, state: VariationalState, grad: Tensor) -> VariationalState:
    """One step of Adam, its rate falling geometrically to the horizon."""
    rate = settings.step_size * settings.final_rate ** min(1.0, state.t / max(1, state.horizon))
    moments = Moments(state.first, state.second, state.t)
    parameters, moments = adam(state.parameters, grad, moments, rate)
    return VariationalState(parameters, *moments, state.horizon, state.weights)
