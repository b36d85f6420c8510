"""A report as one self-contained HTML page."""

import base64
import hashlib
import shlex
from importlib.resources import files

from parvibench.harness.store.results import StoredRun
from parvibench.metrics.power import detected_alterations
from parvibench.reporting.figures.figure import Drawing, cost_axes
from parvibench.reporting.figures.together import MARKS, STYLES, Pictures
from parvibench.reporting.tables import leaderboard as lb
from parvibench.reporting.tables import matrix
from parvibench.reporting.tables.aggregate_tables import repulsion_table
from parvibench.reporting.tables.curve_tables import growth_table
from parvibench.reporting.tables.floor_comparison import lost_references
from parvibench.reporting.tables.leaderboard import marks_used, unfinished
from parvibench.reporting.tables.paper_comparison import RULE, paper_tables
from parvibench.reporting.tables.winners import RULE as BEST_RULE
from parvibench.reporting.text import facts, marks

from . import provenance, validity_checks
from .across_tasks import full_names
from .report import Report
from .table_rows import cut, table_rows


def render(report: Report, *, compact: bool = False) -> str:
    """The page as HTML; ``compact``: without links to the data of figures."""
    import jinja2
    from markupsafe import Markup

    findings = report.findings
    results, board = findings.results, findings.board
    folder = files("parvibench.reporting.page") / "templates"
    script = "".join((folder / name).read_text(encoding="utf-8") for name in ("page.js", "figures.js"))
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    environment.filters["cut"] = cut
    template = environment.from_string((folder / "page.html.j2").read_text(encoding="utf-8"))
    pictures = Pictures()
    tips: dict[str, int] = {}  # tooltips of headings, each once: the script inserts them
    axes = cost_axes(results)
    boards = {"": board} | {kind: found.board for kind, found in report.kinds.items()}
    divisions = lb.divisions(results)
    anchors = {m.name: m.anchor for m in report.methods}
    choices = matrix.numbers(results, boards, report.matrix, axes) | {
        "names": full_names(findings),
        "divisions": divisions,
    }
    page = template.render(
        report=report,
        compact=compact,
        run=results.run,
        suite=results.run.suite,
        style=Markup((folder / "page.css").read_text(encoding="utf-8")),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        profile=f", profile {profile}" if (profile := provenance.profile_in_words(results)) else "",
        rows=lambda table, look, id: table_rows(
            table, look, {} if id.startswith("method") else anchors, compact=compact
        ),
        say=lambda text, *parts: Markup('<span data-s="{}">{}</span>').format("|".join(parts), text),
        rule=BEST_RULE,
        protocol=validity_checks.protocol(results),
        repulsion=repulsion_table(results, board, findings.scores),
        growth=growth_table(results),
        notices={"unfinished": unfinished(results), "references": lost_references(results.cells)},
        status_word=marks.status_word,
        choices=choices,
        tip=lambda text: tips.setdefault(text, len(tips)),
        numbers=lambda: choices | {"tips": list(tips)},
        among=facts.among,
        divisions=lb.DIVISIONS if divisions else (),
        about_divisions=facts.DIVISIONS,
        groups=list(dict.fromkeys(t.group for t in report.tasks)),
        kinds=[k for k in dict.fromkeys(r.kind for r in report.matrix.rows) if k != "anchor"],
        published=[] if report.published is None else paper_tables(report.published),
        paper_rule=RULE,
        failures=provenance.failures(results),
        glossary=[(row, detected_alterations(row.name)) for row in provenance.glossary(results)],
        marks=marks_used(board),
        provenance=provenance.provenance(results),
        command=lambda drawing, task: _command(results, drawing, task),
        svg=lambda picture: Markup(pictures.element(picture)),
    )
    return page.replace(STYLES, pictures.styles(), 1).replace(MARKS, pictures.marks(), 1)


def _command(results: StoredRun, drawing: Drawing, task: str) -> str:
    """The command that draws a figure; it names the store without its folder, since pages are copied elsewhere."""
    words = ["parvibench", "report", "--out", results.store.root.name, "--run", results.run.id]
    words += ["--task", task] if task else []
    return shlex.join([*words, "--figure", drawing.name])
