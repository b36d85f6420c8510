"""All traces, found in the registries, and how they are taken: a new algorithm, option, task or metric has its own."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from parvibench.core import registry
from parvibench.core.errors import InputError
from parvibench.harness.workers.executors import InProcess, Job, Notify
from parvibench.harness.workers.processes import Workers

from .noise import Noise
from .trace import Trace, Values, modules_behind, taken

_TIMEOUT_S = 300.0
#: Jobs for every process: each imports the methods again.
_JOBS = 1


class Subject(NamedTuple):
    """What some traces are of."""

    kind: str  #: ``algorithm``, ``task``, ``metric``, ``run``, or ``fixed``
    name: str

    def owns(self, trace: str) -> bool:
        """Whether a trace of that name is of this subject."""
        if self.kind in ("metric", "run"):
            return trace == f"{self.kind} {self.name}"
        return trace.partition(" ")[0] == self.name


class Taken(NamedTuple):
    """A trace that was taken."""

    values: Values
    modules: str = ""  #: those it runs through, where they were asked for


def subjects(algorithms: Sequence[str] = (), tasks: Sequence[str] = ()) -> list[Subject]:
    """Everything that has traces; with names, only these."""
    from .run_traces import run_names

    found = [Subject("algorithm", n) for n, row in registry.algorithms().items() if row.built_in and not row.library]
    found += [Subject("task", n) for n, row in registry.tasks().items() if row.built_in]
    if algorithms or tasks:
        chosen = {*(("algorithm", n) for n in algorithms), *(("task", n) for n in tasks)}
        return [s for s in found if s in chosen]
    found += [Subject("metric", n) for n in registry.metrics()] + [Subject("run", n) for n in run_names()]
    return found + [Subject("fixed", n) for n in ("floors", "functions", "report", "tables")]


def traces_of(subject: Subject) -> Iterator[Trace]:
    """The traces of a subject."""
    # Imported here: most processes need a few.
    from .function_traces import function_traces
    from .metric_traces import floor_traces, metric_traces
    from .report_traces import report_traces
    from .run_traces import run_traces
    from .sampler_traces import sampler_traces
    from .table_traces import table_traces
    from .task_traces import task_traces

    by_name = {"algorithm": sampler_traces, "task": task_traces, "metric": metric_traces, "run": run_traces}
    fixed = {"floors": floor_traces, "functions": function_traces, "report": report_traces, "tables": table_traces}
    return by_name[subject.kind](subject.name) if subject.kind in by_name else fixed[subject.name]()


@dataclass(frozen=True)
class TraceWork(Job[bytes]):
    """The traces of some subjects: a job of an executor."""

    subjects: tuple[Subject, ...]
    with_modules: bool = False
    shift: float = 0.0  #: of the noise, see ``Noise``

    def run(self, notify: Notify) -> bytes:
        """The values of all, as JSON."""
        from .stand_ins import generated_data

        found = {}
        with Noise(self.shift), generated_data(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for trace in (t for s in self.subjects for t in traces_of(s)):
                found[trace.name] = _take(trace, with_modules=self.with_modules)
        return json.dumps(found).encode()


def _take(trace: Trace, *, with_modules: bool) -> Taken:
    held: list[Values] = []
    if not with_modules:
        return Taken(taken(trace))
    modules = modules_behind(lambda: held.append(taken(trace)))
    return Taken(held[0], " ".join(modules))


def unpacked(content: bytes) -> dict[str, Taken]:
    """The traces that a job has taken."""
    parts: Mapping[str, Any] = json.loads(content)
    return {name: Taken(*part) for name, part in parts.items()}


def take(
    chosen: Sequence[Subject],
    workers: int,
    *,
    with_modules: bool = False,
    shift: float = 0.0,
    notify: Callable[[str, int, int], None] = lambda text, done, total: None,
) -> dict[str, Taken]:
    """Take the traces of subjects, in so many processes or, with 0, in this one.

    Raises:
        InputError: a process failed.
    """
    executor = Workers(workers, _TIMEOUT_S) if workers else InProcess()
    count = min(len(chosen), max(1, workers * _JOBS))
    work = [TraceWork(tuple(chosen[i::count]), with_modules, shift) for i in range(count)]
    found: dict[str, Taken] = {}
    for done, (job, outcome) in enumerate(executor.run(work, lambda job, news: None), 1):
        if outcome.result is None:
            raise InputError(f"traces of {work[job].subjects[0].name} and others: {outcome.reason}")
        found |= unpacked(outcome.result)
        notify("traces", done, count)
    return dict(sorted(found.items()))
