"""The command line: parses, calls, prints. Everything meant for machines goes to stdout, the rest to stderr."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from parvibench.core import registry
from parvibench.core.errors import DataMissingError, InputError, ParVIBenchError, UnknownNameError

if TYPE_CHECKING:
    from parvibench.harness.results import Results

EXIT_FAILED = 1
EXIT_USAGE = 2

_console = Console(stderr=True)
_out = Console()

app = typer.Typer(
    name="parvibench",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Benchmark samplers of unnormalised densities: metered budgets, certified references, honest verdicts.",
    epilog="First run: `parvibench run --suite quick`",
    context_settings={"help_option_names": ["-h", "--help"]},
)
data_app = typer.Typer(no_args_is_help=True, help="Data sets: what is here, and fetching what is not.")
app.add_typer(data_app, name="data")

reference_app = typer.Typer(
    no_args_is_help=True, help="Reference samples: building them, and verifying those shipped."
)
app.add_typer(reference_app, name="reference")

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Out = Annotated[Path, typer.Option("--out", help="The result store.", show_default=True)]


class What(StrEnum):
    """What can be listed."""

    TASKS = "tasks"
    ALGORITHMS = "algorithms"
    METRICS = "metrics"
    SUITES = "suites"


class Kind(StrEnum):
    """What can be shown."""

    TASK = "task"
    ALGORITHM = "algorithm"
    METRIC = "metric"


@app.command(
    epilog="Examples:\n\n"
    "`parvibench run --suite quick`\n\n"
    "`parvibench run --suite toy --task banana --algorithm svgd --algorithm mala`\n\n"
    "`parvibench run --task banana --algorithm svgd --set svgd.step_size=0.05 --budget score_evaluations=100000`\n\n"
    "`parvibench run --suite uci --profile fast --workers 2 --out uci-store`"
)
def run(
    suite: Annotated[str | None, typer.Option(help="A shipped suite, or a suite file (.yaml).")] = None,
    task: Annotated[list[str] | None, typer.Option(help="Only this task (repeatable).")] = None,
    algorithm: Annotated[
        list[str] | None,
        typer.Option(help="Only this algorithm or label (repeatable); also module:Class or file.py:Class."),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="A.KEY=VALUE", help="A setting of algorithm or label A (repeatable)."),
    ] = None,
    replicates: Annotated[int | None, typer.Option(help="Independent repetitions per cell.")] = None,
    seed: Annotated[int | None, typer.Option(help="Root seed.")] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Limit per replicate: iterations, score_evaluations, scores_per_particle or seconds (repeatable).",
        ),
    ] = None,
    profile: Annotated[str | None, typer.Option(help="Profile of the suite, e.g. fast or paper.")] = None,
    match: Annotated[
        str | None,
        typer.Option(metavar="effective-step", help="Scale step sizes so that a task's methods move alike."),
    ] = None,
    part: Annotated[
        str | None,
        typer.Option("--shard", metavar="I/K", help="Run every K-th cell from the I-th on; then `merge`."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Worker processes; 0: in this process. Default: one per CPU.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    timeout: Annotated[float, typer.Option(help="Wall-clock limit of one chunk of replicates, s.")] = 1800.0,
    out: Out = Path("parvibench-runs"),
    fresh: Annotated[bool, typer.Option("--fresh", help="Run again what the store already holds.")] = False,
    retry: Annotated[
        str | None, typer.Option(metavar="failed", help="Run again the cells that failed.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the cells and what is cached; run nothing.")
    ] = False,
    as_json: Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress, no table.")] = False,
) -> None:
    """Run a suite (or tasks x algorithms), then write the leaderboard. Finished cells are kept: the same command resumes."""
    from parvibench import api
    from parvibench.harness.progress import Display

    if retry not in (None, "failed"):
        raise InputError(f"--retry takes 'failed', got {retry!r}")
    selection: dict[str, Any] = {
        "tasks": task or (),
        "algorithms": algorithm or (),
        "replicates": replicates,
        "seed": seed,
        "budget": _parse_budget(budget),
        "profile": profile,
        "match": match,
    }
    settings = _parse_settings(setting or [])
    if dry_run:
        _dry_run(api.select(suite, **selection), settings, device, out, as_json)
        return
    results = api.run(
        suite,
        **selection,
        settings=settings,
        part=None if part is None else _parse_shard(part),
        workers=workers,
        device=device,
        timeout=timeout,
        out=out,
        fresh=fresh,
        retry_failed=retry == "failed",
        warn=_warn,
        observers=[] if quiet else [Display(_console)],
        command=_command(),
    )
    _finish(results, _report(results, out / "report"), as_json=as_json, quiet=quiet)


def _parse_shard(text: str) -> tuple[int, int]:
    """``2/5`` as (2, 5)."""
    part, _, parts = text.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts) <= 10_000):
        raise InputError(f"--shard wants I/K with 1 <= I <= K, such as 2/5; got {text!r}")
    return int(part), int(parts)


def _warn(message: str) -> None:
    _console.print(message, style="yellow", highlight=False, markup=False, soft_wrap=True)


def _finish(results: Results, page: Path, *, as_json: bool, quiet: bool) -> None:
    """Print what was asked for and leave with the right code."""
    if as_json:
        _print_json(results.document(str(page)))
    elif not quiet:
        from parvibench.report.leaderboard import print_leaderboard

        print_leaderboard(results, _out)
        _out.print(f"\nreport: {page}", highlight=False, soft_wrap=True)
    if results.failed:
        raise typer.Exit(EXIT_FAILED)


def _report(results: Results, folder: Path) -> Path:
    from parvibench.report.page import write_report

    return write_report(results, folder)


def _dry_run(suite: Any, settings: dict[str, dict[str, Any]], device: str, out: Path, as_json: bool) -> None:
    from parvibench.harness.cells import expand
    from parvibench.harness.session import resolve_device
    from parvibench.harness.store import Store, is_final

    store = Store(out)
    rows: list[dict[str, Any]] = []
    for cell in expand(suite, device=resolve_device(device), settings=settings):
        record = store.find(cell.key)
        lacking = cell.missing_needs()
        state = "cached" if is_final(record) else f"unsupported: {lacking}" if lacking else "to run"
        limits = cell.budget.model_dump(exclude_none=True)
        rows.append(
            {
                "task": cell.task,
                "algorithm": cell.algorithm,
                "label": cell.label,
                "key": cell.key,
                "replicates": len(cell.replicates),
                "chunks": len(cell.chunks),
                "budget": limits,
                "state": state,
            }
        )
    if as_json:
        _print_json(rows)
        return
    table = _table("task", "label", "replicates", "budget", "state")
    for row in rows:
        limits_text = ", ".join(f"{k} {v:g}" for k, v in row["budget"].items())
        table.add_row(row["task"], row["label"], str(row["replicates"]), limits_text, row["state"])
    _out.print(table)
    count = sum(r["state"] == "to run" for r in rows)
    _out.print(f"{len(rows)} cells, {count} to run")


@app.command("list", epilog="Example: `parvibench list tasks --json`")
def list_(what: What, as_json: Json = False) -> None:
    """List tasks, algorithms, metrics or suites."""
    rows = _LISTS[what]()
    if as_json:
        _print_json(rows)
        return
    columns = [c for c in rows[0] if c != "name"] if rows else []
    table = _table("name", *columns)
    # A name is there to be typed: it is never cut short.
    table.columns[0].no_wrap, table.columns[0].min_width = (
        True,
        max((len(r["name"]) for r in rows), default=0),
    )
    for row in rows:
        cells = [
            ", ".join(v) if isinstance(v, list) else str(v if v is not None else "") for v in row.values()
        ]
        table.add_row(*cells)
    _out.print(table)


def _task_rows() -> list[dict[str, Any]]:
    return [
        {"name": r.name, "dim": r.dim, "summary": r.summary, "tags": list(r.tags), "data": list(r.data)}
        for r in registry.tasks().values()
    ]


def _algorithm_rows() -> list[dict[str, Any]]:
    return [
        {"name": r.name, "kind": r.kind, "summary": r.summary, "needs": list(r.needs), "citation": r.citation}
        for r in registry.algorithms().values()
    ]


def _metric_rows() -> list[dict[str, Any]]:
    return [
        {"name": r.name, "direction": r.direction, "unit": r.unit, "need": r.need, "summary": r.summary}
        for r in registry.metrics().values()
    ]


def _suite_rows() -> list[dict[str, Any]]:
    from parvibench.harness.suite import load_suite, shipped

    rows = []
    for name in shipped():
        suite = load_suite(name)
        rows.append(
            {
                "name": name,
                "tasks": len(suite.tasks),
                "algorithms": len(suite.algorithms),
                "profiles": list(suite.profiles),
                "description": suite.description,
            }
        )
    return rows


_LISTS: dict[What, Callable[[], list[dict[str, Any]]]] = {
    What.TASKS: _task_rows,
    What.ALGORITHMS: _algorithm_rows,
    What.METRICS: _metric_rows,
    What.SUITES: _suite_rows,
}


@app.command(
    epilog="Examples:\n\n`parvibench show task banana`\n\n`parvibench show algorithm svgd`\n\n`parvibench show metric sliced_w2`"
)
def show(kind: Kind, name: str, as_json: Json = False) -> None:
    """Show a task (facts, certificate), an algorithm (settings, needs, citation) or a metric (formula, power)."""
    from parvibench.harness import describe

    facts = {Kind.TASK: describe.task, Kind.ALGORITHM: describe.algorithm, Kind.METRIC: describe.metric}[
        kind
    ](name)
    if as_json:
        _print_json(facts)
        return
    table = Table.grid(padding=(0, 2))
    for key, value in facts.items():
        table.add_row(f"[bold]{key}[/]", _readable(value))
    _out.print(table)


def _readable(value: Any) -> str:
    from rich.markup import escape

    if isinstance(value, dict):
        return "\n".join(f"{k}: {_readable(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_readable(v) for v in value)
    if isinstance(value, float):
        return f"{value:.4g}"
    return escape(str(value))


@app.command(epilog="Example: `parvibench evaluate --task banana samples.npy`")
def evaluate(
    samples: Annotated[
        Path, typer.Argument(help=".npy, .npz with array 'samples', .csv or .parquet; shape (n, d).")
    ],
    task: Annotated[str, typer.Option(help="The task the samples are meant for.")],
    cost: Annotated[
        list[str] | None,
        typer.Option(metavar="score_evaluations=N", help="What the samples cost (repeatable)."),
    ] = None,
    metric: Annotated[
        list[str] | None, typer.Option(help="Judge by this metric (repeatable); default: the task's.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Judge samples of your own against a task's reference."""
    registry.load_task(task)
    from parvibench import api
    from parvibench.data.samples import read_samples

    costs = {k: _number(k, v) for k, v in (_pair(c, "--cost") for c in cost or [])}
    document = api.evaluate(read_samples(samples), task, metrics=metric)
    if as_json:
        _print_json(document)
        return
    table = _table("metric", "value", "floor", "ratio", "p", "worth", "exact?")
    for row in document["metrics"]:
        if row["value"] is not None:
            table.add_row(*_evaluation_cells(row))
    _out.print(table)
    for row in document["metrics"]:
        if row["value"] is None:
            _out.print(f"not applicable: {row['metric']} ({row['reason']})", highlight=False, markup=False)
    _out.print(
        "floor: median of exact draws; worth: that many exact draws do as well [95% interval]", style="dim"
    )
    _out.print(
        f"{document['n']} samples of {document['task']}: [bold]{document['verdict']}[/] from exact draws (Holm, 5%)"
    )
    spent = costs.get("score_evaluations")
    best = next(
        (r["equivalent_sample_size"] for r in document["metrics"] if r["equivalent_sample_size"]), None
    )
    if spent and best:
        _out.print(f"{1e3 * best / spent:.3g} equivalent exact draws per 1000 score evaluations")


def _evaluation_cells(row: dict[str, Any]) -> list[str]:
    def text(value: float | None) -> str:
        return "-" if value is None else f"{value:.3g}"

    floor = row["floor"] or {}
    verdict = {"indistinguishable": "≈ alike", "distinguishable": "told apart"}.get(row["verdict"], "")
    worth = ""
    if row["equivalent_sample_size"] is not None:
        low, high = (f"{v:,.0f}" for v in row["equivalent_sample_size_interval"])
        capped = "≥ " if row["reason"].startswith("at least") else ""
        worth = f"{capped}{row['equivalent_sample_size']:,.0f} [{low}, {high}]"
    return [
        row["metric"],
        text(row["value"]),
        text(floor.get("median")),
        text(row["ratio"]),
        text(row["p_value"]),
        worth,
        verdict if row["floor"] else "no floor",
    ]


@app.command(epilog="Example: `parvibench report --out parvibench-runs`")
def report(
    out: Out = Path("parvibench-runs"),
    run_id: Annotated[str | None, typer.Option("--run", help="Id of a run; default: the latest.")] = None,
    as_json: Json = False,
) -> None:
    """Write the leaderboard of a run again: HTML page, Markdown, CSV, Parquet, JSON."""
    from parvibench.harness.results import Results
    from parvibench.harness.store import Store

    results = Results.load(Store(out), run_id)
    page = _report(results, out / "report")
    _finish(results, page, as_json=as_json, quiet=False)


@app.command(epilog="Example: `parvibench merge part-1 part-2 part-3 --out whole`")
def merge(
    stores: Annotated[
        list[Path], typer.Argument(help="Stores of the parts (`run --shard`), their latest runs.")
    ],
    out: Out = Path("parvibench-runs"),
    as_json: Json = False,
) -> None:
    """Put the parts of a run together, as one run with its leaderboard."""
    from parvibench.harness import merging
    from parvibench.harness.results import Results
    from parvibench.harness.store import Store

    into = Store(out)
    run, notes = merging.merge([Store(path) for path in stores], into)
    for note in notes:
        _warn(note)
    results = Results.load(into, run.id)
    _finish(results, _report(results, out / "report"), as_json=as_json, quiet=False)


@app.command(epilog="Example: `parvibench tune suites/mine.yaml --profile fast`")
def tune(
    suite: Annotated[str, typer.Argument(help="A suite file, or the name of a shipped suite.")],
    profile: Annotated[str | None, typer.Option(help="Profile to tune.")] = None,
    workers: Annotated[int | None, typer.Option(help="Worker processes.")] = None,
    out: Out = Path("parvibench-runs/tuning"),
    write: Annotated[
        Path | None, typer.Option(help="Suite file to store the choice in; default: the suite's own.")
    ] = None,
) -> None:
    """Choose every step size on the suite's log grid and store the choice in the suite file."""
    from parvibench.harness import tuning
    from parvibench.harness.progress import Display
    from parvibench.harness.session import make_executor, run_cells
    from parvibench.harness.store import Store
    from parvibench.harness.suite import load_suite, shipped

    whole = load_suite(suite)
    chosen = whole.with_profile(profile)
    profile = profile or next(iter(whole.profiles), None)
    path = write or Path(str(shipped()[suite]) if suite in shipped() else suite)
    if not os.access(path, os.W_OK):
        raise InputError(f"{path}: cannot be written; name another suite file with --write")
    cells = tuning.tuning_cells(chosen)
    executor = make_executor(os.cpu_count() or 1 if workers is None else workers, "cpu", 1800.0)
    named = {**chosen.resolved(), "name": f"{chosen.name}-tuning"}
    results = run_cells(
        cells,
        Store(out),
        executor,
        suite=named,
        profile=profile,
        command=_command(),
        observers=[Display(_console)],
    )
    if any(c.status == "interrupted" for c in results.cells):
        raise typer.Exit(EXIT_FAILED)
    tuning.write_tuned(path, tuning.choose(results, chosen), profile)
    _console.print(f"step sizes of {len(cells)} tuning cells stored in {path}", highlight=False)


@app.command(epilog="Example: `MLFLOW_TRACKING_URI=http://127.0.0.1:5000 parvibench sync`")
def sync(out: Out = Path("parvibench-runs")) -> None:
    """Mirror to MLflow whatever of the store it does not hold yet."""
    from parvibench.harness import mirroring
    from parvibench.harness.store import Store

    store = Store(out)
    store.run()
    warning = mirroring.sync(store)
    if warning:
        _warn(warning)
        raise typer.Exit(EXIT_FAILED)
    _console.print(f"{len(store.runs())} runs mirrored", highlight=False)


@app.command(epilog="Example: `parvibench ui --port 5001`")
def ui(
    out: Out = Path("parvibench-runs"),
    port: Annotated[int, typer.Option(min=1, max=65535, help="On this machine only (127.0.0.1).")] = 5000,
) -> None:
    """Serve MLflow's pages on the store's mirror: one run per suite run, a child per cell, tagged by task and method."""
    import subprocess

    from parvibench.harness.store import Store
    from parvibench.tracking import ui_command

    Store(out).run()
    _console.print(f"http://127.0.0.1:{port} (Ctrl-C ends it)", highlight=False)
    with contextlib.suppress(KeyboardInterrupt):
        raise typer.Exit(subprocess.call(ui_command(out, port)))


@data_app.command("status")
def data_status(as_json: Json = False) -> None:
    """Which data sets are here."""
    from parvibench.data.fetch import status

    rows: list[dict[str, Any]] = [
        {
            "name": r.name,
            "rows": r.rows,
            "bytes": r.bytes,
            "state": r.state,
            "path": str(r.path) if r.path else None,
            "licence": r.licence,
        }
        for r in status()
    ]
    if as_json:
        _print_json(rows)
        return
    table = _table("name", "rows", "kB", "state", "path")
    for row in rows:
        table.add_row(
            row["name"], str(row["rows"]), f"{row['bytes'] / 1e3:.0f}", row["state"], row["path"] or ""
        )
    _out.print(table)


@reference_app.command("verify", epilog="Example: `parvibench reference verify banana`")
def reference_verify(
    tasks: Annotated[
        list[str] | None, typer.Argument(help="Tasks; all with a reference when none is named.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Recompute what can be of the shipped references: exit 1 when anything does not hold."""
    from rich.markup import escape

    from parvibench.core.reference import has_reference
    from parvibench.reference.checks import verify

    found = {}
    for name in tasks or registry.tasks():
        task = registry.load_task(name)
        if tasks or has_reference(name):
            found[name] = verify(task)
            if not as_json:
                for check in found[name]:
                    mark = {True: "[green]ok[/]", False: "[red]FAILED[/]", None: "[yellow]skipped[/]"}[
                        check.passed
                    ]
                    text = escape(f"{name}: {check.name} ({check.found})")
                    _out.print(f"{mark} {text}", highlight=False, soft_wrap=True)
    failed = [name for name, checks in found.items() if any(c.passed is False for c in checks)]
    if as_json:
        _print_json({name: [asdict(c) for c in checks] for name, checks in found.items()})
    else:
        _out.print(
            f"{len(found)} references, {len(failed)} failed{': ' if failed else ''}{', '.join(failed)}"
        )
    raise typer.Exit(EXIT_FAILED if failed else 0)


@reference_app.command("build", epilog="Example: `parvibench reference build banana --folder references`")
def reference_build(
    tasks: Annotated[
        list[str], typer.Argument(help="Tasks with an exact sampler, or a density for long chains.")
    ],
    folder: Annotated[
        Path | None, typer.Option(help="Where to write; default: the installed package.")
    ] = None,
) -> None:
    """Make reference samples with their noise floors and certificates: ten minutes or so a task."""
    from parvibench.reference.build import build

    for name in tasks:
        _console.print(f"{name}: {build(registry.load_task(name), folder)}", highlight=False, soft_wrap=True)


@data_app.command("fetch")
def data_fetch(
    names: Annotated[list[str] | None, typer.Argument(help="Data sets; all when none is named.")] = None,
) -> None:
    """Download data sets, verified by their SHA-256, into the user's cache."""
    from parvibench.data import fetch

    known = fetch.registry()
    for name in names or []:
        if name not in known:
            raise UnknownNameError("data set", name, known)
    for name in names or known:
        _console.print(f"{name}: {fetch.fetch(name)}", highlight=False, soft_wrap=True)


@app.command()
def doctor(as_json: Json = False) -> None:
    """Check the installation: versions, devices, data, store, tracking."""
    from parvibench.harness import describe

    checks = describe.doctor()
    if as_json:
        _print_json(checks)
    else:
        for check in checks:
            mark = "[green]ok[/]" if check["ok"] else "[yellow]--[/]"
            _out.print(f"{mark}  {check['what']}: {check['found']}", highlight=False)
    if not all(c["ok"] or not c["required"] for c in checks):
        raise typer.Exit(EXIT_FAILED)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"parvibench {version('parvibench')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def _pair(text: str, option: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign or not key or not value:
        raise InputError(f"{option} {text}: write KEY=VALUE")
    return key, value


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{key}={text}: not a number") from None


def _parse_budget(pairs: list[str] | None) -> dict[str, Any] | None:
    if not pairs:
        return None
    values: dict[str, Any] = {}
    for key, text in (_pair(p, "--budget") for p in pairs):
        number = _number(key, text)
        values[key] = int(number) if key == "iterations" and number.is_integer() else number
    return values


def _parse_settings(pairs: list[str]) -> dict[str, dict[str, Any]]:
    settings: dict[str, dict[str, Any]] = {}
    for key, text in (_pair(p, "--set") for p in pairs):
        name, dot, field = key.rpartition(".")
        if not dot or not name:
            raise InputError(
                f"--set {key}={text}: write ALGORITHM.SETTING=VALUE, for example svgd.step_size=0.05"
            )
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        settings.setdefault(name, {})[field] = value
    return settings


def _command() -> str:
    return " ".join(["parvibench", *sys.argv[1:]])


def _table(*columns: str) -> Table:
    return Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)


def _print_json(document: Any) -> None:
    print(json.dumps(document, indent=1, allow_nan=False))


def main() -> NoReturn:
    """Entry point: user errors become one message and exit code 2, missing data exit code 1."""
    try:
        code = app(standalone_mode=False)
    except ParVIBenchError as error:
        _console.print(f"parvibench: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        sys.exit(EXIT_FAILED if isinstance(error, DataMissingError) else EXIT_USAGE)
    except typer.Exit as error:  # raised by callbacks that run before a command
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        error.show()  # type: ignore[attr-defined]
        sys.exit(EXIT_USAGE)
    sys.exit(code if isinstance(code, int) else 0)
