"""The audit of the papers: every published number, ours, and the verdict, as a page, as Markdown and as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from importlib.resources import files
from pathlib import Path

import pandas as pd

from parvibench.harness.store.store import Store
from parvibench.harness.suite.suite import load_suite
from parvibench.reporting.page.reports_index import Summary
from parvibench.reporting.page.text_tables import _line, _plain
from parvibench.reporting.published import PAPERS
from parvibench.reporting.tables.paper_comparison import SuiteComparison, Verdict, compare, paper_tables, plain_rows
from parvibench.reporting.tables.table import Table
from parvibench.reporting.text.paper_words import RULE
from parvibench.suites import of_papers

from .audit_tables import departures, measured_table, summary_table
from .measured import combined, measured_rows, read_changes, read_kept, records_of, with_changes, write_kept


@dataclass(frozen=True)
class Section:
    """One suite of the audit."""

    name: str
    title: str  #: of its paper
    description: str
    command: str
    tables: tuple[Table, ...]
    departures: tuple[str, ...]


def markdown_table(table: Table) -> list[str]:
    """The lines of a table in Markdown."""
    lines = [_line([_plain(c.title) for c in table.columns])]
    lines.append(_line(["---:" if c.numeric else "---" for c in table.columns]))
    for row in table.rows:
        lines.append(_line([_plain(f"{e.text} {e.note}".strip()).replace("*", "\\*") for e in row.entries]))
    return lines


def write_papers(stores: Sequence[Path], out: Path) -> Path:
    """Write ``index.html``, ``papers.md``, ``papers.csv`` and ``summary.json``; the path of the page.

    Shown are the rows that the stores hold, and those that an earlier audit in the folder has kept, in ``measured.csv``; what
    studies changed is read from ``causes.csv`` there.
    """
    ran = records_of([Store(path) for path in stores])
    names = sorted(of_papers(), key=lambda name: list(PAPERS).index(_paper(name)))
    suites = [load_suite(name) for name in names]
    known = reduce(combined, (measured_rows(suite, ran) for suite in suites), read_kept(out))
    changes = read_changes(out)
    found = [with_changes(compare(suite, known), changes) for suite in suites]
    sections = [_section(f, measured_table(f.suite, known)) for f in found]
    summary = summary_table(f for f in found if f.comparisons)
    out.mkdir(parents=True, exist_ok=True)
    write_kept(out, known)
    page = out / "index.html"
    page.write_text(_html(summary, sections), encoding="utf-8")
    (out / "papers.md").write_text(_markdown(summary, sections), encoding="utf-8")
    _told(found).write(out)
    pd.concat([plain_rows(f) for f in found if f.comparisons]).to_csv(out / "papers.csv", index=False)
    return page


def _told(found: Sequence[SuiteComparison]) -> Summary:
    """What a page over several reports says of the audit."""
    comparisons = [c for f in found for c in f.comparisons]
    counts = Counter(c.verdict for c in comparisons)
    judged = [c for c in comparisons if c.verdict in (Verdict.AGREES, Verdict.DIFFERS)]
    headline = (
        f"Of {len(comparisons)} published numbers {len(judged)} were judged: {counts[Verdict.AGREES]} agree, "
        f"{counts[Verdict.DIFFERS]} differ, {sum(bool(c.cause) for c in judged)} of these for a cause that was shown."
    )
    rest = (
        f"{counts[Verdict.INCONCLUSIVE]} are inconclusive, {counts[Verdict.INCOMPARABLE]} cannot be compared, "
        f"{counts[Verdict.NOT_RUN]} were not run."
    )
    description = "Every number that the papers print, ours beside it, and the verdict by a rule fixed beforehand."
    return Summary("papers", "", description, "", headline, rest, "")


def _paper(suite: str) -> str:
    """The key of the paper that a suite is named after."""
    return suite.partition("-")[0]


def _section(found: SuiteComparison, measured: Table | None) -> Section:
    suite = found.suite
    tables = paper_tables(found)
    if measured is not None and not any(row.published for row in suite.rows):  # figures print no numbers
        tables.append(measured)
    command = f"parvibench run --suite {suite.name}"
    return Section(
        suite.name, PAPERS[_paper(suite.name)], suite.description, command, tuple(tables), tuple(departures(suite))
    )


def _html(summary: Table, sections: Sequence[Section]) -> str:
    import jinja2
    from markupsafe import Markup

    css = files("parvibench.reporting.page") / "templates" / "page.css"
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((Path(__file__).parent / "papers.html.j2").read_text(encoding="utf-8"))
    style = Markup(css.read_text(encoding="utf-8"))
    return template.render(summary=summary, sections=sections, style=style, rule=RULE)


def _markdown(summary: Table, sections: Sequence[Section]) -> str:
    lines = ["# The papers' tables, and ours", "", RULE, "", *markdown_table(summary), ""]
    for section in sections:
        lines += [f"## {section.name}", "", f"{section.title}. {section.description} `{section.command}`", ""]
        for table in section.tables:
            lines += [*markdown_table(table), ""]
        if not section.tables:
            lines += ["Not run.", ""]
        lines += [f"- {text}" for text in section.departures]
        lines += [""] if section.departures else []
    return "\n".join(lines).rstrip() + "\n"
