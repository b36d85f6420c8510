"""Deep ensembles: independent optimisations of the posterior's mode.

Lakshminarayanan, Pritzel & Blundell (2017), arXiv:1612.01474, Algorithm 1, with the task's posterior in place
of the likelihood. Every particle starts from its own draw of the task's initial distribution and ascends by
Adam on mini-batch scores,

    x_i <- x_i + Adam( s_B(x_i) ),   i = 1..N, no noise and no interaction

No sampler: on a log-concave target all particles end at the mode. Departures: members share the mini-batch
of the step, where the paper shuffles for each; no adversarial examples; the networks and their noise model
are the task's.

Trap: where the state holds the log precision lambda of a prior on many weights, the joint density grows like
lambda^(D/2) as the weights vanish, and its mode is all weights zero: long runs end there, predicting the
mean. ``held`` keeps coordinates at the end of the state at their start; 1 keeps lambda on the network tasks,
so that each member decays its weights by its own draw from the prior.
"""

from typing import ClassVar

from pydantic import Field

from parvibench.core.algorithm import Algorithm, Example, Presets, Problem, SteppedSettings, Streams, ours, paper
from parvibench.nn.optim import AdamState, adam

_ROWS = {
    "boston": 506, "concrete": 1030, "energy": 768, "kin8nm": 8192, "naval": 11934, "power": 9568,
    "protein": 45730, "wine-red": 1599, "yacht": 308,
}  # fmt: skip


class Settings(SteppedSettings):
    """Settings of deep ensembles and of the mode alone."""

    step_size: float = Field(0.01, gt=0, description="Adam's learning rate, in x; ours, paper 0.1")
    held: int = Field(0, ge=0, description="coordinates at the end of x kept at their start; 1 for networks; ours")
    beta1: float = Field(0.9, ge=0, lt=1, description="Adam's decay of the gradient; Kingma & Ba (2015)")
    beta2: float = Field(0.999, ge=0, lt=1, description="Adam's decay of its square; Kingma & Ba (2015)")


class DeepEnsemble(Algorithm[Settings, AdamState]):
    """Independent Adam runs to the posterior's modes."""

    name = "deep-ensemble"
    version = 3
    kind = "particles"
    rescales = True
    citation = "Lakshminarayanan, Pritzel & Blundell (2017), arXiv:1612.01474"
    example = Example(samples=False)
    presets: ClassVar[Presets] = {  # 5 networks, 40 epochs of batches of 100 rows: nine tenths are for training
        f"bnn-{name}": paper(step_size=0.1, particles=5, samples=5, iterations=40 * -(-9 * rows // 1000)) | ours(held=1)
        for name, rows in _ROWS.items()
    }

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> AdamState:
        """Particles at the task's initial points."""
        return AdamState.start(problem.init(self.n_particles))

    def step(self, problem: Problem, settings: Settings, state: AdamState, streams: Streams) -> AdamState:
        """One step of Adam for every particle."""
        grad = -problem.score(state.x)
        grad[..., max(0, problem.dim - settings.held) :] = 0
        betas = (settings.beta1, settings.beta2)
        return AdamState(*adam(state.x, grad, state.moments, settings.step_size, betas))
