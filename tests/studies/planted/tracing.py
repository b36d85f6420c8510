"""Which traces a planted bug moves: those that run through its module, one after another until one has moved."""

import warnings

from parvibench.checks.traces import stored
from parvibench.checks.traces.catalogue import Subject, Taken, subjects, traces_of
from parvibench.checks.traces.noise import Noise
from parvibench.checks.traces.stand_ins import generated_data
from parvibench.checks.traces.trace import taken
from parvibench.core import registry

from .dependence import modules_behind


def first_moved(module: str) -> tuple[stored.MovedTrace | None, int]:
    """The first trace that differs from the stored one, and how many were taken; ``module`` as in the catalogue."""
    known, count = stored.load(), 0
    # What runs through the core is not recorded: nearly everything does.
    through = {name for name, trace in known.items() if module.startswith("core.") or module in trace.modules.split()}
    with Noise(), generated_data(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for subject in sorted(subjects(), key=_cheap_first):
            whole = f"parvibench.{module}" in _imported_by(subject)
            if not whole and not any(subject.owns(name) for name in through):
                continue
            for trace in traces_of(subject):
                if trace.name in known if whole else trace.name in through:
                    count += 1
                    if (
                        moved := stored.first_difference(trace.name, known[trace.name], Taken(taken(trace)))
                    ) is not None:
                        return moved, count
    return None, count


def _imported_by(subject: Subject) -> frozenset[str]:
    """Modules that a task or an algorithm imports: what they do then, such as stating facts, is in no recorded call."""
    table = {"algorithm": registry.algorithms(), "task": registry.tasks()}.get(subject.kind, {})
    return modules_behind(table[subject.name].target.partition(":")[0]) if subject.name in table else frozenset()


def _cheap_first(subject: Subject) -> bool:
    """Fixed tables and metrics first: core bugs show there."""
    return subject.kind in ("algorithm", "task")
