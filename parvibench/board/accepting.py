"""Judging a submission by the rules of a board, and the board as one store: its own results and those accepted.

A board is a published report's folder: ``results.zip``, its own results, and ``submissions/<id>.zip`` with
``submissions/<id>.json``, the outcome of the verification of each. A submission's rows bear its name.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from parvibench.core import registry
from parvibench.core.errors import InputError, RefusedError
from parvibench.core.result import CellSpec
from parvibench.harness import verification
from parvibench.harness.execution import Execution
from parvibench.harness.store.files import write_atomically
from parvibench.harness.store.results import StoredRun
from parvibench.harness.store.store import RunCell, RunRecord, Store
from parvibench.harness.verification import Check, Verification

from .packing import Manifest, Opened, opened

#: A board's own results, and the folder of accepted ones.
RESULTS, SUBMISSIONS = "results.zip", "submissions"
_LISTED = 10


class Terms(NamedTuple):
    """What all rows of a task share on a board; settings are free."""

    budget: str
    samples: int
    replicates: int
    seed: int
    dtype: str
    contexts: int | None

    @classmethod
    def of(cls, spec: CellSpec) -> Terms:
        """The terms of a cell."""
        limits = {k: v for k, v in spec.budget.model_dump().items() if v is not None}
        budget = ", ".join(f"{k} {v:g}" for k, v in limits.items())
        return cls(budget, spec.samples, len(spec.replicates), spec.seed, spec.dtype, spec.contexts)


@dataclass(frozen=True)
class Accepted:
    """A submission that entered a board."""

    manifest: Manifest
    verification: Verification
    marks: dict[tuple[str, str], str]  #: (task, label) -> ``verified``, ``unverified`` or ``external``
    files: tuple[Path, Path]  #: the archive and the outcome in the board's folder


def accept(
    archive: Path, board: Path, terms: Mapping[str, Set[Terms]], profile: str | None, execution: Execution, *,
    replicates: int, run_plugins: bool = False,
) -> Accepted:  # fmt: skip
    """Verify a submission and put it into the board's folder.

    Args:
        archive: of the submission; untrusted.
        board: folder of the suite's published report.
        terms: those of the suite's rows, by task.
        profile: of the board.
        execution: workers and limits of the reruns.
        replicates: about how many to run again.
        run_plugins: run its plug-ins, too, in a sandbox.

    Raises:
        InputError: no archive of results, or one that breaks the board's rules; each is listed.
        RefusedError: cells that differ from reruns here; each is listed.
    """
    with opened(archive) as found:
        broken = _broken_rules(found, board, terms, profile)
        if broken:
            raise InputError(f"{archive}: the board's rules:\n" + _list(broken))
        plugins = found.plugins if run_plugins else None
        checked = verification.verify(found.store, replicates, execution, plugins=plugins)
        if checked.falsified:
            first = {(c.task, c.label): c for c in reversed(checked.falsified)}
            cells = [f"{c.task} / {c.label}{_of(c)}: {c.reason.partition('; ')[0]}" for c in first.values()]
            raise RefusedError(f"{archive}: refused, these cells differ from reruns here:\n" + _list(cells))
        marks = verification.marks_of(StoredRun.load(found.store), checked.checks)
    folder = board / SUBMISSIONS
    folder.mkdir(exist_ok=True)
    manifest = found.manifest
    outcome = {"id": manifest.id, **manifest.model_dump(exclude={"files"}), "verification": checked.document()}
    files = folder / f"{manifest.id}.zip", folder / f"{manifest.id}.json"
    write_atomically(files[0], archive.read_bytes())
    write_atomically(files[1], json.dumps(outcome, indent=1).encode())
    return Accepted(manifest, checked, marks, files)


def _of(check: Check) -> str:
    return "" if check.replicate is None else f", replicate {check.replicate}"


def _list(lines: list[str]) -> str:
    more = [f"... and {len(lines) - _LISTED} more"] if len(lines) > _LISTED else []
    return "\n".join(f"  {line}" for line in [*lines[:_LISTED], *more])


def _broken_rules(found: Opened, board: Path, terms: Mapping[str, Set[Terms]], profile: str | None) -> list[str]:
    """What a board does not take, a line each."""
    manifest, run = found.manifest, found.store.run()
    if not manifest.name.strip():
        return ["it has no name: parvibench submit STORE --name NAME"]
    if (board / SUBMISSIONS / f"{manifest.id}.zip").exists():
        return [f"submission {manifest.id} is on the board already"]
    if manifest.profile != profile:
        return [f"profile {manifest.profile}: the board has profile {profile}"]
    lines = []
    for cell in run.cells:
        lines += [f"{cell.task} / {cell.label}: {why}" for why in _broken_by(cell, terms)]
    return lines or ([] if run.cells else ["it has no rows"])


def _broken_by(cell: RunCell, terms: Mapping[str, Set[Terms]]) -> list[str]:
    task = registry.tasks().get(cell.task)
    if cell.task not in terms or task is None:
        return ["no task of this board"]
    if cell.spec.task_version != task.version:
        return [f"version {cell.spec.task_version} of the task; the board has {task.version}"]
    asked, mine = sorted(terms[cell.task], key=str), Terms.of(cell.spec)
    if mine in asked:
        return []
    wrong = [(n, getattr(mine, n), {getattr(t, n) for t in asked}) for n in Terms._fields]
    return [
        f"{name} {value}; the board has {' or '.join(sorted(map(str, allowed)))}"
        for name, value, allowed in wrong if value not in allowed
    ]  # fmt: skip


def assemble(board: Path, into: Path) -> Store:
    """The board as a store, for its page: its own rows, then those of submissions, with their marks.

    Rows of a submission whose results the board has already are left out.

    Raises:
        InputError: no ``results.zip``, or a damaged archive.
    """
    if not (board / RESULTS).is_file():
        raise InputError(
            f"{board}: no {RESULTS}; publish a run there: parvibench report --out STORE --to {board} --compact"
        )
    store = Store(into)
    own = _moved(board / RESULTS, store)[1]
    cells = {c.key: c for c in own.cells}
    checks = [Check(c.task, c.label, None, verification.OWN, "", store.digest(c.key)) for c in own.cells]
    for archive in sorted((board / SUBMISSIONS).glob("*.zip")):
        manifest, run = _moved(archive, store)
        new = [c for c in run.cells if c.key not in cells]
        cells |= {c.key: c.model_copy(update={"label": f"{c.label} ({manifest.name})"}) for c in new}
        outcome = json.loads(archive.with_suffix(".json").read_text(encoding="utf-8"))["verification"]
        checks += [Check(**c | {"label": f"{c['label']} ({manifest.name})"}) for c in outcome["checks"]]
    store.write_run(own.model_copy(update={"cells": list(cells.values())}))
    verification.keep(Verification(own.id, tuple(checks), {}, 0), store.root)
    return store


def _moved(archive: Path, store: Store) -> tuple[Manifest, RunRecord]:
    """An archive's cells moved into a store, where it has none of that key."""
    with opened(archive) as found:
        for cell in (found.store.root / "cells").glob("*"):
            place = store.folder(cell.name)
            if not place.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(cell, place)
        return found.manifest, found.store.run()
