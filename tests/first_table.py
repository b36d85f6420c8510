"""The table of README and docs/quickstart.md: what `parvibench run --suite quick` ends with.

    python tests/first_table.py STORE

runs the suite into STORE (cells that it holds are not run again) and writes the blocks between ``<!--quick-->`` and
``<!--end-->`` on both pages.
"""

import re
import sys
from pathlib import Path

import parvibench as pb
from parvibench.reporting.page.text_tables import to_markdown
from parvibench.reporting.presented import Results

ROOT = Path(__file__).parents[1]
#: Pages, and the methods whose rows each shows; all where none are named.
PAGES = {"README.md": ("hmc", "svgd", "mala", "sifg", "ksivi", "*exact*", "*initial*"), "docs/quickstart.md": ()}
BLOCK = re.compile(r"(<!--quick-->\n\n).*?(?=\n\n<!--end-->)", flags=re.S)


def lines(results: Results, methods: tuple[str, ...] = ()) -> list[str]:
    """The Markdown table of a run, without the number of tasks of each row."""
    rows = [
        re.split(r"(?<!\\) *\| *", line)[1:-1] for line in to_markdown(results).splitlines() if line.startswith("|")
    ]
    width = len(rows[0])
    kept = [r for i, r in enumerate(rows) if len(r) == width and (i < 2 or not methods or r[0] in methods)]
    head, _, *body = ([*r[:2], *r[3:]] for r in kept)
    return [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {' | '.join(r)} |" for r in body)]


def table_of(page: str) -> list[str]:
    """The rows of a page's block, head and rule included."""
    found = BLOCK.search((ROOT / page).read_text("utf-8"))
    if found is None:
        raise ValueError(f"{page}: no block <!--quick-->")
    return found[0].removeprefix(found[1]).splitlines()


if __name__ == "__main__":
    results = pb.run("quick", out=sys.argv[1], workers=2, tracking=False)
    for page, methods in PAGES.items():
        text, file = "\n".join(lines(results, methods)), ROOT / page
        file.write_text(BLOCK.sub(lambda found, text=text: found[1] + text, file.read_text("utf-8")), "utf-8")
