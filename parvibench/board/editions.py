"""Editions: a state of the board under a name, such as ``2026.12``.

An edition lists the versions of tasks, methods and metrics, the SHA-256 of references and suite files, and that of the
published results. ``run --edition`` refuses what differs from it. Editions ship with the package; ``make edition`` writes
one.
"""

import json
import re
from collections.abc import Iterable, Sequence
from importlib.resources import files

from pydantic import BaseModel, ConfigDict

from parvibench import suites
from parvibench.core import reference_folders, registry
from parvibench.core.errors import InputError, UnknownNameError
from parvibench.harness.store.files import sha256
from parvibench.harness.suite.cells import Cell
from parvibench.harness.suite.suite import load_suite

from .terms import Terms, is_built_in

#: The shipped editions, and the pattern of their names.
FOLDER = files("parvibench.board") / "editions"
NAME = re.compile(r"\d{4}\.\d{2}")


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
    return sorted(f.name.removesuffix(".json") for f in FOLDER.iterdir() if f.name.endswith(".json"))


def load(name: str) -> Edition:
    """The edition of that name; ``UnknownNameError`` where there is none."""
    if name not in names():
        raise UnknownNameError("edition", name, names())
    return Edition.model_validate_json((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def differences(edition: Edition, suite: str, profile: str | None, cells: Sequence[Cell]) -> list[str]:
    """What of a run of the suite is not as in the edition, a line each.

    Versions and files are those of the edition, budget, replicates and settings those of the suite's file; of plug-ins, which
    are no part of an edition, only the protocol.
    """
    found = []
    if edition.suites.get(suite) != suite_digests().get(suite, "another file"):
        found.append(f"suite {suite}: another file")
    if suite in suites.shipped():
        terms = Terms(load_suite(suite).with_profile(profile))
        found += [f"{c.task} / {c.label}: {line}" for c in cells for line in terms.departures(c.spec, frozen=True)]
    references = reference_digests({c.task for c in cells})
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


def suite_digests() -> dict[str, str]:
    """SHA-256 of the shipped suite files."""
    return {name: sha256(file.read_bytes()) for name, file in suites.shipped().items()}


def reference_digests(tasks: Iterable[str]) -> dict[str, str]:
    """SHA-256 of the references that certificates name."""
    found = {}
    for task in sorted(tasks):
        files_ = [path for folder in reference_folders() if (path := folder / f"{task}.json").is_file()]
        if files_:
            found[task] = str(json.loads(files_[0].read_text(encoding="utf-8")).get("sha256", ""))
    return found
