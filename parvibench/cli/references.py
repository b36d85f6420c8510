"""Reference samples: ``reference build``, ``reference verify``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option

from parvibench.core import registry
from parvibench.core.errors import InputError
from parvibench.data.sample_formats import FORMATS

from .checking import progress
from .shared import EXIT_FAILED, Json, listed, names_of, note, out_console, print_json

app = typer.Typer(no_args_is_help=True, help="Reference samples: build and verify.")
_MARKS = {True: "[green]ok[/]", False: "[red]FAILED[/]", None: "[yellow]skipped[/]"}


@app.command("verify", epilog="Example: `parvibench reference verify banana`")
def reference_verify(
    tasks: Annotated[
        list[str] | None,
        Argument(help="Tasks; all with a reference when none is named.", autocompletion=names_of("task")),
    ] = None,
    as_json: Json = False,
) -> None:
    """Recompute the checks of the shipped references: exit code 1 when any fails."""
    from rich.markup import escape

    from parvibench.reference.checks import verify

    found = {}
    for name in tasks or filter(registry.has_reference, registry.tasks()):
        found[name] = verify(registry.load_task(name))
        for check in [] if as_json else found[name]:
            text = escape(f"{name}: {check.name} ({check.found})")
            out_console.print(f"{_MARKS[check.passed]} {text}", highlight=False, soft_wrap=True)
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
    tasks: Annotated[
        list[str],
        Argument(
            help="Tasks; a task of your own is file.py:OBJECT. Files after --draws may follow.",
            autocompletion=names_of("task"),
        ),
    ],
    method: Annotated[
        Literal["nuts", "hmc", "exact"] | None,
        Option(help="nuts (default), hmc (ChEES), or the task's exact sampler; for a task of your own."),
    ] = None,
    warmup: Annotated[int | None, Option(help="Steps of adaptation of every chain (500).")] = None,
    target_acceptance: Annotated[
        float | None,
        Option(help="Acceptance to which NUTS adapts its step length (0.8): nearer to 1, fewer divergences."),
    ] = None,
    draws: Annotated[
        list[str] | None,
        Option(metavar="N|FILE", help="Steps kept of every chain (500), or files of draws that you have."),
    ] = None,
    chains: Annotated[int | None, Option(help="Number of chains (200).")] = None,
    columns: Annotated[str | None, Option(help="Columns of --draws FILE, as a,b,c, in the order of the task.")] = None,
    variables: Annotated[str | None, Option(help="Variables of --draws FILE, as a,b.")] = None,
    folder: Annotated[
        Path | None,
        Option(help="Where to write; default: ./parvibench-references, for built-in tasks the installed package."),
    ] = None,
) -> None:
    """Make reference samples with their noise floors and certificates: some minutes per task.

    Chains are certified by R-hat, effective sizes, divergences, a second method and Stein identities, or refused with
    what would help. Draws that you bring are marked as not certified unless they pass the same gates.
    """
    from parvibench.reference.own_gates import Effort

    given = [d for d in draws or [] if not d.isdecimal()]
    names = [t for t in tasks if ":" in t or Path(t).suffix.lower() not in FORMATS]
    given += [t for t in tasks if t not in names]
    numbers = [int(d) for d in draws or [] if d.isdecimal()]
    if not names or (given and len(names) > 1):
        raise InputError(
            "reference build: name one task, as file.py:OBJECT" if given else "reference build: name a task"
        )
    options: dict[str, Any] = {
        "method": method,
        "warmup": warmup,
        "target_acceptance": target_acceptance,
        "draws": numbers[-1] if numbers else None,
        "chains": chains,
    }
    chosen = {key: value for key, value in options.items() if value is not None}
    if given and chosen:
        raise InputError(
            f"--{next(iter(chosen)).replace('_', '-')} is for chains that are run; draws from {given[0]} are there already"
        )
    for name in names:
        task = registry.load_task(name)
        row = registry.tasks().get(task.name)
        if row is not None and row.built_in and not chosen and not given:
            from parvibench.reference.build import build

            note(f"{name}: {build(task, folder)}")
            continue
        with progress() as show:
            if given:
                _from_draws(task, folder, given, columns, variables, show)
            else:
                _from_chains(task, folder, Effort(**chosen), show)


def _from_chains(task: Any, folder: Path | None, effort: Any, show: Any) -> None:
    """Write a reference from chains, or exit 1 with what would help."""
    from parvibench.reference.own import build_own
    from parvibench.reference.own_gates import Refused

    try:
        note(f"{task.name}: certified: {build_own(task, folder, effort, show)}")
    except Refused as refusal:
        note(str(refusal))
        raise typer.Exit(EXIT_FAILED) from None


def _from_draws(
    task: Any, folder: Path | None, given: list[str], columns: str | None, variables: str | None, show: Any
) -> None:
    """Write a reference from files, and say whether it is certified."""
    import torch

    from parvibench.data.arrays import Choice
    from parvibench.data.samples import read_draws
    from parvibench.evaluating import in_coordinates
    from parvibench.reference.own import build_from_draws

    paths = [Path(g) for g in given]
    found = read_draws(paths, Choice(listed(columns), listed(variables)))
    found = in_coordinates(found, task, "the draws")
    note("; ".join(found.read))
    x = torch.tensor(found.values)
    path, gates = build_from_draws(task, folder, x, show)
    for gate in gates:
        if not gate.passed:
            note(f"  {gate.name}: {gate.found}\n    -> {gate.advice}", style="yellow")
    note(f"{task.name}: {'certified' if all(g.passed for g in gates) else 'not certified'}: {path}")


@app.command("floors", epilog="Example: `parvibench reference floors banana`")
def reference_floors(
    tasks: Annotated[
        list[str] | None,
        Argument(help="Tasks; all with reference draws when none is named.", autocompletion=names_of("task")),
    ] = None,
    metric: Annotated[
        list[str] | None, Option(help="Metric; default: all. Repeatable.", autocompletion=names_of("metric"))
    ] = None,
    folder: Annotated[Path | None, Option(help="Where the references lie; default: the installed package.")] = None,
) -> None:
    """Simulate what the noise floors of shipped references lack, for a new metric or sample size; the draws stay."""
    from parvibench.reference.build import complete_floors

    for name in tasks or [name for name in registry.tasks() if registry.has_reference(name)]:
        task = registry.load_task(name)
        row = registry.tasks().get(task.name)
        if row is None or not row.built_in:
            raise InputError(
                f"{name}: the floors of a reference of your own are made with it, from draws that it does not keep; "
                f"`parvibench reference build {name}` makes both anew"
            )
        if tasks or task.reference() is not None:
            note(f"{name}: {complete_floors(task, folder, metric) or 'complete'}")
