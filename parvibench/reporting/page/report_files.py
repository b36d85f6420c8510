"""Files of a report: the page, the numbers for machines, single figures."""

import json
from importlib.resources import files
from pathlib import Path

from parvibench.core.errors import InputError
from parvibench.reporting.facts.run import Facts
from parvibench.reporting.figures.figure import slug
from parvibench.reporting.figures.plots import as_figure, write_pdf
from parvibench.reporting.formatting import write_csv

from .html_page import render
from .provenance import profile_in_words
from .report import Report, drawings
from .reports_index import Summary, kind_in_short
from .text_tables import to_markdown


def write_report(facts: Facts, out: Path, *, compact: bool = False) -> Path:
    """Write the page, and for machines the leaderboard, all values, and the data of every figure; the path of the page.

    ``index.html``, ``leaderboard.md``, ``leaderboard.csv`` (seven digits); ``results.parquet`` with one row per task, label, metric
    and replicate (see ``values``); ``results.json``, the document of ``run --json``, after ``results.schema.json``;
    ``summary.json`` for ``reports_index``; ``figures/NAME.csv``. ``compact``, for publication: without
    ``results.json``, its schema, ``leaderboard.csv`` and the data of figures, most of a report's size.
    """
    report = Report.of(facts)
    texts = {"index.html": render(report, compact=compact), "leaderboard.md": to_markdown(facts)}
    tables = {}
    if not compact:
        document = facts.document("index.html") | {"out": facts.store.root.name}  # no local path
        schema = files("parvibench.reporting.page") / "templates" / "results.schema.json"
        texts["results.json"] = json.dumps(document, separators=(",", ":"), allow_nan=False)
        texts["results.schema.json"] = schema.read_text(encoding="utf-8")
        tables = {"leaderboard": facts.board} | {f"figures/{d.name}": d.data for d in report.drawings()}
    (out if compact else out / "figures").mkdir(parents=True, exist_ok=True)
    if odd := [p for p in out.rglob("*") if not (p.is_file() or p.is_dir())]:
        raise InputError(f"{odd[0]}: not a plain file; a report cannot be written over it")
    for file, text in texts.items():
        (out / file).write_text(text, encoding="utf-8")
    for file, table in tables.items():
        write_csv(table, out / f"{file}.csv")
    facts.write_values(out / "results.parquet")
    run = facts.run
    Summary(
        suite=str(run.suite.get("name", "")),
        profile=profile_in_words(facts),
        description=str(run.suite.get("description", "")),
        run=run.id,
        headline=facts.headline(),
        kinds=[kind_in_short(kind) for kind in facts.recommended[""][1:]],
        picture=report.picture[0].pictures[0].image if report.picture else "",
    ).write(out)
    return out / "index.html"


def write_figure(facts: Facts, figure: str, out: Path, *, pdf: bool = False) -> list[Path]:
    """Write the figure of that name, as shown on the page, to separate image files, and its data as CSV: their paths.

    SVG or PNG, or one PDF.

    Raises:
        InputError: the report has no such figure.
    """
    seen = []
    for drawing in drawings(facts, figure):
        if drawing.name == figure:
            break
        seen.append(drawing.name)
    else:
        raise InputError(f"--figure {figure}: no such figure; there are {', '.join(seen) or 'none'}")
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    if pdf:
        paths.append(out / f"{figure}.pdf")
        write_pdf(as_figure(drawing), paths[0])
    for picture in () if pdf else drawing.pictures:
        file = slug(figure, picture.caption.partition(" (")[0]) if len(drawing.pictures) > 1 else figure
        paths.append(out / f"{file}.{'svg' if picture.is_svg else 'png'}")
        paths[-1].write_bytes(picture.content)
    paths.append(out / f"{figure}.csv")
    write_csv(drawing.data, paths[-1])
    return paths
