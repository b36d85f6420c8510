"""A stand-in for a GPU: tensors that compute on the CPU and count as lying on ``cuda``.

PyTorch's fake tensors tell two devices apart but have no numbers, so that a step that reads one cannot go on, and their
gradients end the process where PyTorch is built without CUDA. Here every tensor of the card wraps one of the CPU:
numbers, gradients and random draws are the CPU's, so that a run on the card must end at the same bits as one on the
CPU, and everything that a real card would refuse raises with its words. Reads that make the host wait are counted.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch._C import _functorch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

CUDA = torch.device("cuda", 0)


class OnCard(Tensor):
    """A tensor of the card; ``inner`` has its numbers."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> OnCard:
        with torch.inference_mode(inner.is_inference()):  # a view of a tensor from outside is none of inference mode's
            made = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
                cls, inner.size(), strides=inner.stride(), storage_offset=inner.storage_offset(), dtype=inner.dtype
            )
        made.inner = inner
        return made

    device = property(lambda self: CUDA)  # type: ignore[assignment]
    is_cuda = property(lambda self: True)  # type: ignore[assignment]
    is_cpu = property(lambda self: False)  # type: ignore[assignment]

    def __repr__(self, **_: Any) -> str:
        return f"{self.inner!r} on the stand-in card"

    def __reduce_ex__(self, protocol: Any) -> Any:
        """As its numbers: where they come back to, the reader says (``map_location``)."""
        return self.inner.detach().clone().__reduce_ex__(protocol)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _on_card(func, args, kwargs or {}, None)


class CardGenerator(torch.Generator):
    """A generator of the card, with the CPU's bits."""


def make_generator(device: Any = "cpu") -> torch.Generator:
    """In place of ``torch.Generator``."""
    return CardGenerator() if torch.device(device).type == "cuda" else torch.Generator()


class _Move(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, to_card: bool) -> Tensor:
        ctx.to_card = to_card
        with torch._C._DisableTorchDispatch():
            return OnCard(x.detach().clone()) if to_card else x.inner.detach().clone()  # type: ignore[attr-defined]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _Move.apply(gradient, not ctx.to_card), None


def on_card(x: Any) -> bool:
    """True for a tensor of the card; looks through the wrappers of ``torch.func``."""
    while isinstance(x, Tensor) and _functorch.is_functorch_wrapped_tensor(x):
        x = _functorch.get_unwrapped(x)
    return isinstance(x, OnCard)


#: Operators that look at numbers of the device, or whose shape depends on them.
_READING = {
    "_local_scalar_dense", "equal", "nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive", "is_nonzero",
    "allclose", "linalg_cholesky", "linalg_inv", "linalg_solve", "linalg_eigh", "_linalg_check_errors", "bincount",
}  # fmt: skip
#: Operators that a real card lets take tensors of the host: it copies them, and the host waits.
_COPYING = {"index", "index_put", "index_put_", "_index_put_impl_", "copy_", "copy"}
_SAME_DEVICE = "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"


def _on_card(func: Any, args: Any, kwargs: Any, card: StandInCard | None) -> Any:
    name = func.overloadpacket.__name__
    given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
    strangers = [t for t in given if not isinstance(t, OnCard) and t.dim() > 0]
    if strangers:
        if name not in _COPYING or not isinstance(given[0], OnCard):
            raise RuntimeError(f"{_SAME_DEVICE} ({func})")
        if card is not None:
            card.waits[f"{name} with a tensor of the host"] += 1
    if card is not None:
        by_mask = name.startswith("index") and any(t.dtype is torch.bool for t in given[1:])
        if name in _READING or by_mask:
            card.waits[name] += 1
    inner = tree_map_only(OnCard, lambda t: t.inner, (args, kwargs))
    out = tree_map(lambda t: OnCard(t) if isinstance(t, Tensor) else t, func(*inner[0], **inner[1]))
    if any(r.alias_info is not None for r in func._schema.returns):
        return return_and_correct_aliasing(func, args, kwargs, out)
    return out


@functools.cache
def _is_composite(func: Any) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")


class _Kernels(TorchDispatchMode):
    def __init__(self, card: StandInCard) -> None:
        super().__init__()
        self.card = card

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        if any(isinstance(t, OnCard) for t in given):
            if _is_composite(func):  # inference mode hands them over whole
                with self:
                    return self.card.within(func.decompose, args, kwargs, True)
            return _on_card(func, args, kwargs, self.card)
        # The engine's tensors of zeros have no memory, which is not known below this point.
        plain_zeros = func.overloadpacket is torch.ops.aten._efficientzerotensor
        out = torch.zeros(*args, dtype=kwargs.get("dtype")) if plain_zeros else func(*args, **kwargs)
        if self.card.inside and not given:  # made within an operation on tensors of the card
            return tree_map(lambda t: OnCard(t) if isinstance(t, Tensor) else t, out)
        return out


_FROM_HOST = {torch.tensor, torch.as_tensor, torch.asarray}


class _Calls(TorchFunctionMode):
    def __init__(self, card: StandInCard) -> None:
        super().__init__()
        self.card = card

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        x = args[0] if args else None
        if name == "__get__":
            return CUDA if getattr(func, "__self__", None) is Tensor.device and on_card(x) else func(*args, **kwargs)
        if name == "to" and isinstance(x, Tensor):
            return self._to(*args, **kwargs)
        if name in ("cpu", "cuda") and isinstance(x, Tensor):
            return self._moved(x, name == "cuda", kwargs.get("non_blocking", False))
        if name == "pin_memory":
            x = x.clone()
            self.card.pinned.add(id(x))
            return x
        if name in ("numpy", "__array__") and on_card(x):
            raise TypeError(
                "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."
            )
        if name == "tolist" and isinstance(x, OnCard):
            self.card.waits["tolist"] += 1
            return x.inner.tolist()
        if name == "new_tensor" and on_card(x):
            return self._made(torch.tensor, args[1:], {"device": CUDA, "dtype": x.dtype, **kwargs})
        return self._made(func, args, kwargs)

    def _made(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """An operation, on the device that its arguments name or lie on."""
        cards = any(map(on_card, tree_leaves((args, kwargs))))
        named = kwargs.get("device")
        target = cards if named is None else torch.device(named).type == "cuda"
        generator = kwargs.get("generator")
        if generator is not None and isinstance(generator, CardGenerator) != target:
            needed, found = ("cuda", "cpu") if target else ("cpu", "cuda")
            raise RuntimeError(f"Expected a '{needed}' device type for generator but found '{found}'")
        if named is None:
            return self.card.within(func, args, kwargs, cards)
        kwargs["device"] = "cpu"
        if func in _FROM_HOST and isinstance(args[0], Tensor):
            kwargs.pop("device")
            return self._to(*args, device=named, **kwargs)
        made = self.card.within(func, args, kwargs, cards)
        if target and func in _FROM_HOST:
            self.card.waits[func.__name__] += 1
        if target == cards or not isinstance(made, Tensor):
            return made
        wants = made.requires_grad
        moved = OnCard(made.detach()) if target else made.inner
        return moved.requires_grad_() if wants else moved

    def _to(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        dtype, device = kwargs.get("dtype"), kwargs.get("device")
        for given in (*args, kwargs.get("other")):
            if isinstance(given, Tensor):
                dtype, device = given.dtype, CUDA if on_card(given) else "cpu"
            elif isinstance(given, torch.dtype):
                dtype = given
            elif isinstance(given, torch.device | str | int) and not isinstance(given, bool):
                device = given
        if device is not None:
            x = self._moved(x, torch.device(device).type == "cuda", kwargs.get("non_blocking", False))
        if dtype is not None and dtype != x.dtype:
            return self.card.within(Tensor.to, (x, dtype), {}, on_card(x))
        return x.clone() if kwargs.get("copy") else x

    def _moved(self, x: Tensor, to_card: bool, non_blocking: bool) -> Tensor:
        if on_card(x) == to_card:
            return x
        if not (to_card and non_blocking and id(x) in self.card.pinned):
            self.card.waits["copy to the card" if to_card else "copy to the host"] += 1
        if not x.requires_grad and not _functorch.is_functorch_wrapped_tensor(x):
            return OnCard(x.clone()) if to_card else x.inner.clone()  # type: ignore[attr-defined]
        return _Move.apply(x, to_card)  # type: ignore[no-untyped-call,no-any-return]


class _Event:
    """In place of ``torch.cuda.Event``."""

    def __init__(self, **_: Any) -> None:
        pass

    def record(self) -> None:
        """Nothing to record."""

    def elapsed_time(self, other: _Event) -> float:
        """Milliseconds; the card's clock is stopped."""
        return 1.0


class StandInCard:
    """Within ``plugged_in`` the device ``cuda`` exists; ``waits`` counts what made the host wait for it, by name."""

    def __init__(self) -> None:
        self.waits: Counter[str] = Counter()
        self.inside = False
        self.pinned: set[int] = set()

    def within(self, func: Any, args: Any, kwargs: Any, cards: bool) -> Any:
        """An operation; what it makes by itself is on the card if ``cards``."""
        before, self.inside = self.inside, cards
        try:
            return func(*args, **kwargs)
        finally:
            self.inside = before

    @contextmanager
    def plugged_in(self) -> Iterator[StandInCard]:
        """Runs the block on a machine with the card."""
        real_load = torch.load

        def load(*args: Any, map_location: Any = "cpu", **options: Any) -> Any:
            found = real_load(*args, map_location="cpu", **options)
            if torch.device(map_location).type == "cpu":
                return found
            return tree_map_only(Tensor, OnCard, found)

        cuda = {
            "Event": _Event, "synchronize": lambda *_: None, "reset_peak_memory_stats": lambda *_: None,
            "max_memory_allocated": lambda *_: 0, "is_available": lambda: True, "get_device_name": lambda *_: "stand-in card",
            "get_rng_state": lambda *_: None, "set_rng_state": lambda *_: None,
        }  # fmt: skip
        with ExitStack() as stack:
            for name, value in cuda.items():
                stack.enter_context(mock.patch.object(torch.cuda, name, value))
            # A PyTorch built for CUDA would ask the driver, which is not there, whether a graph is captured.
            stack.enter_context(mock.patch.object(torch.accelerator, "current_accelerator", return_value=None))
            stack.enter_context(mock.patch("parvibench.core.streams.Generator", make_generator))
            stack.enter_context(mock.patch.object(torch, "load", load))
            stack.enter_context(_Calls(self))
            stack.enter_context(_Kernels(self))
            yield self
