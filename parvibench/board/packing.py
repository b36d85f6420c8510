"""One file with a run's results: records and curves without samples, and the source of the plug-ins behind them.

A board's own results (``results.zip`` beside its page) and a submission have the same form::

    manifest.json               suite, profile, name, and the SHA-256 of all that is read below
    store.zip                   packed once, with the archive, since the files of cells are alike:
        store/runs/<id>.json        the run
        store/cells/<key>/...       records, curves of the metrics that a page draws, tracebacks
    points.parquet              of a board: numbers behind its pictures of samples, a row a number
    plugins/...                 source files of plug-ins, at the places that the records name

Files of the store may lie beside ``store.zip``, too. The same results give the same bytes. ``read`` is the only reader; it
treats every archive as untrusted, and extracts nothing.
"""

import contextlib
import importlib.util
import io
import re
import stat
import struct
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

import numpy as np
import pandas as pd
import psutil
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from parvibench.core import registry
from parvibench.core.errors import InputError, validation_text
from parvibench.core.result import CellRecord
from parvibench.harness.store import merging
from parvibench.harness.store.cell_files import checked_table, parquet, read_curve
from parvibench.harness.store.files import checked_json, parse_cell, read_text, sha256, write_atomically
from parvibench.harness.store.results import primary_metric
from parvibench.harness.store.store import CURVE_COLUMNS, RunRecord, Store

#: Limits of an archive: bytes packed or unpacked, files in it and in ``store.zip`` each, rows of all curves, memory to read it, bytes.
MOST_BYTES, MOST_FILES, MOST_ROWS, MOST_MEMORY = 25_000_000, 10_000, 2_000_000, 500_000_000
_MANIFEST, _POINTS, _STORE = "manifest.json", "points.parquet", "store.zip"
#: Metrics whose curves a page draws or counts by, besides the one that ranks a task.
_CURVES = ("rmse", "kl_knn", "contexts", "sequential_steps")
_POINT_TEXTS = ("figure", "label", "column")
#: Pattern of a name -> most bytes of such a file.
_KINDS = {
    re.escape(_MANIFEST): 4_000_000,
    re.escape(_POINTS): 20_000_000,
    re.escape(_STORE): MOST_BYTES,
    r"store/runs/[A-Za-z0-9][\w.-]{0,199}\.json": 8_000_000,
    r"store/cells/[0-9a-f]{24}/(cell\.json|curve\.parquet|traceback\.txt)": 1_000_000,
    r"plugins/([A-Za-z_]\w{0,99}/){0,5}[A-Za-z_]\w{0,99}\.py": 1_000_000,
}
#: End of central directory: signature, disks, files here and in all, size and place of the directory, length of a comment.
_END = struct.Struct("<4s4H2IH")
Line = Annotated[str, StringConstraints(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]


class Manifest(BaseModel):
    """``manifest.json``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    suite: str
    profile: str | None
    run: str  #: its id
    name: Line = ""  #: of the submission, for the page
    contact: Line = ""
    note: Annotated[str, StringConstraints(max_length=2000)] = ""
    versions: dict[Line, Line] = Field(default_factory=dict, max_length=50)  #: of packages, Python and the platform
    marks: dict[str, str] = Field(default_factory=dict)  #: of an accepted submission: cell key -> mark of its row
    files: dict[str, str]  #: every other file -> SHA-256

    @property
    def content(self) -> bytes:
        """The file."""
        return self.model_dump_json(indent=1, exclude=None if self.marks else {"marks"}).encode()

    @property
    def id(self) -> str:
        """16 hexadecimal digits of the content."""
        return sha256(self.content)[:16]


@dataclass(frozen=True)
class Archive:
    """The checked content of an archive: exactly the files that its run and its records name."""

    manifest: Manifest
    run: RunRecord
    records: Mapping[str, CellRecord]  #: by cell key
    curves: Mapping[str, pd.DataFrame]  #: likewise
    files: Mapping[str, bytes]  #: by name
    points: Mapping[str, pd.DataFrame]  #: by figure, in long form

    @property
    def sources(self) -> dict[str, bytes]:
        """The source files of plug-ins."""
        return {name: content for name, content in self.files.items() if name.startswith("plugins/")}

    def extract(self, key: str, store: Store) -> None:
        """Write the files of a cell into a store that is being made."""
        place = store.folder(key)
        place.mkdir(parents=True)
        for name, content in self.files.items():
            if name.startswith(f"store/cells/{key}/"):
                (place / name.rpartition("/")[2]).write_bytes(content)


def pack(
    store: Store,
    to: Path,
    *,
    run: RunRecord | None = None,
    sources: Mapping[str, bytes] | None = None,
    points: Mapping[str, pd.DataFrame] | None = None,
    **facts: object,
) -> Manifest:
    """Write the archive of a run of the store, by default the latest, without samples, into the file ``to``.

    ``sources`` are files of plug-ins by name, as of ``sources_of``, ``points`` those of ``Facts.points``, ``facts`` further
    fields of the manifest. ``InputError`` for a text that is too long, ``StoreError`` without a run or for damaged files.
    """
    run = run or store.run()
    with TemporaryDirectory() as folder:
        slim = Store(Path(folder) / "store")
        cells = [found for c in run.cells if (found := store.find(c.key))]
        ranking = {task: primary_metric([c for c in cells if c.task == task], task) for task in {c.task for c in cells}}
        curves = {task: (metric, *_CURVES) for task, metric in ranking.items()}
        merging.copy_run(store, run, slim, curves)
        files = {p.relative_to(folder).as_posix(): p.read_bytes() for p in slim.root.rglob("[!.]*") if p.is_file()}
    files |= sources or {}
    files |= {_POINTS: _packed_points(points)} if points else {}
    digests = {n: sha256(files[n]) for n in sorted(files)}
    of_run = {"suite": str(run.suite.get("name", "")), "profile": run.profile, "run": run.id, "files": digests}
    where = {k: str(run.provenance.get(k, "")) for k in ("python", "platform")}
    of_run["versions"] = {**(run.provenance.get("packages") or {}), **where}
    try:
        manifest = Manifest.model_validate(of_run | facts)
    except ValidationError as error:
        raise InputError(validation_text(error, model=Manifest)) from None
    alike = sorted((n for n in files if n.startswith("store/")), key=lambda n: (n.split("/")[-1], n))
    stored = _zipped({n: files.pop(n) for n in alike}, zipfile.ZIP_STORED)
    outer = {_MANIFEST: manifest.content, _STORE: stored} | dict(sorted(files.items()))
    write_atomically(to, _zipped(outer, zipfile.ZIP_DEFLATED))
    return manifest


def _zipped(files: Mapping[str, bytes], how: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, how)  # no times, no owners
    return buffer.getvalue()


def _packed_points(points: Mapping[str, pd.DataFrame]) -> bytes:
    parts = [t.melt(["label"], var_name="column").assign(figure=figure) for figure, t in points.items()]
    return parquet(pd.concat(parts).astype({"value": np.float32})[[*_POINT_TEXTS, "value"]])


def _points(content: bytes, most: int) -> dict[str, pd.DataFrame]:
    """The points of figures, as they were packed; ``InputError`` where columns of a method differ in length."""
    table = checked_table(content, _POINTS, (*_POINT_TEXTS, "value"), _POINT_TEXTS, most).to_pandas()
    found: dict[str, pd.DataFrame] = {}
    for figure, rows in table.groupby("figure", sort=False, observed=True):
        parts = []
        for label, own in rows.groupby("label", sort=False, observed=True):
            columns = {str(k): v.to_numpy() for k, v in own.groupby("column", sort=False, observed=True)["value"]}
            if len({len(v) for v in columns.values()}) > 1:
                raise InputError(f"{_POINTS}: columns of unequal length")
            parts.append(pd.DataFrame(columns).assign(label=str(label)))
        found[str(figure)] = pd.concat(parts, ignore_index=True)
    return found


def source_name(algorithm: str) -> str:
    """Name in an archive of the source of ``file.py:Class`` or ``module:Class``."""
    place = algorithm.rpartition(":")[0]
    return f"plugins/{place if place.endswith('.py') else place.replace('.', '/') + '.py'}"


def sources_of(records: Iterable[CellRecord]) -> dict[str, bytes]:
    """Source files of the records' plug-ins by name in the archive; ``InputError`` where one is gone, changed or elsewhere."""
    found: dict[str, bytes] = {}
    for record in records:
        if not record.spec.source or not registry.is_elsewhere(record.algorithm):
            continue
        name, place = source_name(record.algorithm), record.algorithm.rpartition(":")[0]
        if not _limit(name):
            raise InputError(
                f"{record.algorithm}: run it from the folder of its file, so that it is named without folders above"
            )
        path = Path(place)
        if not place.endswith(".py"):
            with contextlib.suppress(ImportError, ValueError):
                path = Path(getattr(importlib.util.find_spec(place), "origin", None) or "")
        content = path.read_bytes() if path.is_file() else b""
        if sha256(content) != record.spec.source:
            raise InputError(
                f"{record.algorithm}: its source is not here, or is not the one that was run; run {record.label} again "
                "in this folder"
            )
        found[name] = content
    return found


def read(path: Path) -> Archive:
    """The content of an archive, sizes checked before it is unpacked; ``InputError`` where it is not one of this form."""
    try:
        with _limited_memory():
            content = read_text(path, MOST_BYTES)
            files = _unpacked(content)
            manifest = Manifest.model_validate_json(files.pop(_MANIFEST, b""))
            for name in sorted(files.keys() | manifest.files.keys()):
                if manifest.files.get(name) != sha256(files.get(name, b"")):
                    raise InputError(f"{name[:200]!r} is not the file that the manifest lists")
            return _parsed(manifest, files)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    except Exception as error:  # whatever parsers make of bytes that anybody may have written
        reason = validation_text(error) if isinstance(error, ValidationError) else str(error) or type(error).__name__
        reason = "more memory than an archive may take" if isinstance(error, MemoryError) else reason
        raise InputError(f"{path}: no archive of results ({reason.splitlines()[0][:300]})") from None


def _limit(name: str) -> int:
    """Most bytes of a file of that name; 0 for a name that no archive has."""
    return next((most for pattern, most in _KINDS.items() if re.fullmatch(pattern, name, re.ASCII)), 0)


def _unpacked(content: bytes) -> dict[str, bytes]:
    """All files by name; ``InputError`` where names, kinds, sizes or their number are not allowed."""
    files = _members(content, MOST_BYTES)
    store = files.pop(_STORE, None)
    inner = {} if store is None else _members(store, MOST_BYTES - sum(map(len, files.values())))
    if twice := files.keys() & inner.keys():
        raise InputError(f"{min(twice)!r} occurs twice")
    return files | inner


def _members(content: bytes, room: int) -> dict[str, bytes]:
    """The files of one zip file, of at most ``room`` bytes together."""
    end = content[-_END.size :]
    plain = content.startswith(b"PK\3\4") and end.startswith(b"PK\5\6")  # no comment, nothing before
    if not plain or content[-_END.size - 20 :].startswith(b"PK\6\7"):  # a directory with 64-bit sizes
        raise InputError("not a plain zip file")
    _, _, _, _, count, size, _, _ = _END.unpack(end)
    if count > MOST_FILES or size > 400 * MOST_FILES:
        raise InputError(f"more than {MOST_FILES} files")
    found: dict[str, bytes] = {}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for entry in archive.infolist():
            name, mode = entry.filename, entry.external_attr >> 16
            most = _limit(name)
            if not most:
                raise InputError(f"{name[:200]!r} is no file of an archive of results")
            if name in found or (stat.S_IFMT(mode) and not stat.S_ISREG(mode)):
                raise InputError(f"{name!r} occurs twice, or is no plain file")
            if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise InputError(f"{name!r} is packed in another way than by deflate")
            with archive.open(entry) as file:
                found[name] = file.read(min(most, room) + 1)
            room -= len(found[name])
            if len(found[name]) > most or room < 0:
                raise InputError(f"{name!r} has more than {most} bytes, or all files more than {MOST_BYTES}")
    return found


def _parsed(manifest: Manifest, files: dict[str, bytes]) -> Archive:
    """The run, its records and curves; ``InputError`` for a file that none of them names."""
    place = f"store/runs/{manifest.run}.json"
    run = RunRecord.model_validate(checked_json(Path(place), files.get(place, b"")))
    if (run.id, run.suite["name"], run.profile) != (manifest.run, manifest.suite, manifest.profile):
        raise InputError("the manifest is that of another run")
    records: dict[str, CellRecord] = {}
    curves: dict[str, pd.DataFrame] = {}
    named = {place, *(source_name(c.algorithm) for c in run.cells if c.spec.source)}
    room = MOST_ROWS
    for cell in run.cells:
        folder = f"store/cells/{cell.key}"
        content = files.get(f"{folder}/cell.json", b"")
        if (not cell.sha256 and not content) or cell.key in records:
            continue
        record = parse_cell(Path(f"{folder}/cell.json"), content)
        if sha256(content) != cell.sha256 or record.spec != cell.spec:
            raise InputError(f"{folder}/cell.json is not the record of the run")
        for name, digest in record.files.items():
            if sha256(files.get(f"{folder}/{name}", b"")) != digest:
                raise InputError(f"{folder}/{name[:100]!r} is not the file of its record")
        curve = pd.DataFrame(columns=list(CURVE_COLUMNS))
        if "curve.parquet" in record.files:
            curve = pd.DataFrame(read_curve(files[f"{folder}/curve.parquet"], f"{folder}/curve.parquet", room))
        room -= len(curve)
        records[cell.key], curves[cell.key] = record, curve
        named |= {f"{folder}/{name}" for name in ("cell.json", *record.files)}
    points = _points(files[_POINTS], room) if _POINTS in files else {}
    if surplus := sorted(files.keys() - named - {_POINTS}):
        raise InputError(f"{surplus[0]!r}: no record names this file")
    return Archive(manifest, run, records, curves, files, points)


@contextlib.contextmanager
def _limited_memory() -> Iterator[None]:
    """At most ``MOST_MEMORY`` more bytes than now for this process (Linux); beyond, ``MemoryError``."""
    if not sys.platform.startswith("linux"):
        yield
        return
    import resource

    before = resource.getrlimit(resource.RLIMIT_DATA)
    most = psutil.Process().memory_info().data + MOST_MEMORY
    hard = before[1]
    resource.setrlimit(resource.RLIMIT_DATA, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
