"""Steps followed as they run, so that the harness can replay their tensor operations without the Python between them.

A step is run with a ``Trace`` in place of its meter, whose streams are in place of its streams, and with a ``Number`` in
place of every number of its state. What it takes from outside is logged as source code: draws, mini-batches, and numbers
that enter tensor operations. A number that decides a branch is a condition under which the replay is right.
"""

import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from parvibench.core.streams import Streams


class NotRecordableError(Exception):
    """Why a step cannot be recorded."""


class Trace:
    """Log of one run of a step. Code of numbers: ``step``, and ``n[i]`` for leaf i of the state.

    ``given`` are the tensors of an earlier run of the same step, in the order of ``inputs``, or None.
    """

    def __init__(self, streams: Streams, given: Iterator[Tensor] | None = None) -> None:
        self._given = given
        self.inputs: list[str] = []  #: code of the tensors that the step takes from outside its state
        self.values: list[Tensor] = []  #: these tensors
        self.conditions: list[str] = []
        self.charges: list[dict[str, float]] = []
        self.streams = _TracedStreams(streams, self)

    def charge(self, **asked: float) -> None:
        """In place of the meter's method of this name."""
        self.charges.append(asked)

    def __getattr__(self, name: str) -> Any:
        raise NotRecordableError(f"the step reads `{name}` of its meter")

    def tensor(self, code: str, make: Callable[[], Tensor]) -> Tensor:
        """An input."""
        self.inputs.append(code)
        self.values.append(make() if self._given is None else next(self._given))
        return self.values[-1]


class Number:
    """A number that may change from step to step; arithmetic with it is logged, and with tensors is theirs."""

    def __init__(self, trace: Trace, code: str, value: float) -> None:
        self.trace, self.code, self.value = trace, code, value

    def tensor(self) -> Tensor:
        """Without dimensions, so that it does not change the type of what it meets."""
        dtype = torch.float64 if isinstance(self.value, float) else torch.int64
        return self.trace.tensor(f"tensor({self.code}, dtype={dtype})", lambda: torch.tensor(self.value, dtype=dtype))

    def _fixed(self) -> Any:
        self.trace.conditions.append(f"{self.code} == {self.value!r}")
        return self.value

    def __float__(self) -> float:
        return float(self._fixed())

    def __index__(self) -> int:
        return operator.index(self._fixed())

    def __round__(self, *digits: int) -> Any:
        return round(self._fixed(), *digits)

    def __bool__(self) -> bool:
        self.trace.conditions.append(f"bool({self.code}) is {bool(self.value)}")
        return bool(self.value)


def as_tensor(value: float) -> Tensor:
    """A number without dimensions in double precision; of a ``Number`` an input of the record."""
    return value.tensor().double() if isinstance(value, Number) else torch.tensor(float(value), dtype=torch.float64)


def _logged(symbol: str, apply: Callable[[Any, Any], Any], *, swapped: bool = False) -> Callable[[Number, Any], Any]:
    def method(self: Number, other: Any) -> Any:
        if isinstance(other, Tensor):
            return apply(other, self.tensor()) if swapped else apply(self.tensor(), other)
        if not isinstance(other, Number | int | float):
            return NotImplemented
        pair = [(self.code, self.value), (getattr(other, "code", repr(other)), getattr(other, "value", other))]
        (left, a), (right, b) = reversed(pair) if swapped else pair
        code, found = f"({left} {symbol} {right})", apply(a, b)
        if isinstance(found, bool):
            self.trace.conditions.append(f"{code} is {found}")
            return found
        return Number(self.trace, code, found)

    return method


_ARITHMETIC = {"+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow"}
_COMPARISONS = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}
for _symbol, _name in (_ARITHMETIC | _COMPARISONS).items():
    setattr(Number, f"__{_name}__", _logged(_symbol, getattr(operator, _name)))
    if _symbol in _ARITHMETIC:
        setattr(Number, f"__r{_name}__", _logged(_symbol, getattr(operator, _name), swapped=True))


class _TracedStreams(Streams):
    """Streams whose draws are inputs of a record."""

    def __init__(self, streams: Streams, trace: Trace) -> None:
        vars(self).update(vars(streams))
        self._streams, self._trace = streams, trace
        self.step: Any = Number(trace, "step", streams.step)

    def _draw(self, law: str, stream: str, shape: tuple[int, ...], index: int) -> Tensor:
        asked = stream, tuple(map(int, shape)), int(index)
        return self._trace.tensor(f"streams.{law}{asked}", lambda: getattr(self._streams, law)(*asked))

    def batch(self, rows: int, size: int) -> Tensor:
        return self._trace.tensor(f"streams.batch({rows}, {size})", lambda: self._streams.batch(rows, size))

    def generators(self, stream: str, block: int | str = 0) -> Any:
        raise NotRecordableError("the step draws by generators of its own")

    generator = generators  # type: ignore[assignment]
