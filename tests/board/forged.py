"""Archives written to deceive or to harm: one honest submission, changed in one way each.

A kind changes the files of the archive (names to bytes), which are then sealed again, or the bytes of the zip file itself.
Everything is harmless: the sources only raise, and the large files are zeros.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
import re
import stat
import struct
import warnings
import zipfile
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from parvibench.core.result import CellSpec

Files = dict[str, bytes]
EVIL = b"raise SystemError('code of an archive was run')\n"


def unpacked(content: bytes) -> Files:
    """The files of an archive."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    inner = files.pop("store.zip", b"")
    return files | (unpacked(inner) if inner else {})


def packed(files: Files, *, how: Callable[[zipfile.ZipInfo], None] = lambda entry: None) -> bytes:
    """An archive of these files; ``how`` changes the entries."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            how(entry)
            archive.writestr(entry, content)
    return buffer.getvalue()


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def key_of(spec: dict[str, Any]) -> str:
    """The key of a specification, as the product computes it: a forger can do that, too."""
    return CellSpec.model_validate(spec).key


def sealed(document: dict[str, Any]) -> bytes:
    """JSON with its own digest."""
    plain = json.dumps({k: v for k, v in document.items() if k != "sha256"} | {"sha256": ""}).encode()
    return plain[:-2] + sha(plain).encode() + plain[-2:]


class Forger:
    """The parts of an archive, and their sealing."""

    def __init__(self, files: Files) -> None:
        self.files = dict(files)
        self.manifest = json.loads(files["manifest.json"])
        (self.run_name,) = [n for n in files if "/runs/" in n]
        self.run = json.loads(files[self.run_name])
        self.cells = {n.split("/")[2]: json.loads(c) for n, c in files.items() if n.endswith("cell.json")}

    def key(self, label: str) -> str:
        return next(k for k, c in self.cells.items() if c["label"] == label)

    def cell(self, label: str) -> dict[str, Any]:
        return self.cells[self.key(label)]

    def curve(self, label: str, table: pa.Table | bytes) -> None:
        buffer = io.BytesIO()
        if isinstance(table, pa.Table):
            pq.write_table(table, buffer)
        self.files[f"store/cells/{self.key(label)}/curve.parquet"] = buffer.getvalue() or table

    def table(self, label: str) -> pa.Table:
        return pq.read_table(io.BytesIO(self.files[f"store/cells/{self.key(label)}/curve.parquet"]))

    def respec(self, label: str, **changes: Any) -> None:
        """Another specification, with its right key, in record and run."""
        old = self.key(label)
        record = self.cells.pop(old)
        before = dict(record["spec"])
        record["spec"] = {**before, **changes}
        new = key_of(record["spec"])
        record["spec"]["key"] = new
        self.cells[new] = record
        for name in [n for n in self.files if f"/{old}/" in n]:
            self.files[name.replace(old, new)] = self.files.pop(name)
        for cell in self.run["cells"]:
            if cell["spec"]["key"] == old:
                cell["spec"] = record["spec"]

    def relabel(self, label: str, new: str) -> None:
        key = self.key(label)
        self.cells[key]["label"] = new
        for cell in self.run["cells"]:
            if cell["spec"]["key"] == key:
                cell["label"] = new

    def scale(self, label: str, factor: float) -> None:
        """All metrics of a cell times a factor, in record and curve."""
        record, table = self.cell(label), self.table(label).to_pandas()
        record["values"] = {m: [None if v is None else v * factor for v in vs] for m, vs in record["values"].items()}
        table["value"] *= factor
        self.curve(label, pa.Table.from_pandas(table, preserve_index=False))

    def sealed(self) -> Files:
        """All files, with digests that fit."""
        files = {n: c for n, c in self.files.items() if n != "manifest.json" and not n.endswith("cell.json")}
        for key, record in self.cells.items():
            beside = {n.split("/")[-1]: sha(c) for n, c in files.items() if f"/cells/{key}/" in n}
            files[f"store/cells/{key}/cell.json"] = sealed(record | {"files": beside})
        for cell in self.run["cells"]:
            content = files.get(f"store/cells/{cell['spec']['key']}/cell.json", b"")
            cell["sha256"] = sha(content) if content else ""
        files[self.run_name] = sealed(self.run)
        manifest = self.manifest | {"files": {n: sha(files[n]) for n in sorted(files)}}
        return {"manifest.json": json.dumps(manifest).encode(), **files}


Change = Callable[[Forger], None]


def cell(label: str = "mine", **fields: Any) -> Change:
    return lambda f: f.cell(label).update(fields)


def spec(label: str = "mine", **fields: Any) -> Change:
    return lambda f: f.respec(label, **fields)


def values(value: Any) -> Change:
    """Every value of the plug-in's first metric."""

    def change(f: Forger) -> None:
        record = f.cell("mine")
        name = next(iter(record["values"]))
        record["values"][name] = value(record["values"][name])

    return change


def imposter(f: Forger) -> None:
    """A forged plug-in under a built-in's label, next to that built-in."""
    f.scale("mine", 0.1)
    f.relabel("mine", "mala")


def other_builtin(f: Forger) -> None:
    f.scale("mine", 0.1)
    f.relabel("mine", "svgd")


def claimed_builtin(f: Forger) -> None:
    """Forged results of a plug-in that is said to be a built-in method."""
    f.scale("mine", 0.1)
    f.respec("mine", algorithm="ula", source="")


def sourced_builtin(f: Forger) -> None:
    f.scale("mala", 0.1)
    f.respec("mala", source="0" * 64)


def surplus_cell(f: Forger) -> None:
    f.run["cells"] = [c for c in f.run["cells"] if c["label"] != "mine"]


def twice(f: Forger) -> None:
    f.run["cells"].append(dict(f.run["cells"][0]))


def many_rows(f: Forger) -> None:
    """Fifty million equal rows in some kilobytes."""
    table, buffer = f.table("mine"), io.BytesIO()
    rows = table.take(pa.array([0] * 1_000_000))
    with pq.ParquetWriter(buffer, table.schema, compression="zstd") as writer:
        for _ in range(50):
            writer.write_table(rows)
    f.curve("mine", buffer.getvalue())


def long_texts(f: Forger) -> None:
    table = f.table("mine").to_pandas()
    table["metric"] = "m" * 2_000_000
    f.curve("mine", pa.Table.from_pandas(table.head(20), preserve_index=False))


def curve_of_others(f: Forger) -> None:
    table = f.table("mine").to_pandas()
    table["replicate"] += 10_000_000
    table["checkpoint"] -= 5
    f.curve("mine", pa.Table.from_pandas(table, preserve_index=False))


def nested(f: Forger) -> None:
    f.run["suite"]["deep"] = json.loads("[" * 500 + "]" * 500)


def extra(name: str, content: bytes = EVIL) -> Change:
    return lambda f: f.files.update({name: content})


def other_source(f: Forger) -> None:
    f.files["plugins/mine.py"] = b"# harmless\n"


def many_settings(f: Forger) -> None:
    f.respec("mine", settings={f"s{i}": i for i in range(200_000)})


def run_id(text: str) -> Change:
    def change(f: Forger) -> None:
        f.run["id"] = f.manifest["run"] = text

    return change


def held_by_board(f: Forger) -> None:
    """A cell of the board under a name of its own, with better values."""
    f.respec("mala", algorithm="ula")
    f.scale("mala", 0.1)


def manifest(**fields: Any) -> Change:
    return lambda f: f.manifest.update(fields)


#: Kind -> change of the parts; the archive is sealed afterwards.
SEALED: dict[str, Change] = {
    "a forged plug-in labelled as the built-in beside it": imposter,
    "a label that names another built-in": other_builtin,
    "a cell listed twice": twice,
    "results of a plug-in under a built-in's name": claimed_builtin,
    "a built-in with a source": sourced_builtin,
    "a built-in's values times 0.1": lambda f: f.scale("mala", 0.1),
    "a cell of the board, improved": held_by_board,
    "another source than the one that ran": other_source,
    "a further file beside the plug-in": extra("plugins/sitecustomize.py"),
    "a package that covers ours": extra("plugins/parvibench/__init__.py"),
    "a cell that the run does not list": surplus_cell,
    "a plug-in of kind anchor": cell(kind="anchor"),
    "a kind that does not exist": cell(kind="<b>oracle</b>"),
    "one replicate": spec(replicates=[0]),
    "replicates chosen by their results": spec(replicates=[7, 11, 13, 17, 19, 23]),
    "a larger budget": spec(budget={"iterations": 10**9}),
    "a budget of four thousand digits": spec(budget={"iterations": 10**4000}),
    "started at draws of the reference": spec(start="warm"),
    "a thousand million particles": spec("mala", particles=10**9),
    "a setting that does not exist": spec("mala", settings={"step_size": 0.1, "oracle": True}),
    "a step size that is no number": spec("mala", settings={"step_size": "nan"}),
    "200,000 settings": many_settings,
    "infinite and missing values": values(lambda v: [float("inf"), None, *v[2:]]),
    "values of fewer replicates": values(lambda v: v[:1]),
    "values of two million replicates": values(lambda v: v * 350_000),
    "an unknown metric": lambda f: f.cell("mine")["values"].update({"<script>": [0.0] * 6}),
    "fifty million rows in a curve": many_rows,
    "texts of two million characters": long_texts,
    "a curve of other replicates": curve_of_others,
    "a curve of garbage": lambda f: f.curve("mine", b"PAR1" + bytes(1000) + b"PAR1"),
    "a run nested 500 deep": nested,
    "marks in the manifest": manifest(marks={"x": "verified"}),
    "a signed verification": extra("store/verification.json", b'{"signature": ""}'),
    "markup and control characters in the name": manifest(name="\x1b[2J<script>alert(1)</script>"),
    "a suite that is a path": manifest(suite="../../etc"),
    "another profile": manifest(profile="fast"),
    "a run id that is a path": run_id("../../evil"),
    "an algorithm that names a module": spec(algorithm="os:system", source=""),
    "ten megabytes of traceback and flags": cell(traceback="x" * 5_000_000, flags=["<b>x</b>" * 500_000], status="crashed", reason="y" * 10**6),
    "all replicates diverged, and ok": cell(diverged={str(i): 3 for i in range(6)}, n_diverged=6),
    "a task of another version": spec(task_version=99),
    "a task that does not exist": spec(task="../../banana"),
}  # fmt: skip


def _renamed(name: str) -> Callable[[Files], bytes]:
    return lambda files: packed({**files, name: EVIL})


def _flag(entry: zipfile.ZipInfo) -> None:
    if entry.filename.endswith(".py"):
        entry.external_attr = (stat.S_IFLNK | 0o777) << 16


def _method(kind: int) -> Callable[[zipfile.ZipInfo], None]:
    return lambda entry: setattr(entry, "compress_type", kind)


def _encrypted(files: Files) -> bytes:
    content = bytearray(packed(files))
    for magic, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        for hit in re.finditer(re.escape(magic), bytes(content)):
            content[hit.start() + at] |= 1
    return bytes(content)


def _duplicate(files: Files) -> bytes:
    buffer = io.BytesIO(packed(files))
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "a") as archive:
        warnings.simplefilter("ignore")
        archive.writestr("plugins/mine.py", EVIL)
    return buffer.getvalue()


def _crowd(files: Files) -> bytes:
    return packed({**files, **{f"plugins/a{i}.py": b"" for i in range(60_000)}})


def _zip64(files: Files) -> bytes:
    """A 64-bit end record that counts thousands of millions of files."""
    content = packed(files)
    end = content.rindex(b"PK\x05\x06")
    size, offset = struct.unpack("<II", content[end + 12 : end + 20])
    record = struct.pack("<4sQHHIIQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, 2**40, 2**40, size, offset)
    locator = struct.pack("<4sIQI", b"PK\x06\x07", 0, end, 1)
    return content[:end] + record + locator + content[end:]


#: Kinds that take seconds, or gigabytes to make.
LARGE = (
    "two gigabytes of zeros", "four files of zeros, each below the limit", "a manifest of four million entries", "60,000 files",
    "fifty million rows in a curve",
)  # fmt: skip
#: Kind -> the bytes of the archive, of the honest files.
RAW: dict[str, Callable[[Files], bytes]] = {
    "an absolute name": _renamed("/tmp/evil.py"),
    "a name that leads upwards": _renamed("plugins/../../evil.py"),
    "a name with backslashes": _renamed("plugins\\..\\evil.py"),
    "a name of 60,000 characters": _renamed("plugins/" + "a" * 60_000 + ".py"),
    "a link": lambda files: packed(files, how=_flag),
    "a name twice": _duplicate,
    "a name twice, once in store.zip": lambda files: packed({**files, "store.zip": packed({k: v for k, v in files.items() if k.endswith("cell.json")})}),
    "store.zip in itself": lambda files: packed({"store.zip": packed({"store.zip": packed(files)})}),
    "zeros in store.zip": lambda files: packed({**files, "store.zip": packed({"plugins/zeros.py": bytes(2_000_000)})}),
    "an encrypted archive": _encrypted,
    "LZMA": lambda files: packed(files, how=_method(zipfile.ZIP_LZMA)),
    "bzip2": lambda files: packed(files, how=_method(zipfile.ZIP_BZIP2)),
    "two gigabytes of zeros": lambda files: packed({**files, "plugins/zeros.py": bytes(2_000_000_000)}),
    "four files of zeros, each below the limit": lambda files: packed({**files, **{f"plugins/z{i}.py": bytes(450_000_000) for i in range(4)}}),
    "60,000 files": _crowd,
    "a 64-bit end record": _zip64,
    "a manifest of four million entries": lambda files: packed({**files, "manifest.json": b'{"format": 1, "files": {' + b",".join(b'"%d":""' % i for i in range(4_000_000)) + b"}}"}),
    "a manifest nested 100,000 deep": lambda files: packed({**files, "manifest.json": b"[" * 100_000}),
    "an archive cut short": lambda files: packed(files)[:-200],
    "an archive behind other bytes": lambda files: b"#!/bin/sh\n" + packed(files),
    "digests of other files": lambda files: packed({**files, "plugins/mine.py": EVIL}),
}  # fmt: skip


KINDS = (*SEALED, *RAW)


def elsewhere(f: Forger) -> None:
    """Say that another machine made the cells."""
    for record in f.cells.values():
        record["hardware"] = "another machine"


def forged(kind: str, honest: Files, *, other_hardware: bool = False) -> bytes:
    """The archive of a kind."""
    forger = Forger(honest)
    if other_hardware:
        elsewhere(forger)
    if kind in RAW:
        return RAW[kind](forger.sealed())
    if kind:
        SEALED[kind](forger)
    return packed(forger.sealed())


def flipped(content: bytes, rng: random.Random) -> bytes:
    """One bit of the archive changed."""
    changed = bytearray(content)
    changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)
