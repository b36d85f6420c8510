"""Formats of sample files, and the process in which they are read.

``python -m parvibench.data.sample_formats FILE [CHOICE]`` writes shape and names of what the file holds, and its numbers
(float64), to standard output, or one line about what is wrong to standard error and exits 3. Its memory is limited, and
a parser that crashes takes nothing with it. A further format is a function here, from a path and a ``Choice`` to
``Found``, and its ending in ``FORMATS``.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
import sys
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parvibench.core.errors import install_hint

from .arrays import REAL, Choice, choose, join, read_array

#: Numbers in one file; as float64 they take 256 MiB.
MAX_NUMBERS = 2**25
#: Address space of the reading process, bytes: a parser's own needs, and a few copies of that many numbers. PyTorch
#: reserves more.
MAX_MEMORY = 2 * 2**30
_MAX_MEMORY_TORCH = 8 * 2**30
#: Exit code for a file that cannot be read.
REFUSED = 3
_MAX_LINE = 2**24
_NAME = re.compile(r"[^\W\d][\w .,:\[\](){}*^/-]*|\.(chain|iteration|draw)|#.*")
#: Columns that number draws; the first of a set numbers chains.
_NUMBERING = ((".chain", ".iteration", ".draw"), ("chain__", "iter__", "draw__"), ("chain", "draw"))
#: Lines of a CSV file among which Stan's row of names stands.
_STAN_HEAD = 1000


class Found(NamedTuple):
    """What a file holds."""

    values: NDArray[Any]  #: (n, d), or (chains, draws, d)
    names: Sequence[str] = ()  #: of the d columns, or none


Reader = Callable[[Path, Choice], Found]


def _npy(path: Path, choice: Choice) -> Found:
    with path.open("rb") as file:
        return _columns_of(read_array(file, path.stat().st_size), choice)


def _columns_of(array: NDArray[Any], choice: Choice) -> Found:
    """The chosen ones, by their numbers from 1 on, of an array without names."""
    kept = choose([str(i + 1) for i in range(array.shape[-1])], choice) if choice.any and array.ndim > 1 else None
    return Found(array if kept is None else array[..., kept])


def _npz(path: Path, choice: Choice) -> Found:
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        names = [m.filename.removesuffix(".npy") for m in members]

        def read(name: str) -> NDArray[Any]:
            found = [m for m, own in zip(members, names, strict=True) if own == name]
            if len(found) != 1:
                shown = ", ".join(repr(m.filename[:40]) for m in members[:5]) or "nothing"
                text = f"{len(found) or 'no'} arrays named {name!r} inside, expected one; it holds {shown}"
                raise ValueError(f"{text}; join several with --variables" if not choice.variables else text)
            _refuse_many(found[0].file_size // 2)
            with archive.open(found[0]) as file:
                return read_array(file, found[0].file_size)

        if not choice.variables:
            return _columns_of(read("samples"), choice)
        return _joined({name: read(name) for name in choice.variables}, choice)


def _joined(variables: Mapping[str, NDArray[Any]], choice: Choice, *, in_chains: bool = False) -> Found:
    for name, array in variables.items():
        if array.dtype.kind not in REAL:
            raise ValueError(f"{name!r} holds {array.dtype}, not real numbers")
    _refuse_many(sum(array.size for array in variables.values()))
    values, names = join(variables, in_chains=in_chains)
    kept = choose(names, choice)
    return Found(values[..., kept], [names[i] for i in kept])


def _torch(path: Path, choice: Choice) -> Found:
    """A tensor, or a dictionary of them; nothing but tensors is unpickled."""
    import torch

    found = torch.load(path, map_location="cpu", weights_only=True)
    if isinstance(found, torch.Tensor):
        return _columns_of(found.detach().numpy(), choice)
    if not isinstance(found, dict) or not all(isinstance(v, torch.Tensor) for v in found.values()):
        raise ValueError(f"holds a {type(found).__name__}, not a tensor or a dictionary of tensors")
    return _joined({str(k): v.detach().numpy() for k, v in found.items()}, choice)


def _netcdf(path: Path, choice: Choice) -> Found:
    """The group ``posterior`` of an ArviZ file: variables of dimensions (chain, draw, ...)."""
    os.environ["HDF5_PLUGIN_PRELOAD"] = "::"  # no filter from outside is loaded
    h5py = _needed("h5py")
    with h5py.File(path, "r") as file:
        if "posterior" not in file:
            raise ValueError(f"no group 'posterior' inside; it holds {', '.join(list(file)[:8]) or 'nothing'}")
        group, found = file["posterior"], {}
        for name in group:
            link, item = group.get(name, getlink=True), group[name]
            if not isinstance(link, h5py.HardLink) or not isinstance(item, h5py.Dataset):
                raise ValueError(f"{name[:40]!r} is a link or a group, not a variable")
            if item.attrs.get("CLASS") == b"DIMENSION_SCALE":
                continue
            if item.is_virtual or item.external:
                raise ValueError(f"the numbers of {name[:40]!r} lie in other files")
            if _is_wanted(name, choice):
                _refuse_many(item.size)
                found[name] = _numbers(name, item)
    return _joined(_in_chains(found), choice, in_chains=True)


def _zarr(path: Path, choice: Choice) -> Found:
    """Likewise of an ArviZ zarr folder."""
    zarr = _needed("zarr")
    root = zarr.open_group(str(path), mode="r")
    if "posterior" not in root:
        raise ValueError("no group 'posterior' inside")
    found = {}
    for name, item in root["posterior"].arrays():
        dimensions = item.attrs.get("_ARRAY_DIMENSIONS") or item.metadata.to_dict().get("dimension_names") or ()
        if tuple(dimensions) != (name,) and _is_wanted(name, choice):
            _refuse_many(item.size)
            found[name] = _numbers(name, item)
    return _joined(_in_chains(found), choice, in_chains=True)


def _needed(package: str) -> Any:
    try:
        return __import__(package)
    except ImportError:
        raise ValueError(f"it takes {package}; {install_hint('arviz')}") from None


def _is_wanted(name: str, choice: Choice) -> bool:
    return not choice.variables or name in choice.variables


def _numbers(name: str, item: Any) -> NDArray[Any]:
    if item.dtype.kind not in REAL:
        raise ValueError(f"{name[:40]!r} holds {item.dtype}, not real numbers")
    return np.asarray(item[...])


def _in_chains(variables: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
    wrong = [name for name, array in variables.items() if array.ndim < 2]
    if wrong:
        raise ValueError(f"{wrong[0][:40]!r} has no dimensions (chain, draw, ...)")
    return variables


def _csv(path: Path, choice: Choice) -> Found:
    """Numbers between commas, under one row of names or none; a byte order mark and quotes are allowed.

    Of Stan's files comments, warm-up draws and columns of the sampler (``lp__``) are left out, of R's the names of rows.
    """
    with path.open("rb") as file:
        lines = [line for _ in range(_STAN_HEAD) if (line := file.readline(_MAX_LINE))]
    plain = [line for line in lines if not line.startswith(b"#")][:2]
    source: Any = path
    if len(plain) > 0 and b"lp__" in plain[0].split(b","):
        source, skipped = _stan(path)
        lines = plain
    else:
        skipped = 0
    texts = [line.decode("utf-8-sig") for line in lines[:2]]
    first, second = (next(csv.reader([t], strict=True), []) for t in [*texts, "", ""][:2])
    if len(second) == len(first) + 1 and not any(map(_is_number, first)):  # R names rows, and not their column
        first = ["", *first]
    named = len(first) > 1 and first[0] == "" and all(map(_NAME.fullmatch, first[1:]))
    header = _is_header(first[1:] if named else first)
    names = _bracketed(first) if header else [f"column {i + 1}" for i in range(len(first))]
    values, names = _table(
        lambda kept: _csv_batches(source, names, kept, skip=int(header)), names, choice, numbered=not header
    )
    return Found(values[skipped:], names)


def _stan(path: Path) -> tuple[io.BytesIO, int]:
    """A file of Stan's without its comments, and how many draws of warm-up it begins with."""
    with path.open("rb") as file:
        lines = file.readlines()
    notes = b"".join(line for line in lines if line.startswith(b"#")).decode(errors="replace")

    def stated(key: str) -> str:
        found = re.search(rf"^#\s*{key}\s*=\s*(\w+)", notes, re.MULTILINE)
        return found[1] if found else "0"

    warmup = stated("save_warmup") in ("1", "true")
    skipped = -(-int(stated("num_warmup")) // max(1, int(stated("thin")))) if warmup else 0
    return io.BytesIO(b"".join(line for line in lines if not line.startswith(b"#"))), skipped


def _bracketed(names: Sequence[str]) -> list[str]:
    """Stan's ``theta.1.2`` as ``theta[1,2]``."""
    return [
        re.sub(r"^([^\W\d]\w*)\.(\d+(?:\.\d+)*)$", lambda m: f"{m[1]}[{m[2].replace('.', ',')}]", n.strip())
        for n in names
    ]


def _csv_batches(source: Any, names: Sequence[str], kept: Sequence[str], skip: int) -> Iterable[Any]:
    import pyarrow as pa
    from pyarrow import csv as arrow

    unique = [name or "(names of rows)" for name in names]
    return arrow.open_csv(
        source,
        arrow.ReadOptions(use_threads=False, column_names=unique, skip_rows=skip),
        arrow.ParseOptions(ignore_empty_lines=False),
        arrow.ConvertOptions(
            column_types=dict.fromkeys(kept, pa.float64()), null_values=[], include_columns=list(kept)
        ),
    )


def _table(
    read: Callable[[Sequence[str]], Iterable[Any]], names: Sequence[str], choice: Choice, *, numbered: bool = False
) -> tuple[NDArray[Any], list[str]]:
    """The chosen columns of a table of draws, cut into chains where a column numbers them."""
    ids = next((s for s in _NUMBERING if s[0] in names and set(s) & set(names) - {s[0]}), ())
    if not ids:
        ids = next((s for s in _NUMBERING[:2] if set(s) & set(names)), ())
    offered = [n for n in names if n and n not in ids and not n.endswith("__")]
    if numbered and choice.any:
        offered = [str(i + 1) for i in range(len(names))]
    chosen = [offered[i] for i in choose(offered, choice)]
    kept = [names[int(c) - 1] for c in chosen] if numbered and choice.any else chosen
    chain = ids[0] if ids and ids[0] in names else ""
    array = _stacked(read([*kept, *([chain] if chain else [])]), len(kept) + bool(chain))
    shown = [] if numbered else list(kept)
    if not chain:
        return array, shown
    numbers, array = array[:, -1], array[:, :-1]
    parts = [array[numbers == c] for c in dict.fromkeys(numbers.tolist())]
    if len({len(part) for part in parts}) > 1:
        raise ValueError(f"column {chain!r} tells chains of {', '.join(str(len(p)) for p in parts[:8])} draws")
    return np.stack(parts), shown


def _is_header(fields: Sequence[str]) -> bool:
    """Whether the first row names the columns.

    Raises:
        ValueError: it can be read in two ways, or in none.
    """
    fields = [f.strip() for f in fields]
    numbers = sum(map(_is_number, fields))
    if numbers == len(fields) > 0:
        if any(fields == [str(i + start) for i in range(len(fields))] for start in (0, 1)):
            row = ",".join(fields[:4])
            raise ValueError(
                f"its first row, {row}, may be a draw or count the columns: name them, or write {float(fields[0])},..."
            )
        return False
    if numbers or not fields or not all(map(_NAME.fullmatch, fields)):
        raise ValueError(f"its first row holds neither numbers nor names only: {','.join(fields[:4])!r:.80}")
    _refuse_repeats(fields)
    return True


def _is_number(text: str) -> bool:
    with contextlib.suppress(ValueError):
        float(text)
        return "_" not in text
    return False


def _parquet(path: Path, choice: Choice) -> Found:
    """All columns but the index that pandas may have stored."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(path, thrift_string_size_limit=2**26, page_checksum_verification=True) as file:
        schema = file.schema_arrow
        index = (schema.pandas_metadata or {}).get("index_columns", [])
        fields = {f.name: f.type for f in schema if f.name not in index}
        _refuse_repeats([f.name for f in schema if f.name not in index])

        def read(kept: Sequence[str]) -> Iterable[Any]:
            for name in kept:
                if not (pa.types.is_integer(fields[name]) or pa.types.is_floating(fields[name])):
                    raise ValueError(f"column {name[:40]!r} holds {fields[name]}, not real numbers")
            _refuse_many(file.metadata.num_rows * len(kept))
            return file.iter_batches(columns=list(kept), use_threads=False)

        return Found(*_table(read, list(fields), choice))


def _stacked(batches: Iterable[Any], columns: int) -> NDArray[np.float64]:
    """Record batches of numbers as one array, (rows, columns)."""
    parts, rows = [np.empty((0, columns))], 0
    for batch in batches:
        rows += batch.num_rows
        _refuse_many(rows * columns)
        parts.append(np.column_stack([c.to_numpy(zero_copy_only=False).astype(np.float64) for c in batch.columns]))
    return np.concatenate(parts)


def _refuse_many(numbers: int) -> None:
    if numbers > MAX_NUMBERS:
        raise ValueError(f"holds {numbers} numbers, more than {MAX_NUMBERS}; thin them")


def _refuse_repeats(names: Sequence[str]) -> None:
    repeated = sorted({n for n in names if names.count(n) > 1})
    if repeated:
        raise ValueError(f"two columns named {repeated[0][:40]!r}")


FORMATS: dict[str, Reader] = {
    ".npy": _npy, ".npz": _npz, ".csv": _csv, ".parquet": _parquet, ".nc": _netcdf, ".zarr": _zarr, ".pt": _torch,
    ".pth": _torch,
}  # fmt: skip


def main(path: Path, choice: str = "{}") -> int:
    """Read a file and write what it holds to standard output; the exit code."""
    _limit(_MAX_MEMORY_TORCH if path.suffix.lower() in (".pt", ".pth") else MAX_MEMORY)
    try:
        array, names = FORMATS[path.suffix.lower()](path, Choice(**json.loads(choice)))
        _refuse_many(array.size)
        if array.dtype.kind not in REAL:
            raise ValueError(f"holds {array.dtype}, not real numbers")
        numbers = np.ascontiguousarray(array, dtype=np.float64)
    except Exception as error:  # whatever a parser makes of bytes that anybody may have written
        reason = (str(error) or type(error).__name__).split("\n")[0]
        reason = "more memory than a file may take" if isinstance(error, MemoryError) else reason
        sys.stderr.buffer.write(reason[:300].encode(errors="replace"))
        return REFUSED
    sys.stdout.buffer.write(json.dumps({"shape": numbers.shape, "names": list(names)}).encode() + b"\n")
    sys.stdout.buffer.write(numbers.data)
    return 0


def _limit(memory: int) -> None:
    if sys.platform == "win32":
        return
    import resource

    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), *sys.argv[2:]))
