"""Semi-implicit samplers at rest: one that already has the target's law is not moved on average."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from parvibench.check.questions import Bound, Expected, Values
from parvibench.core.algorithm import state_and_info
from parvibench.core.registry import load_algorithm
from parvibench.core.target import Target

from .steps import TruthQuestion, problem_at

_MEANS = (0.5, -1.0)
#: None is zero, so that sigma is not sigma^2.
_LOG_VARS = (-1.4, 0.8)
_ROUNDING = 1e-9


class Normal(Target):
    """Independent normal coordinates.

    Args:
        mean: (D,).
        log_var: log variances, (D,).
    """

    def __init__(self, mean: Tensor, log_var: Tensor) -> None:
        self._mean, self._variance = mean, log_var.exp()
        self.dim = len(mean)

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Unnormalised log density in nats: (R, N, D) -> (R, N)."""
        return -0.5 * ((x - self._mean).square() / self._variance).sum(-1)


@dataclass(frozen=True)
class AtRest(TruthQuestion):
    """Whether the gradient in mean and log variance is zero where q is the target, a normal distribution.

    The network's weights are zero, so that x = b + sigma xi. Adam's first moment after one step tells the gradient.

    Attributes:
        algorithm: a semi-implicit method whose objective is least at the target.
        batch: samples of a step.
        steps: of a replicate, each from the same place; their mean is looked at.
        task: label.
    """

    algorithm: str
    batch: int = 100
    steps: int = 5
    task: str = "normal"

    def measure(self, replicates: range, seed: int) -> Values:
        """Means of the gradient's components."""
        algorithm = load_algorithm(self.algorithm)
        settings: Any = algorithm.make_settings({"batch": self.batch, "hidden": 4})
        mean, log_var = (torch.tensor(v, dtype=torch.float64) for v in (_MEANS, _LOG_VARS))
        ids, dim = list(replicates), len(mean)
        problem = problem_at(
            Normal(mean, log_var), torch.zeros(len(ids), 1, dim, dtype=torch.float64), ids, seed
        )
        state = algorithm.init(problem, settings, problem.streams, self.steps)
        parameters = torch.zeros_like(state.sampler.parameters)
        parameters[:, -2 * dim :] = torch.cat((mean, log_var))
        grads = []
        for problem.streams.step in range(self.steps):
            sampler = state.sampler._replace(parameters=parameters)
            start = sampler if state is state.sampler else state._replace(sampler=sampler)
            after, _ = state_and_info(algorithm.step(problem, settings, start, problem.streams))
            grads.append(after.sampler.first[:, -2 * dim :] / (1 - settings.beta1))
        found = torch.stack(grads).mean(0).T
        return dict(zip(self.expected(), found.tolist(), strict=True))

    def expected(self) -> Mapping[str, Expected]:
        """Nothing on average."""
        names = (f"gradient.{of}[{d}]" for of in ("mean", "log_var") for d in range(len(_MEANS)))
        return {name: Bound(_ROUNDING) for name in names}


def semi_implicit_questions() -> list[TruthQuestion]:
    """One a method."""
    return [AtRest(name) for name in ("ksivi", "ksivi-ustat", "uivi", "sivi")]
