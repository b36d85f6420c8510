"""The questions of known truth, one file a kind.

- ``tolerance``: moments, correlations and energy on easy targets, and far from the origin in single precision;
- ``contract``: shapes, seeds, metering, independence of replicates;
- ``equilibrium``: dependence between chains, ties, chains that never move;
- ``calibration``: ranks of parameters in the posteriors of data that they made;
- ``exactness``: invariance, also where a law has two parts, and reversibility, of a sampler that claims to be exact;
- ``normaliser``: normalising constants, where a sampler reports them;
- ``density``: the density of a task from outside.
"""

from collections.abc import Iterator
from dataclasses import replace

from parvibench.checks.question import Question
from parvibench.core.algorithm import Exact, Example

from .calibration import Calibration
from .contract import Contract
from .equilibrium import AtEquilibrium
from .exactness import Invariance, Parted, Reversibility
from .normaliser import Normaliser
from .of_sampler import Effort, Sampler, loaded
from .tolerance import SinglePrecision, Tolerance

#: Steps of runs that are examined for noise, at rest, for ranks, and for averages.
_BRIEF, _REST, _RANKED, _LONG = 10, 100, 9, 200
#: By kind of sampler; few interacting particles are too narrow in three dimensions.
_TARGETS, _OTHERS = {"chains": ("normal", "tilted", "bent", "skewed"), "generator": ("unit",)}, ("tilted", "bent")
#: Targets of tests of exact laws, and chains of a replicate in them.
_STRICT, _CHAINS = ("tilted", "bent", "skewed"), 400
#: Share of the usual tolerance that a sampler is allowed which claims to be exact, and particles behind a log normaliser.
_FACTOR, _PARTICLES = 0.25, 200


def sampler_questions(
    sampler: Sampler, effort: Effort, allow_diverged: float = 0.0, exact: Exact | None = None
) -> list[Question]:
    """Easy targets, the contract, dependence, and exactness where it is claimed: ``exact``, by default by the class.

    A generator is tested on the one target that every variational family contains.
    """
    algorithm = loaded(sampler)
    exact = algorithm.exact if exact is None else exact
    targets, factor = _TARGETS.get(algorithm.kind, _OTHERS), _FACTOR if exact else 1.0
    tolerances: list[Question] = [Tolerance(task, sampler, effort, allow_diverged, factor) for task in targets]
    if algorithm.kind == "chains":
        tolerances.append(SinglePrecision("tilted", sampler, effort, allow_diverged))
    if algorithm.kind == "chains" and algorithm.n_particles != 1:
        tolerances.append(Calibration("binomial", sampler, effort, *([0.0] if exact else [])))
    return [*tolerances, *_of_any(sampler, effort, exact)]


def example_questions(name: str, example: Example) -> list[Question]:
    """The same of a registered sampler whose class states settings and steps that are enough on two easy tasks."""
    effort = Effort(tuple(example.settings.items()), example.steps, example.points)
    targets = ("biased-start-gaussian", *["multimodal"] * example.both_modes, *["skewed"] * example.skewed)
    tolerances = [Tolerance(task, name, effort) for task in targets]
    return [*tolerances, *_of_any(name, effort, loaded(name).exact, example.brief_steps)]


def _of_any(sampler: Sampler, effort: Effort, exact: Exact, brief_steps: int = _BRIEF) -> Iterator[Question]:
    """What does not depend on a tolerance."""
    algorithm = loaded(sampler)
    chains, (start, *_) = algorithm.kind == "chains", _TARGETS.get(algorithm.kind, _OTHERS)
    brief = replace(effort, steps=min(effort.steps, brief_steps, _BRIEF), points=min(effort.points, 20))
    yield Contract("tilted", sampler, brief)
    at_rest = brief if algorithm.kind == "generator" else replace(effort, steps=min(effort.steps, _REST))
    yield AtEquilibrium(start, sampler, at_rest)
    for task in _STRICT if exact and chains else ():
        long = effort if exact == "adapted" else replace(effort, steps=_LONG, points=_CHAINS)
        yield Invariance(task, sampler, long, adapted=exact == "adapted")
        if exact is True:
            yield Reversibility(task, sampler, replace(effort, steps=_RANKED, points=_CHAINS))
    if exact in (True, "invariant") and chains:  # chains that start elsewhere may stay in one of its parts
        yield Parted("parted", sampler, replace(effort, steps=_LONG, points=_CHAINS))
    rest = min(effort.steps, _REST) if chains else effort.steps
    yield Normaliser(
        "unit" if algorithm.kind == "generator" else "tilted", sampler, replace(effort, steps=rest, points=_PARTICLES)
    )
