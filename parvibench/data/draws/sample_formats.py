"""Formats of sample files, and the process in which they are read.

``python -m parvibench.data.draws.sample_formats FILE [CHOICE]`` writes shape and names of what the file holds, and its numbers
(float64), to standard output, or one line about what is wrong to standard error and exits 3. Its memory is limited, and
a parser that crashes takes nothing with it. A further format is a function here, from a path and a ``Choice`` to
``Draws``, and its ending in ``FORMATS``.
"""

import contextlib
import importlib
import json
import os
import re
import sys
import warnings
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parvibench.core.errors import install_hint

from .arrays import REAL, Choice, Draws, read_array, refuse_many, settled
from .axes import Variable, arrange, default_dims
from .naming import BY_WEIGHTS, is_weight, listed
from .table_files import read_csv, read_parquet
from .tables import offered, read_table

#: Address space of the reading process, bytes: a parser's own needs, and a few copies of that many numbers. PyTorch
#: reserves more.
MAX_MEMORY = 2 * 2**30
_MAX_MEMORY_TORCH = 8 * 2**30
#: Exit code for a file that cannot be read.
REFUSED = 3
#: Labels of one dimension.
_MAX_LABELS = 2**16
_PACKED = ("scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned")
_OF_CHAIN = re.compile(r"(?i)chains?[_ .-]?\d+")


Reader = Callable[[Path, Choice], Draws]


def _npy(path: Path, choice: Choice) -> Draws:
    with path.open("rb") as file:
        return arrange({"": Variable(read_array(file, path.stat().st_size))}, choice)


def _npz(path: Path, choice: Choice) -> Draws:
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        names = [m.filename.removesuffix(".npy") for m in members]

        def read(name: str) -> NDArray[Any]:
            found = [m for m, own in zip(members, names, strict=True) if own == name]
            if len(found) != 1:
                shown = ", ".join(repr(m.filename[:40]) for m in members[:5]) or "nothing"
                text = f"{len(found) or 'no'} arrays named {name!r} inside, expected one; it holds {shown}"
                raise ValueError(f"{text}; join several with --variables" if not choice.variables else text)
            refuse_many(found[0].file_size // 2)
            with archive.open(found[0]) as file:
                return read_array(file, found[0].file_size)

        if chosen := choice.variables or (choice.weights and ("samples", choice.weights)):
            return _joined({name: Variable(read(name)) for name in chosen}, choice)
        for name in filter(is_weight, names):
            if (weights := read(name)).ndim == 1 and len(np.unique(weights)) > 1:
                raise ValueError(f"draws with weights ({name:.40}): {BY_WEIGHTS.format(name)}")
        if len(names) > 1 and all(map(_OF_CHAIN.fullmatch, names)):
            return arrange({"": Variable(np.stack([read(name) for name in names]))}, choice)
        return arrange({"": Variable(read("arr_0" if names == ["arr_0"] else "samples"))}, choice)


def _joined(variables: Mapping[str, Variable], choice: Choice) -> Draws:
    refuse_many(sum(variable.values.size for variable in variables.values()))
    draws = arrange(variables, choice)
    if draws.values.ndim == 3 or not offered(draws.names)[1]:
        return draws
    # Chains and draws were stacked into one dimension.
    columns, place_of = (dict(zip(draws.names, own, strict=True)) for own in (draws.values.T, draws.places))
    table = read_table(draws.names, lambda names: {n: columns[n] for n in names}, choice)
    return replace(table, read=[*draws.read, *table.read], places=[place_of[name] for name in table.names])


def _torch(path: Path, choice: Choice) -> Draws:
    """A tensor, or a dictionary of them; nothing but tensors is unpickled."""
    import torch

    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            refuse_many(sum(member.file_size for member in archive.infolist()) // 8)
    found = torch.load(path, map_location="cpu", weights_only=True)
    tensors = {"": found} if isinstance(found, torch.Tensor) else found
    if not isinstance(tensors, dict) or not all(isinstance(v, torch.Tensor) for v in tensors.values()):
        raise ValueError(f"holds a {type(found).__name__}, not a tensor or a dictionary of tensors")
    variables = {}
    for name, tensor in tensors.items():
        refuse_many(tensor.numel())  # a tensor may show one stored number as many
        plain = tensor.double() if tensor.is_floating_point() else tensor  # NumPy has no brain floats
        variables[str(name)] = Variable(_real(plain.detach().numpy(), str(name)))
    return _joined(variables, choice)


def _netcdf(path: Path, choice: Choice) -> Draws:
    """The group ``posterior`` of an ArviZ file, or the variables of a file without groups."""
    os.environ["HDF5_PLUGIN_PRELOAD"] = "::"  # no filter from outside is loaded
    h5py = _needed("h5py")
    with path.open("rb") as opened:
        if opened.read(3) == b"CDF":
            raise ValueError("a netCDF 3 file: write it again with engine='h5netcdf'")
    with h5py.File(path, "r") as file:
        grouped = isinstance(file.get("posterior", getlink=True), h5py.HardLink)
        group = file["posterior"] if grouped else file
        for name in group:
            if not isinstance(group.get(name, getlink=True), h5py.HardLink) or not isinstance(
                group[name], h5py.Dataset
            ):
                if not grouped:
                    raise ValueError(f"no group 'posterior' inside; it holds {listed(list(file)) or 'nothing'}")
                raise ValueError(f"{name[:40]!r} is a link or a group, not a variable")
            if group[name].is_virtual or group[name].external:
                raise ValueError(f"the numbers of {name[:40]!r} lie in other files")
        names = [n for n, item in group.items() if item.attrs.get("CLASS") != b"DIMENSION_SCALE"]
        dims = {n: [d[0].name.rpartition("/")[2] if len(d) else "" for d in group[n].dims] for n in names}
        return _of_group(group, dims, choice)


def _zarr(path: Path, choice: Choice) -> Draws:
    """Likewise of a zarr folder."""
    root = _needed("zarr").open_group(str(path), mode="r")
    items = dict(sorted(root.get("posterior", root).arrays()))  # a folder has no order
    if not items:
        raise ValueError("no group 'posterior' inside")
    dims = {
        name: list(item.attrs.get("_ARRAY_DIMENSIONS") or item.metadata.to_dict().get("dimension_names") or ())
        for name, item in items.items()
    }
    names = [name for name in items if dims[name] != [name] and name not in ("chain", "draw")]
    return _of_group(items, {name: dims[name] or [""] * items[name].ndim for name in names}, choice)


def _needed(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError:
        raise ValueError(f"it takes {package}; {install_hint('arviz')}") from None


def _of_group(group: Any, dims: Mapping[str, list[str]], choice: Choice) -> Draws:
    """The chosen ones of variables in a group, given the names of their dimensions."""
    chosen = [name for name in dims if not choice.variables or name in choice.variables]
    return _joined({name: _variable(group, name, dims[name]) for name in chosen}, choice)


def _variable(group: Any, name: str, dims: list[str]) -> Variable:
    """A variable with names and labels of its dimensions; without names as (chain, draw, ...)."""
    item = group[name]
    refuse_many(item.size)
    if not all(dims):
        if item.ndim < 2:
            raise ValueError(f"{name[:40]!r} has no dimensions (chain, draw, ...)")
        dims = default_dims(item.ndim)
    scales = {d: group[d] for d in dims if d in group}
    labels = {d: s[...] for d, s in scales.items() if s.ndim == 1 and s.size <= _MAX_LABELS}
    return Variable(_unpacked(item, name), dims, labels)


def _real(item: Any, name: str) -> NDArray[Any]:
    """All numbers of an array, in memory or in a file."""
    if item.dtype.kind not in REAL:
        raise ValueError(f"{f'{name[:40]!r} ' if name else ''}holds {item.dtype}, not real numbers")
    return np.asarray(item[...])


def _unpacked(item: Any, name: str) -> NDArray[Any]:
    """Numbers of a variable packed by the CF conventions, ``ValueError`` where some are missing."""
    values, attributes = _real(item, name), {k: item.attrs[k] for k in _PACKED if k in item.attrs}
    if str(attributes.get("_Unsigned", "")).lower() == "true":
        values = values.view(values.dtype.str.replace("i", "u"))
    fill = [attributes[k] for k in ("_FillValue", "missing_value") if k in attributes]
    if getattr(getattr(item, "metadata", None), "zarr_format", 0) == 2 and item.fill_value is not None:
        fill.append(item.fill_value)  # where the second version of zarr has _FillValue
    if missing := sum(int((values == np.asarray(f).ravel()).sum()) for f in fill if values.dtype.kind in "iu"):
        raise ValueError(f"{name[:40]!r} has {missing} missing numbers (_FillValue)")
    scale, offset = (np.asarray(attributes.get(k, own)).item() for k, own in (("scale_factor", 1), ("add_offset", 0)))
    return values * scale + offset if {"scale_factor", "add_offset"} & attributes.keys() else values


FORMATS: dict[str, Reader] = {
    ".npy": _npy, ".npz": _npz, ".csv": read_csv, ".txt": read_csv, ".tsv": read_csv, ".parquet": read_parquet, ".nc": _netcdf, ".zarr": _zarr, ".pt": _torch,
    ".pth": _torch,
}  # fmt: skip


def main(path: Path, choice: str = "{}") -> int:
    """Read a file and write what it holds to standard output; the exit code."""
    if sys.platform != "win32":
        import resource

        memory = _MAX_MEMORY_TORCH if path.suffix.lower() in (".pt", ".pth") else MAX_MEMORY
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        warnings.simplefilter("ignore")
        chosen = Choice(**json.loads(choice))
        draws = settled(FORMATS[path.suffix.lower()](path, chosen), chosen)
        refuse_many(draws.values.size)
        numbers = np.ascontiguousarray(draws.values, dtype=np.float64)
    except Exception as error:  # whatever a parser makes of bytes that anybody may have written
        reason = (str(error) or type(error).__name__).split("\n")[0]
        reason = "more memory than a file may take" if isinstance(error, MemoryError) else reason
        sys.stderr.buffer.write(reason[:300].encode(errors="replace"))
        return REFUSED
    form = {name: getattr(draws, name) for name in ("names", "read", "places", "chosen")}
    sys.stdout.buffer.write(json.dumps({"shape": numbers.shape, **form}).encode() + b"\n")
    sys.stdout.buffer.write(numbers.data)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), *sys.argv[2:]))
