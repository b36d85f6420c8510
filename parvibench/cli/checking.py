"""Whether samplers are right, ``check``; how two runs differ, ``compare``; whether a store is true, ``verify``."""

from __future__ import annotations

import math
import os
import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option

from parvibench import api
from parvibench.api.listing import DEFAULT_STORE, DEFAULT_TIMEOUT_S, interval, number
from parvibench.api.listing import count as counted
from parvibench.core.errors import InputError

from . import shared
from .progress import progress
from .shared import EXIT_FAILED, Json, Out, Timeout, Workers, answer, names_of, new_table, out_console, print_json, warn

app = typer.Typer()
#: Word on the command line -> claim about a kernel.
_CLAIMS: dict[str, Any] = {"reversible": True, "invariant": "invariant", "adapted": "adapted", "no": False}
_Run = Annotated[str, Argument(help="Id of a run in the store, or folder of another store (its latest run).")]


@app.command(
    epilog="Examples:\n\n"
    "`parvibench check` (is this installation right? All built-in samplers)\n\n"
    "`parvibench check -a mypackage.samplers:MySampler --set step_size=0.05`\n\n"
    "`parvibench check -a my_sampler.py:MySampler -t banana --update --baseline mine.json` (record its results)\n\n"
    "`parvibench check -a my_sampler.py:MySampler --baseline mine.json` (compare with them later)\n\n"
    "`parvibench check -t target.py:ring` (the density of an unregistered task)"
)
def check(
    algorithm: Annotated[list[str] | None, Option("--algorithm", "-a", help="Sampler (repeatable): a name, module:Class or file.py:Class. Default: all built-in samplers.", autocompletion=names_of("algorithm"))] = None,
    task: Annotated[list[str] | None, Option("--task", "-t", help="With --baseline: tasks on which the samplers run. Otherwise: only tests on this target, or of the density of a task from outside, file.py:TASK (repeatable).", autocompletion=names_of("task"))] = None,
    stan_library: shared.StanLibrary = None,
    setting: shared.Settings = None,
    iterations: Annotated[int, Option(min=1, help="Iterations for a sampler from outside, or with settings of its own.")] = 500,
    allow_diverged: Annotated[float, Option(min=0, max=1, help="Share of the points of such a sampler that may be non-finite.")] = 0.0,
    exact: Annotated[Literal["reversible", "invariant", "adapted", "no"] | None, Option(help="Claim about the kernel to be tested, in place of the class's `exact`; adapted: from half of the run on.")] = None,
    baseline: Annotated[Path | None, Option(help="File with recorded results of the samplers, for comparison or for --update.")] = None,
    update: Annotated[bool, Option(help="Record the results of the samplers in the baseline, after showing what changes.")] = False,
    workers: Annotated[int | None, Option(help="Worker processes; 0 runs everything in this process. Default: one per CPU.")] = None,
    seed: Annotated[int | None, Option(help="Seed of all replicates. Default: 1 for samplers from outside, otherwise random and printed.")] = None,
    fail_fast: Annotated[bool, Option("--fail-fast", help="Stop at the first question that fails.")] = False,
    as_json: Json = False,
    yes: Annotated[bool, Option("--yes", "-y", help="Let --update write without confirmation.")] = False,
) -> int:  # fmt: skip
    """Test samplers against known truth, and against a baseline: exit code 0 if all is well, 1 if a test fails.

    Ctrl-C or a time limit (SIGTERM) ends with the outcome of the questions answered so far, and exit code 1.

    Truth: the contract of the interface, score evaluations against the meter, moments on easy targets, invariance,
    dependence between chains. All tests together raise a false alarm in at most one run in a thousand. A baseline is a
    file of your own: --update records what a sampler does now, later runs report a regression or a change.
    """
    if update and baseline is None:
        raise InputError("--update records a baseline: name its file with --baseline FILE")
    processes = (os.cpu_count() or 1) if workers is None else workers
    names = algorithm or []
    settings = shared.parse_settings(setting, names)
    if update and baseline is not None:
        return _update(names, baseline, yes, tasks=task or (), each=settings, iterations=iterations, seed=seed,
                       workers=processes)  # fmt: skip
    first = list[str]()
    with progress() as show:

        def red(question: Any, test: Any) -> None:
            if not first:
                first.append(f"first failure: {question.algorithm}, {question.name}: {test.reason}")
                show.print(first[0])

        findings = api.check.check(
            names, tasks=task or (), baseline=baseline, iterations=iterations, allow_diverged=allow_diverged,
            exact=_CLAIMS[exact] if exact else None, seed=seed, workers=processes, each=settings, notify=show,
            fail_fast=fail_fast, stoppable=True, red=red,
        )  # fmt: skip
    options = [*(f"--set {shlex.quote(pair)}" for pair in setting or ()), f"--iterations {iterations}"]
    options += [f"--allow-diverged {allow_diverged:g}"] if allow_diverged else []
    options += [f"--exact {exact}"] if exact else []
    return _write(replace(findings, options=dict.fromkeys(names, " ".join(options))), as_json)


@app.command(
    epilog="Examples:\n\n`parvibench calibrate model.py:schools -a nuts`\n\n"
    "`parvibench calibrate model.stan:data.json --simulator draws.stan -a nuts`\n\n"
    "`parvibench calibrate model.py:MODEL -a my_sampler.py:MySampler --evaluations 5000 --json`"
)
def calibrate(
    model: Annotated[
        str,
        Argument(
            help="file.py:OBJECT or module:OBJECT: a task of pb.from_numpyro, from_pyro or from_pymc, or an object with prior(rng), simulate(params, rng) and model(data); or model.stan:data.json."
        ),
    ],
    algorithm: Annotated[
        str,
        Option("--algorithm", "-a", help="Sampler: a name, module:Class or file.py:Class.", autocompletion=shared.names_of("algorithm")),
    ],
    setting: shared.Settings = None,
    simulator: Annotated[Path | None, Option(exists=True, dir_okay=False, help="Of a Stan program: a second one without parameters, whose generated quantities draw parameters and data by their names.")] = None,
    sets: Annotated[int, Option(min=10, help="Most data sets; fewer, but at least 40, are drawn where the ranks are plain.")] = 500,
    level: Annotated[float, Option(min=1e-6, max=0.5, help="Probability of a false alarm of the whole run.")] = 0.01,
    chains: Annotated[int, Option(min=1, help="Chains or particles per data set.")] = 4,
    evaluations: Annotated[int, Option(min=1, help="Score evaluations of a chain; half of its path is warm-up.")] = 2000,
    batch: Annotated[int, Option(min=1, help="Data sets side by side.")] = 50,
    seed: Annotated[int, Option(min=0, help="Seed of parameters, data and sampler.")] = 1,
    out: Annotated[Path, Option(help="Folder of the ranks, from which an interrupted run goes on, and the picture.")] = Path("parvibench-calibration"),
    as_json: Json = False,
) -> int:  # fmt: skip
    """Is this sampler right for my model? Exit code 0 if no fault is found, 1 if one is.

    Parameters are drawn from the model's prior, data given them; in the posteriors of these data the ranks of the parameters must
    be uniform (simulation-based calibration). A fault names the parameter, and whether its posterior is too narrow, too wide or shifted.
    """
    out = shared.output_place(out, folder=True)
    with progress() as show:
        outcome = api.check.calibrate(
            model, algorithm, settings=shared.parse_settings(setting, [algorithm]).get(algorithm), simulator=simulator, out=out, notify=show,
            sets=sets, level=level, chains=chains, evaluations=evaluations, batch=batch, seed=seed,
        )  # fmt: skip
    if as_json:
        print_json(outcome.document())
    else:
        answer(str(outcome))
        answer(f"ranks: {out / 'ranks.png'}")
    return 0 if outcome.right else EXIT_FAILED


def _update(names: Sequence[str], path: Path, yes: bool, **options: Any) -> int:
    """Record what the samplers do now; differences are shown before anything is written."""
    path = shared.output_place(path)
    if path.is_file() and not yes and not sys.stdin.isatty():
        raise InputError(f"--update asks before it changes {path}, and there is no terminal to answer: add --yes")
    with progress() as show:
        made, lines = api.check.record(names, path, notify=show, **options)
    if lines is not None:
        for line in [*lines, f"{len(lines)} changes" if lines else "no change beyond chance"]:
            answer(line)
        if not yes and not typer.confirm(f"Write {path}?"):
            return EXIT_FAILED
    made.write(path)
    answer(f"{path}: {counted(len(made.cells), 'cell')}")
    return 0


def _write(findings: api.check.Findings, as_json: bool) -> int:
    """Write the outcome as text or JSON; the exit code."""
    output = api.check.output
    if as_json:
        shared.print_json(output.document(findings))
    else:
        counts = f"{output.counts(findings)} (p < {findings.threshold:.1e})"
        verdict = [f"{findings.verdict}: {counts}; --seed {findings.seed}"]
        passed = findings.verdict == "pass"  # what failed is read from its end
        for line in [*verdict * passed, *output.lines(findings)]:
            answer(line)
        for line in output.notes(findings):
            warn(line)
        for line in verdict[passed:]:
            answer(line)
    return 0 if findings.verdict == "pass" else EXIT_FAILED


@app.command(
    epilog="Examples:\n\n"
    "`parvibench compare before-store after-store`\n\n"
    "`parvibench compare 20260101-120000-000-quick 20260102-120000-000-quick --metric w2`"
)
def compare(
    run_a: _Run,
    run_b: _Run,
    out: Out = DEFAULT_STORE,
    metric: Annotated[str | None, Option(help="Metric to compare. Default: the primary metric of each task.", autocompletion=names_of("metric"))] = None,
    to: Annotated[Path | None, Option(help="Folder of the table and the figures. Default: OUT/compare.")] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Compare two runs: first their settings and versions, then the results of every cell.

    Replicates are paired where the runs share seed and particles.
    """
    found = api.compare.write_comparison(_loaded(run_a, out), _loaded(run_b, out), to or out / "compare", metric)
    if as_json:
        print_json(found.document())
        return
    table = new_table("differs", "first", "second", "in")
    for row in found.conditions.to_dict("records"):
        where = f"{row['cells']} of {row['shared']} cells, such as {row['example']}" if row["cells"] else "the run"
        table.add_row(row["what"], row["first"][:40], row["second"][:40], where)
    if table.rows:
        out_console.print(table)
    else:
        answer("no difference in cells, settings, budgets, versions or hardware")
    table = new_table("task", "method", "metric", "first", "second", "change [95%]", "p", "second is")
    for row in found.cells.to_dict("records"):
        change = f"{number(row['change'])}{'%' if row['scale'] == '%' else ''} [{interval(row['low'], row['high'])}]"
        shown = row["note"] if math.isnan(row["change"]) else change
        numbers = [number(row[k]) for k in ("a", "b")]
        words = (row["task"], row["label"], row["unit"], *numbers, shown, number(row["p_value"]), row["verdict"])
        table.add_row(*words)
    out_console.print(table)
    counts = found.cells["verdict"].value_counts()
    summary = ", ".join(f"{n} {verdict or 'not tested'}" for verdict, n in counts.items())
    tested = found.cells[found.cells["n"] > 0]
    pairing = "paired by replicate" if tested["paired"].all() else "not all paired: seeds or particles differ"
    answer(f"{summary} ({pairing}; medians; 5%, Holm)")
    answer(str(found.file))


def _loaded(run: str, out: Path) -> api.report.Results:
    """A run of the store ``out`` by its id, or the latest of another store by its folder."""
    if Path(run).is_dir():
        return api.report.load(run)
    if not (out / "runs" / f"{run}.json").is_file():
        raise InputError(f"{run}: no folder of that name, and no run of that id in the store {out}")
    return api.report.load(out, run)


@app.command(
    epilog="Examples:\n\n`parvibench verify their-store`\n\n`parvibench verify their-store --replicates 100 --workers 2 --json`"
)
def verify(
    store: Annotated[Path, Argument(help="Folder of a result store; its latest run is verified.")],
    replicates: Annotated[int, Option(min=1, help="Number of randomly chosen replicates to run again.")] = 60,
    seed: Annotated[int | None, Option(help="Seed of the choice. Default: unpredictable.")] = None,
    workers: Workers = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Run randomly chosen replicates of a store again and compare them with its records. Exit code 1 if one differs.

    No code from the store is run: plug-ins are not verified, nor are seconds and cells made on other hardware.
    """
    found = api.stores.verify(store, replicates, seed=seed, workers=workers, timeout=timeout)
    if as_json:
        print_json(found.document())
    else:
        _print_verification(found)
    if found.falsified or any(c.verdict == "not run" for c in found.checks):
        raise typer.Exit(EXIT_FAILED)


def _print_verification(found: api.stores.Verification) -> None:
    for check in found.checks:
        if check.reason:
            answer(f"{check.verdict}: {check.task} / {check.label}, replicate {check.replicate}: {check.reason}")
    for why in dict.fromkeys(found.skipped.values()):
        labels = [pair for pair, reason in found.skipped.items() if reason == why]
        more = f" and {len(labels) - 5} more" if len(labels) > 5 else ""
        answer(f"not verified ({why}): {', '.join(labels[:5])}{more}")
    counts = Counter(c.verdict for c in found.checks)
    said = ", ".join(f"{n} {verdict}" for verdict, n in counts.items()) or "nothing was checked"
    answer(f"{counted(found.compared, 'comparison')}; {counted(found.replicates, 'verifiable replicate')}: {said}")
    if found.compared:
        missed = f"{100 * found.chance_of_missing:.2g}%"
        answer(f"if 5% of the replicates were falsified, all comparisons would miss it with probability {missed}")
