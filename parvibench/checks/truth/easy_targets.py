"""Every built-in sampler on easy targets, with the settings and steps that its class says are enough there.

And the normalising constants of annealed SMC: that of a normalised density is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from parvibench.checks.questions import Bound, Expected, Values
from parvibench.core import registry
from parvibench.core.algorithm import Example

from .samplers.contract import Contract
from .samplers.of_sampler import Effort
from .samplers.presets import PresetContract
from .samplers.tolerance import Tolerance
from .steps import TruthQuestion, as_values, run, settings_of


def _effort(steps: int, points: int = 50, **settings: Any) -> Effort:
    return Effort(settings_of(**settings), steps, points)


#: A bent target takes short steps and many of them.
_BENT = {
    "svgd": _effort(500, step_size=0.1),
    "mala": _effort(300, step_size=0.05),
    "hmc": _effort(150, step_size=0.02, leapfrog_steps=6, jitter=0.3),
    "psgld": _effort(900, step_size=0.02, damping=1.0),
    "sghmc": _effort(450, step_size=0.002, friction=0.1),
    "parallel-tempering": _effort(300),
    "smc": _effort(150),
}
_SHORT_STEPS = {"step_size": 1e-3, "net_learning_rate": 1e-4}


def effort_of(example: Example) -> Effort:
    """What an algorithm's class says is enough on a unit Gaussian."""
    return _effort(example.steps, example.points, **example.settings)


@dataclass(frozen=True)
class NormalisingConstant(TruthQuestion):
    """Whether Z of annealed SMC averages one on a task with a normalised density.

    Attributes:
        task: its density.
        steps: moves, the last fifth of them at the target itself.
        points: N.
        algorithm: label.
    """

    task: str
    steps: int = 100
    points: int = 200
    algorithm: str = "smc"

    def measure(self, replicates: range, seed: int) -> Values:
        """Z - 1."""
        algorithm = registry.load_algorithm(self.algorithm)
        problem = registry.load_task(self.task).problem(replicates, seed, particles=self.points, dtype=torch.float64)
        state = run(algorithm, algorithm.make_settings({"base_sd": 2.5}), problem, self.steps).state
        return {"normaliser": as_values(state.log_z.exp() - 1)}

    def expected(self) -> Mapping[str, Expected]:
        """Zero on average, up to what adapting with the same particles costs."""
        return {"normaliser": Bound(0.05)}


def sampler_truths() -> list[TruthQuestion]:
    """Easy targets and the contract, for every built-in sampler."""
    examples = {
        name: registry.load_algorithm(name).example
        for name, row in registry.algorithms().items()
        if row.kind != "anchor" and row.built_in and not row.library  # those of others are theirs to check
    }
    samplers = {name: example for name, example in examples.items() if example.samples}
    return [
        *(Tolerance("biased-start-gaussian", name, effort_of(e)) for name, e in samplers.items()),
        *(Tolerance("multimodal", name, effort_of(e)) for name, e in samplers.items() if e.both_modes),
        *(Tolerance("banana", name, effort) for name, effort in _BENT.items()),
        *(Contract("linear-regression", name, _brief(e)) for name, e in samplers.items()),
        *(PresetContract(name) for name in examples if registry.load_algorithm(name).presets),
        *(NormalisingConstant(task) for task in ("multimodal", "banana", "gmm2-20d")),
    ]


def _brief(example: Example) -> Effort:
    """A few steps on a posterior of width 1/10, short enough that rounding errors stay small."""
    settings = {key: _SHORT_STEPS.get(key, value) for key, value in example.settings.items()}
    return _effort(example.brief_steps, 20, **settings)
