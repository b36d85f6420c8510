"""Runs of a suite and their reports: ``run``, ``tune``, ``report``, ``merge``."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option

from parvibench import api
from parvibench.api.listing import DEFAULT_STORE, DEFAULT_TIMEOUT_S, Execution, interval, number
from parvibench.api.listing import count as counted
from parvibench.core.errors import InputError

from . import shared
from .progress import Display
from .shared import EXIT_FAILED, Json, Out, answer, command_line, duration, note, warn

app = typer.Typer()


@app.command(
    epilog="Examples:\n\n"
    "`parvibench run --suite quick`\n\n"
    "`parvibench run --suite toy --profile fast --task banana --algorithm svgd --algorithm mala`\n\n"
    "`parvibench run --task banana --algorithm svgd --set svgd.step_size=0.05 --budget score_evaluations=100000`\n\n"
    "`parvibench run --suite uci --profile fast --workers 2 --out uci-store`\n\n"
    "`parvibench run --suite sifg-table-1 --row 'bnn-boston-sifg/*' --dry-run`"
)
def run(
    suite: shared.Suite = None,
    task: shared.Tasks = None,
    stan_library: shared.StanLibrary = None,
    algorithm: shared.Algorithms = None,
    setting: shared.Settings = None,
    replicates: Annotated[int | None, Option(help="Number of independent replicates per cell.")] = None,
    seed: Annotated[int | None, Option(help="Root seed.")] = None,
    budget: Annotated[list[str] | None, Option(metavar="KEY=VALUE", help="Limit per replicate (repeatable): iterations, score_evaluations, scores_per_particle or seconds.")] = None,
    particles: Annotated[int | None, Option(help="Number of particles or parallel chains, N; overrides presets.")] = None,
    samples: Annotated[int | None, Option(help="Number of samples evaluated, n; overrides presets.")] = None,
    start: Annotated[Literal["task", "prior", "warm", "pathfinder", "laplace"] | None, Option(help="Initial points: the task's, draws from its prior, one reference draw per replicate with a tenth of its spread, or draws of a Pathfinder or Laplace fit, charged to the budget.")] = None,
    profile: Annotated[str | None, Option(help="Profile of the suite, e.g. fast or paper.")] = None,
    match: Annotated[str | None, Option(metavar="effective-step", help="Scale step sizes so that the methods of a task share one effective step.")] = None,
    row: Annotated[list[str] | None, Option(metavar="GLOB", help="Only rows whose TASK/LABEL or published number matches the pattern (repeatable).")] = None,
    part: Annotated[str | None, Option("--shard", metavar="I/K", help="Run every K-th cell, starting with the I-th; `merge` combines the parts.")] = None,
    allow_plugins: shared.Plugins = False,
    edition: Annotated[str | None, Option(metavar="YEAR.MONTH", help="Refuse what differs from this edition of the board.")] = None,
    workers: shared.Workers = None,
    device: Annotated[str, Option(help="auto, cpu or cuda.")] = "auto",
    timeout: shared.Timeout = DEFAULT_TIMEOUT_S,
    memory: Annotated[float | None, Option(metavar="MIB", help="Memory limit of a worker and its subprocesses. Default: the workers share 80% of all memory.")] = None,
    ray: Annotated[str | None, Option(metavar="local|ADDRESS", help="Run on Ray; --workers then limits the number of concurrent chunks.")] = None,
    gpus: Annotated[float, Option(help="Share of a GPU per chunk on a Ray cluster, with --device cuda.")] = 1.0,
    compiled: Annotated[bool, Option("--compile", help="Record steps and replay them without Python between their operations: faster in long runs of small operations.")] = False,
    out: Out = DEFAULT_STORE,
    fresh: Annotated[bool, Option("--fresh", help="Run all cells again, including those in the store.")] = False,
    retry: Annotated[Literal["failed"] | None, Option(help="Run failed cells again.")] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="List the cells and predict the time of those not in the store; run nothing.")] = False,
    as_json: Json = False,
    quiet: Annotated[bool, Option("--quiet", help="Print no progress and no table.")] = False,
    against: Annotated[str | None, Option(metavar="SUITE|FILE|URL", help="Show published results beside these: of a suite, a results.parquet or its https address.")] = None,
    tune_first: Annotated[bool, Option("--tune", help="First tune the step sizes of a suite that has a grid but no tuned values.")] = False,
) -> None:  # fmt: skip
    """Run a suite, or tasks x algorithms, and write the report.

    Finished cells are stored: the same command resumes an interrupted run. Exit code 1 if a cell failed.
    """
    if suite and profile is None and not (as_json or quiet) and (choice := api.listing.unnamed_profile(suite)):
        note(choice)
    published = None if against is None else api.report.published(against)  # before the run: a wrong name costs nothing
    execution = Execution.of(
        replicates=replicates, seed=seed, budget=_limits(budget), particles=particles, samples=samples,
        start=start, profile=profile, rows=tuple(row or ()), match=match, part=_parse_shard(part), workers=workers, device=device,
        timeout=timeout, memory=memory, ray=ray, gpus=gpus, compiled=compiled, out=out, fresh=fresh,
        retry_failed=retry == "failed", tune=tune_first, allow_plugins=allow_plugins, edition=edition,
    )  # fmt: skip
    settings = shared.parse_settings(setting, algorithm)
    arguments: dict[str, Any] = {"tasks": task or (), "algorithms": algorithm or (), "settings": settings}
    if dry_run:
        _print_forecast(api.run.forecast(suite, **arguments, execution=execution), as_json)
        return
    results = api.run.run(
        suite, **arguments, execution=execution, report=out / "report", warn=warn, command=command_line(),
        observers=[] if quiet else [Display()],
    )  # fmt: skip
    # Else KSD would be praised next to the method to trust.
    ranked = len(results.without_reference) < len(results.by_task)
    more = () if as_json or quiet else [*api.report.doubts(results), *[results.headline()] * ranked]
    compared = published is not None and (as_json or not quiet)
    document = {"against": _compared(results, published, as_json)} if compared else {}
    _print_results(results, out / "report", as_json=as_json, quiet=quiet, brief=True, more=more, document=document)


def _limits(pairs: list[str] | None) -> dict[str, float] | None:
    """The limits of ``--budget``; None without any."""
    limits: dict[str, float] = shared.parse_numbers(pairs, "--budget")
    if limits.get("iterations", 0.5).is_integer():
        limits["iterations"] = int(limits["iterations"])
    return limits or None


def _compared(results: api.report.Results, published: Any, as_json: bool) -> dict[str, Any]:
    """Results next to published ones, as a document; printed as tables unless ``as_json``."""
    board, said = api.report.beside(results.values(), published)
    document = {"rows": json.loads(board.to_json(orient="records")), "sentences": said}
    if as_json:
        return document
    for task, rows in board.groupby("task", sort=False):
        table = shared.new_table(str(task), "whose", str(rows["unit"].iloc[0]), "95%", "marks")
        for r in rows.to_dict("records"):
            words = (r["label"], r["whose"], number(r["value"]), interval(r["low"], r["high"]), r["marks"])
            table.add_row(*words, style="bold" if r["whose"] == "yours" else None)
        shared.out_console.print(table)
    for text in said:
        answer(text)
    return document


@app.command(
    epilog="Examples:\n\n`parvibench tune suites/mine.yaml --profile fast`\n\n"
    "`parvibench tune uci --profile standard --dry-run`\n\n"
    "`parvibench tune toy --task banana --algorithm file.py:Class`"
)
def tune(
    suite: Annotated[str, Argument(help="Name of a shipped suite, or path of a suite file.", autocompletion=shared.names_of("suite"))],
    task: shared.Tasks = None,
    stan_library: shared.StanLibrary = None,
    algorithm: shared.Algorithms = None,
    setting: shared.Settings = None,
    profile: Annotated[str | None, Option(help="Profile to tune. Default: the first of the suite.")] = None,
    allow_plugins: shared.Plugins = False,
    workers: shared.Workers = None,
    out: Out = DEFAULT_STORE / "tuning",
    write: Annotated[Path | None, Option(help="Suite file for the chosen values. A new or empty file becomes a copy of the suite. Default: the file of the suite; none for a part of a shipped suite.")] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Predict the time of tuning; run nothing.")] = False,
) -> None:  # fmt: skip
    """Choose step sizes on the log grids of a suite, print them, and store them in the suite file.

    The same command resumes an interrupted tuning. Exit code 1 if no step size of a method could be measured on a task:
    the method is listed, and gets no value.
    """
    settings = shared.parse_settings(setting, algorithm)
    arguments: dict[str, Any] = {"tasks": task or (), "algorithms": algorithm or (), "settings": settings}
    arguments |= {"profile": profile, "allow_plugins": allow_plugins}
    file = api.tune.suite_file(suite, write, part=bool(task or algorithm))
    if dry_run:
        _print_tuning_forecast(api.tune.forecast(suite, **arguments, out=out, write=file))
        return
    done = api.tune.tune(
        suite, **arguments, workers=workers, out=out, write=file, command=command_line(), observers=[Display()]
    )
    if done.interrupted:
        raise typer.Exit(EXIT_FAILED)
    _print_tuned(done)
    note(f"step sizes stored in {done.file}" if done.file else "not stored: name a suite file with --write")
    for pair, why in done.left_out.items():
        note(f"{pair} has no tuned step size: {why}", style="red")
    if done.left_out:
        raise typer.Exit(EXIT_FAILED)


def _print_tuned(done: api.tune.Tuning) -> None:
    """The chosen step sizes and options as options of ``run``, and the values at all that were tried."""
    tuned = done.tuned
    for task, chosen in tuned.step_size.items():
        for label, step in chosen.items():
            options = {"step_size": f"{step:g}", **tuned.settings.get(task, {}).get(label, {})}
            texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in options.items()}
            words = [f"--set {shlex.quote(f'{label}.{key}={text}')}" for key, text in texts.items()]
            edge = "  (at the end of the grid)" if f"{task}/{label}" in tuned.at_edge else ""
            answer(f"--task {task} {' '.join(words)}{edge}")
            for t in (t for t in done.tried if (t.task, t.label) == (task, label)):
                own = "".join(f" {key}={value}" for key, value in t.options.items())
                whole = "" if t.whole is None else f", whole budget {number(t.whole)}"
                answer(f"  {t.step_size:g}{own}: {t.metric} {number(t.value)}{whole}{'  <' if t.chosen else ''}")


def _print_tuning_forecast(found: api.tune.TuningForecast) -> None:
    answer(f"first round: {counted(found.cells, 'cell')}, {duration(found.first_round)} on one process")
    if found.finals:
        answer(f"best two values over the whole horizon: {duration(found.finals)}")
    more = f", and up to {duration(found.growth)} more if grids are extended" if found.growth else ""
    answer(f"total: {duration(found.first_round + found.finals)} on one process{more}")
    if found.unknown:
        answer(f"without {counted(found.unknown, 'grid')} that could not be measured")


def _print_forecast(found: api.run.Forecast, as_json: bool) -> None:
    for text in found.notes:
        note(text)
    if as_json:
        shared.print_json(found.cells)
        return
    table = shared.new_table("task", "label", "replicates", "budget", "state", "time")
    for row in found.cells:
        limits = ", ".join(f"{k} {v:g}" for k, v in row["budget"].items())
        seconds = row["predicted_seconds"]
        time = "" if seconds is None else duration(seconds)
        table.add_row(row["task"], row["label"], str(row["replicates"]), limits, row["state"].partition(":")[0], time)
    shared.out_console.print(table)
    for state, count in Counter(row["state"] for row in found.cells if ":" in row["state"]).items():
        answer(f"{counted(count, 'cell')} {state}")
    known = found.to_run - found.unknown
    predicted = f", about {duration(found.seconds)} on {counted(found.processes, 'worker')}" if known else ""
    answer(f"{counted(len(found.cells), 'cell')}, {found.to_run} to run{predicted}")
    if found.unknown:
        answer(f"measured on {known} of {counted(found.to_run, 'cell')}, the others taken as the method's mean")
    if found.tuning_first:
        note("plus the time of tuning: see `parvibench tune --dry-run`")


def _parse_shard(text: str | None) -> tuple[int, int] | None:
    """``2/5`` as (2, 5)."""
    if text is None:
        return None
    part, _, parts = text.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts) <= 10_000):
        raise InputError(f"--shard takes I/K with 1 <= I <= K, for example 2/5; got {text!r}")
    return int(part), int(parts)


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
    task: shared.Tasks = None,
    stan_library: shared.StanLibrary = None,
    figure: Annotated[str | None, Option(help="Write only this figure (the page shows its name), as SVG or PNG with CSV.")] = None,
    format_: Annotated[Literal["html", "latex", "pdf"], Option("--format", help="latex: print the leaderboard as a booktabs table, or write it into --to; pdf: the --figure as PDF.")] = "html",
    tracking_uri: Annotated[str | None, Option(metavar="URI", help="First fetch the run from this MLflow server into the store.")] = None,
    index: Annotated[Path | None, Option(metavar="FOLDER", help="Only write FOLDER/index.html, an overview of the reports in the folders of FOLDER.")] = None,
    board: Annotated[Path | None, Option(metavar="FOLDER", help="Only write the page of a published board from its archives, FOLDER/results.zip and FOLDER/submissions.")] = None,
    compact: Annotated[bool, Option("--compact", help="For publication: without results.json, leaderboard.csv and the data of figures.")] = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Write the report of a stored run: HTML page, Markdown, CSV, Parquet, JSON, and the data of the figures."""
    if index is not None:
        answer(str(api.report.write_index(shared.output_place(index / "index.html").parent)))
        return
    if board is not None:
        answer(str(api.stores.write_board(board)))
        return
    if (format_ == "pdf") != (figure is not None) and format_ != "html":
        raise InputError(
            "--format pdf needs --figure NAME; --format latex writes the leaderboard and takes no --figure"
        )
    folder = to or out / ("report-part" if task else "report")
    if format_ != "latex" or to is not None:
        folder = shared.output_place(folder, folder=True)
    results = api.report.load(out, run_id, tasks=task or (), tracking_uri=tracking_uri)
    if figure is not None:
        for path in api.report.write_figure(results, figure, folder / "figures", pdf=format_ == "pdf"):
            answer(str(path))
    elif format_ == "latex":
        answer(api.report.to_latex(results) if to is None else str(api.report.report(results, to, "latex")))
    else:
        api.report.report(results, folder, compact=compact)
        _print_results(results, folder, as_json=as_json)


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
    folder = shared.output_place(to or out / "report", folder=True)
    results = api.stores.merge(stores, out, samples=not without_samples, warn=warn)
    api.report.report(results, folder)
    _print_results(results, folder, as_json=as_json)


def _print_results(
    results: api.report.Results, folder: Path, *, as_json: bool, quiet: bool = False, brief: bool = False,
    more: Iterable[str] = (), document: Mapping[str, Any] = MappingProxyType({}),
) -> None:  # fmt: skip
    """Print the leaderboard (and ``more``), or the JSON document (with ``document``), of a run with a report in ``folder``; exit 1 if a cell failed.

    ``brief``: of an interrupted run only the number of finished cells.
    """
    page = folder / "index.html"
    left = brief and sum(cell.status == "interrupted" for cell in results.cells)
    if as_json:
        shared.print_json({**results.document(str(page)), **document})
    elif left:
        answer(f"finished: {len(results.cells) - left} of {counted(len(results.cells), 'cell')}; report: {page}")
    elif not quiet:
        api.report.print_leaderboard(results, shared.out_console)
        for text in more:
            answer(text)
        answer(f"\nreport: {page}")
    if results.failed:
        if quiet and not left:
            note("exit code 1: a cell failed; `parvibench report` lists it")
        raise typer.Exit(EXIT_FAILED)
