"""A running chunk as bytes: tensors, numbers and text, written by ``torch.save`` and read without running any code.

Strides and the offset into 64-byte aligned storage are preserved: products of matrices depend on them in their last bits.
A state is written as the list of its leaves and takes its types from a fresh state of the same algorithm.
"""

import io
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from parvibench.core.errors import StoreError

_PLAIN = (bool, int, float, str, type(None))


class NotWritableError(TypeError):
    """A value that a snapshot cannot hold."""


def pack(value: Any) -> bytes:
    """The bytes of nested tuples, lists and dicts of tensors (without gradients), numbers, text and None.

    Raises:
        NotWritableError: something else is in it.
    """
    for leaf in tree_leaves(value):
        if not (isinstance(leaf, Tensor) and not leaf.requires_grad) and type(leaf) not in _PLAIN:
            raise NotWritableError(f"a {type(leaf).__name__} cannot be saved")
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def unpack(content: bytes, device: torch.device | str = "cpu") -> Any:
    """The value behind the bytes, its tensors on ``device``; ``StoreError`` where they are damaged or hold more."""
    try:
        return torch.load(io.BytesIO(content), map_location=device, weights_only=True)
    except Exception as error:  # whatever damaged bytes make of the reader
        raise StoreError(f"a snapshot that cannot be read: {type(error).__name__}: {error}") from None


def rebuilt(leaves: list[Any], like: Any) -> Any:
    """The state that ``tree_leaves`` took apart, with the types of another one; ``StoreError`` if it does not fit."""
    held, spec = tree_flatten(like)
    if len(held) != len(leaves):
        raise StoreError(f"a snapshot of {len(leaves)} values for a state of {len(held)}")
    return tree_unflatten(leaves, spec)
