"""Steps followed as they run, so that the harness can replay their tensor operations without the Python between them.

A step is run with a ``Trace`` in place of its meter, whose streams are in place of its streams, and with a ``Number`` in
place of every number of its state. Draws, mini-batches and numbers that enter tensor operations are inputs of the record,
each by a formula of the state's leaves and the streams. A number that decides a branch is a condition of the replay.
"""

import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from parvibench.core.streams import Streams

Formula = Callable[[list[Any], Streams], Any]


class NotRecordableError(Exception):
    """Why a step cannot be recorded."""


class Trace:
    """Log of one run of a step from a state of these leaves; ``given`` are its inputs, drawn from the streams where it ends."""

    def __init__(self, leaves: list[Any], streams: Streams, given: Iterator[Tensor]) -> None:
        self._at, self._given = (leaves, streams), given
        self.inputs: list[Formula] = []  #: tensors that the step takes from outside its state
        self.values: list[Tensor] = []  #: these tensors
        self.conditions: list[tuple[Formula, Any]] = []  #: values on which the operations depend
        self.charges: list[dict[str, float]] = []
        self.streams = _TracedStreams(streams, self)

    def charge(self, **asked: float) -> None:
        """In place of the meter's method of this name."""
        self.charges.append(asked)

    def tensor(self, formula: Formula) -> Tensor:
        """An input."""
        self.inputs.append(formula)
        value = next(self._given, None)
        self.values.append(formula(*self._at) if value is None else value)
        return self.values[-1]

    def leaf(self, i: int) -> Any:
        """Leaf i, no tensor, of the state: a ``Number``, or fixed."""
        value, formula = self._at[0][i], lambda leaves, _: leaves[i]
        return Number(self, formula) if type(value) in (int, float) else self.fixed(formula)

    def fixed(self, formula: Formula) -> Any:
        """The present value, under the condition that it is the same when the record is replayed."""
        value = formula(*self._at)
        self.conditions.append((formula, value))
        return value


class Number:
    """A number that may change from step to step; arithmetic makes further ones, and tensors with tensors."""

    def __init__(self, trace: Trace, formula: Formula) -> None:
        self.trace, self.formula = trace, formula

    def tensor(self) -> Tensor:
        """Without dimensions, so that it does not change the type of what it meets."""
        return self.trace.tensor(lambda *at: _scalar(self.formula(*at)))

    def __float__(self) -> float:
        return float(self.trace.fixed(self.formula))

    def __index__(self) -> int:
        return operator.index(self.trace.fixed(self.formula))

    def __round__(self) -> int:
        return round(self.trace.fixed(self.formula))

    def __bool__(self) -> bool:
        return bool(self.trace.fixed(lambda *at: bool(self.formula(*at))))


def formula_of(x: Any) -> Formula:
    """Of a ``Number`` its own, of anything else the same at every step."""
    return x.formula if isinstance(x, Number) else lambda *_: x


def as_tensor(value: float) -> Tensor:
    """A number without dimensions in double precision; a ``Number`` as an input of the record."""
    return value.tensor().double() if isinstance(value, Number) else _scalar(float(value))


def _scalar(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else torch.int64)


def _arithmetic(apply: Callable[[Any, Any], Any]) -> Callable[[Number, Any], Any]:
    def method(self: Number, other: Any) -> Any:
        if isinstance(other, Tensor):
            return apply(self.tensor(), other)
        if not isinstance(other, Number | int | float):
            return NotImplemented
        ours, theirs = self.formula, formula_of(other)
        return Number(self.trace, lambda *at: apply(ours(*at), theirs(*at)))

    return method


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lt", "le", "gt", "ge", "eq", "ne"):
    _apply = getattr(operator, _name)
    setattr(Number, f"__{_name}__", _arithmetic(_apply))
    setattr(Number, f"__r{_name}__", _arithmetic(lambda ours, theirs, apply=_apply: apply(theirs, ours)))  # type: ignore[misc]


class _TracedStreams(Streams):
    """Streams whose draws are inputs of a record."""

    def __init__(self, streams: Streams, trace: Trace) -> None:
        vars(self).update(vars(streams))
        self._trace = trace
        self.step: Any = Number(trace, lambda _, streams: streams.step)

    def _draw(self, law: str, stream: str, shape: tuple[int, ...], index: int) -> Tensor:
        asked = stream, tuple(map(int, shape)), int(index)
        return self._trace.tensor(lambda _, streams: getattr(streams, law)(*asked))

    def batch(self, rows: int, size: int) -> Tensor:
        return self._trace.tensor(lambda _, streams: streams.batch(rows, size))

    def generator(self, *_: Any) -> Any:
        raise NotRecordableError("the step draws by generators of its own")
