"""Records the past of the built-in methods anew: ``python tests/regression/accept_past.py [PATTERN]``, or ``make past``.

``PATTERN`` is a cell's name or a pattern of them: ``banana/ula``, ``"*/svgd"``, ``"options/*"``. Prints what has moved.
"""

import argparse
import datetime as dt
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "past"))

from recorded import CELLS, FILES, chosen, densities, subjects

from parvibench.checks.baseline import Baseline, changes, make

SEED = 1


def main() -> int:
    """Run clean replicates, print what has moved, and write the files."""
    parser = argparse.ArgumentParser(description="Record the past of the built-in methods anew.")
    parser.add_argument("only", nargs="?", default="", help="name or pattern of cells, task/label; default: all")
    only = parser.parse_args().only
    for file in FILES:
        tasks = (
            [t for t in densities() if f"{t}/density" in set(chosen([f"{t}/density"], only))] if file == CELLS else []
        )
        found = subjects(file, only)
        if not found and not tasks:
            continue
        new = make(
            found, tasks, seed=SEED, date=f"{dt.date.today():%Y-%m-%d}", workers=os.cpu_count() or 1,
            notify=lambda text, done, total: print(f"\r{done}/{total} {text:<40.40}", end="", file=sys.stderr),
        )  # fmt: skip
        old = Baseline.load(file) if file.is_file() else new
        new = old.with_part(new) if only else new
        lines = changes(old, new)
        print(*lines, f"{file.name}: {len(lines)} changes beyond chance", sep="\n")
        new.write(file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
