"""Constrained parameters from unconstrained coordinates, by Stan's transforms.

A density on constrained parameters becomes one on all of R^D when the logarithm of the transform's Jacobian is
added. Stan Reference Manual, chapter "Constraint Transforms"; the simplex is that of Stan up to version 2.36
(stick-breaking; later versions take isometric log ratios). Coordinates follow the order of the parameters, and bear
their names with that of the transform, as ``tau_log`` and ``theta_stick[1]``: values of the parameters, and coordinates of
another version of Stan, are not taken for these.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

Values = Mapping[str, Tensor]
Bound = float | Callable[[Values], Tensor]  #: a number, or a function of the parameters before


Transformed = tuple[Tensor, Tensor]  #: the parameter, (..., m), and the logarithm of the Jacobian's determinant, (...)


@dataclass(frozen=True)
class Constraint:
    """A map from unconstrained coordinates (..., k) to a parameter (..., m), one to one onto its support."""

    transform: Callable[[Tensor, Values], Transformed]  #: of coordinates, and of the parameters before
    suffix: str = ""  #: of the names of coordinates: the transform, in a word
    missing: int = 0  #: m - k


#: Any real number; positive ones, exp(u).
FREE = Constraint(lambda u, _: (u, u.new_zeros(())))
POSITIVE = Constraint(lambda u, _: (u.exp(), u.sum(-1)), "_log")
#: Increasing positive numbers: differences are exponentials, the first counted from 0.
POSITIVE_ORDERED = Constraint(lambda u, _: (u.exp().cumsum(-1), u.sum(-1)), "_ordered")


def between(low: Bound, high: Bound) -> Constraint:
    """Numbers between bounds: low + (high - low) p, p = 1 / (1 + exp(-u)); the Jacobian is (high - low) p (1 - p)."""

    def transform(u: Tensor, before: Values) -> Transformed:
        a, b = (bound(before).unsqueeze(-1) if callable(bound) else bound for bound in (low, high))
        width = b - a
        log_width = width.log() if isinstance(width, Tensor) else math.log(width)
        return a + width * u.sigmoid(), (log_width + logsigmoid(u) + logsigmoid(-u)).sum(-1)

    return Constraint(transform, "_logit")


def _ordered(u: Tensor, before: Values) -> Transformed:
    """Cumulative sums of (u_1, exp(u_2), ...), and the sum of u_2, ..."""
    steps = torch.cat([u[..., :1], u[..., 1:].exp()], -1)
    return steps.cumsum(-1), u[..., 1:].sum(-1)


def _stick(u: Tensor, before: Values) -> Transformed:
    """Shares of the stick, 1 / (1 + exp(-u_k + log(m - k))) of the rest each, and sum of log share (1 - share) rest."""
    k = u.shape[-1]
    logits = u - torch.arange(k, 0, -1, dtype=u.dtype, device=u.device).log()
    share, keep = logsigmoid(logits), logsigmoid(-logits)
    rest = keep.cumsum(-1)  # log of what is left after each
    left = rest - keep  # and before it
    log_x = torch.cat([share + left, rest[..., -1:]], -1)
    return log_x.exp(), (share + rest).sum(-1)


#: Increasing numbers, the first of them free; positive numbers that sum to 1.
ORDERED, SIMPLEX = Constraint(_ordered, "_ordered"), Constraint(_stick, "_stick", missing=1)


@dataclass(frozen=True)
class Parameter:
    """A named parameter of a model."""

    name: str  #: as the Stan program calls it
    size: int | None = None  #: of a vector, or None for a number
    constraint: Constraint = FREE  #: its support

    @property
    def free(self) -> int:
        """Number of unconstrained coordinates."""
        return (1 if self.size is None else self.size) - self.constraint.missing

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its coordinates: ``mu``, ``tau_log``, or ``theta[1]``, ``theta[2]``, ..."""
        name = f"{self.name}{self.constraint.suffix}"
        return (name,) if self.size is None else tuple(f"{name}[{i + 1}]" for i in range(self.free))


@dataclass(frozen=True)
class Layout:
    """The parameters of a model, one after the other."""

    parameters: tuple[Parameter, ...]

    @property
    def dim(self) -> int:
        """D."""
        return sum(p.free for p in self.parameters)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the D coordinates."""
        return tuple(name for p in self.parameters for name in p.names)

    @cached_property
    def places(self) -> Mapping[str, slice]:
        """Where the coordinates of every parameter are."""
        found, start = {}, 0
        for p in self.parameters:
            found[p.name] = slice(start, start + p.free)
            start += p.free
        return found

    def constrain(self, x: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """The parameters at (..., D) by name, and the log Jacobian, (...)."""
        values: dict[str, Tensor] = {}
        total = x.new_zeros(x.shape[:-1])
        pieces = torch.split(x, [p.free for p in self.parameters], -1)
        for p, u in zip(self.parameters, pieces, strict=True):
            value, log_jacobian = p.constraint.transform(u, values)
            values[p.name] = value.squeeze(-1) if p.size is None else value
            total = total + log_jacobian
        return values, total


def layout(*parameters: Parameter) -> Layout:
    """Parameters one after the other."""
    return Layout(parameters)
