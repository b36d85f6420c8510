"""The questions of a sampler that is not registered."""

from __future__ import annotations

from dataclasses import replace

from parvibench.checks.truth.steps import TruthQuestion
from parvibench.core.registry import load_algorithm

from .at_equilibrium import AtEquilibrium
from .contract import Contract
from .exactness import Exactness
from .of_sampler import Effort, Sampler
from .tolerance import Tolerance

#: Steps of runs whose noise or exactness is looked at.
_BRIEF, _REST, _EXACT = 10, 100, 12
#: By kind of sampler; few interacting particles are too narrow in three dimensions.
_TARGETS = {"chains": ("normal", "tilted", "bent"), "generator": ("unit",)}
#: Chains of a replicate that is held to exact laws.
_CHAINS = 400


def sampler_questions(sampler: Sampler, effort: Effort, allow_diverged: float = 0.0) -> list[TruthQuestion]:
    """Easy targets, the contract, dependence, and exactness where the class claims it.

    A generator is asked for the one target that every variational family contains.
    """
    algorithm = load_algorithm(sampler) if isinstance(sampler, str) else sampler
    targets = _TARGETS.get(algorithm.kind, ("tilted", "bent"))
    brief = replace(effort, steps=min(effort.steps, _BRIEF), points=min(effort.points, 20))
    rest = brief if algorithm.kind == "generator" else replace(effort, steps=min(effort.steps, _REST))
    questions: list[TruthQuestion] = [
        *(Tolerance(task, sampler, effort, allow_diverged) for task in targets),
        Contract("tilted", sampler, brief),
        AtEquilibrium(targets[0], sampler, rest),
    ]
    if algorithm.exact and algorithm.kind == "chains":
        strict = replace(effort, steps=_EXACT, points=_CHAINS)
        questions += [Exactness(task, sampler, strict) for task in ("tilted", "bent")]
    return questions
