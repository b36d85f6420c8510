"""Choice between states by masks."""

from typing import TypeVar

import torch
from torch import Tensor

S = TypeVar("S")


def where(mask: Tensor, new: S, old: S) -> S:
    """``torch.where`` along leading axes: a mask (R,) or (R, N) of tensors with any further axes, or NamedTuples of them.

    A field that is the same object in both stays, so that the others may have fewer axes than the mask.
    """
    if new is old:
        return old
    if isinstance(new, Tensor) and isinstance(old, Tensor):
        for _ in range(new.dim() - mask.dim()):
            mask = mask.unsqueeze(-1)
        return torch.where(mask, new, old)  # type: ignore[return-value]
    return type(new)(*(where(mask, a, b) for a, b in zip(new, old, strict=True)))  # type: ignore[call-overload]
