"""Records the past of the built-in methods anew: ``python tests/regression/accept_past.py [PATTERN]``, or ``make past``.

``PATTERN`` is a cell's name or a pattern of them: ``banana/ula``, ``"*/svgd"``, ``"options/*"``. Prints what has
moved; the rest stays to the digit.
"""

import argparse
import datetime as dt
import os
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "past"))

from recorded import FILES, subjects, tasks

from parvibench.checks.baseline import Baseline, make, replaced

SEED = 1


def main() -> int:
    """Run clean replicates, print what has moved, and write that."""
    parser = argparse.ArgumentParser(description="Record the past of the built-in methods anew.")
    parser.add_argument("only", nargs="?", default="", help="name or pattern of cells, task/label; default: all")
    only = parser.parse_args().only or "*"
    for file in FILES:
        old = Baseline.load(file)
        made = make(
            subjects(file, only), tasks(file, only), seed=SEED, date=f"{dt.date.today():%Y-%m-%d}",
            workers=os.cpu_count() or 1,
            notify=lambda text, done, total: print(f"\r{done}/{total} {text:<40.40}", end="", file=sys.stderr),
        )  # fmt: skip
        new, lines = replaced(old, made)
        gone = [name for name in old.cells if only == "*" and name not in made.cells]
        lines += [f"{name}: gone" for name in gone]
        print(*lines, f"{file.name}: {len(lines)} changes beyond chance", sep="\n")
        if lines:
            replace(new, cells={name: cell for name, cell in new.cells.items() if name not in gone}).write(file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
