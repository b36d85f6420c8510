"""Reference samples: ``reference build``, ``reference verify``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from parvibench.core import registry

from .shared import EXIT_FAILED, Json, note, out_console, print_json

app = typer.Typer(no_args_is_help=True, help="Reference samples: build and verify.")
_MARKS = {True: "[green]ok[/]", False: "[red]FAILED[/]", None: "[yellow]skipped[/]"}


@app.command("verify", epilog="Example: `parvibench reference verify banana`")
def reference_verify(
    tasks: Annotated[list[str] | None, Argument(help="Tasks; all with a reference when none is named.")] = None,
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


@app.command("build", epilog="Example: `parvibench reference build banana --folder references`")
def reference_build(
    tasks: Annotated[list[str], Argument(help="Tasks with an exact sampler, or a density for long chains.")],
    folder: Annotated[Path | None, Option(help="Where to write; default: the installed package.")] = None,
) -> None:
    """Make reference samples with their noise floors and certificates: about ten minutes per task."""
    from parvibench.reference.build import build

    for name in tasks:
        note(f"{name}: {build(registry.load_task(name), folder)}")


@app.command("floors", epilog="Example: `parvibench reference floors banana`")
def reference_floors(
    tasks: Annotated[list[str] | None, Argument(help="Tasks; all with reference draws when none is named.")] = None,
    metric: Annotated[list[str] | None, Option(help="Metric; default: all. Repeatable.")] = None,
    folder: Annotated[Path | None, Option(help="Where the references lie; default: the installed package.")] = None,
) -> None:
    """Simulate what the noise floors of references lack, for a new metric or sample size; the draws stay."""
    from parvibench.reference.build import complete_floors

    for name in tasks or [name for name in registry.tasks() if registry.has_reference(name)]:
        task = registry.load_task(name)
        if tasks or task.reference() is not None:
            note(f"{name}: {complete_floors(task, folder, metric) or 'complete'}")
