"""Built-in samplers on tasks of the benchmark: moments, the contract with mini-batches, normalising constants."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from asking import assert_right
from law_tools import run

from parvibench.checks.question import Bound, Expected, Question, Values
from parvibench.checks.questions.contract import Contract
from parvibench.checks.questions.of_sampler import Effort
from parvibench.checks.questions.tolerance import Tolerance
from parvibench.checks.selection import built_in_samplers
from parvibench.checks.summaries import as_values, settings_of
from parvibench.core import registry


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


@dataclass(frozen=True)
class NormalisingConstant(Question):
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


@pytest.mark.parametrize("name", _BENT)
def test_moments_on_the_banana(name: str) -> None:
    assert_right(Tolerance("banana", name, _BENT[name]))


@pytest.mark.parametrize(("name", "steps"), [("laplace", 40), ("full-rank", 600)])
def test_moments_of_a_correlated_normal_law(name: str, steps: int) -> None:
    """Which their families contain, the mean field's not."""
    assert_right(Tolerance("tilted", name, _effort(steps, 200)))


#: Their runs take several seconds.
_SLOW = {"pathfinder": pytest.mark.ci, "laplace": pytest.mark.ci}


@pytest.mark.parametrize("name", [pytest.param(n, marks=_SLOW.get(n, ())) for n in built_in_samplers()])
def test_contract_with_data(name: str) -> None:
    """A few steps on a posterior of width 1/10, short enough that rounding errors stay small."""
    example = registry.load_algorithm(name).example
    settings = {key: _SHORT_STEPS.get(key, value) for key, value in example.settings.items()}
    assert_right(Contract("linear-regression", name, _effort(example.brief_steps, 20, **settings)))


@pytest.mark.parametrize("task", ["multimodal", "banana", "gmm2-20d"])
def test_normalising_constant(task: str) -> None:
    assert_right(NormalisingConstant(task))
