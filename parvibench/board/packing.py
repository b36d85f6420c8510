"""One file with a run's results: records and curves without samples, and the source of the plug-ins behind them.

A board's own results (``results.zip`` beside its page) and a submission have the same form::

    manifest.json               what the archive holds, with the SHA-256 of every other file
    store/runs/<id>.json        the run
    store/cells/<key>/...       records, curves, tracebacks
    plugins/...                 source files of plug-ins, at the places that the records name

The same results give the same bytes. An archive of others is untrusted: it is read within limits of size and number, and
only files of these names leave it.
"""

import importlib.util
import io
import re
import stat
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from parvibench.core import registry
from parvibench.core.errors import InputError, validation_text
from parvibench.core.result import CellRecord
from parvibench.harness.store import merging
from parvibench.harness.store.files import sha256, write_atomically
from parvibench.harness.store.store import RunRecord, Store

#: Limits of an archive: bytes packed and unpacked, number of files.
MOST_PACKED, MOST_UNPACKED, MOST_FILES = 50_000_000, 500_000_000, 20_000
_MANIFEST = "manifest.json"
_NAMES = re.compile(
    r"store/runs/[A-Za-z0-9][\w.-]{0,199}\.json|store/cells/[0-9a-f]{24}/(cell\.json|curve\.parquet|traceback\.txt)"
    r"|plugins/([A-Za-z_]\w{0,99}/){0,5}[A-Za-z_]\w{0,99}\.py",
    re.ASCII,
)
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
    versions: dict[str, str] = Field(default_factory=dict)  #: of packages, Python and the platform
    files: dict[str, str]  #: every other file -> SHA-256

    @property
    def id(self) -> str:
        """16 hexadecimal digits of the content."""
        return sha256(self.model_dump_json(indent=1).encode())[:16]


@dataclass(frozen=True)
class Opened:
    """An archive whose files were checked and extracted."""

    manifest: Manifest
    store: Store  #: with the run
    plugins: Path  #: folder of the plug-ins' sources


def pack(
    store: Store, to: Path, *, run: RunRecord | None = None, sources: bool = True, name: str = "", contact: str = "",
    note: str = "",
) -> Manifest:  # fmt: skip
    """Write the archive of a run.

    Args:
        store: of the run; samples stay behind.
        to: file of the archive.
        run: by default the latest.
        sources: include the source files of plug-ins.
        name: of the submission, one line.
        contact: an address, or empty.
        note: further text, up to 2,000 characters.

    Raises:
        InputError: a text that is too long, or a plug-in whose source is gone, has changed since the run or lies outside
            the working directory.
        StoreError: no run, or damaged files.
    """
    run = run or store.run()
    with TemporaryDirectory() as folder:
        slim = Store(Path(folder) / "store")
        merging.copy_run(store, run, slim)
        records = [r for c in run.cells if (r := slim.usable(c.key)) is not None]
        files = {p.relative_to(folder).as_posix(): p.read_bytes() for p in slim.root.rglob("[!.]*") if p.is_file()}
    files |= _plugins(records) if sources else {}
    facts = run.provenance
    versions = {**(facts.get("packages") or {}), **{k: str(facts.get(k, "")) for k in ("python", "platform")}}
    digests = {n: sha256(files[n]) for n in sorted(files)}
    try:
        manifest = Manifest(
            suite=str(run.suite.get("name", "")), profile=run.profile, run=run.id, name=name, contact=contact,
            note=note, versions=versions, files=digests,
        )  # fmt: skip
    except ValidationError as error:
        raise InputError(validation_text(error, model=Manifest)) from None
    packed = {_MANIFEST: manifest.model_dump_json(indent=1).encode(), **{n: files[n] for n in digests}}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry, content in packed.items():
            archive.writestr(zipfile.ZipInfo(entry), content, zipfile.ZIP_DEFLATED)  # no times, no owners
    write_atomically(to, buffer.getvalue())
    return manifest


def _plugins(records: Iterable[CellRecord]) -> dict[str, bytes]:
    """The source files of the plug-ins, by their name in the archive."""
    found: dict[str, bytes] = {}
    for record in records:
        if not record.spec.source or not registry.is_elsewhere(record.algorithm):
            continue
        place = record.algorithm.rpartition(":")[0]
        path = Path(place) if place.endswith(".py") else _module_file(place)
        name = f"plugins/{PurePosixPath(place) if place.endswith('.py') else place.replace('.', '/') + '.py'}"
        if not _NAMES.fullmatch(name):
            raise InputError(
                f"{record.algorithm}: run it from the folder of its file, so that it is named without folders above"
            )
        content = path.read_bytes() if path is not None and path.is_file() else b""
        if sha256(content) != record.spec.source:
            raise InputError(
                f"{record.algorithm}: its source is not here, or is not the one that was run; run {record.label} again "
                "in this folder"
            )
        found[name] = content
    return found


def _module_file(module: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin) if spec is not None and spec.origin else None


@contextmanager
def opened(archive: Path) -> Iterator[Opened]:
    """Check an archive and extract it into a temporary folder.

    Raises:
        InputError: not an archive of this form: too large, unknown names, links, files that are not those of the manifest.
    """
    try:
        if archive.stat().st_size > MOST_PACKED:
            raise InputError(f"{archive}: more than {MOST_PACKED // 10**6} MB")
        with zipfile.ZipFile(archive) as packed:
            files = _contents(packed, archive)
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{archive}: cannot be read ({error.strerror or error})") from None
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise InputError(f"{archive}: no archive of results ({error})") from None
    try:
        manifest = Manifest.model_validate_json(files.pop(_MANIFEST, b""))
    except ValidationError as error:
        raise InputError(f"{archive}: {_MANIFEST}: {validation_text(error, model=Manifest)}") from None
    for name in sorted(files.keys() | manifest.files.keys()):
        if manifest.files.get(name) != sha256(files.get(name, b"")):
            raise InputError(f"{archive}: {name[:200]} is not the file that the manifest lists")
    with TemporaryDirectory() as folder:
        for name, content in files.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        yield Opened(manifest, Store(Path(folder) / "store"), Path(folder) / "plugins")


def _contents(packed: zipfile.ZipFile, archive: Path) -> dict[str, bytes]:
    """All files by name; ``InputError`` where names, kinds or sizes are not allowed."""
    entries = packed.infolist()
    if len(entries) > MOST_FILES:
        raise InputError(f"{archive}: more than {MOST_FILES} files")
    found: dict[str, bytes] = {}
    room = MOST_UNPACKED
    for entry in entries:
        name, mode = entry.filename, entry.external_attr >> 16
        if name != _MANIFEST and not _NAMES.fullmatch(name):
            raise InputError(f"{archive}: {name[:200]!r} is no file of an archive of results")
        if name in found or (stat.S_IFMT(mode) and not stat.S_ISREG(mode)):
            raise InputError(f"{archive}: {name} occurs twice, or is no plain file")
        with packed.open(entry) as file:
            found[name] = file.read(room + 1)
        room -= len(found[name])
        if room < 0:
            raise InputError(f"{archive}: more than {MOST_UNPACKED // 10**6} MB unpacked")
    return found
