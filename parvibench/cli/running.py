"""Runs of a suite: ``run``, ``tune``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from parvibench.core.errors import InputError
from parvibench.harness.execution import DEFAULT_STORE, DEFAULT_TIMEOUT_S, Execution

from . import shared
from .reporting import write_and_print
from .shared import EXIT_FAILED, Json, Out, answer, command_line, console, duration, key_value, note

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
    algorithm: shared.Algorithms = None,
    setting: shared.Settings = None,
    replicates: Annotated[int | None, Option(help="Independent repetitions per cell.")] = None,
    seed: Annotated[int | None, Option(help="Root seed.")] = None,
    budget: Annotated[
        list[str] | None,
        Option(metavar="KEY=VALUE", help="Per replicate: iterations, score_evaluations, scores_per_particle, seconds."),
    ] = None,
    particles: Annotated[int | None, Option(help="Particles or parallel chains, N; goes before a preset's.")] = None,
    samples: Annotated[int | None, Option(help="Samples judged, n; goes before a preset's.")] = None,
    profile: Annotated[str | None, Option(help="Profile of the suite, e.g. fast or paper.")] = None,
    match: Annotated[
        str | None, Option(metavar="effective-step", help="Scale step sizes to one effective step per task.")
    ] = None,
    row: Annotated[
        list[str] | None,
        Option(metavar="GLOB", help="Only rows TASK/LABEL, or of published numbers, that fit (repeatable)."),
    ] = None,
    part: Annotated[
        str | None, Option("--shard", metavar="I/K", help="Run every K-th cell from the I-th on; then `merge`.")
    ] = None,
    workers: Annotated[int | None, Option(help="Worker processes; 0: in this process. Default: one per CPU.")] = None,
    device: Annotated[str, Option(help="auto, cpu or cuda.")] = "auto",
    timeout: Annotated[float, Option(help="Wall-clock limit of one chunk of replicates, s.")] = DEFAULT_TIMEOUT_S,
    memory: Annotated[
        float | None,
        Option(metavar="MIB", help="Limit of a worker and its subprocesses. Default: 80% of all memory, shared."),
    ] = None,
    ray: Annotated[
        str | None,
        Option(metavar="local|ADDRESS", help="Run on Ray; --workers then limits the chunks that run at a time."),
    ] = None,
    gpus: Annotated[float, Option(help="Share of a GPU per chunk on the cluster, with --device cuda.")] = 1.0,
    compiled: Annotated[
        bool, Option("--compile", help="Run steps through torch.compile: faster in long runs; last digits differ.")
    ] = False,
    out: Out = DEFAULT_STORE,
    fresh: Annotated[bool, Option("--fresh", help="Run all cells again, also those in the store.")] = False,
    retry: Annotated[str | None, Option(metavar="failed", help="Run again the cells that failed.")] = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Show the cells, which are cached, and a forecast of the rest's time.")
    ] = False,
    as_json: Json = False,
    quiet: Annotated[bool, Option("--quiet", help="No progress, no table.")] = False,
    tune_first: Annotated[
        bool, Option("--tune", help="Tune a suite with a grid and no tuned values first; its cost is shown.")
    ] = False,
) -> None:
    """Run a suite (or tasks x algorithms) and write its report. Finished cells are kept: the same command resumes."""
    from parvibench import api
    from parvibench.tracking.observer import MirrorObserver

    from .progress import Display

    if retry not in (None, "failed"):
        raise InputError(f"--retry takes 'failed', got {retry!r}")
    execution = Execution.of(
        replicates=replicates, seed=seed, budget=_parse_budget(budget), particles=particles, samples=samples,
        profile=profile, rows=tuple(row or ()), match=match, part=None if part is None else _parse_shard(part), workers=workers, device=device,
        timeout=timeout, memory=memory, ray=ray, gpus=gpus, compiled=compiled, out=out, fresh=fresh,
        retry_failed=retry == "failed", tune=tune_first,
    )  # fmt: skip
    settings = shared.parse_settings(setting, algorithm)
    if dry_run:
        loaded, execution = api.load_profile(suite, execution)
        _dry_run(api.select(loaded, task or (), algorithm or (), execution), suite, settings, execution, as_json)
        return
    mirror = MirrorObserver(out)
    results = api.run(
        suite, tasks=task or (), algorithms=algorithm or (), settings=settings, execution=execution, tracking=mirror,
        warn=note, observers=[] if quiet else [Display(console)], command=command_line(),
    )  # fmt: skip
    write_and_print(results, out / "report", as_json=as_json, quiet=quiet, mirror=mirror)


@app.command(
    epilog="Examples:\n\n`parvibench tune suites/mine.yaml --profile fast`\n\n"
    "`parvibench tune uci --profile standard --dry-run`\n\n"
    "`parvibench tune toy --task banana --algorithm file.py:Class`"
)
def tune(
    suite: Annotated[
        str, Argument(help="A suite file, or the name of a shipped suite.", autocompletion=shared.names_of("suite"))
    ],
    task: shared.Tasks = None,
    algorithm: shared.Algorithms = None,
    setting: shared.Settings = None,
    profile: Annotated[str | None, Option(help="Profile to tune.")] = None,
    workers: Annotated[int | None, Option(help="Worker processes.")] = None,
    out: Out = DEFAULT_STORE / "tuning",
    write: Annotated[
        Path | None,
        Option(help="Suite file to store the choice in; default: the suite's own. Of a part of a shipped suite: none."),
    ] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Show how long it takes, and do nothing.")] = False,
) -> None:
    """Choose every step size on the suite's log grids, print the choice, and store it in the suite file.

    The same command resumes. Exit code 1 where a method was measured with no value on a task: it is named, and nothing is
    stored for it.
    """
    from parvibench import workflow

    from .progress import Display

    if dry_run:
        _forecast_tuning(
            workflow.tuner(suite, task or (), algorithm or (), shared.parse_settings(setting, algorithm), profile), out
        )
        return

    done = workflow.tune(
        suite, tasks=task or (), algorithms=algorithm or (), settings=shared.parse_settings(setting, algorithm),
        profile=profile, workers=workers, out=out, write=workflow.suite_file(suite, write, part=bool(task or algorithm)),
        command=command_line(), observers=[Display(console)],
    )  # fmt: skip
    if done.interrupted:
        raise typer.Exit(EXIT_FAILED)
    for where, chosen in done.tuned.step_size.items():
        for label, step in chosen.items():
            edge = "  (at the grid's end)" if f"{where}/{label}" in done.tuned.at_edge else ""
            answer(f"--task {where} --set {label}.step_size={step:g}{edge}")
    note(f"step sizes stored in {done.file}" if done.file else "nothing written: name a suite file with --write")
    for pair, why in done.left_out.items():
        note(f"{pair} has no tuned step size: {why}", style="red")
    if done.left_out:
        raise typer.Exit(EXIT_FAILED)


def _forecast_tuning(tuner: Any, out: Path) -> None:
    """Print how long tuning takes: the first round is foreseen, the best values then run for the whole horizon."""
    from parvibench.harness.forecast import predict
    from parvibench.harness.store.store import Store

    spec, grids = tuner.spec, tuner.one_of_each()
    seconds = predict([cell for cell, _, _ in grids], Store(out))
    known = [(s, values, more) for s, (_, values, more) in zip(seconds, grids, strict=True) if s is not None]
    first, growth = (sum(s * times[k] for s, *times in known) for k in (0, 1))
    finals = 0.0 if spec.share == 1 else sum(s for s, _, _ in known) / spec.share * spec.finalists
    answer(f"{sum(values for _, values, _ in known)} cells of a first round: {duration(first)} of one process")
    if finals:
        answer(f"the best {spec.finalists} values for the whole horizon: {duration(finals)}")
    more = f", and up to {duration(growth)} more where grids must grow" if growth else ""
    answer(f"in all {duration(first + finals)} of one process{more}")
    if len(known) < len(seconds):
        answer(f"{len(seconds) - len(known)} methods cannot be foreseen")


def _dry_run(
    suite: Any, source: str | None, settings: dict[str, dict[str, Any]], execution: Execution, as_json: bool
) -> None:
    from parvibench.harness.forecast import predict
    from parvibench.harness.session import resolve_device
    from parvibench.harness.store.store import Store, is_final
    from parvibench.harness.suite.cells import expand
    from parvibench.harness.suite.tuning import untuned

    device = resolve_device(execution.device)
    cells = expand(suite, device=device, settings=settings, compiled=execution.compiled)
    for text in dict.fromkeys(n for cell in cells for n in cell.notes):
        note(text)
    store = Store(execution.out)
    rows: list[dict[str, Any]] = []
    waiting: list[tuple[Any, dict[str, Any]]] = []
    for cell in cells:
        record = store.usable(cell.key)
        lacking = cell.missing_needs()
        state = "cached" if is_final(record) else f"unsupported: {lacking}" if lacking else "to run"
        row: dict[str, Any] = {k: getattr(cell, k) for k in ("task", "algorithm", "label", "key")}
        row |= {"replicates": cell.n_replicates, "chunks": len(cell.chunks)}
        limits = cell.spec.budget.model_dump(exclude_none=True)
        rows.append(row | {"budget": limits, "state": state, "predicted_seconds": None})
        if state == "to run":
            waiting.append((cell, rows[-1]))
    for (_, row), seconds in zip(waiting, predict([c for c, _ in waiting], store), strict=True):
        row["predicted_seconds"] = seconds
    if as_json:
        shared.print_json(rows)
        return
    table = shared.new_table("task", "label", "replicates", "budget", "state", "time")
    for row in rows:
        limits_text = ", ".join(f"{k} {v:g}" for k, v in row["budget"].items())
        seconds = row["predicted_seconds"]
        time = "" if seconds is None else duration(seconds)
        table.add_row(row["task"], row["label"], str(row["replicates"]), limits_text, row["state"], time)
    shared.out_console.print(table)
    together = sum(row["predicted_seconds"] or 0.0 for _, row in waiting)
    processes = max(1, (os.cpu_count() or 1) if execution.workers is None else execution.workers)
    predicted = f", about {duration(together / processes)} on {processes} workers" if waiting else ""
    answer(f"{len(rows)} cells, {len(waiting)} to run{predicted}")
    refused = untuned(suite, cells, execution.profile, source or suite.name)
    if refused and not execution.tune:
        note(f"not yet: {refused}")
    elif refused:
        note("after tuning, whose time `parvibench tune --dry-run` tells")


def _parse_shard(text: str) -> tuple[int, int]:
    """``2/5`` as (2, 5)."""
    part, _, parts = text.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts) <= 10_000):
        raise InputError(f"--shard wants I/K with 1 <= I <= K, such as 2/5; got {text!r}")
    return int(part), int(parts)


def _parse_budget(pairs: list[str] | None) -> dict[str, Any] | None:
    if not pairs:
        return None
    values: dict[str, Any] = {}
    for key, text in (key_value(p, "--budget") for p in pairs):
        number = shared.parse_number(key, text)
        values[key] = int(number) if key == "iterations" and number.is_integer() else number
    return values
