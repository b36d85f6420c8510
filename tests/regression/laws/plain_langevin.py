"""Methods whose law has no closed form, as short plain programs on many chains at once.

Written from the publications' pseudo-code, independently of the algorithms, in NumPy and with its random numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from affine_laws import held_force
from numpy.typing import NDArray

Array = NDArray[np.float64]
Score = Callable[[Array], Array]
#: (score, start (C, D), settings, steps, rng) -> last positions (C, D).
Twin = Callable[[Score, Array, dict[str, Any], int, np.random.Generator], Array]


def psgld(score: Score, x: Array, settings: dict[str, Any], steps: int, rng: np.random.Generator) -> Array:
    """Li, Chen, Carlson & Carin (2016), arXiv:1512.07666, Algorithm 1, without the term Gamma."""
    eta, V = settings["step_size"], np.zeros_like(x)
    for _ in range(steps):
        s = score(x)
        V = settings["decay"] * V + (1 - settings["decay"]) * s**2
        G = 1 / (settings["damping"] + np.sqrt(V))
        x = x + eta * G * s + np.sqrt(2 * eta * G) * rng.standard_normal(x.shape)
    return x


def srld(score: Score, x: Array, settings: dict[str, Any], steps: int, rng: np.random.Generator) -> Array:
    """Ye, Ren & Liu (2020), arXiv:2002.09070, Algorithm 1."""
    eta, past = settings["step_size"], _Past(score, settings, steps)
    for _ in range(steps):
        force = past.force(x)
        x = x + eta * force + math.sqrt(2 * eta) * rng.standard_normal(x.shape)
    return x


def sr_uld(score: Score, x: Array, settings: dict[str, Any], steps: int, rng: np.random.Generator) -> Array:
    """The same paper, Section 5, on the underdamped diffusion integrated with a constant force."""
    flow, by_force, noise = held_force(settings["step_size"], settings["friction"])
    root = np.linalg.cholesky(noise)
    past = _Past(score, settings, steps)
    v = math.sqrt(settings["step_size"]) * rng.standard_normal(x.shape)
    for _ in range(steps):
        force, z = past.force(x), rng.standard_normal((2, *x.shape))
        x = x + flow[0, 1] * v + by_force[0] * force + root[0, 0] * z[0]
        v = flow[1, 1] * v + by_force[1] * force + root[1, 0] * z[0] + root[1, 1] * z[1]
    return x


def sr_sghmc(score: Score, x: Array, settings: dict[str, Any], steps: int, rng: np.random.Generator) -> Array:
    """The same on momentum with friction: Chen, Fox & Guestrin (2014), arXiv:1402.4102, Eq. 15."""
    eta, f = settings["step_size"], settings["friction"]
    past = _Past(score, settings, steps)
    v = math.sqrt(eta) * rng.standard_normal(x.shape)
    for _ in range(steps):
        v = (1 - f) * v + eta * past.force(x) + math.sqrt(2 * f * eta) * rng.standard_normal(x.shape)
        x = x + v
    return x


class _Past:
    """Score plus Stein repulsion from M past positions, c steps apart, once all M are there.

    ``g(x) = 1/M sum_b [K(b, x) s(b) + grad_b K(b, x)]``, ``K = exp(-||b - x||^2 / sigma)``, with sigma the lower
    median of the squared distances over log M. The memory is renewed at every c-th step.
    """

    def __init__(self, score: Score, settings: dict[str, Any], steps: int) -> None:
        self._score, self._settings = score, settings
        self._every = max(1, min(settings["spacing"], steps // (4 * settings["memory"])))
        self._points: list[Array] = []
        self._step = 0

    def force(self, x: Array) -> Array:
        M, force = self._settings["memory"], self._score(x)
        if self._step >= M * self._every:
            force = force + self._settings["alpha"] * self._repulsion(x, self._points[-M:])
        if self._step % self._every == 0:
            self._points.append(x)
        self._step += 1
        return force

    def _repulsion(self, x: Array, points: list[Array]) -> Array:
        squares = np.stack([((b - x) ** 2).sum(-1) for b in points])  # (M, C)
        sigma = np.sort(squares, axis=0)[(len(points) - 1) // 2] / math.log(len(points))
        g = np.zeros_like(x)
        for b, square in zip(points, squares, strict=True):
            kernel = np.exp(-square / sigma)[:, None]
            g += kernel * self._score(b) - kernel * 2 * (b - x) / sigma[:, None]
        return g / len(points)


#: Registered name -> its plain program.
TWINS: dict[str, Twin] = {"psgld": psgld, "srld": srld, "sr-uld": sr_uld, "sr-sghmc": sr_sghmc}
