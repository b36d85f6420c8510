"""Pages written from the code before every build: commands, functions, tasks, methods, metrics, suites, reports.

They lie in ``reference/`` and ``reports/`` of the sources, which git ignores. What they say comes from where the program
takes it: the registry, ``parvibench show``, the command line's own help, the papers' tables.
"""

import math
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

import typer.main
from sphinx.application import Sphinx

import parvibench as pb
from parvibench.api import describe
from parvibench.cli import app as commands
from parvibench.core import registry
from parvibench.harness.suite.entries import Row
from parvibench.harness.suite.suite import load_suite
from parvibench.reporting.figures.high_dimensional import write_corner
from parvibench.suites import of_papers, shipped

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tests" / "studies"))
from papers.published import PAPERS, numbers  # noqa: E402

#: Of the reports, what is not a page written in Markdown is copied as it is.
REPORTS = ROOT / "reports"
#: In the site ``reports/index.html`` is the page made of the reports' README.
OVERVIEW = "overview.html"
KINDS = {"task": registry.tasks, "algorithm": registry.algorithms, "metric": registry.metrics}


def generate(app: Sphinx) -> None:
    """Write all pages; those whose content is as before stay untouched, so that Sphinx need not read them again."""
    source = Path(app.srcdir)
    wanted = dict(_reference(source)) | dict(_reports())
    for path, text in wanted.items():
        file = source / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.is_file() or file.read_text("utf-8") != text:
            file.write_text(text, "utf-8")
    for folder in ("reference", "reports"):
        for file in (source / folder).rglob("*.md"):
            if file.relative_to(source).as_posix() not in wanted:
                file.unlink()


def copy_reports(app: Sphinx, error: Exception | None) -> None:
    """The reports' pages, tables and figures as they are, beside the site's own pages; their index under ``OVERVIEW``."""
    if error is None and app.builder.format == "html":
        out = Path(app.outdir) / "reports"
        for file in REPORTS.rglob("*.*"):
            path = file.relative_to(REPORTS)
            target = out / (OVERVIEW if path == Path("index.html") else path)
            if file.is_file() and file.suffix != ".md":
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, target)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", generate)
    app.connect("build-finished", copy_reports)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _reference(source: Path) -> Iterator[tuple[str, str]]:
    yield "reference/cli.md", _command_line()
    yield "reference/api.md", _api()
    for kind, rows in KINDS.items():
        names = list(rows())
        yield f"reference/{kind}s/index.md", _list_page(kind)
        for name in names:
            yield f"reference/{kind}s/{name}.md", _member_page(kind, name, source)
    yield "reference/suites.md", _suites()


def table(columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """A Markdown table."""
    columns = list(columns)
    lines = [columns, ["---"] * len(columns), *([_cell(v) for v in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _cell(value: Any) -> str:
    if isinstance(value, list | tuple):
        value = ", ".join(f"{v:.4g}" if isinstance(v, float) else str(v) for v in value)
    if isinstance(value, float):
        value = "" if math.isnan(value) else f"{value:.4g}"
    return re.sub(r"([|*_<\[\]$~])", r"\\\1", " ".join(str(value).split())) if not _is_markup(value) else str(value)


class Markup(str):
    """Text that is Markdown already."""


def _is_markup(value: Any) -> bool:
    return isinstance(value, Markup)


def code(text: Any) -> Markup:
    """Text set as code."""
    plain = " ".join(str(text).split()).replace("|", "\\|")
    return Markup(f"`{plain}`" if plain else "")


def _toc(entries: Iterable[str]) -> str:
    return "```{toctree}\n:hidden:\n:maxdepth: 1\n\n" + "\n".join(entries) + "\n```\n"


# Command line


def _command_line() -> str:
    parts = ["# Command line\n", "The same text is printed by `--help` of every command. Exit codes: 0 success; 1 a cell failed or a sampler got worse;\n2 wrong usage or input.\n"]  # fmt: skip
    for words, command in _walk(typer.main.get_command(commands), ("parvibench",)):
        parts.append(f"## `{' '.join(words)}`\n")
        parts.append(_help_text(command.help))
        rows = [
            (code(_usage_of(p)), "required" if p.required else _default(p), p.help or "")
            for p in map(_Parameter, command.params)
            if p.shown
        ]
        if rows:
            parts.append(table(("argument or option", "default", "meaning"), rows))
        if command.epilog:
            parts.append(_help_text(command.epilog))
    return "\n".join(parts)


def _walk(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if hasattr(command, "commands"):
        for name, sub in command.commands.items():
            yield from _walk(sub, (*words, name))
    elif not command.hidden:
        yield words, command


class _Parameter:
    """What the page says of a parameter of a command."""

    def __init__(self, parameter: Any) -> None:
        self.names = (*parameter.opts, *parameter.secondary_opts)
        self.is_option = parameter.param_type_name == "option"
        self.required = parameter.required
        self.shown = not getattr(parameter, "hidden", False) and "--help" not in self.names
        self.help = _plain(getattr(parameter, "help", None))
        self.default = parameter.default
        self.choices = list(getattr(getattr(parameter, "type", None), "choices", ()))


def _usage_of(parameter: _Parameter) -> str:
    name = ", ".join(parameter.names) if parameter.is_option else parameter.names[0].upper()
    return f"{name} {'|'.join(map(str, parameter.choices))}".strip()


def _default(parameter: _Parameter) -> Any:
    value = parameter.default
    return "" if value in (None, (), [], "", False) or callable(value) else code(value)


def _plain(text: str | None) -> str:
    return re.sub(r"\[/?\w*\]", "", text or "")


def _help_text(text: str | None) -> str:
    return _plain(text).replace("\b", "").replace("<", r"\<") + "\n"


# Functions and classes


def _api() -> str:
    blocks = ["# Python\n\n`import parvibench as pb`; names are imported on first use.\n"]
    for name in pb.__all__:
        found = getattr(pb, name)
        place = f"{found.__module__}.{name}"
        directive = "autoclass" if isinstance(found, type) else "autofunction"
        members = "\n   :members:\n   :exclude-members: model_config" if isinstance(found, type) else ""
        blocks.append(f"## `pb.{name}`\n\n```{{eval-rst}}\n.. {directive}:: {place}{members}\n```\n")
    return "\n".join(blocks)


# Tasks, algorithms, metrics


def _list_page(kind: str) -> str:
    rows = KINDS[kind]()
    columns: dict[str, tuple[str, ...]] = {
        "task": ("dim", "judged_by", "tags", "summary"),
        "algorithm": ("kind", "needs", "summary", "citation"),
        "metric": ("direction", "unit", "need", "summary"),
    }
    shown = columns[kind]
    body = table(
        (kind, *(c.replace("judged_by", "judged by") for c in shown)),
        ([Markup(f"[{name}]({name}.md)"), *(getattr(row, c) for c in shown)] for name, row in rows.items()),
    )
    intro = {
        "task": "A task is a target density with its initial distribution, known facts and, where available, a certified reference.",
        "algorithm": "All samplers, with their requirements. `particles` interact, `chains` are independent, a\n`generator` draws new samples.",
        "metric": "Functions of samples and of the known facts of the target.",
    }[kind]
    title = {"task": "Tasks", "algorithm": "Algorithms", "metric": "Metrics"}[kind]
    return f"# {title} ({len(rows)})\n\n{intro} `parvibench list {kind}s` prints the same.\n\n{body}"


def _member_page(kind: str, name: str, source: Path) -> str:
    facts = getattr(describe, kind)(name)
    about = facts.pop("about", "")
    facts.pop("name")
    # The tables lead to these pages: two hundred entries beside every page would take half of the build.
    parts = [
        "---\norphan: true\n---\n",
        f"# {name}\n",
        f"{_sentence(facts.pop('summary'))}\n",
        f"One of the [{kind}s](index.md).\n",
    ]
    presets = facts.pop("presets", None)
    settings = facts.pop("settings (default - meaning)", None)
    departures = facts.pop("departs from the plain task", None)
    nested = {k: facts.pop(k) for k in list(facts) if isinstance(facts[k], dict)}
    parts.append(table(("fact", "value"), ((k, _linked(k, v)) for k, v in facts.items() if v not in ("", [], None))))
    if kind == "task":
        parts.append(_corner(name, source))
    if about:
        parts.append(f'<div class="about">\n\n````text\n{about}\n````\n\n</div>\n')
    if departures:
        parts += ["## Departs from the plain task\n", *(f"{i}. {_cell(text)}" for i, text in departures.items()), ""]
    if settings:
        rows = ((code(k), *(_setting(v))) for k, v in settings.items())
        parts += ["## Settings\n", table(("setting", "default", "meaning and source"), rows)]
    if isinstance(presets, Mapping):
        rows = ((code(k), v) for k, v in presets.items())
        parts += ["## Presets\n", table(("preset", "values and their source"), rows)]
    for title, values in nested.items():
        heading = "Certificate" if title == "reference" else title.capitalize()
        parts += [f"## {heading}\n", table(("entry", "value"), values.items())]
    parts.append(_published(kind, name))
    parts.append(f"`parvibench show {kind} {name}` prints the same.\n" if kind != "task" else f"`parvibench show task {name}` prints the same; `parvibench run --task {name} --algorithm svgd` runs a method on it.\n")  # fmt: skip
    return "\n".join(parts)


def _sentence(text: str) -> str:
    return f"{_cell(text[:1].upper() + text[1:])}."


def _linked(key: str, value: Any) -> Any:
    if key in ("metrics", "primary metric"):
        names = value if isinstance(value, list) else [value]
        return Markup(", ".join(f"[{n}](../metrics/{n}.md)" for n in names))
    return value


def _setting(text: str) -> tuple[Markup, str]:
    default, _, meaning = text.partition(" - ")
    return code(default), meaning


def _corner(name: str, source: Path) -> str:
    """Pairs of coordinates of the reference draws, for targets in two dimensions."""
    reference = registry.load_task(name).reference()
    if reference is None or reference.draws.shape[1] != 2:
        return ""
    file = source / "reference" / "tasks" / "pictures" / f"{name}.png"
    if not file.is_file():
        write_corner(reference, file)
    return f"![histograms of reference draws of {name}, by coordinate and by pair](pictures/{name}.png)\n"


@cache
def _rows() -> list[tuple[str, Row]]:
    """The rows of the papers' suites with their suites' names."""
    return [(name, row) for name in of_papers() for row in load_suite(name).rows]


def _published(kind: str, name: str) -> str:
    """The papers' numbers that rows of a task, or of a method, stand beside."""
    found = []
    for suite, row in _rows():
        if name != {"task": row.task, "algorithm": row.algorithm}.get(kind):
            continue
        for asked in row.published:
            n = numbers()[asked.pointer]
            note = "; ".join(filter(None, ["contradicts itself" if n.suspicious else "", n.note]))
            found.append(
                (f"{PAPERS[n.paper]} {n.table}", n.dataset, n.algorithm, n.metric, n.printed, code(suite), note)
            )
    if not found:
        return ""
    columns = ("source", "data", "method", "metric", "published", "suite", "remarks")
    text = "## Published values\n\nAs printed in the papers; `parvibench run --suite SUITE` runs these rows; `python tests/studies/papers` sets our values beside them.\n\n"
    return text + table(columns, found)


def _suites() -> str:
    parts = ["# Suites\n\nSuite files that ship with the package; `parvibench run --suite NAME` runs one.\n"]
    for name in shipped():
        suite = load_suite(name)
        rows = {
            "tasks": list(dict.fromkeys(t.name for t, _ in suite.pairs)),
            "methods": list(dict.fromkeys(a.display for _, a in suite.pairs)),
            "profiles": list(suite.profiles) or "none",
        }
        parts.append(f"## {name}\n\n{_cell(suite.description)}\n\n{table(('part', 'names'), rows.items())}")
    return "\n".join(parts)


# Reports


def _reports() -> Iterator[tuple[str, str]]:
    """The reports' own pages; those in HTML are linked from the first."""
    for file in sorted(REPORTS.rglob("*.md")):
        path = file.relative_to(REPORTS)
        if path.name == "leaderboard.md":
            continue
        text = re.sub(r"\]\(([\w-]+\.svg)\)", lambda m, p=path: f"]({_up(p)}{p.parent.as_posix()}/{m[1]})", file.read_text("utf-8"))  # fmt: skip
        name = "index.md" if path.name == "README.md" else path.name
        text = text.replace("README.md)", "index.md)")
        text = text.replace("[index.html](index.html)", f'<a href="{OVERVIEW}">The overview</a>')
        if not text.startswith("# "):
            text = f"# {path.stem.replace('-', ' ').capitalize()}\n\n{text}"
        if path.parent == Path():
            pages = sorted(p.parent.name for p in REPORTS.glob("*/index.html"))
            links = "\n".join(f'<li><a href="{escape(p)}/index.html">{escape(p)}</a></li>' for p in pages)
            others = sorted(f for f in REPORTS.glob("*/*.md") if f.name != "leaderboard.md")
            inner = [f"{f.parent.name}/{'index' if f.name == 'README.md' else f.stem}" for f in others]
            text += f"\n## Pages\n\n<ul>\n{links}\n</ul>\n\n{_toc(inner)}"
        yield f"reports/{path.with_name(name).as_posix()}", text


def _up(path: Path) -> str:
    """From a copied page to the folder of the reports in the repository."""
    return "../" * (len(path.parent.parts) + 1) + "../reports/"
