"""Files of a report: the page, the numbers for machines, single figures."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from parvibench.core.errors import InputError
from parvibench.harness.store.results import StoredRun
from parvibench.reporting.figures.figure import Drawing
from parvibench.reporting.figures.plots import as_figure, keeping, write_pdf
from parvibench.reporting.formatting import write_csv
from parvibench.reporting.tables.leaderboard import task_names
from parvibench.reporting.tables.paper_comparison import plain_rows

from .html_page import render
from .report import Report
from .reports_index import Summary
from .text_tables import to_markdown
from .validity_checks import CONVERGED, COST, LEADS

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_report(results: StoredRun, out: Path, board: pd.DataFrame | None = None, *, compact: bool = False) -> Path:
    """Write the page, and for machines the leaderboard, all values, and the data of every figure; the path of the page.

    ``index.html``, ``leaderboard.md``, ``leaderboard.csv``; ``results.parquet`` with one row per task, label, metric
    and replicate (see ``values``); ``results.json``, the document of ``run --json``, after ``results.schema.json``;
    ``summary.json`` for ``reports_index``; ``figures/NAME.csv``; ``published.csv`` with the papers' numbers beside ours,
    where there are any. ``board`` is that of ``leaderboard.table``, if already made. ``compact``, for publication: without
    ``results.json``, its schema and the data of figures, most of a report's size.
    """
    report = Report.of(results, board)
    board = report.findings.board
    texts = {"index.html": render(report, compact=compact), "leaderboard.md": to_markdown(results, board)}
    tables = {"leaderboard": board}
    if not compact:
        document = results.document("index.html") | {"out": results.store.root.name}  # no local path
        schema = files("parvibench.reporting.page") / "templates" / "results.schema.json"
        texts["results.json"] = json.dumps(document, separators=(",", ":"), allow_nan=False)
        texts["results.schema.json"] = schema.read_text(encoding="utf-8")
        tables |= {f"figures/{d.name}": d.data for _, d in report.drawings()}
    if report.published:
        tables["published"] = plain_rows(report.published)
    (out if compact else out / "figures").mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (out / name).write_text(text, encoding="utf-8")
    for name, table in tables.items():
        write_csv(table, out / f"{name}.csv")
    values(results).to_parquet(out / "results.parquet", index=False)
    _summary(report).write(out)
    return out / "index.html"


def values(results: StoredRun) -> pd.DataFrame:
    """All values in long form: one row per task, label, metric and replicate (null: not finite).

    A cell without values has one row without metric, so that no requested cell is missing.
    """
    columns = ["task", "label", "algorithm", "status", "metric", "replicate", "value"]
    rows: list[tuple[object, ...]] = []
    for c in results.cells:
        head = (c.task, c.label, c.algorithm, str(c.status))
        found = [(*head, m, r, v) for m, stored in c.values.items() for r, v in enumerate(stored)]
        rows.extend(found or [(*head, None, None, None)])
    types = {"metric": "string", "replicate": "Int64", "value": "float64"}
    return pd.DataFrame(rows, columns=columns).astype(types)


def _summary(report: Report) -> Summary:
    run, said = report.findings.results.run, report.checks
    return Summary(
        suite=str(run.suite.get("name", "")),
        profile=run.profile or "",
        description=str(run.suite.get("description", "")),
        run=run.id,
        headline=said.get(LEADS, ""),
        converged=said.get(CONVERGED, ""),
        cost=said.get(COST, ""),
    )


def restrict_to_tasks(results: StoredRun, tasks: list[str]) -> StoredRun:
    """The results with the cells of these tasks only; ``InputError`` where the run has no such task."""
    known = task_names(results)
    for task in tasks:
        if task not in known:
            raise InputError(f"--task {task}: not in run {results.run.id}, which has {', '.join(known)}")
    return replace(results, cells=tuple(c for c in results.cells if c.task in tasks))


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
    write_csv(drawing.data, paths[-1])
    return paths


def drawn(results: StoredRun) -> tuple[dict[str, Drawing], dict[str, Figure]]:
    """Every figure of the report by name, and the Matplotlib figures behind those that have one."""
    with keeping() as figures:
        return {d.name: d for _, d in Report.of(results).drawings()}, figures
