"""The questions of a check: cells and densities against the past, everything against known truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from parvibench.core import registry
from parvibench.core.errors import InputError, UnknownNameError
from parvibench.harness.suite.cells import Cell

from .past import baseline as past
from .past import option_laws
from .questions import Asked, Question
from .traces.catalogue import Subject, subjects
from .truth import truth_questions
from .truth.samplers.of_sampler import Effort, Sampler
from .truth.samplers.questions_of import sampler_questions
from .truth.steps import settings_of
from .truth.task_facts import own_density_questions

#: Which oracles are asked.
Asking = Literal["all", "traces", "past", "truth"]
#: Default iterations and seed of a sampler that is not registered.
ITERATIONS, SEED = 500, 1


@dataclass(frozen=True)
class Selection:
    """Cells, densities and questions of a check."""

    cells: list[Cell]  #: compared with the stored past
    densities: list[str]  #: tasks whose densities are compared with the stored past
    truths: list[Question]  #: questions of known truth
    traces: list[Subject] = field(default_factory=list)  #: whose traces are compared with the stored ones
    options: list[str] = field(default_factory=list)  #: algorithms whose options are compared with the stored past

    @property
    def of_past(self) -> bool:
        """Whether anything is compared with the stored past."""
        return bool(self.cells or self.densities or self.options)

    def resolve(self, baseline: Path | None = None) -> Asked:
        """All questions, those of the past by ``baseline`` or the package's own; ``InputError`` without one."""
        if not self.of_past:
            return Asked(list(self.truths), [], [])
        asked = past.questions(past.Baseline.load(baseline), self.cells, self.densities, self.options)
        return asked._replace(questions=[*asked.questions, *self.truths])


def select_questions(
    *,
    suites: Sequence[str] | None = None,
    algorithms: Sequence[str] = (),
    tasks: Sequence[str] = (),
    oracle: Asking = "all",
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    iterations: int = ITERATIONS,
    allow_diverged: float = 0.0,
) -> Selection:
    """Choose the questions of a check.

    Args:
        suites: whose cells are compared with the past; default: ``ci`` and ``ci-networks``.
        algorithms: only these labels; ``module:Class`` and ``file.py:Class`` are compared with known truth.
        tasks: only these; of those from places, ``file.py:OBJECT``, the density is compared with known truth.
        oracle: which one to ask.
        settings: of samplers that are not registered, by place or name.
        iterations: of samplers that are not registered.
        allow_diverged: share of their points that may be not finite.

    Raises:
        InputError: an unknown name or setting.
    """
    outside = [a for a in algorithms if ":" in a]
    named = [a for a in algorithms if ":" not in a]
    cells = past.suite_cells(suites or past.SUITES) if oracle in ("all", "past") else []
    densities = past.plain_tasks() if oracle in ("all", "past") else []
    options = option_laws.algorithms() if oracle in ("all", "past") and suites is None else []
    truths: list[Question] = list(truth_questions()) if oracle in ("all", "truth") else []
    traces = subjects() if oracle in ("all", "traces") else []
    if algorithms:
        known = {c.label for c in cells} | {q.algorithm for q in truths} | _names(traces, "algorithm") | {*options}
        _refuse_unknown("algorithm of the check", named, known)
        cells = [c for c in cells if c.label in named]
        options = [a for a in options if a in named]
        densities = []
        truths = [q for q in truths if q.algorithm in named]
        traces = [s for s in traces if s.kind == "algorithm" and s.name in named]
    given = _settings_of(outside, settings or {})
    truths += [q for a in outside for q in outside_questions(a, given[a], iterations, allow_diverged)]
    own = [t for t in tasks if registry.is_place(t)]
    tasks = [t for t in tasks if t not in own]
    if own and not tasks and not algorithms:
        cells, densities, truths, traces, options = [], [], [], [], []
    if tasks:
        known = {c.task for c in cells} | set(densities) | {q.task for q in truths} | _names(traces, "task")
        known |= {option_laws.OPTIONS} if options else set()
        _refuse_unknown("task of the check", tasks, known)
        cells = [c for c in cells if c.task in tasks]
        densities = [t for t in densities if t in tasks]
        options = options if option_laws.OPTIONS in tasks else []
        truths = [q for q in truths if q.task in tasks]
        traces = [s for s in traces if s.kind == "task" and s.name in tasks]
    truths += [q for place in own for q in own_density_questions(place)]
    return Selection(cells, densities, truths, traces, options)


def _settings_of(outside: Sequence[str], settings: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The settings of every sampler that is not registered, given by its place or its name."""
    names = {a: registry.load_algorithm(a).name for a in outside}
    for name in settings:
        if name not in {*names, *names.values()}:
            what = (
                f"{name!r} is checked as it is" if name in registry.algorithms() else f"no sampler named {name!r} here"
            )
            raise InputError(f"--set {name}: {what}; settings are of the samplers of your own that --algorithm names")
    return {a: {**settings.get(a, {}), **settings.get(name, {})} for a, name in names.items()}


def outside_questions(
    sampler: Sampler, settings: dict[str, Any], iterations: int, allow_diverged: float = 0.0
) -> list[Question]:
    """Questions of a sampler that is not registered: easy targets within a tolerance, the contract, dependence.

    ``sampler`` is ``module:Class``, ``file.py:Class``, or the object, which is then measured in this process only;
    ``iterations`` must be enough for targets of scale 1/2; ``allow_diverged`` is the share of points there that may be
    not finite.

    Raises:
        InputError: no such sampler or setting.
    """
    algorithm = registry.load_algorithm(sampler) if isinstance(sampler, str) else sampler
    algorithm.make_settings(settings)
    return list(sampler_questions(sampler, Effort(settings_of(**settings), steps=iterations), allow_diverged))


def _names(traces: Sequence[Subject], kind: str) -> set[str]:
    return {s.name for s in traces if s.kind == kind}


def _refuse_unknown(kind: str, names: Sequence[str], known: set[str]) -> None:
    for name in names:
        if name not in known:
            raise UnknownNameError(kind, name, known)
