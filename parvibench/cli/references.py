"""Reference samples: ``reference build``, ``reference verify``, ``reference floors``."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.text import Text
from typer import Argument, Option

from parvibench import api
from parvibench.core.errors import InputError

from .progress import progress
from .shared import EXIT_FAILED, Json, StanLibrary, listed, names_of, note, out_console, print_json

app = typer.Typer(no_args_is_help=True, help="Reference samples: build, verify, complete noise floors.")
_MARKS = {True: ("ok", "green"), False: ("FAILED", "red"), None: ("skipped", "yellow")}


@app.command("verify", epilog="Example: `parvibench reference verify banana`")
def reference_verify(
    tasks: Annotated[list[str] | None, Argument(help="Names of tasks. Default: all with a reference.", autocompletion=names_of("task"))] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Recompute the checks of the shipped references. Exit code 1 if any fails."""
    found = {}
    for name, checks in api.certify.verify_references(tasks or ()):
        found[name] = checks
        for check in [] if as_json else checks:
            text = Text.assemble(_MARKS[check.passed], f" {name}: {check.name} ({check.found})")
            out_console.print(text, highlight=False, soft_wrap=True)
    failed = [name for name, checks in found.items() if any(c.passed is False for c in checks)]
    if as_json:
        print_json({name: [asdict(c) for c in checks] for name, checks in found.items()})
    else:
        names = f": {', '.join(failed)}" if failed else ""
        out_console.print(f"{len(found)} references, {len(failed)} failed{names}")
    raise typer.Exit(EXIT_FAILED if failed else 0)


@app.command(
    "build",
    epilog="Examples:\n\n`parvibench reference build file.py:OBJECT --warmup 1000 --draws 1000`\n\n"
    "`parvibench reference build file.py:OBJECT --draws posterior.nc`\n\n"
    "`parvibench reference build file.py:OBJECT --draws output_*.csv`",
)
def reference_build(
    tasks: Annotated[list[str], Argument(help="Names of tasks; file.py:OBJECT for an unregistered one. Further files of --draws may follow.", autocompletion=names_of("task"))],
    method: Annotated[Literal["nuts", "hmc", "exact"] | None, Option(help="nuts (default), hmc (ChEES), or the exact sampler of the task.")] = None,
    warmup: Annotated[int | None, Option(help="Adaptation steps per chain (500).")] = None,
    target_acceptance: Annotated[float | None, Option(help="Acceptance rate at which NUTS aims (0.8); a higher one gives fewer divergences.")] = None,
    mass: Annotated[Literal["diagonal", "dense"] | None, Option(help="Mass matrix of NUTS: diagonal (default), or dense for strongly correlated coordinates.")] = None,
    start: Annotated[Literal["task", "pathfinder", "laplace"] | None, Option(help="First points of the chains: the task's (default), or draws of Pathfinder or Laplace fits, where chains from the task's start do not reach the bulk of the mass.")] = None,
    draws: Annotated[list[str] | None, Option(metavar="N|FILE", help="Draws per chain after warm-up (500), or a file of draws (repeatable).")] = None,
    chains: Annotated[int | None, Option(help="Number of chains (200).")] = None,
    stan_library: StanLibrary = None,
    columns: Annotated[str | None, Option(help="Columns of --draws FILE to use, as a,b,c, in the order of the task's coordinates.")] = None,
    variables: Annotated[str | None, Option(help="Variables of --draws FILE to use, as a,b.")] = None,
    samples: Annotated[int, Option(help="Sample size whose noise floors are built now (default: the task's number of particles); others are built when first needed.")] = 0,
    uncertified: Annotated[bool, Option("--uncertified", help="Write the reference of chains that fail a test too, marked with the failed tests.")] = False,
    folder: Annotated[Path | None, Option(help="Output folder. Default: ./parvibench-references; for built-in tasks the installed package.")] = None,
) -> None:  # fmt: skip
    """Build reference samples with noise floors and a certificate: seconds with exact draws, minutes with chains.

    Chains must pass tests of R-hat, effective sample size, divergences, agreement with a second method, and Stein
    identities; otherwise nothing is written unless --uncertified. Draws from files are tested as well, but also written if
    they fail: as "standard" where only the ESS falls short and exceeds 9,000, else as "not certified".
    """
    names, files, number = _sources(tasks, draws or [])
    options: dict[str, Any] = {
        "method": method, "warmup": warmup, "target_acceptance": target_acceptance, "draws": number, "chains": chains,
        "mass": mass, "start": start,
    }  # fmt: skip
    effort = {key: value for key, value in options.items() if value is not None}
    if files and effort:
        option = next(iter(effort)).replace("_", "-")
        raise InputError(f"--{option} applies to chains; with the draws of {files[0]} no chains are run")
    effort |= {"columns": listed(columns), "variables": listed(variables), "uncertified": uncertified}
    for name in names:
        _build(name, folder, files=files, samples=samples, **effort)


def _sources(tasks: list[str], draws: list[str]) -> tuple[list[str], list[Path], int | None]:
    """Names of tasks, files of draws, which may stand among these, and the number of draws of a chain."""
    names = [t for t in tasks if ":" in t or Path(t).suffix.lower() not in api.certify.FORMATS]
    files = [Path(d) for d in [*draws, *tasks] if not d.isdecimal() and d not in names]
    if not names or (files and len(names) > 1):
        raise InputError(f"reference build: name {'one task, as file.py:OBJECT' if files else 'a task'}")
    return names, files, next((int(d) for d in reversed(draws) if d.isdecimal()), None)


def _build(task: str, folder: Path | None, **options: Any) -> None:
    """Build a reference and print what was written; exit 1 where it is refused."""
    began = time.monotonic()
    try:
        with progress() as show:
            built = api.certify.build_reference(task, folder, notify=_announced(show), **options)
    except api.certify.Refused as refusal:
        note(str(refusal))
        raise typer.Exit(EXIT_FAILED) from None
    if built.read:
        note(f"read: {built.read}")
    for gate in built.gates:
        if not gate.passed:
            note(f"  {gate.name}: {gate.found}\n    -> {gate.advice}", style="yellow")
    note(f"{built.task}: {built.grade}: {built.path} ({time.monotonic() - began:.0f} s)")


def _announced(show: api.certify.Notify) -> api.certify.Notify:
    """Progress that also prints each new kind of work, with its forecast, once."""
    seen = set()

    def notify(text: str, done: int, total: int) -> None:
        if text not in seen:
            seen.add(text)
            note(f"  {text}")
        show(text, done, total)

    return notify


@app.command("floors", epilog="Example: `parvibench reference floors banana`")
def reference_floors(
    tasks: Annotated[list[str] | None, Argument(help="Names of tasks. Default: all with reference draws.", autocompletion=names_of("task"))] = None,
    metric: Annotated[list[str] | None, Option(help="Metric (repeatable). Default: all.", autocompletion=names_of("metric"))] = None,
    folder: Annotated[Path | None, Option(help="Folder of the references. Default: the installed package.")] = None,
) -> None:  # fmt: skip
    """Simulate the noise floors that references lack, for a new metric or sample size. The draws stay."""
    with progress() as show:
        for name, changed in api.certify.complete_floors(tasks or (), metric, folder, _announced(show)):
            note(f"{name}: {changed or 'complete'}")
