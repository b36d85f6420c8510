"""The command ``check``: whether samplers are right, and whether they have changed."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Option

from parvibench.core.errors import InputError

from . import shared
from .progress import progress
from .shared import EXIT_FAILED, Json, answer, warn

if TYPE_CHECKING:
    from parvibench.api.check import Findings

app = typer.Typer()
#: Word on the command line -> claim about a kernel.
_CLAIMS: dict[str, Any] = {"reversible": True, "invariant": "invariant", "adapted": "adapted", "no": False}


@app.command(
    epilog="Examples:\n\n"
    "`parvibench check` (is this installation right? All built-in samplers)\n\n"
    "`parvibench check -a mypackage.samplers:MySampler --set step_size=0.05 --junit check.xml`\n\n"
    "`parvibench check -a my_sampler.py:MySampler -t banana --update --baseline mine.json` (record its results)\n\n"
    "`parvibench check -a my_sampler.py:MySampler --baseline mine.json` (compare with them later)\n\n"
    "`parvibench check -t target.py:ring` (the density of an unregistered task)"
)
def check(
    algorithm: Annotated[
        list[str] | None,
        Option(
            "--algorithm",
            "-a",
            help="Sampler (repeatable): a name, module:Class or file.py:Class. Default: all built-in samplers.",
            autocompletion=shared.names_of("algorithm"),
        ),
    ] = None,
    task: Annotated[
        list[str] | None,
        Option(
            "--task",
            "-t",
            help="With --baseline: tasks on which the samplers run. Otherwise: only tests on this target, or of the "
            "density of a task from outside, file.py:TASK (repeatable).",
            autocompletion=shared.names_of("task"),
        ),
    ] = None,
    setting: shared.Settings = None,
    iterations: Annotated[
        int, Option(min=1, help="Iterations for a sampler from outside, or with settings of its own.")
    ] = 500,
    allow_diverged: Annotated[
        float, Option(min=0, max=1, help="Share of the points of such a sampler that may be non-finite.")
    ] = 0.0,
    exact: Annotated[
        Literal["reversible", "invariant", "adapted", "no"] | None,
        Option(
            help="Claim about the kernel to be tested, in place of the class's `exact`; adapted: from half of the run on."
        ),
    ] = None,
    baseline: Annotated[
        Path | None, Option(help="File with recorded results of the samplers, for comparison or for --update.")
    ] = None,
    update: Annotated[
        bool, Option(help="Record the results of the samplers in the baseline, after showing what changes.")
    ] = False,
    workers: Annotated[
        int | None, Option(help="Worker processes; 0 runs everything in this process. Default: one per CPU.")
    ] = None,
    seed: Annotated[
        int | None,
        Option(help="Seed of all replicates. Default: 1 for samplers from outside, otherwise random and printed."),
    ] = None,
    junit: Annotated[Path | None, Option(help="Write JUnit XML.")] = None,
    markdown: Annotated[Path | None, Option(help="Append a Markdown summary to this file.")] = None,
    as_json: Json = False,
    yes: Annotated[bool, Option("--yes", "-y", help="Let --update write without confirmation.")] = False,
) -> int:
    """Test samplers against known truth, and against a baseline: exit code 0 if all is well, 1 if a test fails.

    Truth: the contract of the interface, score evaluations against the meter, moments on easy targets, invariance,
    dependence between chains. All tests together raise a false alarm in at most one run in a thousand. A baseline is a
    file of your own: --update records what a sampler does now, later runs report a regression or a change.
    """
    for option, file in (("--junit", junit), ("--markdown", markdown)):
        if file is not None and not file.parent.is_dir():
            raise InputError(f"{option} {file}: no such folder: {file.parent}")
    if update and baseline is None:
        raise InputError("--update records a baseline: name its file with --baseline FILE")
    processes = (os.cpu_count() or 1) if workers is None else workers
    from parvibench.api import check as api

    names = algorithm or []
    settings = shared.parse_settings(setting, names)
    if update and baseline is not None:
        return _update(names, baseline, yes, tasks=task or (), each=settings, iterations=iterations, seed=seed,
                       workers=processes)  # fmt: skip
    with progress() as show:
        findings = api.check(
            names, tasks=task or (), baseline=baseline, iterations=iterations, allow_diverged=allow_diverged,
            exact=_CLAIMS[exact] if exact else None, seed=seed, workers=processes, each=settings, notify=show,
        )  # fmt: skip
    options = _options(setting or (), iterations, allow_diverged) + (f" --exact {exact}" if exact else "")
    return _write(replace(findings, options=dict.fromkeys(names, options)), junit, markdown, as_json)


def _update(names: Sequence[str], path: Path, yes: bool, **options: Any) -> int:
    """Record what the samplers do now; differences are shown before anything is written."""
    from parvibench.api import check as api

    if not path.parent.is_dir():
        raise InputError(f"--baseline {path}: no such folder: {path.parent}")
    if path.is_file() and not yes and not sys.stdin.isatty():
        raise InputError(f"--update asks before it changes {path}, and there is no terminal to answer: add --yes")
    with progress() as show:
        made, lines = api.record(names, path, notify=show, **options)
    if lines is not None:
        for line in [*lines, f"{len(lines)} changes" if lines else "no change beyond chance"]:
            answer(line)
        if not yes and not typer.confirm(f"Write {path}?"):
            return EXIT_FAILED
    made.write(path)
    answer(f"{path}: {len(made.cells)} cells, {len(made.densities)} densities")
    return 0


def _options(pairs: Sequence[str], iterations: int, allow_diverged: float) -> str:
    """The options about a sampler, as on the command line."""
    given = [*(f"--set {shlex.quote(pair)}" for pair in pairs), f"--iterations {iterations}"]
    return " ".join([*given, *([f"--allow-diverged {allow_diverged:g}"] if allow_diverged else [])])


def _write(findings: Findings, junit: Path | None, markdown: Path | None, as_json: bool) -> int:
    """Write the outcome in all formats; the exit code."""
    from parvibench.api.check import formats

    output = formats()

    if junit is not None:
        junit.write_text(output.junit(findings))
    if markdown is not None:
        with markdown.open("a") as file:
            file.write(output.markdown(findings))
    if as_json:
        shared.print_json(output.document(findings))
    else:
        for line in output.lines(findings):
            answer(line)
        for line in output.notes(findings):
            warn(line)
        counts = f"{output.counts(findings)} (p < {findings.threshold:.1e})"
        answer(f"{findings.verdict}: {counts}; --seed {findings.seed}")
    return 0 if findings.verdict == "pass" else EXIT_FAILED
