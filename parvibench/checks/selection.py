"""The questions of a check: samplers and densities against known truth, and against a baseline where one is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parvibench.core import registry
from parvibench.core.algorithm import Algorithm, Exact
from parvibench.core.errors import InputError, UnknownNameError

from .question import Asked, Question
from .questions import example_questions, sampler_questions
from .questions.density import own_density_questions
from .questions.of_sampler import Effort, Sampler, loaded
from .summaries import settings_of

if TYPE_CHECKING:
    from parvibench.harness.suite.cells import Cell

    from .baseline import Baseline

#: Default iterations of a sampler that does not ship with the package or has settings of its own.
ITERATIONS = 500
#: Tasks of a new baseline where none is named, and points of its runs.
TASKS, _POINTS = ("biased-start-gaussian", "multimodal", "banana"), 50


@dataclass(frozen=True)
class Selection:
    """Samplers and tasks of a check."""

    truths: list[Question]  #: questions of known truth
    samplers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  #: named ones -> their settings
    tasks: Sequence[str] = ()  #: named ones, by name or place
    iterations: int = ITERATIONS  #: of the runs that are compared with a baseline

    def resolve(self, baseline: Path | None = None) -> Asked:
        """All questions; those about the past where a baseline is given, of its tasks or of the named ones.

        Raises:
            InputError: no baseline there, or no sampler named.
        """
        if baseline is None:
            return Asked(list(self.truths), [], [])
        from .baseline import Baseline, questions

        stored = Baseline.load(baseline)
        asked = questions(stored, self.cells(stored))
        return asked._replace(questions=[*asked.questions, *self.truths])

    def cells(self, stored: Baseline | None) -> list[Cell]:
        """Samplers on the named tasks, by default on those of the baseline; ``InputError`` without a sampler."""
        from parvibench.harness.suite.cells import expand
        from parvibench.harness.suite.suite import Suite

        if not self.samplers:
            raise InputError("--baseline is about samplers: name one or more with --algorithm")
        recorded = dict.fromkeys(name.partition("/")[0] for name in (stored.cells if stored else ()))
        suite = {
            "name": "baseline",
            "tasks": list(self.tasks or [t for t in recorded if t in registry.tasks()] or TASKS),
            "algorithms": [{"name": name, "settings": dict(given)} for name, given in self.samplers.items()],
            "budget": {"iterations": self.iterations},
            "particles": _POINTS,
        }
        cells = expand(Suite.model_validate(suite))
        for cell in cells:
            if why := cell.missing_needs():
                raise InputError(why)
        return cells


def select_questions(
    *,
    algorithms: Sequence[str] = (),
    tasks: Sequence[str] = (),
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    iterations: int = ITERATIONS,
    allow_diverged: float = 0.0,
    baseline: bool = False,
    exact: Exact | None = None,
) -> Selection:
    """Choose the questions of a check.

    ``algorithms`` are names or places, by default all built-in samplers. With a ``baseline`` samplers run on the ``tasks``;
    else only questions about these targets are chosen, and the densities of tasks from outside, ``file.py:OBJECT``, are
    compared with known truth. The rest is as in ``api.check``.

    Raises:
        InputError: an unknown name or setting.
    """
    settings, labels = settings or {}, {a: registry.load_method(a).name for a in algorithms}
    for name in settings.keys() - {*labels, *labels.values()}:
        raise InputError(f"--set {name}: no --algorithm is named {name!r}")
    given = {a: {**settings.get(a, {}), **settings.get(name, {})} for a, name in labels.items()}
    own = [t for t in tasks if registry.is_place(t)]
    named = [t for t in tasks if t not in own]
    names = () if own and not named and not algorithms else algorithms or built_in_samplers()
    truths = [q for n in dict.fromkeys(names) for q in _truths(n, given.get(n, {}), iterations, allow_diverged, exact)]
    if not baseline:
        truths = _about(truths, named, algorithms)
    truths += [q for place in dict.fromkeys(own) for q in own_density_questions(place)]
    return Selection(truths, given, tuple(dict.fromkeys(tasks)), iterations)


def _about(truths: list[Question], tasks: Sequence[str], algorithms: Sequence[str]) -> list[Question]:
    """The questions about these tasks, or all where none is named; ``InputError`` without a question."""
    if algorithms and not truths:
        raise InputError(
            f"{', '.join(algorithms)}: no sampler, so that only a comparison with --baseline FILE is possible"
        )
    known = {q.task for q in truths}
    for task in [t for t in tasks if t not in known]:
        if task in registry.tasks():
            raise InputError(
                f"-t {task}: no question of known truth is about this task; a baseline compares it (--baseline)"
            )
        raise UnknownNameError("target of the check", task, known)
    return [q for q in truths if not tasks or q.task in tasks]


def built_in_samplers() -> list[str]:
    """Samplers that ship with the package, but for those that run another library and those that look for modes."""
    rows = registry.algorithms().values()
    own = [row.name for row in rows if row.kind != "anchor" and row.built_in and not row.library]
    return [name for name in own if registry.load_method(name).example.samples]


def _truths(
    name: str, settings: dict[str, Any], iterations: int, allow_diverged: float, exact: Exact | None
) -> list[Question]:
    """A built-in sampler has the settings and steps that its class states, unless settings or a claim are given."""
    method = registry.load_method(name)
    if not isinstance(method, Algorithm) or not method.example.samples:
        return []  # an anchor, or a search for modes: for a baseline only
    if name in registry.algorithms() and registry.algorithms()[name].built_in and not settings and exact is None:
        return example_questions(name, method.example)
    return outside_questions(name, settings, iterations, allow_diverged, exact)


def outside_questions(
    sampler: Sampler, settings: dict[str, Any], iterations: int, allow_diverged: float = 0.0,
    exact: Exact | None = None,
) -> list[Question]:  # fmt: skip
    """Questions of any sampler: easy targets within a tolerance, the contract, dependence, exactness where claimed.

    As in ``api.check``; an object is measured in this process only. ``InputError`` for an unknown sampler or setting.
    """
    loaded(sampler).make_settings(settings)
    return sampler_questions(sampler, Effort(settings_of(**settings), steps=iterations), allow_diverged, exact)
