"""Stores the golden values of today: ``python tests/regression/accept_traces.py [PATTERN]``, or ``make traces``.

``PATTERN`` is a trace's name, the first word of several, or a pattern of them: ``mala``, ``"run banana/ula"``, ``"*mini-batches"``.
Prints what has moved.
"""

import argparse
import sys
from fnmatch import fnmatchcase

import torch
from golden import stored
from golden.catalogue import subjects, surroundings, traces_of
from golden.trace import Values, taken


def chosen(name: str, pattern: str) -> bool:
    """Whether a pattern is of a trace."""
    return not pattern or fnmatchcase(name, pattern) or name.startswith(f"{pattern} ")


def take(pattern: str = "") -> dict[str, Values]:
    """The chosen traces, taken now."""
    torch.set_num_threads(1)
    found = {}
    with surroundings():
        for trace in (t for s in subjects() for t in traces_of(s).values()):
            if chosen(trace.name, pattern):
                try:
                    found[trace.name] = taken(trace)
                except Exception as error:
                    error.add_note(f"in the trace {trace.name!r}; nothing was stored")
                    raise
    return found


def main() -> int:
    """Take the traces, print what has moved, and store them."""
    parser = argparse.ArgumentParser(description="Store the golden values of today.")
    parser.add_argument("only", nargs="?", default="", help="name, first word or pattern of traces; default: all")
    only = parser.parse_args().only
    old, found = stored.load(), take(only)
    gone = [name for name in old if chosen(name, only) and name not in found]
    if not found and not gone:
        print(f"no trace is named {only!r}", file=sys.stderr)
        return 2
    moved = {n: m for n, values in found.items() if n in old and (m := stored.differences(old[n], values))}
    new = [name for name in found if name not in old]
    for name, differences in moved.items():
        print(stored.report(name, differences))
    for word, names in (("new", new), ("gone", gone)):
        print(*(f"{name}: {word}" for name in names), sep="\n", end="\n" if names else "")
    # Values that have not moved stay to the digit: a diff shows changes only.
    changed = {name: found[name] for name in (*moved, *new)}
    if changed or gone:
        stored.write(stored.FILE, {name: v for name, v in old.items() if name not in gone} | changed)
    print(f"{len(found)} traces taken: {len(moved)} moved, {len(new)} new, {len(gone)} gone; {stored.FILE.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
