"""Underdamped Langevin dynamics (ULD) with the exact integrator.

Cheng, Chatterji, Bartlett & Jordan (2018), arXiv:1707.03663, Algorithm 1. The diffusion dx = v dt, dv = (-gamma v + u
s) dt + sqrt(2 gamma u) dB is solved exactly over a step of length h during which s keeps its value at the start. In
displacements per step (v for h v, g = gamma h and eta = u h^2), with e = 1 - exp(-g):

    x <- x + (e / g) v + (eta / g) (1 - e / g) s(x) + X
    v <- (1 - e) v + (eta / g) e s(x) + V

    Var V = eta e (2 - e),   Var X = (eta / g^2) (2 g - 2 e - e^2),   Cov(X, V) = (eta / g) e^2

(X, V) are jointly Gaussian, one pair per coordinate: independent draws for X and V would be a trap. v starts from its
law under the diffusion, N(0, eta I). For large g a step is a Langevin step of eta / g.

The paper's gamma = 2 and u = 1 / L are g = 2 h and eta = h^2 / L. With s constant for a whole step the stationary law
is biased, and the step is stable only while eta c < about 2 g for the curvatures c at hand.
"""

import math

from pydantic import Field
from torch import Tensor

from parvibench.core.algorithm import Example, Streams

from . import sghmc


class Settings(sghmc.Settings):
    """Settings of ULD."""

    step_size: float = Field(0.01, gt=0, description="eta = u h^2, in x^2; ours")
    friction: float = Field(0.5, ge=1e-3, description="g = gamma h, dimensionless; ours (paper: gamma = 2, so 2 h)")


class ULD(sghmc.SGHMC):
    """Underdamped Langevin dynamics, exact integrator."""

    name = "uld"
    settings_type = Settings
    citation = "Cheng, Chatterji, Bartlett & Jordan (2018), arXiv:1707.03663"
    example = Example(settings={"step_size": 0.05, "friction": 0.5}, steps=150)

    @staticmethod
    def move(settings: sghmc.Settings, x: Tensor, v: Tensor, force: Tensor, streams: Streams) -> tuple[Tensor, Tensor]:
        """x and v after a step under a constant force s (or s + alpha g); all (R, N, D)."""
        eta, g = settings.step_size, settings.friction
        e = -math.expm1(-g)
        sd_v = math.sqrt(eta * e * (2 - e))
        shared = eta * e**2 / (g * sd_v)  # part of X that goes with V
        own = math.sqrt(eta * (2 * g - 2 * e - e**2) / g**2 - shared**2)
        with_v, apart = (streams.normal("noise", x.shape[1:], index) for index in (0, 1))
        y = x.add(v, alpha=e / g).add_(force, alpha=eta / g * (1 - e / g))
        y = y.add_(with_v, alpha=shared).add_(apart, alpha=own)
        return y, ((1 - e) * v).add_(force, alpha=eta * e / g).add_(with_v, alpha=sd_v)
