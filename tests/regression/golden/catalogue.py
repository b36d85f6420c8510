"""All traces, by the registries and a list of runs: a new algorithm, option or task has its own."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import NamedTuple

from parvibench.core import registry

from .noise import Noise
from .run_traces import run_names
from .stand_ins import generated_data
from .trace import Trace

#: Kind -> the function that gives the traces of a name.
_HOMES = {
    "algorithm": "sampler_traces:sampler_traces",
    "task": "task_traces:task_traces",
    "run": "run_traces:run_traces",
}


class Subject(NamedTuple):
    """What some traces are of."""

    kind: str  #: ``algorithm``, ``task`` or ``run``
    name: str


@cache
def subjects() -> tuple[Subject, ...]:
    """Everything that has traces."""
    found = [Subject("algorithm", n) for n, row in registry.algorithms().items() if row.built_in and not row.library]
    # Posteriors of posteriordb need its data; Stan's own values stand for them (tests/tasks/stan_values.json).
    found += [Subject("task", n) for n, row in registry.tasks().items() if row.built_in and "posterior" not in row.tags]
    return (*found, *(Subject("run", n) for n in run_names()))


def subject_of(trace: str) -> Subject | None:
    """The subject whose name a trace's begins with; None where there is none any more."""
    first, _, rest = trace.partition(" ")
    kind = "run" if first == "run" else "algorithm" if first in registry.algorithms() else "task"
    found = Subject(kind, rest if kind == "run" else first)
    return found if found in subjects() else None


@cache
def traces_of(subject: Subject) -> dict[str, Trace]:
    """The traces of a subject by name; none is taken."""
    return {trace.name: trace for trace in _traces_of(subject)}


def _traces_of(subject: Subject) -> Iterator[Trace]:
    module, _, name = _HOMES[subject.kind].partition(":")
    # Not imported above: what breaks the import of one module leaves the traces of others alone.
    return getattr(import_module(f".{module}", __package__), name)(subject.name)


@contextmanager
def surroundings() -> Iterator[None]:
    """Where traces are taken: the same noise and the same data everywhere."""
    for row in registry.tasks().values():  # some draw constants of their densities, once: not from the noise
        if row.built_in:
            import_module(row.target.partition(":")[0])
    with Noise(), generated_data(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
