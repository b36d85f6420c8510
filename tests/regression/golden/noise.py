"""Arithmetic that is the same under every version of PyTorch and every vector width: randomness and precision.

PyTorch's normal and uniform draws depend on both. Inside ``Noise`` every random function of PyTorch draws from NumPy's
Philox instead, whose raw integers are frozen, by the formulas below. The key of a draw is the next integer of the
generator that it was requested from: addresses, order and number of draws count as they do without it. What is computed in single
precision to save time is computed in double: its rounding depends on the processor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Self
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special
from torch import Generator, Tensor

from parvibench.core.errors import UnsupportedError

Array = NDArray[np.float64]


class Noise:
    """While it is entered, PyTorch's random functions draw from Philox, and ``Tensor.float`` gives double precision.

    Raises:
        UnsupportedError: a random function for which no formula is given here.
    """

    def __init__(self) -> None:
        self._patches = ExitStack()

    def __enter__(self) -> Self:
        # Not a TorchFunctionMode: through one every function of PyTorch would take twice as long.
        replaced = {name: partial(draw, self) for name, draw in _DRAWS.items()}
        replaced |= {name: partial(_refused, name) for name in _UNKNOWN}
        for place in (torch, Tensor):
            for name, draw in replaced.items():
                if hasattr(place, name):
                    self._patches.enter_context(mock.patch.object(place, name, _function(draw)))
        self._patches.enter_context(mock.patch.object(Tensor, "float", Tensor.double))
        return self

    def __exit__(self, *_: object) -> None:
        self._patches.close()

    def uniform(self, shape: Sequence[int], generator: Generator | None) -> Array:
        """Uniform numbers in (0, 1)."""
        return uniform_numbers(_key(generator), math.prod(shape)).reshape(tuple(shape))

    def _rand(self, *size: Any, **options: Any) -> Tensor:
        return _made(self.uniform(_shape(size), options.pop("generator", None)), options)

    def _randn(self, *size: Any, **options: Any) -> Tensor:
        return _made(special.ndtri(self.uniform(_shape(size), options.pop("generator", None))), options)

    def _normal(self, mean: Any, std: Any = 1.0, size: Any = None, generator: Any = None, **options: Any) -> Tensor:
        if size is None:
            size = np.broadcast_shapes(*(tuple(v.shape) for v in (mean, std) if isinstance(v, Tensor)))
            options = {"dtype": next(v.dtype for v in (mean, std) if isinstance(v, Tensor))}
        return mean + std * self._randn(size, generator=generator, **options)

    def _like(self, law: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda like, **options: law(like.shape, **{"dtype": like.dtype, **options})

    def _randint(self, *args: Any, **options: Any) -> Tensor:
        *bounds, size = args if "size" not in options else (*args, options.pop("size"))
        low, high = bounds if len(bounds) == 2 else (0, *bounds)
        u = uniform_numbers(_key(options.pop("generator", None)), math.prod(size)).reshape(tuple(size))
        return _made(low + np.floor(u * (high - low)), {"dtype": torch.int64} | options)

    def _randperm(self, n: int, **options: Any) -> Tensor:
        u = uniform_numbers(_key(options.pop("generator", None)), n)
        return _made(np.argsort(u, kind="stable").astype(np.float64), {"dtype": torch.int64} | options)

    def _multinomial(
        self, weights: Tensor, count: int, replacement: bool = False, *, generator: Generator | None = None
    ) -> Tensor:
        rows = weights.detach().double().reshape(-1, weights.shape[-1]).numpy()
        if replacement:
            u = self.uniform((len(rows), count), generator)
            ends = rows.cumsum(1) / rows.sum(1, keepdims=True)
            drawn = np.stack([np.searchsorted(end, v, side="right") for end, v in zip(ends, u, strict=True)])
            drawn = drawn.clip(max=rows.shape[1] - 1)
        else:  # Efraimidis & Spirakis (2006): the largest of u^(1/w)
            keys = np.log(self.uniform(rows.shape, generator)) / np.maximum(rows, 1e-300)
            drawn = np.argsort(-keys, axis=1, kind="stable")[:, :count]
        return torch.from_numpy(drawn).reshape(*weights.shape[:-1], count)

    def _fill(self, quantile: Callable[..., Array]) -> Callable[..., Tensor]:
        def fill(x: Tensor, *args: Any, generator: Generator | None = None, **options: Any) -> Tensor:
            drawn = quantile(self.uniform(x.shape, generator), *args, **options)
            return x.copy_(torch.from_numpy(np.asarray(drawn)))

        return fill

    def _bernoulli(self, p: Tensor, *, generator: Generator | None = None) -> Tensor:
        return (torch.from_numpy(self.uniform(p.shape, generator)) < p).to(p)


def uniform_numbers(key: int, count: int) -> Array:
    """Numbers in (0, 1) from the 53 high bits of Philox's integers, (count,)."""
    raw = np.random.Philox(key=key).random_raw(count)
    return np.asarray((raw >> np.uint64(11)) * 2.0**-53 + 2.0**-54)


def normal_numbers(key: int, *shape: int) -> Array:
    """Standard normal numbers by the inverse distribution function."""
    return np.asarray(special.ndtri(uniform_numbers(key, math.prod(shape)))).reshape(shape)


_RANDOM = Tensor.random_


def _key(generator: Generator | None) -> int:
    """The next integer of a generator, which moves on; of the Mersenne twister, whose integers are the same anywhere."""
    return int(_RANDOM(torch.empty((), dtype=torch.int64), generator=generator or torch.default_generator))


def _refused(name: str, *_: object, **__: object) -> Tensor:
    raise UnsupportedError(f"traces have no formula for {name}")


def _function(draw: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function, which as a member of a class becomes a method."""
    return lambda *args, **kwargs: draw(*args, **kwargs)


def _shape(size: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size


def _made(values: Array, options: dict[str, Any]) -> Tensor:
    """A tensor of values as ``torch.rand`` would make it."""
    wanted = options.get("dtype") or torch.get_default_dtype()
    made = torch.from_numpy(np.ascontiguousarray(values)).to(wanted).reshape(np.shape(values))
    if (out := options.get("out")) is not None:
        return out.copy_(made)
    return made.requires_grad_() if options.get("requires_grad") else made


_DRAWS: dict[str, Callable[..., Tensor]] = {
    "rand": Noise._rand,
    "randn": Noise._randn,
    "normal": Noise._normal,
    "randint": Noise._randint,
    "randperm": Noise._randperm,
    "multinomial": Noise._multinomial,
    "bernoulli": Noise._bernoulli,
    "rand_like": lambda self, *a, **k: self._like(self._rand)(*a, **k),
    "randn_like": lambda self, *a, **k: self._like(self._randn)(*a, **k),
    "uniform_": lambda self, *a, **k: self._fill(lambda u, low=0.0, high=1.0: low + (high - low) * u)(*a, **k),
    "normal_": lambda self, *a, **k: self._fill(lambda u, mean=0.0, std=1.0: mean + std * special.ndtri(u))(*a, **k),
    "exponential_": lambda self, *a, **k: self._fill(lambda u, lambd=1.0: -np.log1p(-u) / lambd)(*a, **k),
}
#: Random functions that nothing here needs.
_UNKNOWN = (
    "random_", "bernoulli_", "poisson", "binomial", "cauchy_", "log_normal_", "geometric_", "randint_like", "dropout",
    "_standard_gamma", "_sample_dirichlet",
)  # fmt: skip
