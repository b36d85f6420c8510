"""Reports of stored runs: ``report``, ``merge``."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Argument, Option

from parvibench.api.run import DEFAULT_STORE
from parvibench.core.errors import InputError

from .shared import EXIT_FAILED, Json, Out, Tasks, answer, out_console, print_json, warn

if TYPE_CHECKING:
    from parvibench.api.report import Results

app = typer.Typer()


@app.command(
    epilog="Examples:\n\n"
    "`parvibench report --out parvibench-runs`\n\n"
    "`parvibench report --out parvibench-runs --to pages --task banana`\n\n"
    "`parvibench report --out parvibench-runs --figure performance-profile-seconds --format pdf`\n\n"
    "`parvibench report --out parvibench-runs --format latex`\n\n"
    "`parvibench report --index reports`\n\n"
    "`parvibench report --out team --tracking-uri http://mlflow.example:5000`"
)
def report(
    out: Out = DEFAULT_STORE,
    run_id: Annotated[str | None, Option("--run", help="Id of the run. Default: the latest.")] = None,
    to: Annotated[Path | None, Option(help="Folder of the report. Default: OUT/report, with --task OUT/report-part.")] = None,
    task: Tasks = None,
    figure: Annotated[str | None, Option(help="Write only this figure (the page shows its name), as SVG or PNG with CSV.")] = None,
    format_: Annotated[Literal["html", "latex", "pdf"], Option("--format", help="latex: print the leaderboard as a booktabs table, or write it into --to; pdf: the --figure as PDF.")] = "html",
    tracking_uri: Annotated[str | None, Option(metavar="URI", help="First fetch the run from this MLflow server into the store.")] = None,
    index: Annotated[Path | None, Option(metavar="FOLDER", help="Only write FOLDER/index.html, an overview of the reports in the folders of FOLDER.")] = None,
    compact: Annotated[bool, Option("--compact", help="For publication: without results.json and the data of figures.")] = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Write the report of a stored run: HTML page, Markdown, CSV, Parquet, JSON, and the data of the figures."""
    from parvibench.api import report as api

    if index is not None:
        answer(str(api.write_index(index)))
        return
    if (format_ == "pdf") != (figure is not None) and format_ != "html":
        raise InputError(
            "--format pdf needs --figure NAME; --format latex writes the leaderboard and takes no --figure"
        )
    with _few_collections():
        results = api.load(out, run_id, tasks=task or (), tracking_uri=tracking_uri)
        folder = to or out / ("report-part" if task else "report")
        if figure is not None:
            for path in api.write_figure(results, figure, folder / "figures", pdf=format_ == "pdf"):
                answer(str(path))
        elif format_ == "latex":
            answer(api.latex(results) if to is None else str(api.report(results, to, "latex")))
        else:
            api.report(results, folder, compact=compact)
            print_results(results, folder, as_json=as_json)


@app.command(
    epilog="Examples:\n\n"
    "`parvibench merge part-1 part-2 part-3 --out whole`\n\n"
    "`parvibench merge whole --without-samples --out published/store --to published`"
)
def merge(
    stores: Annotated[list[Path], Argument(help="Stores of the parts (`run --shard`); the latest run of each is merged.")],
    out: Out = DEFAULT_STORE,
    to: Annotated[Path | None, Option(help="Folder of the report. Default: OUT/report.")] = None,
    without_samples: Annotated[bool, Option("--without-samples", help="Copy records and curves only: enough for reports, merging and resuming.")] = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Merge the parts of a run into one run, and write its report."""
    from parvibench.api import report as reports
    from parvibench.api import stores as api

    with _few_collections():
        results = api.merge(stores, out, samples=not without_samples, warn=warn)
        reports.report(results, to or out / "report")
        print_results(results, to or out / "report", as_json=as_json)


@contextmanager
def _few_collections() -> Iterator[None]:
    """A page's hundreds of thousands of objects live until it is written: looking for garbage among them costs about a tenth."""
    before = gc.get_threshold()
    gc.set_threshold(200_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def print_results(
    results: Results, folder: Path, *, as_json: bool, quiet: bool = False, more: Iterable[str] = ()
) -> None:
    """Print the leaderboard (and ``more``), or the JSON document, of a run with a report in ``folder``; exit 1 if a cell failed."""
    from parvibench.api.report import print_leaderboard

    page = folder / "index.html"
    if as_json:
        print_json(results.document(str(page)))
    elif not quiet:
        print_leaderboard(results, out_console)
        for text in more:
            answer(text)
        answer(f"\nreport: {page}")
    if results.failed:
        raise typer.Exit(EXIT_FAILED)
