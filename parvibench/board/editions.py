"""Editions: a state of the board under a name, such as ``2026.12``.

An edition lists the versions of tasks, methods and metrics, the SHA-256 of references and suite files, and that of the
published results. ``run --edition`` refuses what differs from it. Editions ship with the package; ``make edition`` writes
one, ``python -m parvibench.board.editions NAME REPORTS``.
"""

import json
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from parvibench import suites
from parvibench.core import reference_folders, registry
from parvibench.core.errors import InputError, UnknownNameError
from parvibench.harness.store.files import sha256
from parvibench.harness.suite.cells import Cell
from parvibench.harness.suite.suite import load_suite

from .terms import Terms, is_built_in

_FOLDER = files("parvibench.board") / "editions"
_NAME = re.compile(r"\d{4}\.\d{2}")


class Edition(BaseModel):
    """``<name>.json``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    edition: str
    parvibench: str  #: version of the package
    suites: dict[str, str]  #: name -> SHA-256 of its file
    tasks: dict[str, int]  #: name -> version
    references: dict[str, str]  #: task -> SHA-256 of its reference
    algorithms: dict[str, int]
    metrics: dict[str, int]
    results: dict[str, str]  #: suite -> SHA-256 of the published ``results.parquet``


def names() -> list[str]:
    """All editions, oldest first."""
    return sorted(f.name.removesuffix(".json") for f in _FOLDER.iterdir() if f.name.endswith(".json"))


def load(name: str) -> Edition:
    """The edition of that name; ``UnknownNameError`` where there is none."""
    if name not in names():
        raise UnknownNameError("edition", name, names())
    return Edition.model_validate_json((_FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def differences(edition: Edition, suite: str, profile: str | None, cells: Sequence[Cell]) -> list[str]:
    """What of a run of the suite is not as in the edition, a line each.

    Versions and files are those of the edition, budget, replicates and settings those of the suite's file; of plug-ins, which
    are no part of an edition, only the protocol.
    """
    found = []
    if edition.suites.get(suite) != _suite_digests().get(suite, "another file"):
        found.append(f"suite {suite}: another file")
    if suite in suites.shipped():
        terms = Terms(load_suite(suite).with_profile(profile))
        found += [f"{c.task} / {c.label}: {line}" for c in cells for line in terms.departures(c.spec, frozen=True)]
    references = _reference_digests({c.task for c in cells})
    for task in dict.fromkeys(c.task for c in cells):
        found += _other("task", task, edition.tasks, registry.tasks()[task].version if task in registry.tasks() else 0)
        if edition.references.get(task) != references.get(task):
            found.append(f"reference of {task}: another one")
    for name in dict.fromkeys(c.algorithm for c in cells if is_built_in(c.spec)):
        found += _other("method", name, edition.algorithms, registry.algorithms()[name].version)
    for name in dict.fromkeys(m for c in cells for m in c.metrics):
        found += _other("metric", name, edition.metrics, registry.metrics()[name].version)
    return found


def check(name: str, suite: str, profile: str | None, cells: Sequence[Cell]) -> None:
    """Raise ``InputError`` where a run is not as in the edition of that name."""
    edition = load(name)
    if found := differences(edition, suite, profile, cells):
        lines = "\n".join(f"  {line}" for line in found[:20])
        raise InputError(f"this is not edition {name}, which parvibench {edition.parvibench} has:\n{lines}")


def _other(kind: str, name: str, frozen: dict[str, int], here: int) -> list[str]:
    if name not in frozen:
        return [f"{kind} {name}: not in the edition"]
    return [] if frozen[name] == here else [f"{kind} {name}: version {frozen[name]} in the edition, {here} here"]


def freeze(name: str, reports: Path) -> Edition:
    """The edition of what is installed and of the results published in ``reports``."""
    if not _NAME.fullmatch(name):
        raise InputError(f"{name}: an edition is named by year and month, such as 2026.12")
    kinds = {"tasks": registry.tasks(), "algorithms": registry.algorithms(), "metrics": registry.metrics()}
    rows = {kind: {n: r.version for n, r in of.items() if r.built_in} for kind, of in kinds.items()}
    published = {p.parent.name: sha256(p.read_bytes()) for p in sorted(reports.glob("*/results.parquet"))}
    return Edition(
        edition=name, parvibench=version("parvibench"), suites=_suite_digests(),
        references=_reference_digests(rows["tasks"]), results=published, **rows,
    )  # fmt: skip


def _suite_digests() -> dict[str, str]:
    return {name: sha256(file.read_bytes()) for name, file in suites.shipped().items()}


def _reference_digests(tasks: Iterable[str]) -> dict[str, str]:
    """SHA-256 of the references that certificates name."""
    found = {}
    for task in sorted(tasks):
        files_ = [path for folder in reference_folders() if (path := folder / f"{task}.json").is_file()]
        if files_:
            found[task] = str(json.loads(files_[0].read_text(encoding="utf-8")).get("sha256", ""))
    return found


def _write(name: str, reports: Path) -> None:
    edition = freeze(name, reports)
    Path(str(_FOLDER)).mkdir(exist_ok=True)
    Path(str(_FOLDER / f"{name}.json")).write_text(edition.model_dump_json(indent=1) + "\n", encoding="utf-8")
    kept = reports / "editions" / name
    kept.mkdir(parents=True, exist_ok=True)
    for suite in edition.results:
        shutil.copyfile(reports / suite / "results.parquet", kept / f"{suite}.parquet")


if __name__ == "__main__":
    _write(sys.argv[1], Path(sys.argv[2]))
