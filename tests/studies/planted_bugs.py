"""How many planted bugs `parvibench check` finds: each is planted in a child process, one at a time.

``python tests/studies/planted_bugs.py [BUG ...] [--workers 2] [--seed 7] [--markdown reports/check/planted-bugs.md]``
Exit code 1 where fewer than 95% are found.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from planted.study import mutants_table, run_mutants

#: Share of bugs that must be found.
BAR = 0.95


def main() -> int:
    """Plant the bugs that are named (all by default), print a line for each and a table at the end."""
    parser = argparse.ArgumentParser(description="Plant bugs one at a time and count how many are found.")
    parser.add_argument("bugs", nargs="*", help="names; default: all")
    parser.add_argument("--workers", type=int, default=2, help="processes at a time")
    parser.add_argument("--seed", type=int, default=7, help="of the checks")
    parser.add_argument("--markdown", type=Path, help="write the table here")
    arguments = parser.parse_args()
    results = []
    for result in run_mutants(arguments.workers, arguments.seed, arguments.bugs):
        results.append(result)
        print(f"{result.name}: {'found' if result.caught else 'MISSED'}", file=sys.stderr, flush=True)
    table = mutants_table(results)
    if arguments.markdown:
        arguments.markdown.parent.mkdir(parents=True, exist_ok=True)
        arguments.markdown.write_text(table)
    print(table)
    return 0 if sum(r.caught for r in results) >= BAR * len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
