"""Every built-in sampler on easy targets, with the settings and steps that its class says are enough there."""

from __future__ import annotations

from typing import Any

from parvibench.core import registry
from parvibench.core.algorithm import Example

from .contract import Contract, Effort, Tolerance
from .steps import TruthQuestion, settings_of


def _effort(steps: int, points: int = 50, **settings: Any) -> Effort:
    return Effort(settings_of(**settings), steps, points)


#: A bent target takes short steps and many of them.
_BENT = {
    "svgd": _effort(500, step_size=0.1),
    "mala": _effort(300, step_size=0.05),
    "hmc": _effort(150, step_size=0.02, leapfrog_steps=6, jitter=0.3),
    "psgld": _effort(900, step_size=0.02, damping=1.0),
    "sghmc": _effort(450, step_size=0.002, friction=0.1),
}
_SHORT_STEPS = {"step_size": 1e-3, "net_learning_rate": 1e-4}


def effort_of(example: Example) -> Effort:
    """What an algorithm's class says is enough on a unit Gaussian."""
    return _effort(example.steps, example.points, **example.settings)


def sampler_truths() -> list[TruthQuestion]:
    """Easy targets and the contract, for every built-in sampler."""
    examples = {
        name: registry.load_algorithm(name).example
        for name, row in registry.algorithms().items()
        if row.kind != "anchor" and row.built_in
    }
    samplers = {name: example for name, example in examples.items() if example.samples}
    return [
        *(Tolerance("biased-start-gaussian", name, effort_of(e)) for name, e in samplers.items()),
        *(Tolerance("multimodal", name, effort_of(e)) for name, e in samplers.items() if e.both_modes),
        *(Tolerance("banana", name, effort) for name, effort in _BENT.items()),
        *(Contract("linear-regression", name, _brief(e)) for name, e in samplers.items()),
    ]


def _brief(example: Example) -> Effort:
    """A few steps on a posterior of width 1/10, short enough that rounding errors stay small."""
    settings = {key: _SHORT_STEPS.get(key, value) for key, value in example.settings.items()}
    return _effort(example.brief_steps, 20, **settings)
