"""A report as one self-contained HTML page."""

import base64
import hashlib
import shlex
from collections.abc import Mapping
from functools import partial
from importlib.resources import files

import jinja2
from markupsafe import Markup, escape

from parvibench.core import registry
from parvibench.core.result import Status
from parvibench.reporting.facts import board as lb
from parvibench.reporting.facts.run import Facts
from parvibench.reporting.figures.figure import Drawing
from parvibench.reporting.figures.vector import MARKS, STYLES, Pictures
from parvibench.reporting.formatting import day, named
from parvibench.reporting.tables import matrix
from parvibench.reporting.tables.table import Column, Entry, Row, Table
from parvibench.reporting.tables.task_tables import trust_table
from parvibench.reporting.text import described, leaders, marks

from .provenance import profile_in_words, protocol, provenance, step_sizes, without_folders
from .report import Report
from .reports_index import MOST_NAMED

_MAX_NAME = 200


def render(report: Report, *, compact: bool = False) -> str:
    """The page as HTML; ``compact``: without links to the data of figures."""
    facts = report.facts
    folder = files("parvibench.reporting.page") / "templates"
    script = "".join((folder / name).read_text(encoding="utf-8") for name in ("page.js", "figures.js"))
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False}
    environment.filters["cut"] = _cut
    template = environment.from_string((folder / "page.html.j2").read_text(encoding="utf-8"))
    pictures = Pictures()
    methods = registry.algorithms()
    names = {c.label: methods[c.algorithm].summary for c in facts.cells if c.algorithm in methods}
    choices = matrix.numbers(facts, report.matrix) | {"names": names, "divisions": facts.divisions}
    anchors = {m.name: m.anchor for m in report.methods}
    page = template.render(
        report=report,
        compact=compact,
        facts=facts,
        style=Markup((folder / "page.css").read_text(encoding="utf-8")),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        profile=f", profile {profile}" if (profile := profile_in_words(facts)) else "",
        described=described,
        marks=marks,
        leaders=leaders,
        named=named,
        most=MOST_NAMED,
        explained=leaders.explained(facts.recommended[""], min((c.n_replicates for c in facts.cells), default=0)),
        started=day(facts.run.started),
        rows=lambda table, look: _rows(table, look, anchors, compact=compact),
        say=lambda text, *parts: Markup('<span data-s="{}">{}</span>').format("|".join(parts), text),
        protocol=protocol(facts),
        notices={
            "unfinished": lb.unfinished(facts),
            "references": marks.lost_references(facts.lost_references),
            "untuned": step_sizes(facts)[1],
        },
        answers=facts.without_reference,
        trust_table=trust_table,
        without_folders=without_folders,
        choices=choices,
        tips={},  # tooltip of a heading -> its number: each is once on the page, the script inserts them
        failures=[c for c in facts.cells if c.status is not Status.OK or c.n_diverged],
        glossary=[(registry.metrics()[m], power) for m, power in facts.powers.items()],
        marks_used=lb.marks_used(facts.board),
        provenance=provenance(facts),
        command=partial(_command, facts),
        svg=lambda picture: Markup(pictures.element(picture)),
    )
    return page.replace(STYLES, pictures.styles(), 1).replace(MARKS, pictures.marks(), 1)


def _command(facts: Facts, drawing: Drawing, task: str) -> str:
    """The command that draws a figure; it names the store without its folder, since pages are copied elsewhere."""
    words = ["parvibench", "report", "--out", facts.store.root.name, "--run", facts.run.id]
    words += ["--task", task] if task else []
    return shlex.join([*words, "--figure", drawing.name])


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_NAME else f"{text[:_MAX_NAME]}…"


def _rows(table: Table, look: str, links: Mapping[str, str], *, compact: bool) -> Markup:
    """The rows in the body of a table of that look, all text escaped: hundreds of thousands of entries, too many for a template.

    ``links``: text of an entry -> fragment that it links to. ``compact`` leaves columns out that are marked ``more``.
    """

    def attribute(name: str, value: str) -> str:
        return f' {name}="{escape(value)}"' if value else ""

    def entry_of(entry: Entry, column: Column, tag: str) -> str:
        # The script writes into <bdi>, and aligns by data-v; numbers that it leaves alone need neither. HTML wants no </td>.
        plain = bool(entry.sort or not entry.text) and not entry.own and look != "matrix"
        classes = f"{entry.look} n".strip() if column.numeric and not plain else entry.look
        own = "|".join(f"{o.text}|{o.look}" for o in entry.own)
        key = " data-v" if not own and entry.shows_sort else attribute("data-v", entry.sort)
        text = str(escape(entry.text)) if plain else f"<bdi>{escape(_cut(entry.text))}</bdi>"
        if link := links.get(entry.text, ""):
            text = f'<a href="#{escape(link)}">{text}</a>'
        return (
            f"<{tag}{attribute('class', classes)}{attribute('data-group', column.group)}{key}{attribute('data-own', own)}"
            f"{attribute('title', entry.help)}>{text}"
            + (f" <small>{escape(_cut(entry.note))}</small>" if entry.note else "")
        )

    def row_of(row: Row) -> str:
        shown = enumerate(zip(row.entries, table.columns, strict=True))
        entries = [entry_of(e, c, "td" if i else "th scope=row") for i, (e, c) in shown if not (compact and c.more)]
        named = ("class", row.look), ("data-kind", row.kind)
        return f"<tr{''.join(attribute(*n) for n in named)}>\n" + "".join(entries)

    return Markup("\n".join(map(row_of, table.rows)))
