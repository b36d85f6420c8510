"""Acceptance of a submission by the rules of a board, and the board as one store: its own results and those accepted.

A board is a published report's folder: ``results.zip``, its own results, and ``submissions/<id>.zip``, one archive for each
accepted submission, which this program writes. Rows of built-in methods are those of reruns here, whatever a
submission says of them. Rows of plug-ins are those of the submission, checked for their form.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

from parvibench.core import registry
from parvibench.core.errors import InputError, RefusedError
from parvibench.core.result import CellRecord, Status
from parvibench.harness.execution import Execution
from parvibench.harness.session import make_executor, now, run_cells
from parvibench.harness.store.environment import provenance
from parvibench.harness.store.files import sha256
from parvibench.harness.store.store import RunCell, RunRecord, Store
from parvibench.harness.suite.suite import stored_suite

from .packing import Archive, Manifest, pack, read, source_name
from .terms import Terms, is_built_in, is_plugin, same

RESULTS, SUBMISSIONS = "results.zip", "submissions"  #: A board's own results, and the folder of accepted ones.
#: Marks of rows: computed here; computed by the maintainers' run of the plug-in in a container; as submitted.
VERIFIED, RERUN, UNVERIFIED = "verified", "rerun", "unverified"
_LISTED = 10
_COUNTS = ("replicate", "checkpoint", "iteration", "score_evaluations", "seconds")


@dataclass(frozen=True)
class Accepted:
    """A submission that may enter a board, or is there already."""

    path: Path  #: its place on the board
    content: bytes  #: the archive
    archive: Archive  #: what it holds

    @property
    def manifest(self) -> Manifest:
        """Its manifest."""
        return self.archive.manifest


def accept(
    archive: Path, board: Path, reruns: Store, execution: Execution, *, container: Path | None = None
) -> Accepted:  # fmt: skip
    """Check an untrusted submission by the board's rules, run its built-in methods again, and make the archive for the board.

    Nothing is written into the folder ``board``; what the store ``reruns`` holds is not run again. The results in the archive
    ``container``, of the maintainers' run of its plug-ins, replace the submitted ones. ``InputError`` for no archive of
    results, or one that breaks the board's rules, each of which is listed; ``RefusedError`` where the reruns were stopped.
    """
    theirs = read(archive)
    path = board / SUBMISSIONS / f"{theirs.manifest.id}.zip"
    if path.is_file():
        return Accepted(path, path.read_bytes(), read(path))
    own = _own(board).run
    terms = Terms(stored_suite(own.suite))
    if lines := _broken_rules(theirs, board, terms, own.profile):
        more = [f"... and {len(lines) - _LISTED} more"] if len(lines) > _LISTED else []
        raise InputError("\n  ".join([f"{archive}: the board's rules:", *lines[:_LISTED], *more]))
    other = None if container is None else read(container)
    found: dict[str, tuple[CellRecord, pd.DataFrame, str]] = {}
    for cell in theirs.run.cells:
        if is_built_in(cell.spec):
            continue
        record, curve, mark = theirs.records[cell.key], theirs.curves[cell.key], UNVERIFIED
        if other is not None and cell.key in other.records:
            record, curve, mark = other.records[cell.key], other.curves[cell.key], RERUN
        if wrong := _malformed(record, curve):
            raise InputError(f"{archive}: {cell.task} / {cell.label}: {wrong}")
        found[cell.key] = _plain(record), curve, mark
    ours = _rerun(theirs, terms, reruns, execution)
    with TemporaryDirectory() as folder:
        store = Store(Path(folder) / "store")
        cells, marks = [], {}
        for cell in theirs.run.cells:
            if again := ours.get(cell.key):
                record, curve, mark = again, reruns.curve(again.key), VERIFIED
            else:
                record, curve, mark = found[cell.key]
            store.write_cell(record.model_copy(update={"label": cell.label}), curve)
            cells.append(RunCell(spec=record.spec, label=cell.label))
            marks[record.key] = mark
        run = RunRecord(
            id=theirs.run.id, suite=terms.suite.resolved(), profile=own.profile, cells=cells, provenance=provenance("", "cpu"),
            started=now(), finished=now(),
        )  # fmt: skip
        store.write_run(run)
        kept = theirs.manifest.model_dump(include={"name", "contact", "note"})
        file = Path(folder) / "accepted.zip"
        pack(store, file, run=run, sources=theirs.sources, marks=marks, **kept)
        return Accepted(path, file.read_bytes(), read(file))


def _rerun(theirs: Archive, terms: Terms, store: Store, execution: Execution) -> dict[str, CellRecord]:
    """Key of a submitted cell of a built-in method -> the record of its rerun, from the suite's terms alone."""
    todo = {
        c.key: next(cell for cell in terms.again(c.spec) if same(cell, c.spec))
        for c in theirs.run.cells if is_built_in(c.spec)
    }  # fmt: skip
    if todo:
        cells = list({cell.key: cell for cell in todo.values()}.values())
        run_cells(cells, store, make_executor(execution, "cpu"), suite=terms.suite.resolved())
    found = {key: store.usable(cell.key) for key, cell in todo.items()}
    stopped = [r for r in found.values() if r is None or r.status in (Status.INTERRUPTED, Status.SKIPPED)]
    if stopped:
        why = next((r.reason for r in stopped if r is not None), "")
        raise RefusedError(
            f"not run again: {len(stopped)} of {len(found)} cells; the same command resumes. {why}".strip()
        )
    return {key: record for key, record in found.items() if record is not None}


def _broken_rules(theirs: Archive, board: Path, terms: Terms, profile: str | None) -> list[str]:
    """The rules of a board that a submission breaks, a line each."""
    name = theirs.manifest.name
    if not name.strip():
        return ["it has no name: parvibench submit STORE --name NAME"]
    if name in {read(p).manifest.name for p in (board / SUBMISSIONS).glob("*.zip")}:
        return [f"a submission named {name} is on the board already: choose another name"]
    return broken(theirs.run, theirs.sources, terms, profile) or ([] if theirs.run.cells else ["it has no rows"])


def broken(run: RunRecord, sources: Mapping[str, bytes], terms: Terms, profile: str | None) -> list[str]:
    """The rules that the rows of a run break, a line each; the rules of names and archives come on top."""
    if run.profile != profile:
        return [f"profile {run.profile}; the board has profile {profile}"]
    lines = []
    for cell in run.cells:
        where, spec = f"{cell.task} / {cell.label}"[:200], cell.spec
        why = terms.departures(spec)
        if not cell.label.isprintable() or len(cell.label) > 80:
            why.append("a label is one line of at most 80 characters")
        if cell.label in registry.algorithms() and cell.label != spec.algorithm:
            why.append("the label is the name of another method of the package")
        if not is_built_in(spec):
            if not is_plugin(spec):
                why.append("neither a method of the package nor file.py:Class or module:Class with its source")
            elif sha256(sources.get(source_name(spec.algorithm), b"")) != spec.source:
                why.append("its source in the archive is not the one that ran")
            if not cell.sha256:
                why.append("it has no result")
        lines += [f"{where}: {line}" for line in why]
    return lines


def _plain(record: CellRecord) -> CellRecord:
    """A record of others with numbers alone: no texts of theirs but a short reason."""
    gone = {"flags", "traceback", "absent", "overheads", "process", "files", "tuned", "start", "metrics_key", "created"}
    kept = record.model_dump(exclude=gone | {"spec", "key", "sha256", "worst"})
    short = {name: "".join(c for c in kept[name][:200] if c.isprintable()) for name in ("reason", "hardware")}
    return CellRecord.model_validate(kept | short | {"spec": record.spec})


def _malformed(record: CellRecord, curve: pd.DataFrame) -> str:
    """Why a record and curve of others cannot be shown, or empty."""
    ids, lost = set(record.spec.replicates), len(record.diverged)
    numbers = (record.iterations, record.score_evaluations, record.seconds, record.drift, record.effective_step or 0.0)
    if record.kind not in ("particles", "chains", "generator"):
        return f"kind {record.kind[:40]!r}"
    if not all(math.isfinite(x) and x >= 0 for x in numbers):
        return "a cost that is negative or not finite"
    if not record.diverged.keys() <= ids or record.n_diverged != lost or (record.status, lost) == (Status.OK, len(ids)):
        return "replicates that diverged do not fit its status"
    for name, values in {**record.values, **record.judged}.items():
        named = name.isascii() and name.isidentifier() and len(name) <= 60  # statistics of a step may have any name
        if not named or len(values) != len(ids) or not all(v is None or math.isfinite(v) for v in values):
            return f"{name[:40]!r} has no name of a metric, or not one finite number for each replicate"
    counts = curve[list(_COUNTS)].to_numpy(dtype=np.float64)
    known = {*record.values, *record.absent, *_COUNTS}
    inside = set(curve["replicate"]) <= ids and set(curve["metric"]) <= known
    if not inside or not np.isfinite(counts).all() or (counts < 0).any():
        return "a curve with other replicates or metrics, or with numbers that are not finite"
    return "two values of one checkpoint" if curve.duplicated(["replicate", "checkpoint", "metric"]).any() else ""


def _own(board: Path) -> Archive:
    """A board's own results."""
    if (board / RESULTS).is_file():
        return read(board / RESULTS)
    raise InputError(
        f"{board}: no {RESULTS}; publish a run there: parvibench report --out STORE --to {board} --compact"
    )


def assemble(
    board: Path, into: Path, new: Accepted | None = None
) -> tuple[Store, dict[str, str], dict[str, pd.DataFrame]]:
    """The board as a store, for its page: its own rows, then those of submissions; cell key -> mark of the latter; its points.

    Rows of a submission whose results the board has already are left out. ``new`` is a submission that is not there yet.
    ``InputError`` without ``results.zip``, or for a damaged archive.
    """
    store, own = Store(into), _own(board)
    for key in own.records:
        own.extract(key, store)
    cells, held = list(own.run.cells), {c.key for c in own.run.cells}
    marks: dict[str, str] = {}
    archives = {p: read(p) for p in sorted((board / SUBMISSIONS).glob("*.zip"))}
    for archive in (archives if new is None else archives | {new.path: new.archive}).values():
        for cell in archive.run.cells:
            if cell.key in held or cell.key not in archive.records:
                continue
            held.add(cell.key)
            archive.extract(cell.key, store)
            cells.append(cell.model_copy(update={"label": f"{cell.label} ({archive.manifest.name})"}))
            marks[cell.key] = archive.manifest.marks.get(cell.key, UNVERIFIED)
    store.write_run(own.run.model_copy(update={"cells": cells}))
    return store, marks, dict(own.points)
