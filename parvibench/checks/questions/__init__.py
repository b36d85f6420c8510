"""The questions of known truth, one file a kind.

- ``tolerance``: moments, correlations and energy on easy targets;
- ``contract``: shapes, seeds, metering, independence of replicates;
- ``equilibrium``: dependence between chains, ties, chains that never move;
- ``exactness``: invariance and calibrated ranks, of a class that claims ``exact = True``;
- ``density``: the density of a task from outside.
"""

from __future__ import annotations

from dataclasses import replace

from parvibench.checks.question import Question
from parvibench.core.algorithm import Example
from parvibench.core.registry import load_algorithm

from .contract import Contract
from .equilibrium import AtEquilibrium
from .exactness import Exactness
from .of_sampler import Effort, Sampler
from .tolerance import Tolerance

#: Steps of runs that are examined for noise or exactness.
_BRIEF, _REST, _EXACT = 10, 100, 12
#: By kind of sampler; few interacting particles are too narrow in three dimensions.
_TARGETS = {"chains": ("normal", "tilted", "bent"), "generator": ("unit",)}
#: Chains of a replicate in tests of exact laws.
_CHAINS = 400


def sampler_questions(sampler: Sampler, effort: Effort, allow_diverged: float = 0.0) -> list[Question]:
    """Easy targets, the contract, dependence, and exactness where the class claims it.

    A generator is tested on the one target that every variational family contains.
    """
    kind = (load_algorithm(sampler) if isinstance(sampler, str) else sampler).kind
    targets = _TARGETS.get(kind, ("tilted", "bent"))
    tolerances = [Tolerance(task, sampler, effort, allow_diverged) for task in targets]
    return [*tolerances, *_of_any(sampler, effort)]


def example_questions(name: str, example: Example) -> list[Question]:
    """The same of a registered sampler whose class states settings and steps that are enough on two easy tasks."""
    effort = Effort(tuple(example.settings.items()), example.steps, example.points)
    targets = ("biased-start-gaussian", *(["multimodal"] if example.both_modes else []))
    return [*(Tolerance(task, name, effort) for task in targets), *_of_any(name, effort, example.brief_steps)]


def _of_any(sampler: Sampler, effort: Effort, brief_steps: int = _BRIEF) -> list[Question]:
    """What does not depend on a tolerance."""
    algorithm = load_algorithm(sampler) if isinstance(sampler, str) else sampler
    generates, chains = algorithm.kind == "generator", algorithm.kind == "chains"
    brief = replace(effort, steps=min(effort.steps, brief_steps, _BRIEF), points=min(effort.points, 20))
    rest = brief if generates else replace(effort, steps=min(effort.steps, _REST))
    start = {"chains": "normal", "generator": "unit"}.get(algorithm.kind, "tilted")
    questions: list[Question] = [Contract("tilted", sampler, brief), AtEquilibrium(start, sampler, rest)]
    if algorithm.exact and chains:
        strict = replace(effort, steps=_EXACT, points=_CHAINS)
        questions += [Exactness(task, sampler, strict) for task in ("tilted", "bent")]
    return questions
