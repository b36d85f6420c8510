"""The report of a run: one self-contained HTML page, its figures' data, and the same numbers for machines."""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from parvibench.core.errors import InputError
from parvibench.harness.store.results import StoredRun
from parvibench.metrics.power import detected_alterations

from . import advice, overview, page_leaderboard, provenance, terms
from . import leaderboard as lb
from .dimension_growth import growth_table
from .figures.figure import Drawing, keeping, label_styles
from .figures.image_files import as_figure, write_pdf
from .figures.together import MARKS, STYLES, Pictures
from .floor_comparison import lost_references
from .method_sections import MethodSection, method_sections
from .overview import Aggregates
from .page_tables import Table
from .paper_comparison import Findings as PaperFindings
from .paper_comparison import of_run
from .paper_tables import RULE, paper_tables, plain_rows
from .reports_index import Summary
from .repulsion import repulsion_table
from .task_sections import TaskSection, task_sections
from .text_tables import marks_used, to_markdown
from .winners import Findings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MAX_NAME = 200


@dataclass(frozen=True)
class Report:
    """All parts of a report, before they are rendered."""

    findings: Findings  #: outcomes of the tests
    kinds: dict[str, Findings]  #: kind -> the same tests among the methods of that kind alone
    aggregates: tuple[Aggregates, ...]  #: over tasks
    tasks: tuple[TaskSection, ...]  #: one section per task
    methods: tuple[MethodSection, ...]  #: one section per method
    published: PaperFindings | None  #: our numbers beside a paper's, in a run of its rows
    answers: tuple[advice.Advice, ...]  #: which method for which kind of target
    picture: tuple[Drawing, ...]  #: of the answers

    @classmethod
    def of(cls, results: StoredRun, board: pd.DataFrame | None = None) -> Report:
        """Run the tests, make the tables, draw the figures; ``board``: of ``leaderboard.table``, if already made."""
        findings = Findings.of(results, board)
        styles = label_styles(results.cells)
        kinds = findings.by_kind()
        methods = method_sections(findings)
        return cls(
            findings,
            kinds,
            tuple(overview.aggregated(findings, styles)),
            tuple(task_sections(findings, kinds, styles)),
            tuple(methods),
            of_run(results),
            tuple(advice.answers(findings, {m.name: m.anchor for m in methods})),
            tuple(advice.picture(findings, styles)),
        )

    def drawings(self) -> Iterator[tuple[str, Drawing]]:
        """Every figure with its task (empty for figures over tasks)."""
        yield from (("", d) for d in self.picture)
        for part in self.aggregates:
            yield from (("", d) for d in part.drawings)
        for task in self.tasks:
            yield from ((task.name, d) for d in task.drawings)


def restrict_to_tasks(results: StoredRun, tasks: list[str]) -> StoredRun:
    """The results with the cells of these tasks only; ``InputError`` where the run has no such task."""
    known = lb.task_names(results)
    for task in tasks:
        if task not in known:
            raise InputError(f"--task {task}: not in run {results.run.id}, which has {', '.join(known)}")
    return replace(results, cells=tuple(c for c in results.cells if c.task in tasks))


def write_report(results: StoredRun, out: Path, board: pd.DataFrame | None = None) -> Path:
    """Write the page, and for machines the leaderboard, all values, and the data of every figure; the path of the page.

    ``index.html``, ``leaderboard.md``, ``leaderboard.csv``; ``results.parquet`` with one row per task, label, metric
    and replicate (see ``leaderboard.values``); ``results.json``, the document of ``run --json``, after
    ``results.schema.json``; ``summary.json`` for ``reports_index``; ``figures/NAME.csv``; ``published.csv`` with the papers' numbers beside ours, where there
    are any. ``board`` is that of ``leaderboard.table``, if already made.
    """
    report = Report.of(results, board)
    (out / "figures").mkdir(parents=True, exist_ok=True)
    page = out / "index.html"
    page.write_text(render(report), encoding="utf-8")
    (out / "leaderboard.md").write_text(to_markdown(results, report.findings.board), encoding="utf-8")
    report.findings.board.to_csv(out / "leaderboard.csv", index=False)
    lb.values(results).to_parquet(out / "results.parquet", index=False)
    named = results.document(page.name) | {"out": results.store.root.name}  # where they lay is nobody's concern
    document = json.dumps(named, separators=(",", ":"), allow_nan=False)
    (out / "results.json").write_text(document, encoding="utf-8")
    schema = files("parvibench.reporting") / "templates" / "results.schema.json"
    (out / "results.schema.json").write_bytes(schema.read_bytes())
    if report.published:
        plain_rows(report.published).to_csv(out / "published.csv", index=False)
    _summary(report).write(out)
    for _, drawing in report.drawings():
        drawing.data.to_csv(out / "figures" / f"{drawing.name}.csv", index=False)
    return page


def _summary(report: Report) -> Summary:
    results, board = report.findings.results, report.findings.board
    said = dict(terms.answers(results, board, overview.headline(board, report.findings.scores)))
    suite = results.run.suite
    return Summary(
        suite=str(suite.get("name", "")),
        profile=results.run.profile or "",
        description=str(suite.get("description", "")),
        run=results.run.id,
        headline=said.get(terms.LEADS, ""),
        converged=said.get(terms.CONVERGED, ""),
        cost=said.get(terms.COST, ""),
    )


def write_figure(results: StoredRun, figure: str, out: Path, *, pdf: bool = False) -> list[Path]:
    """Write the figure of that name, as shown on the page, to separate image files, and its data as CSV: their paths.

    SVG or PNG, or one PDF.

    Raises:
        InputError: the report has no such figure.
    """
    drawings, figures = drawn(results)
    if figure not in drawings:
        raise InputError(f"--figure {figure}: no such figure; there are {', '.join(drawings) or 'none'}")
    out.mkdir(parents=True, exist_ok=True)
    drawing = drawings[figure]
    paths = []
    if pdf:
        paths.append(out / f"{figure}.pdf")
        write_pdf(as_figure(drawing, figures), paths[0])
    for i, picture in enumerate(() if pdf else drawing.pictures):
        number = f"-{i + 1}" if len(drawing.pictures) > 1 else ""
        path = out / f"{figure}{number}.{'svg' if picture.is_svg else 'png'}"
        path.write_bytes(picture.content)
        paths.append(path)
    paths.append(out / f"{figure}.csv")
    drawing.data.to_csv(paths[-1], index=False)
    return paths


def drawn(results: StoredRun) -> tuple[dict[str, Drawing], dict[str, Figure]]:
    """Every figure of the report by name, and the Matplotlib figures behind those that have one."""
    with keeping() as figures:
        return {d.name: d for _, d in Report.of(results).drawings()}, figures


def render(report: Report) -> str:
    """The page as HTML."""
    import jinja2
    from markupsafe import Markup

    findings = report.findings
    results, board = findings.results, findings.board
    folder = files("parvibench.reporting") / "templates"
    script = "".join((folder / name).read_text(encoding="utf-8") for name in ("page.js", "figures.js"))
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["cut"] = lambda text: text if len(text) <= _MAX_NAME else f"{text[:_MAX_NAME]}…"
    template = environment.from_string((folder / "page.html.j2").read_text(encoding="utf-8"))
    table = page_leaderboard.leaderboard(results, board)
    pictures = Pictures()
    tips: dict[str, int] = {}  # what headings explain, each once: the script puts it there
    choices = page_leaderboard.numbers(results, board, table) | {"names": advice.full_names(findings)}
    page = template.render(
        run=results.run,
        suite=results.run.suite,
        style=Markup((folder / "page.css").read_text(encoding="utf-8")),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        profile=f", profile {results.run.profile}" if results.run.profile else "",
        counts=_counts(results),
        answers=report.answers,
        picture=report.picture,
        links={m.name: m.anchor for m in report.methods},
        views=_views(report),
        matrix=table,
        equal=terms.equal_terms(results),
        terms=terms.protocol(results),
        sceptic=terms.answers(results, board, overview.headline(board, findings.scores)),
        repulsion=repulsion_table(results, board, findings.scores),
        growth=growth_table(results),
        lost=lost_references(results.cells),
        choices=choices,
        tip=lambda text: tips.setdefault(text, len(tips)),
        numbers=lambda: choices | {"tips": list(tips)},
        groups=list(dict.fromkeys(t.group for t in report.tasks)),
        kinds=[k for k in dict.fromkeys(r.kind for r in table.rows) if k != "anchor"],
        tasks=report.tasks,
        methods=report.methods,
        published=[] if report.published is None else paper_tables(report.published),
        rule=RULE,
        steps=provenance.step_sizes(results),
        failures=provenance.failures(results),
        glossary=[(row, detected_alterations(row.name)) for row in provenance.glossary(results)],
        marks=marks_used(board),
        provenance=provenance.provenance(results),
        command=lambda drawing, task: _command(results, drawing, task),
        svg=lambda picture: Markup(pictures.element(picture)),
    )
    return page.replace(STYLES, pictures.styles(), 1).replace(MARKS, pictures.marks(), 1)


@dataclass(frozen=True)
class View:
    """What the page says over tasks when it shows all methods, or those of one kind."""

    kind: str  #: the kind, or empty
    headlines: dict[str, str]  #: group of tasks, or empty for all -> sentence
    winners: Table  #: the best method by target
    aggregates: tuple[Aggregates, ...]  #: over tasks; figures only in the view of all methods


def _views(report: Report) -> list[View]:
    anchors = {t.name: t.anchor for t in report.tasks}
    found = [(("", report.findings), report.aggregates)]
    found += [((k, f), tuple(overview.aggregated(f, None))) for k, f in report.kinds.items()]
    return [View(k, overview.headlines(f), overview.winners_table(f, anchors), parts) for (k, f), parts in found]


def _counts(results: StoredRun) -> str:
    """The number of cells by status, in words."""
    statuses = pd.Series([str(c.status) for c in results.cells], dtype="string").value_counts(sort=False)
    parts = [f"{n} {status}" for status, n in statuses.items()]
    return f"{len(results.cells)} cells: {', '.join(parts)}" if parts else "no cells"


def _command(results: StoredRun, drawing: Drawing, task: str) -> str:
    """The command that draws a figure; it names the store without its folder, since pages are copied elsewhere."""
    words = ["parvibench", "report", "--out", results.store.root.name, "--run", results.run.id]
    words += ["--task", task] if task else []
    return shlex.join([*words, "--figure", drawing.name])
