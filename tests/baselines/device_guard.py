"""Finds, without a GPU, what would make a step wait for one.

Steps run on the ``meta`` device: it has shapes and no numbers, so whatever needs a number of the device raises.
What it lets pass, and a GPU would wait for, is refused here: copies from the host, boolean masks as indices, and
linear algebra that looks for errors.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from parvibench.core.streams import Streams

_FROM_HOST = {torch.tensor, torch.as_tensor, torch.from_numpy, torch.asarray, Tensor.new_tensor}
_CHECKED = {"linalg_cholesky", "linalg_inv", "linalg_solve", "linalg_eigh", "_linalg_check_errors"}


class WouldWaitError(Exception):
    """A step does what a GPU cannot do without the host waiting."""


class _Calls(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _FROM_HOST:
            raise WouldWaitError(f"{func.__name__} makes a tensor of numbers of the host")
        return func(*args, **(kwargs or {}))


class _Kernels(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        if any(t.device.type == "cpu" and t.dim() > 0 for t in given):
            raise WouldWaitError(f"{func} takes a tensor of the host")
        name = func.overloadpacket.__name__
        if name in _CHECKED:
            raise WouldWaitError(f"{name} looks at the device for errors; its _ex form does not")
        if name.startswith("index") and any(t.dtype is torch.bool for t in given[1:]):
            raise WouldWaitError(f"{name} by a mask: its shape depends on numbers")
        return func(*args, **(kwargs or {}))


class DeviceGuard:
    """Within it, whatever would wait for the device raises: ``WouldWaitError``, or the meta device itself."""

    def __enter__(self) -> None:
        self._modes = (_Calls(), _Kernels())
        for mode in self._modes:
            mode.__enter__()

    def __exit__(self, *about: Any) -> None:
        for mode in reversed(self._modes):
            mode.__exit__(*about)


class ShapeStreams(Streams):
    """Streams whose draws have shapes and no numbers."""

    def __init__(self, replicates: Sequence[int]) -> None:
        super().__init__(0, replicates)
        self.device = torch.device("meta")

    def _fill(self, law: str, stream: str, shape: tuple[int, ...], index: int, number: int) -> Tensor:
        return torch.empty(shape[0], len(self.replicates), *shape[1:], device="meta", dtype=self.dtype)
