"""What publications ran: every preset's settings keep the contract for some steps, and give finite samples."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from parvibench.checks.questions import Expected, Fixed, Values
from parvibench.checks.truth.steps import TruthQuestion
from parvibench.core.registry import load_algorithm

from .contract import Contract
from .of_sampler import Effort

_STEPS, _POINTS, _REPLICATES = 2, 6, 2
#: Sizes are cut, and what needs responses to fit is left out.
_MOST = {"batch": 8, "mixing": 8, "hidden": 16, "critic_hidden": 16, "inner_steps": 2, "warmup_inner_steps": 2}
_OFF = ("pretraining", "critic_pretraining")


@dataclass(frozen=True)
class PresetContract(TruthQuestion):
    """Whether a method with each of its presets keeps every promise of ``Contract``."""

    algorithm: str  #: registered name
    task: str = "presets"  #: label

    def measure(self, replicates: range, seed: int) -> Values:
        """1 for a preset where all is kept."""
        kept: dict[Contract, float] = {}
        found = {}
        for name in load_algorithm(self.algorithm).presets:
            effort = Effort(tuple(sorted(self._settings(name).items())), _STEPS, _POINTS)
            asked = Contract("tilted", self.algorithm, effort)
            if asked not in kept:
                values = asked.measure(replicates[:_REPLICATES], seed).values()
                kept[asked] = float(np.nanmin([v for per_replicate in values for v in per_replicate]))
            found[f"preset[{name}]"] = [kept[asked]]
        return found

    def expected(self) -> Mapping[str, Expected]:
        """Always."""
        return {f"preset[{name}]": Fixed(1.0) for name in load_algorithm(self.algorithm).presets}

    def _settings(self, name: str) -> dict[str, Any]:
        algorithm = load_algorithm(self.algorithm)
        settings = algorithm.expand_preset({"preset": name})
        cut = {key: min(value, _MOST.get(key, math.inf)) for key, value in settings.items() if key in _MOST}
        return settings | cut | {key: 0 for key in _OFF if key in algorithm.settings_type.model_fields}
