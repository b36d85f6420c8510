"""``load`` and ``report``: stored runs as results, pages, tables and figures."""

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from parvibench.board.packing import pack
from parvibench.core.errors import InputError
from parvibench.harness.execution import DEFAULT_STORE
from parvibench.harness.store.store import Store
from parvibench.reporting.doubts import doubts as doubts
from parvibench.reporting.facts import board as lb
from parvibench.reporting.facts.against import beside as beside
from parvibench.reporting.facts.against import published as published
from parvibench.reporting.facts.run import Facts
from parvibench.reporting.formatting import interval
from parvibench.reporting.page.report_files import write_figure as write_figure
from parvibench.reporting.page.report_files import write_report
from parvibench.reporting.page.reports_index import write_index as write_index
from parvibench.reporting.page.text_tables import print_leaderboard as print_leaderboard
from parvibench.reporting.page.text_tables import to_latex as to_latex
from parvibench.reporting.page.text_tables import to_markdown
from parvibench.reporting.presented import Results as Results
from parvibench.reporting.text import leaders
from parvibench.tracking.archive import rebuild
from parvibench.tracking.content import Ranking, Shown
from parvibench.tracking.mirror import MirrorObserver

#: A run: its results, or the folder of a store (its latest run).
Run = Results | str | Path


def load(
    store: str | Path = DEFAULT_STORE,
    run: str | None = None,
    *,
    tasks: Sequence[str] = (),
    tracking_uri: str | None = None,
) -> Results:
    """Load a stored run.

    Args:
        store: folder of the store.
        run: id of the run; by default the latest.
        tasks: restrict the results to these; by default all.
        tracking_uri: an MLflow server or database from which the run is first fetched into the store.

    Raises:
        StoreError: no such run, or the server cannot be reached.
        InputError: the run has no such task.
    """
    where = Store(Path(store))
    if tracking_uri is not None:
        run = rebuild(tracking_uri, where, run).id
    results = Results.load(where, run)
    return results.of_tasks(tasks) if tasks else results


def loaded(run: Run) -> Results:
    """The results of a run, loaded where it is the folder of a store."""
    return load(run) if isinstance(run, str | Path) else run


def report(
    run: Run = DEFAULT_STORE,
    to: str | Path | None = None,
    format: Literal["html", "latex"] = "html",
    *,
    compact: bool = False,
) -> Path:
    """Write the report of a run and return its path: the page with its files, or the leaderboard as a LaTeX table.

    Args:
        run: results, or the folder of a store.
        to: folder; by default ``report`` in the store.
        format: ``html`` or ``latex``.
        compact: for publication: without ``results.json``, ``leaderboard.csv`` and the data of figures.

    Raises:
        InputError: another format.
    """
    if format not in ("html", "latex"):
        raise InputError(f"format {format!r}: there are html, latex")
    results = loaded(run)
    folder = Path(to) if to is not None else results.store.root / "report"
    if format == "html":
        return write(results, folder, compact=compact)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "leaderboard.tex"
    path.write_text(to_latex(results), encoding="utf-8")
    return path


def write(results: Results, folder: Path, mirror: MirrorObserver | None = None, *, compact: bool = False) -> Path:
    """Write the page of a run with its files, and mirror them to MLflow; the path of the page."""
    page = write_report(results, folder, compact=compact)
    if compact:
        pack(results.store, folder / "results.zip", run=results.run, points=results.points)
    if mirror is not None:
        mirror.report(results.run.id, folder)
        mirror.rank(results.run.id, ranking(results))
    return page


def ranking(results: Facts) -> Ranking:
    """The leaderboard of a run as MLflow gets it; its text begins with the tables."""
    legend, _, tables = to_markdown(results).partition("\n\n## ")
    cells, metrics, solved = {}, dict[str, float](), dict[str, bool]()
    for label, rank, rows in results.all.methods:
        judged = {task: row["verdict"] == "indistinguishable" for task, row in rows.items() if row["verdict"]}
        ratios = [row["floor_ratio"] for row in rows.values() if not math.isnan(row["floor_ratio"])]
        metrics |= {f"floor_ratio/{label}": statistics.median(ratios)} if ratios else {}
        metrics |= {f"solved/{label}": statistics.fmean(judged.values())} if judged else {}
        if not rank["anchor"]:
            metrics[f"average_rank/{label}"] = rank["average_rank"]
            solved |= {task: solved.get(task, False) or yes for task, yes in judged.items()}
        for task, row in rows.items():
            shown, verdict, marks = lb.shown_interval(row), row["verdict"], row["marks"]
            tags = {"result": f"{lb.entry(row)} [{interval(*shown[1:])}]", "verdict": verdict, "marks": marks}
            note = f"{label} on {task}: {leaders.result(shown, lb.unit(row))}, median over {row['replicates']} replicates with its 95% interval."
            note += f" Samples {verdict} from exact draws." if verdict.endswith("able") else ""
            note += f" Marks: {marks}." if marks else ""
            told = note if row["status"] == "ok" else ""
            cells[task, label] = Shown(float(row["floor_ratio"]), {k: v for k, v in tags.items() if v}, told)
    metrics |= {"solved": statistics.fmean(solved.values())} if solved else {}
    return Ranking(f"## {tables}\n\n{legend.partition(chr(10))[2].strip()}\n", cells, metrics)
