"""The audit of the papers: every published number, ours, and the verdict, as a page, as Markdown and as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from importlib.resources import files
from pathlib import Path

import pandas as pd

from parvibench.harness.store.store import Store
from parvibench.harness.suite.suite import load_suite
from parvibench.reporting.page.reports_index import Summary
from parvibench.reporting.page.text_tables import _line, _plain
from parvibench.reporting.tables.table import Row, Table
from parvibench.suites import of_papers

from .audit_tables import Numbers, departures, measured_table, number_table, summary_table
from .claims_page import Stated, stated
from .comparison import SuiteComparison, compare, effect_table, plain_rows
from .first_screen import SCREENS, Screen
from .kinds import JUDGED, Finding, Kind, count, findings, read_evidence, read_study
from .measured import combined, measured_rows, read_kept, records_of, with_changes, write_kept
from .paper_words import RULE
from .pictures import FIGURES, Picture, pictures
from .plain_times import CAUSES
from .published import PAPERS

#: What the kinds of verdicts mean, after the rule of agreement.
KINDS = (
    '"(rule)": the paper prints no setting but says how it chose it, and we did the same; "(program)": the authors\' program was '
    "run here beside ours, which says nothing of the paper. Within reach means inside the range that a grid of settings spans, or within the tolerance of its ends, and is no agreement. Intervals of SRLD's networks are over "
    "chains given the paper's own splits, and hold the noise of its one chain a split."
)


@dataclass(frozen=True)
class Section:
    """One suite of the audit."""

    name: str
    description: str
    command: str
    numbers: Numbers | None
    tables: tuple[Table, ...]  #: what single changes changed, and what figures gave
    pictures: tuple[Picture, ...]
    departures: tuple[str, ...]


@dataclass(frozen=True)
class Paper:
    """What the page says of one paper."""

    key: str
    title: str
    screen: Screen
    counts: str
    claims: tuple[Stated, ...]
    sections: tuple[Section, ...]


def write_papers(stores: Sequence[Path], out: Path) -> Path:
    """Write ``index.html``, ``papers.md``, ``papers.csv`` and ``summary.json``; the path of the page.

    Shown are the rows that the stores hold, and those that an earlier audit in the folder has stored in ``measured.csv``; what
    studies measured is read from ``causes.csv``, ``rule.csv``, ``program.csv``, ``reach.csv`` and ``claims.csv`` there.
    """
    ran = records_of([Store(path) for path in stores])
    names = sorted(of_papers(), key=lambda name: list(PAPERS).index(_paper(name)))
    suites = [load_suite(name) for name in names]
    known = reduce(combined, (measured_rows(suite, ran) for suite in suites), read_kept(out))
    changes, evidence = read_study(out / CAUSES), read_evidence(out)
    found = [with_changes(compare(suite, known), changes) for suite in suites]
    judged = {f.suite.name: findings(f, evidence) for f in found if f.comparisons}
    summary = summary_table(judged)
    sections = {f.suite.name: _section(f, judged.get(f.suite.name), measured_table(f.suite, known), out) for f in found}
    papers = [_of_paper(key, judged, sections, out) for key in PAPERS]
    out.mkdir(parents=True, exist_ok=True)
    write_kept(out, known)
    page = out / "index.html"
    page.write_text(_rendered("papers.html.j2", summary, papers), encoding="utf-8")
    (out / "papers.md").write_text(_rendered("papers.md.j2", summary, papers).rstrip() + "\n", encoding="utf-8")
    _told([f for part in judged.values() for f in part]).write(out)
    rows = pd.concat([_rows(f, judged[f.suite.name]) for f in found if f.comparisons])
    rows.to_csv(out / "papers.csv", index=False, float_format="%.6g")
    return page


def _told(found: Sequence[Finding]) -> Summary:
    """What a page over several reports says of the audit."""
    by_rule = count(found, Kind.RULE_AGREES), count(found, Kind.RULE_DIFFERS)
    by_program = count(found, Kind.PROGRAM_AGREES), count(found, Kind.PROGRAM_DIFFERS)
    caused, unexplained = count(found, Kind.CAUSE), count(found, Kind.DIFFERS)
    headline = (
        f"Of {len(found)} published numbers {count(found, *JUDGED)} were judged. Against the paper's settings "
        f"{count(found, Kind.AGREES)} agree and {caused + unexplained} differ, {caused} of these for a cause that was shown; "
        f"against its rule {by_rule[0]} agree and {by_rule[1]} differ, against its program {by_program[0]} and {by_program[1]}."
    )
    description = "Every number that the papers print, ours beside it, and the verdict by a rule fixed beforehand."
    return Summary("papers", "", description, "", headline)


def _paper(suite: str) -> str:
    """The key of the paper that a suite is named after."""
    return suite.partition("-")[0]


def _of_paper(key: str, judged: Mapping[str, Sequence[Finding]], sections: Mapping[str, Section], out: Path) -> Paper:
    part = [f for name, found in judged.items() if _paper(name) == key for f in found]
    counts = ""
    if part:
        kinds = {kind: count(part, kind) for kind in Kind}
        counts = f"Of {len(part)} numbers: " + ", ".join(f"{n} {kind}" for kind, n in kinds.items() if n) + "."
    mine = tuple(section for name, section in sections.items() if _paper(name) == key)
    return Paper(key, PAPERS[key], SCREENS[key], counts, tuple(stated(key.upper(), out)), mine)


def _section(found: SuiteComparison, judged: Sequence[Finding] | None, measured: Table | None, out: Path) -> Section:
    suite, tables = found.suite, [effect_table(found)]
    if judged is None:  # figures print no numbers
        tables.append(measured)
    return Section(
        suite.name,
        suite.description,
        f"parvibench run --suite {suite.name}",
        number_table(judged) if judged else None,
        tuple(t for t in tables if t is not None),
        tuple(pictures(suite.name, out / FIGURES)),
        tuple(departures(suite)),
    )


def _rows(found: SuiteComparison, judged: Sequence[Finding]) -> pd.DataFrame:
    """The findings for machines, a row each, with our number and the verdict of the study."""
    table = plain_rows(found)
    table["verdict"] = [str(f.kind) for f in judged]
    table["reason"] = [f.note for f in judged]
    for i, f in enumerate(judged):
        if f.ours is not None:
            values = {"ours_mean": f.ours.mean, "ours_low": f.ours.low, "ours_high": f.ours.high, "ours_n": f.ours.n}
            table.loc[i, list(values)] = list(values.values())
    return table


def _rendered(name: str, summary: Table, papers: Sequence[Paper]) -> str:
    """The page by a template of this folder, escaped as HTML or as Markdown."""
    import jinja2
    from markupsafe import Markup

    css = files("parvibench.reporting.page") / "templates" / "page.css"
    environment = jinja2.Environment(autoescape=".html" in name, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((Path(__file__).parent / name).read_text(encoding="utf-8"))
    style = Markup(css.read_text(encoding="utf-8"))
    found = {"summary": summary, "papers": papers, "rule": RULE, "kinds": KINDS}
    return template.render(**found, style=style, cells=_cells)


def _cells(row: Row) -> str:
    """A row of a table in Markdown."""
    return _line([_plain(f"{e.text} {e.note}".strip()).replace("*", "\\*") for e in row.entries])
