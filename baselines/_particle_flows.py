"""Common parts of deterministic particle methods: the step rule, the bandwidth and Nesterov's acceleration.

Liu, Zhuo, Cheng, Zhang, Zhu & Carin (2019), arXiv:1807.01750, Algorithm 1. A velocity v is taken at y, and with
x_k = y_{k-1} + eps v(y_{k-1})

    none:  y_k = x_k
    WAG:   y_k = x_k + (k - 1)/k (y_{k-1} - x_{k-1}) + (k + alpha - 2)/k eps v,   alpha > 3
    WNes:  y_k = x_k + c (x_k - x_{k-1}),   c = 1 + b - 2 (1 + b) (2 + b) m / (sqrt(b^2 + 4 (1 + b) m) - b + 2 (1 + b) m)

where m = mu eps and b = beta sqrt(m); x_k are the samples. The code sets mu to 300 and more at steps of 3e-4 and less:
it is m that matters, and m is the setting here. Differences of particle sets are taken particle by particle, the
approximation with which the paper ran its experiments.

Trap: the momentum of WAG grows towards one: it overshoots, and does not come to rest where steps are large.
"""

import math
from abc import abstractmethod
from typing import Literal, NamedTuple, TypeVar

from pydantic import Field, PositiveFloat
from torch import Tensor

from parvibench.core.algorithm import Algorithm, Problem, SteppedSettings, Streams
from parvibench.kernels.gram import exp_, median_bandwidth, self_distances
from parvibench.kernels.heat import heat_bandwidth
from parvibench.nn.optim import Moments, adam, rms_normalised


class FlowSettings(SteppedSettings):
    """Settings that all share."""

    rule: Literal["plain", "adagrad", "adam"] = Field(
        "plain",
        description="plain: x + eps v (paper); adagrad: v over its running rms (code); adam: Adam's step along v",
    )
    acceleration: Literal["none", "wag", "wnes"] = Field("none", description="of the steps; Liu et al. (2019)")
    wag_alpha: float = Field(3.5, gt=3, description="alpha of WAG; code: 3.5 to 3.9")
    wnes_mu: float = Field(0.1, gt=0, description="mu eps of WNes, without unit; code: 0.09 to 0.3")
    wnes_beta: float = Field(0.2, gt=0, description="beta of WNes; code")


class SmoothedSettings(FlowSettings):
    """Settings of the methods of Liu et al."""

    step_size: float = Field(0.01, gt=0, description="eps, in x^2 (plain) or x (adagrad, adam); code, on its toys")
    bandwidth: Literal["median", "he"] | PositiveFloat = Field(
        "median", description="h in x^2 of exp(-||x-y||^2 / h): median heuristic, heat equation (paper), or a number"
    )


class FlowState(NamedTuple):
    """Particles, where the next velocity is taken, and memories; fields that are not used are (R, 0)."""

    x: Tensor  # (R, n, d)
    y: Tensor  # (R, n, d), with acceleration
    memory: Moments  # of (R, n, d), of the rules adagrad and adam
    h: Tensor  # (R, 1, 1), the bandwidth by the heat equation
    t: int


S = TypeVar("S", bound=FlowSettings)


class ParticleFlow(Algorithm[S, FlowState]):
    """Particles that move along a velocity field of their own positions and scores."""

    kind = "particles"

    @abstractmethod
    def velocity(self, settings: S, x: Tensor, score: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """The velocity at every particle, (R, n, d), and the bandwidth to remember, (R, 1, 1) or (R, 0)."""

    def init(self, problem: Problem, settings: S, streams: Streams, horizon: int) -> FlowState:
        """Particles at the task's initial points."""
        x = problem.init()
        none, adaptive = x.new_zeros(len(x), 0), settings.rule == "adam"
        memory = Moments.start(x) if adaptive else Moments(none, none, 0)
        return FlowState(x, none if settings.acceleration == "none" else x.clone(), memory, none, 0)

    def step(self, problem: Problem, settings: S, state: FlowState, streams: Streams) -> FlowState:
        """A velocity, a step along it, and the point where the next is taken."""
        accelerated, memory = settings.acceleration != "none", state.memory
        y = state.y if accelerated else state.x
        v, h = self.velocity(settings, y, problem.score(y), state.h)
        if settings.rule == "adam":
            # the fused kernel reads both alike: the layout of v, a transpose, would be taken for that of y
            x, memory = adam(y, v.neg().contiguous(), memory, settings.step_size)
        else:
            if settings.rule == "adagrad":
                v, square = rms_normalised(v, memory.second, first=state.t == 0)
                memory = memory._replace(second=square)
            x = y.add(v, alpha=settings.step_size)
        t = state.t + 1
        return FlowState(x, extrapolated(settings, t, x, y, state.x) if accelerated else state.y, memory, h, t)

    def effective_step(self, settings: S) -> float | None:
        """Eps; None where it is no common factor of the moves."""
        plain = settings.rule == "plain" and settings.acceleration == "none"
        return settings.step_size if plain else None


def extrapolated(settings: FlowSettings, k: int, x: Tensor, y: Tensor, x_before: Tensor) -> Tensor:
    """y_k from x_k, y_{k-1} and x_{k-1}, (R, n, d) each; k = 1, 2, ..."""
    if settings.acceleration == "wag":
        return x + (1 - 1 / k) * (y - x_before) + (1 + (settings.wag_alpha - 2) / k) * (x - y)
    m = settings.wnes_mu
    b = settings.wnes_beta * math.sqrt(m)
    c = 1 + b - 2 * (1 + b) * (2 + b) * m / (math.sqrt(b * b + 4 * (1 + b) * m) - b + 2 * (1 + b) * m)
    return x + c * (x - x_before)


def bandwidth_of(settings: SmoothedSettings, x: Tensor, d: Tensor, h: Tensor) -> Tensor:
    """Bandwidth of this step, (R, 1, 1), from points, squared distances and the h of the step before ((R, 0) at the first)."""
    if settings.bandwidth == "median":
        return median_bandwidth(d)
    if settings.bandwidth == "he":
        return heat_bandwidth(x, d, h if h.dim() == 3 else median_bandwidth(d))
    return x.new_full((len(x), 1, 1), float(settings.bandwidth))


Q = TypeVar("Q", bound=SmoothedSettings)


class SmoothedFlow(ParticleFlow[Q]):
    """The methods of Liu et al.: v = s + u, where u estimates -grad log q from the kernel matrix."""

    needs = frozenset({"score"})
    citation = "Liu, Zhuo, Cheng, Zhang, Zhu & Carin (2019), arXiv:1807.01750"

    @abstractmethod
    def repulsion(self, settings: Q, x: Tensor, k: Tensor) -> Tensor:
        """The velocity u times h / 2 at every particle, (R, n, d), from points (R, n, d) and the kernel matrix (R, n, n)."""

    def velocity(self, settings: Q, x: Tensor, score: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """The score plus u."""
        d = self_distances(x)
        now = bandwidth_of(settings, x, d, h)
        u = self.repulsion(settings, x, exp_(d.div_(-now)))
        return score + (2 / now) * u, now if settings.bandwidth == "he" else h
