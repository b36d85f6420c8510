"""``load`` and ``report``: stored runs as results, pages, tables and figures."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from parvibench.core.errors import InputError
from parvibench.harness.execution import DEFAULT_STORE
from parvibench.reporting.page import reports_index

if TYPE_CHECKING:
    import pandas as pd

    from parvibench.reporting.facts.run import Facts
    from parvibench.reporting.presented import Results as Results
    from parvibench.tracking.mirror import MirrorObserver, Ranking

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
    from parvibench.harness.store.store import Store
    from parvibench.reporting.presented import Results

    where = Store(Path(store))
    if tracking_uri is not None:
        from parvibench.tracking.archive import rebuild

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
        compact: for publication: without ``results.json`` and the data of figures.

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
    path.write_text(latex(results), encoding="utf-8")
    return path


def doubts(results: Results) -> list[str]:
    """What to know of the ranks of a run; files of tasks that its suite names are imported."""
    from parvibench.reporting.doubts import doubts as found

    return found(results)


def published(where: str) -> pd.DataFrame:
    """Published results: of a suite that ships, of a ``results.parquet``, or at its https address.

    Raises:
        InputError: there are none.
    """
    from parvibench.reporting.facts import against

    return against.published(where)


def against(results: Results, published: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Published results beside those of a run, and sentences on pairs and differences; see ``reporting.facts.against``."""
    from parvibench.reporting.facts import against

    return against.beside(results.values(), published)


def latex(results: Results) -> str:
    """The leaderboard of a run as a LaTeX table."""
    from parvibench.reporting.page.text_tables import to_latex

    return to_latex(results)


def write(results: Results, folder: Path, mirror: MirrorObserver | None = None, *, compact: bool = False) -> Path:
    """Write the page of a run with its files, and mirror them to MLflow; the path of the page."""
    from parvibench.board.packing import pack
    from parvibench.reporting.page.report_files import write_report

    page = write_report(results, folder, compact=compact)
    if compact:
        pack(results.store, folder / "results.zip", run=results.run, points=results.points)
    if mirror is not None:
        mirror.report(results.run.id, folder)
        mirror.rank(results.run.id, ranking(results))
    return page


def ranking(results: Facts) -> Ranking:
    """The leaderboard of a run as MLflow gets it; its text begins with the tables."""
    from parvibench.reporting.facts import board as lb
    from parvibench.reporting.formatting import interval
    from parvibench.reporting.page.text_tables import to_markdown
    from parvibench.reporting.text import leaders
    from parvibench.tracking.content import Ranking, Shown

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


def write_figure(run: Run, figure: str, to: str | Path, *, pdf: bool = False) -> list[Path]:
    """Write one figure of the report, by name, as SVG or PNG or as PDF, with its data as CSV; the paths of the files.

    Raises:
        InputError: the report has no such figure.
    """
    from parvibench.reporting.page import report_files

    return report_files.write_figure(loaded(run), figure, Path(to), pdf=pdf)


def write_index(folder: str | Path) -> Path:
    """Write ``index.html`` over the reports in the folders of ``folder``; its path."""
    return reports_index.write_index(Path(folder))


def print_leaderboard(results: Results, console: Any) -> None:
    """Print the leaderboard to a Rich console, as the command line does."""
    from parvibench.reporting.page import text_tables

    text_tables.print_leaderboard(results, console)
