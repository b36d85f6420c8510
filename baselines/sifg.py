"""Semi-implicit functional gradient flow (SIFG).

Zhang, Cheng & Zhang (2024), arXiv:2410.17935, Algorithm 1. The variational law is mu^ = mu * N(0, sigma^2 I) with
carried particles z_i from mu. Each iteration

    x_i = z_i + sigma w_i,   w_i ~ N(0, I)
    N' optimiser steps on  mean_i || f(x_i) + w_i / sigma ||^2      denoising score matching: f -> grad log mu^
    z_i <- z_i + h ( s(x_i) - f(x_i) )

with the same x throughout, f warm-started from the iteration before. Output: fresh z_i + sigma w, never z.

Trap: the sign inside the norm is plus, as in the paper's Eq. 3.7 and in the code; Eq. 3.8 (Algorithm 1) prints a minus.

Options, each as the authors' code does it for neural networks: ``particle_rule="rms"`` divides the velocity by its
running root mean square. ``noise="redrawn"`` takes a new w in every inner step, and for the particles two more:
s(z + sigma w') - f(z + sigma w''), of the same mean and a larger variance. f then cannot fit the noise of its own
points, as it may with N' steps on one w where D is large and the particles are few. ``score="exact"`` replaces f by
the score of the mixture of the particles, sum_j p_j(x) (z_j - x) / sigma^2: an oracle for tests.

Departures from the code: the score of the target is taken once per iteration (the code repeats it in every inner step);
outputs are fresh draws (the code's mixtures judge the x of the last iteration, its ICA judges z itself).
"""

from typing import ClassVar

from parvibench.core.algorithm import Example, Presets, Problem, Streams, code, paper
from parvibench.nn.refit import Particles, Perturbed, PerturbedFlowSettings

from ._sifg_runs import ICA, NETWORK, TOY, on_networks

_TOY = TOY | paper(step_size=0.01)


class SIFG(Perturbed[PerturbedFlowSettings, Particles]):
    """Semi-implicit functional gradient flow."""

    name = "sifg"
    version = 3
    citation = "Zhang, Cheng & Zhang (2024), arXiv:2410.17935"
    example = Example(
        quick={"hidden": 6},
        settings={"step_size": 0.1, "hidden": 16, "sigma": 0.3, "net_optimiser": "adam", "net_learning_rate": 0.01},
    )
    presets: ClassVar[Presets] = {
        "gmm5-2d": _TOY | paper(iterations=2000, sigma=0.12),
        "gmm5-2d-code": _TOY | code(iterations=2300, step_size=0.005, sigma=0.1),
        "gmm5-10d": _TOY | code(iterations=2200) | paper(sigma=0.1),
        "monomial-gamma": _TOY | code(iterations=20000) | paper(sigma=0.1),
        "ica-meg-tempered": ICA | paper(sigma=0.03),
        **on_networks(NETWORK | code(noise="redrawn", sigma=0.01)),  # sigma 0.1 was tried too
    }

    def init(self, problem: Problem, settings: PerturbedFlowSettings, streams: Streams, horizon: int) -> Particles:
        """Particles at the task's initial points, f warmed up on them."""
        z, flow = settings.started(problem, streams)
        return Particles(z, settings.warm_up(flow, z, settings.sigma, streams))

    def step(self, problem: Problem, settings: PerturbedFlowSettings, state: Particles, streams: Streams) -> Particles:
        """Perturb, fit f, move."""
        z, flow = state
        w, w_score = settings.draw(streams, z.shape[1:])
        flow = settings.fit(flow, settings.perturbed(z, settings.sigma, w, streams))
        velocity = settings.velocity(problem, flow, z, settings.sigma, w, w_score)
        return settings.move(z, velocity, flow)
