"""Reports of stored runs: ``report``, ``merge``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Argument, Option

from parvibench.core.errors import InputError
from parvibench.harness.execution import DEFAULT_STORE

from .shared import EXIT_FAILED, Json, Out, Tasks, answer, out_console, print_json, warn

if TYPE_CHECKING:
    from parvibench.harness.store.results import StoredRun
    from parvibench.tracking.observer import MirrorObserver

app = typer.Typer()


@app.command(
    epilog="Examples:\n\n"
    "`parvibench report --out parvibench-runs`\n\n"
    "`parvibench report --out parvibench-runs --to pages --task banana`\n\n"
    "`parvibench report --out parvibench-runs --figure runtime-profile-seconds --format pdf`\n\n"
    "`parvibench report --out parvibench-runs --format latex`\n\n"
    "`parvibench report --index reports`\n\n"
    "`parvibench report --out team --tracking-uri http://mlflow.example:5000`"
)
def report(
    out: Out = DEFAULT_STORE,
    run_id: Annotated[str | None, Option("--run", help="Id of a run; default: the latest.")] = None,
    to: Annotated[
        Path | None, Option(help="Folder of the page; default: OUT/report, of a part OUT/report-part.")
    ] = None,
    task: Tasks = None,
    figure: Annotated[
        str | None, Option(help="Write only this figure (its name is on the page), as SVG or PNG with CSV.")
    ] = None,
    format_: Annotated[
        Literal["html", "latex", "pdf"],
        Option("--format", help="latex: the leaderboard as a booktabs table; pdf: of a --figure, for papers."),
    ] = "html",
    tracking_uri: Annotated[
        str | None, Option(metavar="URI", help="First fetch the run from this MLflow server into the store.")
    ] = None,
    index: Annotated[
        Path | None, Option(metavar="FOLDER", help="Only write FOLDER/index.html over the reports in its folders.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write the report of a stored run: HTML page, Markdown, CSV, Parquet, JSON, and the figures' data."""
    from parvibench.harness.store.results import StoredRun
    from parvibench.harness.store.store import Store
    from parvibench.reporting.page import report_files
    from parvibench.reporting.page.reports_index import write_index

    if index is not None:
        answer(str(write_index(index)))
        return
    if tracking_uri is not None:
        from parvibench.tracking.observer import rebuild

        run_id = rebuild(tracking_uri, Store(out), run_id).id
    if (format_ == "pdf") != (figure is not None) and format_ != "html":
        raise InputError("--format pdf is of a --figure NAME, --format latex of the leaderboard")
    results = StoredRun.load(Store(out), run_id)
    folder = to or out / ("report-part" if task else "report")
    if task:
        results = report_files.restrict_to_tasks(results, task)
    if format_ == "latex":
        from parvibench.reporting.page.text_tables import write_latex

        answer(str(write_latex(results, folder)))
        return
    if figure is None:
        write_and_print(results, folder, as_json=as_json, quiet=False)
        return
    for path in report_files.write_figure(results, figure, folder / "figures", pdf=format_ == "pdf"):
        answer(str(path))


@app.command(
    epilog="Examples:\n\n"
    "`parvibench merge part-1 part-2 part-3 --out whole`\n\n"
    "`parvibench merge whole --without-samples --out published/store --to published`"
)
def merge(
    stores: Annotated[list[Path], Argument(help="Stores of the parts (`run --shard`), their latest runs.")],
    out: Out = DEFAULT_STORE,
    to: Annotated[Path | None, Option(help="Folder of the page; default: OUT/report.")] = None,
    without_samples: Annotated[
        bool, Option(help="Records and curves alone, to publish: enough for the page, for merging and for resuming.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Merge the parts of a run into one run, and write its report."""
    from parvibench.harness.store import merging
    from parvibench.harness.store.results import StoredRun
    from parvibench.harness.store.store import Store

    into = Store(out)
    run, notes = merging.merge([Store(path) for path in stores], into, samples=not without_samples)
    for note in notes:
        warn(note)
    results = StoredRun.load(into, run.id)
    write_and_print(results, to or out / "report", as_json=as_json, quiet=False)


def write_and_print(
    results: StoredRun, folder: Path, *, as_json: bool, quiet: bool, mirror: MirrorObserver | None = None
) -> None:
    """Write the report, print the leaderboard or the JSON document, and exit 1 if a cell failed."""
    from parvibench.reporting.page.report_files import write_report
    from parvibench.reporting.page.text_tables import print_leaderboard, to_markdown
    from parvibench.reporting.tables.leaderboard import table

    board = table(results)
    page = write_report(results, folder, board)
    if mirror is not None:
        mirror.report(results.run.id, folder)
        mirror.note(results.run.id, to_markdown(results, board))
        if warning := mirror.close():
            warn(warning)
    if as_json:
        print_json(results.document(str(page)))
    elif not quiet:
        print_leaderboard(results, out_console, board)
        answer(f"\nreport: {page}")
    if results.failed:
        raise typer.Exit(EXIT_FAILED)
