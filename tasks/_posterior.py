"""Posteriors that users of probabilistic programs know: what they share.

States are Stan's unconstrained coordinates (of simplexes those of Stan up to 2.36: ``_transforms``), and densities Stan's
``log_prob`` with the Jacobian, up to a constant.
Start: Stan's, every coordinate uniform on (-2, 2), drawn again where the density or the score is beyond 1e18: Stan draws
again where they are not finite in double precision; here their squares must be finite in single precision.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor
from torch.nn.functional import logsigmoid

from parvibench.core.errors import InputError
from parvibench.core.exact import Start
from parvibench.core.target import Formula, FormulaTarget, Target
from parvibench.core.task import LEAN_METRICS, Task
from parvibench.data.archives import load_stan_data

from ._transforms import Layout

Array = NDArray[np.float64]
Variables = Mapping[str, Array]
Place = Callable[[object], Tensor]  #: a float64 array or tensor as one of the target's device and type
Make = Callable[[Layout, Variables, Place], Target]  #: the density of parameters, given the data
Constants = Callable[[Variables], Sequence[object]]  #: what a density needs of the data

#: Stan's: how often a start is drawn before giving up.
_TRIES = 100
#: Largest density and score at a start.
_MOST = 1e18


@dataclass(frozen=True)
class Uniform(Start):
    """Every coordinate uniform on (-width, width)."""

    width: float = 2.0  #: half the length of the interval

    def sample(self, n: int, dim: int, generator: Generator) -> Tensor:
        """Independent draws, (n, dim) float64."""
        return self.width * (2 * torch.rand(n, dim, generator=generator, dtype=torch.float64) - 1)


class ModelTarget(Target):
    """A density written in constrained parameters, of a ``layout``.

    ``log_joint``: log of prior times likelihood, (R, N), of constants and parameters by name, (R, N) or (R, N, m).
    """

    def __init__(self, layout: Layout, log_joint: Callable[..., Tensor], constants: Sequence[Tensor]) -> None:
        self.dim, self._layout, self._log_joint, self._constants = layout.dim, layout, log_joint, constants

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Unnormalised log density in nats: (R, N, D) -> (R, N)."""
        values, log_jacobian = self._layout.constrain(x)
        return self._log_joint(*self._constants, **values) + log_jacobian

    def log_density_and_score(self, x: Tensor, batch: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Both at once."""
        return self.both_by_autograd(x, batch)


@dataclass(frozen=True, kw_only=True)
class PosteriorTask(Task):
    """A posterior given a data set, the same for all replicates."""

    layout: Layout  #: the parameters
    make: Make
    table: Callable[[], Variables] | None = None  #: the data, where they are not posteriordb's
    standardised: bool = True
    has_constant: bool = False
    metrics: tuple[str, ...] = LEAN_METRICS

    @property
    def coordinates(self) -> tuple[str, ...]:
        """Names of the coordinates."""
        return self.layout.names

    @property
    def convention(self) -> str:
        """Which transforms the coordinates are of, for messages."""
        of = {p.constraint.suffix for p in self.layout.parameters}
        sticks = "simplexes by stick-breaking, as in Stan up to 2.36"
        scale = "unconstrained, as tau_log is log tau; values of parameters: --task posteriordb:NAME or pb.from_stan"
        return "; ".join([sticks] * ("_stick" in of) + [scale] * (of != {""}))

    def variables(self) -> Variables:
        """The data, float64."""
        return load_stan_data(self.data[0]) if self.table is None else self.table()

    def target(self, replicates: Sequence[int], device: torch.device | str, dtype: torch.dtype) -> Target:
        """The posterior, the same for all replicates."""

        def place(array: object) -> Tensor:
            return torch.as_tensor(np.array(array, np.float64)).to(device, dtype)

        return self.make(self.layout, self.variables(), place)

    def initial(self, target: Target, n: int, generators: Sequence[Generator]) -> Tensor:
        """Stan's start, (R, n, D) float64."""
        with torch.inference_mode(False):  # autograd refuses data that are inference tensors
            judge = self.target((0,), "cpu", torch.float32)
            return torch.stack([_start(judge, n, g) for g in generators])


def by_formula(constants: Constants, formula: Formula) -> Make:
    """The density and score of unconstrained coordinates, whose constants are placed on the device."""
    return lambda layout, data, place: FormulaTarget(layout.dim, formula, [place(c) for c in constants(data)])


def by_model(constants: Constants, log_joint: Callable[..., Tensor]) -> Make:
    """The density of constrained parameters (see ``ModelTarget``), whose constants are placed on the device."""
    return lambda layout, data, place: ModelTarget(layout, log_joint, [place(c) for c in constants(data)])


def posterior(
    name: str, summary: str, tags: str, citation: str, parameters: Layout, make: Make, **more: Any
) -> PosteriorTask:
    """A posterior; tags are separated by ", ".

    It is posteriordb's, which the citation names as ``posteriordb DATA-MODEL``, unless ``data`` are among the fields.
    """
    data = citation.rpartition("posteriordb ")[2].partition("-")[0]
    return PosteriorTask(
        name=name,
        summary=summary,
        dim=parameters.dim,
        tags=frozenset({"posterior", *tags.split(", ")}),
        citation=citation,
        layout=parameters,
        make=make,
        **({"data": (f"posteriordb-{data}",)} | more),
    )


def _start(judge: Target, n: int, generator: Generator) -> Tensor:
    """Points uniform on (-2, 2)^D where density and score are moderate, (n, D)."""
    x = torch.empty(n, judge.dim, dtype=torch.float64)
    bad = torch.ones(n, dtype=torch.bool)
    for _ in range(_TRIES):
        x[bad] = Uniform().sample(int(bad.sum()), judge.dim, generator)
        density, score = judge.log_density_and_score(x[None].float())
        bad = ~((density[0].abs() <= _MOST) & (score[0].abs() <= _MOST).all(-1))
        if not bad.any():
            return x
    raise InputError(f"no start with a moderate density in {_TRIES} tries")


def half_student(log_scale: Tensor, df: float, width: float) -> tuple[Tensor, Tensor]:
    """Log density of exp(log_scale) under a Student t cut at 0 (df inf: Gaussian), without Jacobian, and derivative."""
    if df == math.inf:
        square = (2 * log_scale).exp() / width**2
        return -0.5 * square, -square
    t = 2 * log_scale - math.log(df * width**2)
    return 0.5 * (df + 1) * logsigmoid(-t), -(df + 1) * t.sigmoid()


def log_add(a: Tensor, b: Tensor) -> Tensor:
    """log(exp(a) + exp(b)); unlike PyTorch's, its second derivatives are finite where a and b are far apart."""
    return torch.maximum(a, b) - logsigmoid((a - b).abs())
