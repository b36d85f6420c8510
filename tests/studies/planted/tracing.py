"""Which traces a planted bug moves: those that run through its module, one after another until one has moved."""

import warnings

from parvibench.check.traces import stored
from parvibench.check.traces.catalogue import Subject, Taken, subjects, traces_of
from parvibench.check.traces.noise import Noise
from parvibench.check.traces.stand_ins import generated_data
from parvibench.check.traces.trace import taken


def first_moved(module: str) -> tuple[stored.MovedTrace | None, int]:
    """The first trace that differs from the stored one, and how many were taken; ``module`` as in the catalogue."""
    known = stored.load()
    # What runs through the core is not recorded: nearly everything does.
    through = {name for name, trace in known.items() if module.startswith("core.") or module in trace.modules.split()}
    count = 0
    with Noise(), generated_data(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for subject in sorted(subjects(), key=_cheap_first):
            if not any(subject.owns(name) for name in through):
                continue
            for trace in traces_of(subject):
                if trace.name in through:
                    count += 1
                    if (
                        moved := stored.first_difference(trace.name, known[trace.name], Taken(taken(trace)))
                    ) is not None:
                        return moved, count
    return None, count


def _cheap_first(subject: Subject) -> bool:
    """Fixed tables and metrics first: core bugs show there."""
    return subject.kind in ("algorithm", "task")
