"""Self-repulsive underdamped Langevin dynamics (SR-ULD).

Ye, Ren & Liu (2020), arXiv:2002.09070, Section 5, for the underdamped diffusion: the Stein force g of the
chain's past positions joins the score in the equation of the velocity,

    dx = v dt,   dv = (-gamma v + u [ s(x) + alpha g(x) ]) dt + sqrt(2 gamma u) dB

Force and memory are those of ``srld`` (from step M c on), the integrator that of ``uld``. As g is built from
positions only and the x-marginal is the target, E g = 0 holds as it does there. alpha = 0 is ULD, bit for
bit under the same noise.

Trap: Eq. 6 prints -(f + alpha g), which attracts to the past, and loses sqrt(2 D) in the second phase; the
self-repulsive dynamics is (-f + alpha g) dt + sqrt(2 D) dB. Departs from the paper's general form, which
also allows a kernel on (x, v) jointly. No experiments and no code for this variant: all defaults are ours.
"""

from pydantic import Field

from parvibench.core.algorithm import Example

from . import sr_sghmc, uld


class Settings(sr_sghmc.Settings):
    """Settings of SR-ULD: those of ULD and of SRLD."""

    step_size: float = Field(0.01, gt=0, description="eta = u h^2, in x^2; ours")
    friction: float = Field(0.5, ge=1e-3, description="g = gamma h, dimensionless; ours")


class SRULD(sr_sghmc.SRSGHMC):
    """Self-repulsive underdamped Langevin dynamics."""

    name = "sr-uld"
    settings_type = Settings
    example = Example(
        quick={"memory": 2, "spacing": 1}, settings={"step_size": 0.05, "friction": 0.5, "alpha": 1.0}, steps=1500
    )
    move = staticmethod(uld.ULD.move)
