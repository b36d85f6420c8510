"""A diffusion in a double well observed through noise.

Cheng et al. (2024), arXiv:2405.18997, Section 6.3: dx = 10 x (1 - x^2) dt + dw from x_0 = 0 to time 1 by the Euler
map in d steps, y = x_k + N(0, 0.01) at every fifth step. With m(x) = x + b(x) dt, dt = 1/d, the posterior is

    log p = -sum_{k=1}^{d} (x_k - m(x_{k-1}))^2 / (2 dt) - sum_{k = 5, 10, ...} (x_k - y_k)^2 / 0.02 + const

- ``diffusion-50``, ``diffusion-100``, ``diffusion-200``: the paper's drift b(x) = 10 x (1 - x^2).
- ``diffusion-50-ksivi-code``, ``diffusion-100-ksivi-code``, ``diffusion-200-ksivi-code``: the drift of the authors'
  density, 10 x (1 - x^2) / (1 + x^2), although the data come from the paper's drift.

The data are those of the authors' code (seed 2022), as numbers. Start N(0, I). The constant makes the density's
integral the evidence p(y).

Trap: the paper's drift is so strong far out that its Euler map overshoots. A path that has wandered to the
right well may leap on to 2.5, from where one step of 1/50 throws it back to the left: m(2.5) = -0.1. Each such spike
makes local modes of their own, 65 to 100 nats below the path without it at d = 50 (some 440 at d = 100, and further
out), with no weight in the posterior and no meaning for the diffusion. Ascending from N(0, I), a fifth of all
starts end in one at d = 50, and chains of small steps remain there. The authors' drift has none.

Exact draws: x_0, x_1, ... given y is a Markov chain. Its backward messages h_k(x) = p(y_j, j >= k | x_k = x) follow
from one another by integrals against a Gaussian kernel, for which the trapezoidal rule on a grid converges
geometrically; x_k given x_{k-1} has density ~ N(x_k; m(x_{k-1}), dt) h_k(x_k). A draw from it picks a point of a
lattice that is finer than the density's own scale and randomly shifted: a lattice sum hardly depends on the shift
(the same rule), so the point has just this density.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline
from torch import Generator, Tensor
from torch.nn.functional import pad

from parvibench.core.exact import ExactTask
from parvibench.core.target import Linearised, Target, score_with_product
from parvibench.core.task import DENSITY_METRICS, Facts

_NOISE_SD = 0.1
_EVERY = 5  # steps between observations
_BETA = 10.0

Array = NDArray[np.float64]


@dataclass(frozen=True)
class EulerMap:
    """One Euler step without noise, m(x) = x + b(x) dt."""

    steps: int  #: d
    damped: bool = False  #: divide the drift by 1 + x^2, as the authors' density does

    @property
    def dt(self) -> float:
        """Time step 1/d."""
        return 1 / self.steps

    def __call__(self, x: Tensor) -> Tensor:
        """m(x), elementwise."""
        drift = _BETA * x * (1 - x**2)
        return x + self.dt * (drift / (1 + x**2) if self.damped else drift)

    def slope(self, x: Tensor) -> Tensor:
        """m'(x), elementwise."""
        x2 = x**2
        slope = (1 - 4 * x2 - x2**2) / (1 + x2) ** 2 if self.damped else 1 - 3 * x2
        return 1 + _BETA * self.dt * slope

    def curvature(self, x: Tensor) -> Tensor:
        """m''(x), elementwise."""
        x2 = x**2
        curvature = (4 * x2 - 12) / (1 + x2) ** 3 if self.damped else -6.0
        return _BETA * self.dt * curvature * x


class DiffusionTarget(Target):
    """The path's density times the likelihood of y, (d / 5,) observations."""

    def __init__(self, euler: EulerMap, y: Tensor, device: torch.device | str, dtype: torch.dtype) -> None:
        self.dim = euler.steps
        self._euler = euler
        self._y = y.to(device, dtype)
        precision = torch.zeros(self.dim, dtype=torch.float64)
        precision[_EVERY - 1 :: _EVERY] = _NOISE_SD**-2
        self._precision = precision.to(device, dtype)
        # Each observation at its step and, for no reason but the shape, at the four steps before.
        self._data = self._y.repeat_interleave(_EVERY)
        path, noise = 2 * math.pi * euler.dt, 2 * math.pi * _NOISE_SD**2
        self._constant = -0.5 * (self.dim * math.log(path) + len(y) * math.log(noise))

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Log of p(x) p(y | x) in nats: (R, N, D) -> (R, N)."""
        return self._log_density(x, self._innovations(x))

    def score(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Gradient: (R, N, D) -> (R, N, D)."""
        if x.requires_grad and torch.is_grad_enabled():
            return score_with_product(x, self._linearise)
        return self._score(x, self._innovations(x))

    def _linearise(self, x: Tensor) -> Linearised:
        """The score and the product with its tridiagonal Hessian."""
        innovations, slope = self._innovations(x), self._euler.slope(x[..., :-1])
        bend = innovations[..., 1:] * self._euler.curvature(x[..., :-1])

        def product(v: Tensor) -> Tensor:
            change = v.clone()  # of the innovations
            change[..., 1:] -= slope * v[..., :-1]
            result = change + (self._precision * self._euler.dt) * v
            result[..., :-1] -= slope * change[..., 1:] + bend * v[..., :-1]
            return result.div_(-self._euler.dt)

        return self._score(x, innovations), product

    def log_density_and_score(self, x: Tensor, batch: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Both from one pass."""
        innovations = self._innovations(x)
        return self._log_density(x, innovations), self._score(x, innovations)

    def _innovations(self, x: Tensor) -> Tensor:
        """x_k - m(x_{k-1}), (R, N, D); m(x_0) = m(0) = 0."""
        return x - pad(self._euler(x[..., :-1]), (1, 0))

    def _log_density(self, x: Tensor, innovations: Tensor) -> Tensor:
        misfit = self._precision * (x - self._data) ** 2
        return self._constant - 0.5 * (innovations**2 / self._euler.dt + misfit).sum(-1)

    def _score(self, x: Tensor, innovations: Tensor) -> Tensor:
        onward = pad(innovations[..., 1:] * self._euler.slope(x[..., :-1]), (0, 1))
        return (onward - innovations) / self._euler.dt - self._precision * (x - self._data)


class Smoother:
    """The law of a path x_k = m(x_{k-1}) + N(0, dt) from 0 given observations of every fifth step.

    All integrals are trapezoidal sums on one grid, whose spacing must be well below sqrt(dt); the path ends with the
    last observation, and the posterior's mass beyond the grid must be negligible.
    """

    #: Lattice of the draws, in sqrt(dt) around m: wide and fine enough for errors below 1e-6.
    _HALF_WIDTH, _LATTICE = 8.0, 0.6
    #: Draws made at once.
    _BLOCK = 4000

    def __init__(
        self,
        step: Callable[[Tensor], Tensor],
        dt: float,
        y: Sequence[float],
        low: float = -3.5,
        high: float = 2.5,
        spacing: float = 0.01,
    ) -> None:
        self._step, self._dt = step, dt
        self.grid: Array = np.asarray(low + spacing * np.arange(round((high - low) / spacing) + 1), np.float64)
        self._spacing = spacing
        self._y = np.repeat(np.asarray(y), _EVERY)
        self._messages, self.log_evidence = self._backward()

    @property
    def steps(self) -> int:
        """d."""
        return len(self._y)

    @cached_property
    def marginals(self) -> Array:
        """Densities of x_1 ... x_d on the grid, (d, G): filter times backward message, normalised."""
        kernel = np.exp(self._log_kernel(self.grid))
        past = np.exp(self._log_kernel(np.zeros(1))[0])  # p(x_k | y_j, j < k)
        rows = np.empty_like(self._messages)
        for k, message in enumerate(self._messages):
            rows[k] = past * np.exp(message - message.max())
            likelihood = self._log_likelihood(k)
            past = np.asarray((past * np.exp(likelihood - likelihood.max())) @ kernel)
            past /= past.sum()
        return np.asarray(rows / (rows.sum(1, keepdims=True) * self._spacing))

    def moments(self) -> tuple[Array, Array]:
        """Means and standard deviations of x_1 ... x_d, (d,) each."""
        mean = self.marginals @ self.grid * self._spacing
        second = self.marginals @ self.grid**2 * self._spacing
        return mean, np.sqrt(second - mean**2)

    def sample(self, n: int, generator: Generator) -> Tensor:
        """Independent paths, (n, d) float64."""
        blocks = [min(self._BLOCK, n - i) for i in range(0, n, self._BLOCK)]
        return torch.cat([self._paths(b, generator) for b in blocks])

    def _paths(self, n: int, generator: Generator) -> Tensor:
        lattice = np.arange(-self._HALF_WIDTH, self._HALF_WIDTH, self._LATTICE)
        x = torch.zeros(n, dtype=torch.float64)
        path = []
        for message in self._splines:
            shift, u = torch.rand(2, n, 1, generator=generator, dtype=torch.float64).numpy()
            offsets = lattice + self._LATTICE * shift
            points = self._step(x).numpy()[:, None] + math.sqrt(self._dt) * offsets
            log_p = message(points) - offsets**2 / 2
            cdf = np.exp(log_p - log_p.max(1, keepdims=True)).cumsum(1)
            chosen = (cdf < u * cdf[:, -1:]).sum(1, keepdims=True)
            x = torch.from_numpy(np.take_along_axis(points, chosen, 1)[:, 0])
            path.append(x)
        return torch.stack(path, dim=1)

    @cached_property
    def _splines(self) -> list[CubicSpline]:
        """log h_k as functions."""
        return [CubicSpline(self.grid, message) for message in self._messages]

    def _backward(self) -> tuple[Array, float]:
        """log h_k on the grid, (d, G), and log p(y)."""
        kernel = np.exp(self._log_kernel(self.grid))
        messages = np.empty((self.steps, len(self.grid)))
        future = np.zeros(len(self.grid))  # log p(y_j, j > k | x_k)
        for k in reversed(range(self.steps)):
            messages[k] = future + self._log_likelihood(k)
            top = messages[k].max()
            future = np.log(kernel @ np.exp(messages[k] - top) * self._spacing) + top
        log_p = self._log_kernel(np.zeros(1))[0] + messages[0]
        top = log_p.max()
        return messages, float(np.log(np.exp(log_p - top).sum() * self._spacing) + top)

    def _log_likelihood(self, k: int) -> Array:
        """log p(y_k | x_k) on the grid, (G,); 0 where nothing is observed."""
        if (k + 1) % _EVERY:
            return np.zeros(len(self.grid))
        z = (self._y[k] - self.grid) / _NOISE_SD
        return np.asarray(-0.5 * z**2 - math.log(_NOISE_SD * math.sqrt(2 * math.pi)))

    def _log_kernel(self, x: Array) -> Array:
        """log N(u; m(x), dt) for u on the grid, (len(x), G)."""
        centre = self._step(torch.from_numpy(x)).numpy()
        return np.asarray(-0.5 * (self.grid - centre[:, None]) ** 2 / self._dt - 0.5 * math.log(2 * math.pi * self._dt))


@dataclass(frozen=True, kw_only=True)
class DiffusionTask(ExactTask):
    """A path of the double-well diffusion given noisy observations."""

    euler: EulerMap
    y: tuple[float, ...]
    smoother: Smoother

    def target(self, replicates: Sequence[int], device: torch.device | str, dtype: torch.dtype) -> DiffusionTarget:
        """The density, the same for all replicates."""
        return DiffusionTarget(self.euler, torch.tensor(self.y, dtype=torch.float64), device, dtype)

    def exact(self, n: int, generator: Generator) -> Tensor:
        """Independent exact draws, (n, D) float64."""
        return self.smoother.sample(n, generator)


# fmt: off
_Y = {
    50: (-0.829094, -1.213764, -1.148783, -0.828164, -0.902760, -0.687194, -0.917168, -1.118267, -0.932631, -1.161234),
    100: (
        -0.492257, -0.910423, -1.071456, -0.935494, -0.989427, -0.745447, -1.111591, -1.238583, -1.289590, -1.503767,
        -0.920019, -1.127194, -1.403862, -1.107657, -0.701482, -0.649002, -1.005464, -0.846095, -0.618082, -0.767639,
    ),
    200: (
        -0.506075, -0.526960, -0.873426, -1.014372, -1.055818, -0.650204, -0.941543, -1.132373, -1.053851, -1.408533,
        -0.992549, -0.941120, -1.254742, -1.006648, -0.796082, -0.856804, -1.153203, -0.878643, -0.562247, -0.713356,
        -0.680744, -0.548699, -0.648059, -0.716360, -0.843060, -1.055158, -1.084708, -0.518042, -0.853616, -1.159833,
        -1.269099, -1.070040, -1.286904, -0.884237, -0.987012, -0.681925, -0.967323, -1.036067, -1.012319, -0.740909,
    ),
}
# fmt: on


def _diffusion(steps: int, damped: bool = False) -> DiffusionTask:
    euler = EulerMap(steps, damped)
    smoother = Smoother(euler, euler.dt, _Y[steps])
    mean, sd = smoother.moments()
    return DiffusionTask(
        name=f"diffusion-{steps}" + ("-ksivi-code" if damped else ""),
        summary=f"a double-well diffusion of {steps} steps given {steps // _EVERY} observations"
        + (", the authors' drift" if damped else ""),
        dim=steps,
        tags=frozenset({"path", "correlated", "exact", "ksivi"}),
        citation="Cheng, Yu, Xie, Zhang & Zhang (2024), arXiv:2405.18997, "
        + ("authors' code" if damped else "Section 6.3"),
        metrics=DENSITY_METRICS,
        facts=Facts(torch.from_numpy(mean), torch.from_numpy(sd), constants={"log evidence": smoother.log_evidence}),
        euler=euler,
        y=_Y[steps],
        smoother=smoother,
    )


DIFFUSION_50 = _diffusion(50)
DIFFUSION_100 = _diffusion(100)
DIFFUSION_200 = _diffusion(200)
DIFFUSION_50_KSIVI_CODE = _diffusion(50, damped=True)
DIFFUSION_100_KSIVI_CODE = _diffusion(100, damped=True)
DIFFUSION_200_KSIVI_CODE = _diffusion(200, damped=True)
