"""The outputs of the command line: for each option that names one, a command that writes it."""

import inspect
from collections.abc import Iterator
from typing import Any, get_type_hints

import typer.main

from parvibench.cli import app

_SMALL = "--replicates 2 --particles 5 --budget iterations=5 --workers 0 --quiet"
#: Command and option -> words; {} is the output, ``store`` a small store, ``suite.yaml`` a suite with a grid.
FOLDERS = {
    "run --out": f"run -t multimodal -a ula {_SMALL} --out {{}}",
    "tune --out": "tune suite.yaml --workers 0 --write tuned.yaml --out {}",
    "report --to": "report --out store --to {}",
    "merge --out": "merge store --out {}",
    "merge --to": "merge store --out merged --to {}",
    "compare --to": "compare store store --to {}",
    "calibrate --out": "calibrate target.py:wide -a mala --out {}",
    "evaluate --out": "evaluate draws.npy --task multimodal --cost score_evaluations=9 --out {}",
    "new --to": "new algorithm mine --to {}",
    "reference build --folder": "reference build target.py:wide --method exact --folder {}",
    "reference floors --folder": "reference floors multimodal --folder {}",
    "accept --out": "accept mine.zip --out {}",
}
FILES = {
    "tune --write": "tune suite.yaml --workers 0 --out tuning --write {}",
    "check --baseline": "check -a ula -t multimodal --iterations 20 --workers 0 --update --yes --baseline {}",
    "show --figure": "show task banana --figure {}",
    "submit --to": "submit store --name mine --to {}",
}
#: What a report is written over: folders that must be there, whose file ``index.html`` is checked.
REPORTS = {"report --index": "report --index {}", "report --board": "report --board {}"}
#: Options and arguments that name what is read.
READ = {
    "run --stan-library", "tune --stan-library", "report --stan-library", "report --out", "merge STORES", "check --stan-library",
    "compare --out", "calibrate --simulator", "evaluate SAMPLES", "evaluate --reference", "evaluate --stan-library", "show --stan-library", "ui --out", "sync --out",
    "submit STORE", "verify STORE", "accept ARCHIVE", "accept --container", "accept --reports", "reference build --stan-library",
}  # fmt: skip


def path_options(command: Any = None, name: str = "") -> Iterator[str]:
    """Every command with an option or argument that is a path."""
    command = command or typer.main.get_command(app)
    for sub, found in getattr(command, "commands", {}).items():
        yield from path_options(found, f"{name} {sub}".strip())
    hints = get_type_hints(inspect.unwrap(command.callback)) if getattr(command, "params", ()) and name else {}
    for given in getattr(command, "params", ()):
        if "Path" in str(hints.get(given.name)):
            option = given.opts[0] if given.opts[0].startswith("-") else given.name.upper()
            yield f"{name} {option}"
