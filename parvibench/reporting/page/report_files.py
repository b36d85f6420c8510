"""Files of a report: the page, the numbers for machines, single figures; files of a comparison of two runs."""

import json
from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd

from parvibench.core import registry
from parvibench.core.errors import InputError
from parvibench.core.result import CellRecord, to_json_number
from parvibench.harness.store.cell_files import dense
from parvibench.harness.store.results import StoredRun
from parvibench.reporting.figures.figure import GREY, Drawing, LabelStyle, slug
from parvibench.reporting.figures.over_tasks import forest
from parvibench.reporting.figures.plots import as_figure, write_pdf
from parvibench.reporting.formatting import name, write_csv
from parvibench.reporting.tables import leaderboard as lb
from parvibench.reporting.tables.paper_comparison import plain_rows
from parvibench.reporting.tables.run_differences import ALPHA, conditions
from parvibench.reporting.tables.winners import Findings
from parvibench.reporting.text import captions

from .html_page import render
from .provenance import CONVERGED, COST, profile_in_words, step_origin
from .report import Report, drawings, headline
from .reports_index import Summary
from .text_tables import to_markdown


def write_report(results: StoredRun, out: Path, board: pd.DataFrame | None = None, *, compact: bool = False) -> Path:
    """Write the page, and for machines the leaderboard, all values, and the data of every figure; the path of the page.

    ``index.html``, ``leaderboard.md``, ``leaderboard.csv`` (seven digits); ``results.parquet`` with one row per task, label, metric
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
        tables |= {f"figures/{d.name}": d.data for d in report.drawings()}
    if report.published:
        tables["published"] = plain_rows(report.published)
    (out if compact else out / "figures").mkdir(parents=True, exist_ok=True)
    if odd := [p for p in out.rglob("*") if not (p.is_file() or p.is_dir())]:
        raise InputError(f"{odd[0]}: not a plain file; a report cannot be written over it")
    for file, text in texts.items():
        (out / file).write_text(text, encoding="utf-8")
    for file, table in tables.items():
        write_csv(table, out / f"{file}.csv")
    every = values(results, board)
    every.to_parquet(out / "results.parquet", index=False, **dense(every.columns))
    run, checks = results.run, report.checks
    Summary(
        suite=str(run.suite.get("name", "")),
        profile=profile_in_words(results),
        description=str(run.suite.get("description", "")),
        run=run.id,
        headline=headline(report.findings),
        converged=checks.get(CONVERGED, ""),
        cost=checks.get(COST, ""),
        picture=report.picture[0].pictures[0].image if report.picture else "",
    ).write(out)
    return out / "index.html"


def values(results: StoredRun, board: pd.DataFrame) -> pd.DataFrame:
    """All values in long form: one row per task, label, metric and replicate (null: not finite).

    What the sentences of the page are made of, repeated on every row of a cell: of the task ``group`` (kind of target),
    ``tags``, ``task_version`` and ``overlap`` (test rows over training rows of random splits); of the method ``algorithm``,
    ``algorithm_version``, ``kind``, ``anchor``; of the cell ``status``, ``convergence`` (converged, flat, transient, ...),
    ``marks``, ``verdict`` (against exact draws), ``p_exact`` (of the primary metric's rank test against them), ``seed``, ``replicates`` (ids), ``start``, ``budget``, ``samples``, ``particles``,
    ``n_diverged``, ``score_evaluations`` (per replicate), ``seconds`` and ``overhead_seconds`` (of all replicates; null
    where not measured), ``step_size``, its ``step_origin`` and ``tuning_evaluations``; of the metric its ``direction``,
    ``floor`` (median of exact draws, null without a ratio to it), and whether it is the ``primary`` one, which ranks the
    task. A cell without values has one row without metric, so that no requested cell is missing. The run's id, suite,
    profile and protocol are in ``attrs``. ``board`` is that of ``leaderboard.table``.
    """
    of_board = {(r["task"], r["label"]): r for r in board.to_dict("records")}
    rows: list[tuple[Any, ...]] = []  # number of the cell, and its columns
    floor = cache(lb.floor)
    for i, c in enumerate(results.cells):
        for metric, stored in c.values.items():
            known = floor(c.task, metric, c.samples)
            primary = metric == of_board[c.task, c.label]["metric"]
            own = metric, registry.direction(metric), known.median if known else None, primary
            rows += [(i, *own, r, v) for r, v in zip(c.spec.replicates, stored, strict=False)]
        if not any(c.values.values()):
            rows.append((i, *(None,) * 6))
    heads = pd.DataFrame([_columns(results, c, of_board[c.task, c.label]) for c in results.cells])
    columns = ["metric", "direction", "floor", "primary", "replicate", "value"]
    own_columns = pd.DataFrame([own for _, *own in rows], columns=columns)
    frame = pd.concat([heads.iloc[[i for i, *_ in rows]].reset_index(drop=True), own_columns], axis=1)
    types = {"metric": "string", "direction": "string", "primary": "boolean", "replicate": "Int64"}
    numbers = ("value", "floor", "p_exact", "seconds", "overhead_seconds", "step_size", "tuning_evaluations")
    frame = frame.astype({k: v for k, v in (types | dict.fromkeys(numbers, "float64")).items() if k in frame})
    suite = results.run.suite
    protocol = {k: suite.get(k) for k in ("budget", "particles", "samples", "replicates")}
    named: dict[Hashable | None, Any] = {
        "run": results.run.id,
        "suite": suite.get("name"),
        "profile": results.run.profile,
    }
    frame.attrs = named | {"protocol": protocol, "unfinished": results.unfinished}
    return frame


def _columns(results: StoredRun, c: CellRecord, row: dict[Any, Any]) -> dict[str, object]:
    """What ``values`` says of a cell on each of its rows."""
    task = registry.tasks().get(c.task)
    same = ("task", "label", "algorithm", "kind", "samples", "particles", "start", "n_diverged", "score_evaluations")
    return {name: getattr(c, name) for name in same} | {
        **{name: row[name] for name in ("group", "anchor", "status", "convergence", "marks", "verdict", "p_exact")},
        "tags": ", ".join(task.tags if task else ()),
        "task_version": c.spec.task_version,
        "algorithm_version": c.spec.algorithm_version,
        "seed": c.spec.seed,
        "replicates": json.dumps(c.spec.replicates),
        "budget": json.dumps(c.spec.budget.model_dump(mode="json", exclude_none=True), sort_keys=True),
        "overlap": lb.overlap(c.task),
        "seconds": c.seconds if results.timed else None,
        "overhead_seconds": sum(c.overheads.values()) if results.timed else None,
        "step_size": c.settings.get("step_size"),
        "step_origin": step_origin(c, results.run.suite),
        "tuning_evaluations": lb.tuning_cost(c, results.run.suite),
    }


def restrict_to_tasks(results: StoredRun, tasks: list[str]) -> StoredRun:
    """The results with the cells of these tasks only; ``InputError`` where the run has no such task."""
    known = results.by_task
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
    seen = []
    for drawing in drawings(Findings.of(results), figure):
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
    for i, picture in enumerate(() if pdf else drawing.pictures):
        number = f"-{i + 1}" if len(drawing.pictures) > 1 else ""
        paths.append(out / f"{figure}{number}.{'svg' if picture.is_svg else 'png'}")
        paths[-1].write_bytes(picture.content)
    paths.append(out / f"{figure}.csv")
    write_csv(drawing.data, paths[-1])
    return paths


def drawn(results: StoredRun) -> dict[str, Drawing]:
    """Every figure of the report by name."""
    return {d.name: d for d in drawings(Findings.of(results))}


def _changes(frame: pd.DataFrame) -> list[Drawing]:
    """Changes with their intervals, one figure per scale; the 24 with the smallest p-values. ``frame`` of ``compare``."""
    found = []
    for scale, changes in frame[frame["low"].notna()].groupby("scale", sort=False):
        rows = changes.sort_values("p_value", kind="stable")
        cells = [f"{name(t)}: {name(m)}" for t, m in zip(rows["task"], rows["label"], strict=True)]
        table = rows[["change", "low", "high"]].set_axis(["value", "low", "high"], axis=1)
        table.index = pd.Index(cells, name="cell")
        colours = ["#0173b2" if p <= ALPHA else GREY for p in rows["p_value"]]
        styles = {cell: LabelStyle(colour) for cell, colour in zip(cells, colours, strict=True)}
        figure = slug("difference", "percent" if scale == "%" else str(scale))
        title = captions.CHANGES_TITLE.format(scale=scale)
        found += forest(figure, title, table, title, captions.CHANGES, styles, zero=True)
    return found


def write_comparison(frame: pd.DataFrame, out: Path) -> list[Path]:
    """Write the table of a comparison of two runs and its figures: ``differences.csv``, ``difference-SCALE.svg``."""
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / "differences.csv"]
    write_csv(frame, paths[0])
    for drawing in _changes(frame):
        paths.append(out / f"{drawing.name}.svg")
        paths[-1].write_bytes(drawing.pictures[0].content)
    return paths


def comparison_document(a: StoredRun, b: StoredRun, frame: pd.DataFrame, files: Sequence[Path]) -> dict[str, Any]:
    """The tables of a comparison as a JSON document; null where a number is missing."""
    rows = [
        {k: to_json_number(v) if isinstance(v, float) else v for k, v in row.items()}
        for row in frame.to_dict("records")
    ]
    differs = conditions(a, b).to_dict("records")
    return {"run_a": a.run.id, "run_b": b.run.id, "differs": differs, "files": [str(p) for p in files], "cells": rows}
