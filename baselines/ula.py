"""Unadjusted Langevin algorithm (ULA).

Roberts & Tweedie (1996), Exponential convergence of Langevin distributions and their discrete
approximations, Bernoulli 2:341-363, Section 1.4.1:

    x <- x + eta s(x) + sqrt(2 eta) xi,   xi ~ N(0, I)

with the exact score s on all data. The stationary law is biased: on N(0, 1/c) its variance is
1 / (c (1 - c eta / 2)). Trap: many papers write eta = eps / 2.
"""

from typing import ClassVar

from parvibench.core.algorithm import Presets, paper

from .sgld import SGLD

_MANY = paper(particles=1000, samples=1000)


class ULA(SGLD):
    """Unadjusted Langevin algorithm on exact scores."""

    name = "ula"
    needs = frozenset({"full-batch", "score"})
    citation = "Roberts & Tweedie (1996)"
    presets: ClassVar[Presets] = {  # the KSIVI paper's references, eps = 1e-4
        "blr-waveform": paper(step_size=5e-5, iterations=400_000) | _MANY,
        **{f"diffusion-{dim}": paper(step_size=5e-5, iterations=100_000) | _MANY for dim in (50, 100, 200)},
    }
