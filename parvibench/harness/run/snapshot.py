"""A running chunk as bytes: nested values with tensors, written without pickle.

An archive of arrays (``.npz``) and a description in JSON that says where each belongs::

    {"tuple": [...], "type": "module.State"} | {"list": [...]} | {"map": {...}}
    {"tensor": i, "shape": ..., "stride": ..., "offset": ...} | {"array": i} | {"plain": number, text or null}

The memory layout of a tensor is kept (strides, alignment): products of matrices depend on it in their last bits.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parvibench.core.errors import StoreError
from parvibench.harness.store.reading import read_npz

_DTYPES = {
    str(d).removeprefix("torch."): d
    for d in (torch.float32, torch.float64, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
}  # fmt: skip
#: PyTorch aligns what it allocates to this many bytes.
_ALIGNMENT = 64
_PLAIN = (bool, int, float, str, type(None))

Types = Mapping[str, type]


class NotWritableError(TypeError):
    """A value that cannot be written down."""


def pack(value: Any) -> bytes:
    """The bytes of a nested value.

    Args:
        value: tensors (without gradients), arrays of numbers, NamedTuples, tuples, lists, dicts with text as
            keys, numbers, text and None.

    Raises:
        NotWritableError: something else is in it.
    """
    packer = _Packer()
    tree = packer.describe(value)
    description = np.frombuffer(json.dumps(tree).encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, description=description, **{f"a{i}": a for i, a in enumerate(packer.arrays)})  # type: ignore[arg-type]
    return buffer.getvalue()


def unpack(content: bytes, types: Types, device: torch.device | str = "cpu") -> Any:
    """The value behind the bytes.

    Args:
        content: from ``pack``.
        types: the NamedTuple types that may occur, by qualified name (``named_types``).
        device: where tensors go.

    Raises:
        StoreError: damaged, too large, or with a type that is not listed.
    """
    arrays = read_npz(content)
    try:
        tree = json.loads(arrays["description"].tobytes())
        return _Unpacker(arrays, types, torch.device(device)).build(tree)
    except (KeyError, IndexError, TypeError, ValueError, RuntimeError, RecursionError) as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(f"a snapshot that cannot be read: {type(error).__name__}: {error}") from None


def named_types(value: Any) -> dict[str, type]:
    """The NamedTuple types in a nested value, by qualified name."""
    found: dict[str, type] = {}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        found[_qualified(type(value))] = type(value)
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, tuple | list):
        for item in value:
            found |= named_types(item)
    return found


def _qualified(owner: type) -> str:
    return f"{owner.__module__}.{owner.__qualname__}"


@dataclass
class _Packer:
    """Collects the arrays while it describes."""

    arrays: list[NDArray[Any]] = field(default_factory=list)

    def describe(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self._tensor(value)
        if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
            return {"array": self._add(value)}
        if type(value) in _PLAIN:
            return {"plain": value}
        if isinstance(value, tuple):
            kind = _qualified(type(value)) if hasattr(value, "_fields") else ""
            if kind or type(value) is tuple:
                return {"tuple": [self.describe(v) for v in value], "type": kind}
        if type(value) is list:
            return {"list": [self.describe(v) for v in value]}
        if type(value) is dict and all(type(k) is str for k in value):
            return {"map": {k: self.describe(v) for k, v in value.items()}}
        raise NotWritableError(f"a {type(value).__name__} cannot be written down")

    def _tensor(self, tensor: Tensor) -> dict[str, Any]:
        dtype = str(tensor.dtype).removeprefix("torch.")
        if tensor.requires_grad or tensor.layout is not torch.strided or dtype not in _DTYPES:
            raise NotWritableError(f"a tensor of {tensor.dtype} that needs gradients or has no strides")
        shape, stride = list(tensor.shape), list(tensor.stride())
        extent = 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True)) if tensor.numel() else 0
        flat = tensor.as_strided((extent,), (1,)) if extent else tensor.new_empty(0)
        offset = tensor.data_ptr() % _ALIGNMENT // tensor.element_size()
        index = self._add(flat.cpu().numpy())
        return {"tensor": index, "dtype": dtype, "shape": shape, "stride": stride, "offset": offset}

    def _add(self, array: NDArray[Any]) -> int:
        self.arrays.append(array)
        return len(self.arrays) - 1


@dataclass
class _Unpacker:
    """Puts the arrays back where the description says."""

    arrays: Mapping[str, NDArray[Any]]
    types: Types
    device: torch.device

    def build(self, tree: Any) -> Any:
        if "plain" in tree:
            return tree["plain"]
        if "array" in tree:
            return self.arrays[f"a{tree['array']}"]
        if "list" in tree:
            return [self.build(v) for v in tree["list"]]
        if "map" in tree:
            return {k: self.build(v) for k, v in tree["map"].items()}
        if "tuple" in tree:
            items = [self.build(v) for v in tree["tuple"]]
            if not tree["type"]:
                return tuple(items)
            if tree["type"] not in self.types:
                raise StoreError(f"a snapshot of another state type: {tree['type']!r}")
            return self.types[tree["type"]](*items)
        return self._tensor(tree)

    def _tensor(self, tree: Any) -> Tensor:
        flat = torch.from_numpy(self.arrays[f"a{tree['tensor']}"])
        dtype, offset = _DTYPES[tree["dtype"]], int(tree["offset"])
        if not 0 <= offset < _ALIGNMENT or any(s < 0 for s in tree["stride"]) or flat.dtype is not dtype:
            raise StoreError("a snapshot with a tensor of another layout")
        storage = torch.empty(offset + flat.numel(), dtype=dtype, device=self.device)
        storage[offset:] = flat.to(self.device)
        return storage.as_strided(tree["shape"], tree["stride"], offset)
