"""Semi-implicit samplers at rest: one that already has the target's law is not moved on average."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from asking import assert_right
from law_tools import Normal, problem_at

from parvibench.checks.question import Bound, Expected, Question, Values
from parvibench.core.algorithm import take_steps
from parvibench.core.registry import load_algorithm

_MEANS = (0.5, -1.0)
#: None is zero, so that sigma is not sigma^2.
_LOG_VARS = (-1.4, 0.8)
_ROUNDING = 1e-9


@dataclass(frozen=True)
class AtRest(Question):
    """Whether the gradient in mean and log variance is zero where q is the target, a normal distribution.

    The network's weights are zero, so that x = b + sigma xi. Adam's first moment after one step is proportional to
    the gradient.
    """

    algorithm: str  #: a semi-implicit method whose objective has its minimum at the target
    batch: int = 100  #: samples of a step
    steps: int = 5  #: of a replicate, each from the same parameters; their mean gradient is the statistic
    task: str = "normal"  #: label

    def measure(self, replicates: range, seed: int) -> Values:
        """Means of the gradient's components."""
        algorithm = load_algorithm(self.algorithm)
        settings: Any = algorithm.make_settings({"batch": self.batch, "hidden": 4})
        mean, log_var = (torch.tensor(v, dtype=torch.float64) for v in (_MEANS, _LOG_VARS))
        ids, dim = list(replicates), len(mean)
        start = torch.zeros(len(ids), 1, dim, dtype=torch.float64)
        problem = problem_at(Normal(mean, log_var), start, ids, seed)
        state = algorithm.init(problem, settings, problem.streams, self.steps)
        held = getattr(state, "sampler", state)
        parameters = torch.zeros_like(held.parameters)
        parameters[:, -2 * dim :] = torch.cat((mean, log_var))
        grads = []
        for k in range(self.steps):
            sampler = held._replace(parameters=parameters)
            start = sampler if state is held else state._replace(sampler=sampler)
            after, _ = next(take_steps(algorithm.step, problem, settings, start, k))
            grads.append(getattr(after, "sampler", after).first[:, -2 * dim :] / (1 - settings.beta1))
        found = torch.stack(grads).mean(0).T
        return dict(zip(self.expected(), found.tolist(), strict=True))

    def expected(self) -> Mapping[str, Expected]:
        """Zero on average."""
        names = (f"gradient.{of}[{d}]" for of in ("mean", "log_var") for d in range(len(_MEANS)))
        return {name: Bound(_ROUNDING) for name in names}


@pytest.mark.parametrize("name", ["ksivi", "ksivi-ustat", "uivi", "sivi"])
def test_a_semi_implicit_sampler_at_the_target_stays_there(name: str) -> None:
    assert_right(AtRest(name))
