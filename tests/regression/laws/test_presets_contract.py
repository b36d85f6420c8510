"""The settings of every preset, what publications ran, meet the contract for some steps, and give finite samples."""

import math
from typing import Any

import numpy as np
import pytest

from parvibench.checks.questions.contract import Contract
from parvibench.checks.questions.of_sampler import Effort
from parvibench.core import registry
from parvibench.core.registry import load_algorithm

_STEPS, _POINTS, _REPLICATES = 2, 6, 2
#: Sizes are cut, and what needs responses to fit is left out.
_MOST = {"batch": 8, "mixing": 8, "hidden": 16, "critic_hidden": 16, "inner_steps": 2, "warmup_inner_steps": 2}
_OFF = ("pretraining", "critic_pretraining")
PRESETS = [
    (name, preset)
    for name, row in registry.algorithms().items()
    if row.kind != "anchor" and row.built_in and not row.library
    for preset in load_algorithm(name).presets
]


@pytest.mark.parametrize(("name", "preset"), PRESETS, ids=" ".join)
def test_preset(name: str, preset: str) -> None:
    effort = Effort(tuple(sorted(_settings(name, preset).items())), _STEPS, _POINTS)
    kept = Contract("tilted", name, effort).measure(range(_REPLICATES), 1)
    broken = [promise for promise, values in kept.items() if np.nanmin([*values, 1.0]) < 1]
    assert not broken


def _settings(name: str, preset: str) -> dict[str, Any]:
    algorithm = load_algorithm(name)
    settings = algorithm.expand_preset({"preset": preset})
    cut = {key: min(value, _MOST.get(key, math.inf)) for key, value in settings.items() if key in _MOST}
    return settings | cut | {key: 0 for key in _OFF if key in algorithm.settings_type.model_fields}
