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
import mmap
import os
import re
import sys
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .arrays import REAL, Choice, choose, read_array
from .axes import Variable, arrange
from .naming import listed
from .stan_csv import uncommented
from .tables import arranged, wanted

#: Numbers in one file; as float64 they take 256 MiB.
MAX_NUMBERS = 2**25
#: Address space of the reading process, bytes: a parser's own needs, and a few copies of that many numbers. PyTorch
#: reserves more.
MAX_MEMORY = 2 * 2**30
_MAX_MEMORY_TORCH = 8 * 2**30
#: Exit code for a file that cannot be read.
REFUSED = 3
_MAX_LINE = 2**24
_NAME = re.compile(r"[^\W\d][\w .,:\[\](){}*^/'-]*|\.(chain|iteration|draw)|\(['\"].*\)|#.*")
#: Labels of one dimension.
_MAX_LABELS = 2**16


class Found(NamedTuple):
    """What a file holds."""

    values: NDArray[Any]  #: (n, d), or (chains, draws, d)
    names: Sequence[str] = ()  #: of the d columns, or none
    said: Sequence[str] = ()  #: how it was read, where that is not obvious
    places: Sequence[str] = ()  #: the names with numbers in place of labels, where they differ


Reader = Callable[[Path, Choice], Found]


def _npy(path: Path, choice: Choice) -> Found:
    with path.open("rb") as file:
        return _columns_of(read_array(file, path.stat().st_size), choice)


def _columns_of(array: NDArray[Any], choice: Choice) -> Found:
    """A plain array; of its columns the chosen ones, by their numbers from 1 on."""
    if array.dtype.kind not in REAL:
        raise ValueError(f"holds {array.dtype}, not real numbers")
    found = arrange({"": Variable(array)}, choice.axes)
    values = found.values
    if choice.any:
        values = values[..., choose([str(i + 1) for i in range(values.shape[-1])], choice)]
    return Found(values, said=[found.said] if found.said else [])


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
        return _joined({name: Variable(read(name)) for name in choice.variables}, choice)


def _joined(variables: Mapping[str, Variable], choice: Choice) -> Found:
    for name, variable in variables.items():
        if variable.values.dtype.kind not in REAL:
            raise ValueError(f"{name[:40]!r} holds {variable.values.dtype}, not real numbers")
    _refuse_many(sum(variable.values.size for variable in variables.values()))
    found = arrange(variables, choice.axes)
    kept = choose(found.names, choice)
    said = [found.said] if found.said else []
    return Found(found.values[..., kept], [found.names[i] for i in kept], said, [found.places[i] for i in kept])


def _torch(path: Path, choice: Choice) -> Found:
    """A tensor, or a dictionary of them; nothing but tensors is unpickled."""
    import torch

    found = torch.load(path, map_location="cpu", weights_only=True)
    if isinstance(found, torch.Tensor):
        return _columns_of(_plain(found), choice)
    if not isinstance(found, dict) or not all(isinstance(v, torch.Tensor) for v in found.values()):
        raise ValueError(f"holds a {type(found).__name__}, not a tensor or a dictionary of tensors")
    return _joined({str(k): Variable(_plain(v)) for k, v in found.items()}, choice)


def _plain(tensor: Any) -> NDArray[Any]:
    """NumPy has no brain floats."""
    return np.asarray((tensor.double() if tensor.is_floating_point() else tensor).detach().numpy())


def _netcdf(path: Path, choice: Choice) -> Found:
    """The group ``posterior`` of an ArviZ file, or the variables of a file without groups."""
    os.environ["HDF5_PLUGIN_PRELOAD"] = "::"  # no filter from outside is loaded
    h5py = _needed("h5py")
    with path.open("rb") as opened:
        if opened.read(3) == b"CDF":
            raise ValueError("a netCDF 3 file: write it anew with engine='h5netcdf'")
    with h5py.File(path, "r") as file:
        grouped = isinstance(file.get("posterior", getlink=True), h5py.HardLink)
        group = file["posterior"] if grouped else file
        items: dict[str, Any] = {}
        for name in group:
            link, item = group.get(name, getlink=True), group[name]
            if not isinstance(link, h5py.HardLink) or not isinstance(item, h5py.Dataset):
                if not grouped:
                    raise ValueError(f"no group 'posterior' inside; it holds {listed(list(file)) or 'nothing'}")
                raise ValueError(f"{name[:40]!r} is a link or a group, not a variable")
            if item.is_virtual or item.external:
                raise ValueError(f"the numbers of {name[:40]!r} lie in other files")
            items[name] = item
        scales = {name for name, item in items.items() if item.attrs.get("CLASS") == b"DIMENSION_SCALE"}
        dims = {
            name: [d[0].name.rpartition("/")[2] if len(d) else "" for d in item.dims] for name, item in items.items()
        }
        return _variables({n: (items[n], dims[n]) for n in items if n not in scales}, items, choice)


def _variables(found: Mapping[str, tuple[Any, Sequence[str]]], items: Mapping[str, Any], choice: Choice) -> Found:
    """Arrays with names of their dimensions, whose labels are among ``items``; without names as (chain, draw, ...)."""
    variables = {}
    for name, (item, dims) in found.items():
        if _is_wanted(name, choice):
            _refuse_many(item.size)
            if not all(dims) and item.ndim < 2:
                raise ValueError(f"{name[:40]!r} has no dimensions (chain, draw, ...)")
            dims = dims if all(dims) else ["chain", "draw", *(f"dim_{i}" for i in range(item.ndim - 2))]
            labels = {
                d: items[d][...] for d in dims if d in items and items[d].ndim == 1 and items[d].size <= _MAX_LABELS
            }
            variables[name] = Variable(_numbers(name, item), dims, labels)
    return _joined(variables, choice)


def _zarr(path: Path, choice: Choice) -> Found:
    """Likewise of a zarr folder."""
    zarr = _needed("zarr")
    root = zarr.open_group(str(path), mode="r")
    items = dict(root.get("posterior", root).arrays())
    if not items:
        raise ValueError("no group 'posterior' inside")
    dims = {
        name: list(item.attrs.get("_ARRAY_DIMENSIONS") or item.metadata.to_dict().get("dimension_names") or ())
        for name, item in items.items()
    }
    found = {
        n: (items[n], dims[n] or [""] * items[n].ndim) for n in items if dims[n] != [n] and n not in ("chain", "draw")
    }
    return _variables(found, items, choice)


def _needed(package: str) -> Any:
    try:
        return __import__(package)
    except ImportError:
        raise ValueError(f"it takes {package}; install it with: pip install 'parvibench[arviz]'") from None


def _is_wanted(name: str, choice: Choice) -> bool:
    return not choice.variables or name in choice.variables


def _numbers(name: str, item: Any) -> NDArray[Any]:
    if item.dtype.kind not in REAL:
        raise ValueError(f"{name[:40]!r} holds {item.dtype}, not real numbers")
    return np.asarray(item[...])


def _csv(path: Path, choice: Choice) -> Found:
    """Numbers between commas, under one row of names or none; a byte order mark and quotes are allowed.

    Comments are left out, of Stan's files also rows that are no draws and columns of the sampler, of R's names of rows.
    """
    source: Any = path
    skipped, said = 0, list[str]()
    if _has_comments(path):
        lines, skipped, said = uncommented(path.read_bytes().removeprefix(b"\xef\xbb\xbf").splitlines(), _is_number)
        source = io.BytesIO(b"\n".join(lines) + b"\n")
    else:
        with path.open("rb") as file:
            lines = [file.readline(_MAX_LINE) for _ in range(2)]
    texts = [line.decode("utf-8-sig") for line in lines[:2]]
    first, second = (next(csv.reader([t], strict=True), []) for t in [*texts, "", ""][:2])
    if len(second) == len(first) + 1 and not any(map(_is_number, first)):  # R names rows, and not their column
        first = ["", *first]
    named = len(first) > 1 and first[0] == "" and all(map(_NAME.fullmatch, first[1:]))
    header = _is_header(first[1:] if named else first)
    names = _bracketed(first) if header else [f"column {i + 1}" for i in range(len(first))]
    found = _table(
        lambda kept: _csv_batches(source, names, kept, skip=int(header)), names, choice, skipped, numbered=not header
    )
    return found._replace(said=[*said, *found.said])


def _has_comments(path: Path) -> bool:
    """Whether a line begins with ``#``."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content[:4].lstrip(b"\xef\xbb\xbf").startswith(b"#") or content.find(b"\n#") >= 0


def _bracketed(names: Sequence[str]) -> list[str]:
    """Stan's ``theta.1.2`` as ``theta[1,2]``, also of tuples (``pair:2.1``)."""
    return [
        re.sub(r"^([^\W\d][\w:]*)\.(\d+(?:\.\d+)*)$", lambda m: f"{m[1]}[{m[2].replace('.', ',')}]", n.strip())
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
    read: Callable[[Sequence[str]], Iterable[Any]],
    names: Sequence[str],
    choice: Choice,
    skipped: int = 0,
    *,
    numbered: bool = False,
) -> Found:
    """The chosen columns of a table of draws, without its first rows, cut into chains where a column numbers them."""
    if numbered:
        chosen = choose([str(i + 1) for i in range(len(names))], choice)
        return Found(_stacked(read([names[i] for i in chosen]), len(chosen))[skipped:])
    kept, counts = wanted(names, choice)
    columns = list(dict.fromkeys([*kept, *counts]))
    if not columns:
        raise ValueError(f"no column of draws; it has {listed(names)}")
    array = _stacked(read(columns), len(columns))[skipped:]
    return Found(*arranged(dict(zip(columns, array.T, strict=True)), kept, counts, choice))


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
    """All columns but the index that pandas may have stored, unless it numbers chains or draws."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(path, thrift_string_size_limit=2**26, page_checksum_verification=True) as file:
        schema = file.schema_arrow
        index = (schema.pandas_metadata or {}).get("index_columns", [])
        index = [name for name in index if not isinstance(name, str) or name.lower() not in ("chain", "draw")]
        fields = {f.name: f.type for f in schema if f.name not in index}
        _refuse_repeats([f.name for f in schema if f.name not in index])

        def read(kept: Sequence[str]) -> Iterable[Any]:
            for name in kept:
                if not (pa.types.is_integer(fields[name]) or pa.types.is_floating(fields[name])):
                    raise ValueError(f"column {name[:40]!r} holds {fields[name]}, not real numbers")
            _refuse_many(file.metadata.num_rows * len(kept))
            return file.iter_batches(columns=list(kept), use_threads=False)

        return _table(read, list(fields), choice)


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
        array, names, said, places = FORMATS[path.suffix.lower()](path, Choice(**json.loads(choice)))
        _refuse_many(array.size)
        if array.dtype.kind not in REAL:
            raise ValueError(f"holds {array.dtype}, not real numbers")
        numbers = np.ascontiguousarray(array, dtype=np.float64)
    except Exception as error:  # whatever a parser makes of bytes that anybody may have written
        reason = (str(error) or type(error).__name__).split("\n")[0]
        reason = "more memory than a file may take" if isinstance(error, MemoryError) else reason
        sys.stderr.buffer.write(reason[:300].encode(errors="replace"))
        return REFUSED
    told = {"shape": numbers.shape, "names": list(names), "read": list(said), "places": list(places)}
    sys.stdout.buffer.write(json.dumps(told).encode() + b"\n")
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
