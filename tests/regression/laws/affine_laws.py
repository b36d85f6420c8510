"""Langevin methods on Gaussian targets: affine maps with Gaussian noise, so that every step's law is Gaussian.

Near the minimum of a potential with Hessian P the score is ``s(x) = b - P x``, and each method is

    z <- A z + a + N(0, Q),   z = x or (x, v)

with A, a and Q from the method's publication. Means and covariances follow by ``m <- A m + a``,
``S <- A S A^T + Q``; under a random sequence of mini-batches the law is a mixture of such Gaussians. Written from
the papers, apart from the algorithms. The convention is eta: ``x + eta s + N(0, 2 eta I)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import expm

Array = NDArray[np.float64]


class Map(NamedTuple):
    """One step: (..., Z, Z), (..., Z) and (Z, Z)."""

    A: Array
    a: Array
    Q: Array


class Gaussian(NamedTuple):
    """Mean (..., Z) and covariance (..., Z, Z)."""

    mean: Array
    covariance: Array

    def after(self, step: Map) -> Gaussian:
        """Its law after the step."""
        mean = (step.A @ self.mean[..., None])[..., 0] + step.a
        return Gaussian(mean, step.A @ self.covariance @ np.swapaxes(step.A, -1, -2) + step.Q)

    def positions(self, dim: int) -> Gaussian:
        """The law of the first ``dim`` coordinates."""
        return Gaussian(self.mean[..., :dim], self.covariance[..., :dim, :dim])

    def sample(self, points: int, rng: np.random.Generator) -> Array:
        """Independent draws, (..., points, Z)."""
        root = np.linalg.cholesky(self.covariance)
        z = rng.standard_normal((*self.mean.shape[:-1], points, self.mean.shape[-1]))
        return self.mean[..., None, :] + z @ np.swapaxes(root, -1, -2)


#: (P, b, settings, number of the step) -> the step.
Method = Callable[[Array, Array, dict[str, Any], int], Map]


def langevin(P: Array, b: Array, settings: dict[str, Any], k: int) -> Map:
    """Euler's scheme: Roberts & Tweedie (1996), Section 1.4.1; with mini-batches Welling & Teh (2011), Eq. 4."""
    eta, eye = settings["step_size"], np.eye(P.shape[-1])
    return Map(eye - eta * P, eta * b, 2 * eta * eye)


def frozen_psgld(P: Array, b: Array, settings: dict[str, Any], k: int) -> Map:
    """Li et al. (2016), arXiv:1512.07666, Algorithm 1, with V = 0 for ever: a constant preconditioner 1 / lambda."""
    return langevin(P, b, {"step_size": settings["step_size"] / settings["damping"]}, k)


def prior_diffusion(P: Array, b: Array, settings: dict[str, Any], k: int) -> Map:
    """Huang et al. (2024), arXiv:2403.06183, Algorithm 1, for a prior N(0, I): gradient step, then the prior's flow."""
    eta, eye = settings["step_size"], np.eye(P.shape[-1])
    tilde, contraction = math.exp(eta) - 1, math.exp(-eta)
    drift = eye - tilde * (P - eye)  # grad f(x) = (P - I) x - b
    return Map(contraction * drift, contraction * tilde * b, (1 - contraction**2) * eye)


def decaying_prior_diffusion(P: Array, b: Array, settings: dict[str, Any], k: int) -> Map:
    """The same with the steps of Theorem 4.2, 8 h / (9 + 3 h a (k - K)_+)."""
    h, a = settings["step_size"], settings["log_sobolev"]
    eta = 8 * h / (9 + 3 * h * a * max(0, k - settings["constant_steps"]))
    return prior_diffusion(P, b, {"step_size": eta}, k)


def underdamped(P: Array, b: Array, settings: dict[str, Any], k: int) -> Map:
    """Cheng et al. (2018), arXiv:1707.03663, Eq. 6."""
    return _with_velocity(P, b, *held_force(settings["step_size"], settings["friction"]))


def held_force(eta: float, g: float) -> tuple[Array, Array, Array]:
    """The underdamped diffusion of one coordinate over unit time, its force s constant.

        dx = v dt,   dv = (-g v + eta s) dt + sqrt(2 g eta) dB

    Flow and noise come from one matrix exponential (Van Loan 1978, IEEE Trans. Automatic Control 23:395-404): what (x,
    v) is multiplied by (2, 2), what s adds (2,), and the noise's covariance (2, 2).
    """
    drift = np.array([[0.0, 1.0, 0.0], [0.0, -g, eta], [0.0, 0.0, 0.0]])  # of (x, v, s)
    noise = np.diag([0.0, 2 * g * eta, 0.0])
    block = expm(np.block([[-drift, noise], [np.zeros((3, 3)), drift.T]]))
    flow = block[3:, 3:].T
    return flow[:2, :2], flow[:2, 2], (flow @ block[:3, 3:])[:2, :2]


def momentum(P: Array, b: Array, settings: dict[str, Any], k: int) -> Map:
    """Chen, Fox & Guestrin (2014), arXiv:1402.4102, Eq. 15: v <- (1 - f) v + eta s + N(0, 2 f eta), x <- x + v."""
    eta, f = settings["step_size"], settings["friction"]
    flow = np.array([[1.0, 1 - f], [0.0, 1 - f]])
    return _with_velocity(P, b, flow, np.array([eta, eta]), 2 * f * eta * np.ones((2, 2)))


def _with_velocity(P: Array, b: Array, flow: Array, by_score: Array, noise: Array) -> Map:
    """The map of (x, v) in D dimensions from that of one coordinate under a given score."""
    dim = P.shape[-1]
    eye = np.eye(dim)
    A = np.broadcast_to(np.kron(flow, eye), (*P.shape[:-2], 2 * dim, 2 * dim)).copy()
    A[..., :dim, :dim] -= by_score[0] * P
    A[..., dim:, :dim] -= by_score[1] * P
    a = np.concatenate([by_score[0] * b, by_score[1] * b], -1)
    return Map(A, a, np.kron(noise, eye).astype(np.float64))


#: Registered name -> its map.
METHODS: dict[str, Method] = {
    "ula": langevin,
    "sgld": langevin,
    "psgld": frozen_psgld,
    "lapd": prior_diffusion,
    "lapd-decay": decaying_prior_diffusion,
    "uld": underdamped,
    "sghmc": momentum,
}
#: Those whose state has a velocity, which starts from N(0, eta I), its law under the diffusion.
WITH_VELOCITY = frozenset({"uld", "sghmc"})
