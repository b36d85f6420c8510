"""What samples are judged by: reference draws or certified predictions, with noise floors and a certificate."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources.abc import Traversable
from io import BytesIO
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .certified import home_of as home_of
from .certified import stamp_of as stamp_of
from .certified import verified
from .errors import InputError

Values = NDArray[np.float64]
Floors = Mapping[str, Mapping[int, Values]]

#: Metrics that meet other reference rows at every n: their floors cannot be interpolated.
STORED_SIZES_ONLY = ("c2st",)


def fingerprint_rows(dim: int) -> int:
    """How many draws' scores a reference in that many dimensions records: 100, and at most 100,000 numbers."""
    return min(100, 100_000 // dim)


@dataclass(frozen=True)
class Floor:
    """Distribution of a metric between n independent exact draws and the shipped reference."""

    n: int  #: number of draws
    values: Values  #: the simulated values, sorted, at least 200

    @cached_property
    def median(self) -> float:
        """Median of the floor, in the metric's unit."""
        return float(np.median(self.values))

    def quantile(self, q: float) -> float:
        """Quantile of the floor at level q in [0, 1]."""
        return float(np.quantile(self.values, q))


class Floored:
    """What a metric's values are judged against: something with noise floors and a certificate."""

    certificate: dict[str, Any]  #: the JSON next to the arrays
    floors: Floors  #: metric -> sample size -> simulated values, sorted

    def floor(self, metric: str, n: int) -> Floor | None:
        """The floor of a metric at sample size n.

        Between stored sizes every quantile is interpolated linearly in log n: its logarithm where both ends have one
        sign, which is exact for a power law, else the quantile itself. None when the metric has no floor, n is
        outside the stored sizes (no guess outside), or the metric's floors cannot be interpolated.
        """
        table = self.floors.get(metric, {})
        if n in table:
            return Floor(n, table[n])
        smaller, larger = [s for s in table if s < n], [s for s in table if s > n]
        if not smaller or not larger or metric in STORED_SIZES_ONLY:
            return None
        low, high = max(smaller), min(larger)
        share = (math.log(n) - math.log(low)) / (math.log(high) - math.log(low))
        a, b = _of_one_length(table[low], table[high])
        with np.errstate(invalid="ignore"):
            power = np.sign(a) * np.abs(a) ** (1 - share) * np.abs(b) ** share
        return Floor(n, np.sort(np.where(np.sign(a) == np.sign(b), power, (1 - share) * a + share * b)))


@dataclass(frozen=True)
class Reference(Floored):
    """What samples of a task are judged against."""

    draws: Tensor  #: (m, D) float64
    exact: bool  #: True for independent exact draws, False for a certified long run
    certificate: dict[str, Any] = field(repr=False)  #: the JSON next to the draws
    floors: Floors = field(default_factory=dict, repr=False)  #: metric -> sample size -> simulated values, sorted
    #: the target's score at the first draws, (100, D) or fewer, float64: the density's fingerprint
    scores: Tensor | None = field(default=None, repr=False)

    @property
    def certified(self) -> bool:
        """Whether the draws passed the gates of a certificate."""
        return bool(self.certificate.get("certified", True))

    @property
    def grade(self) -> str:
        """``certified``; ``standard``, of given draws that lack only a larger ESS; else ``not certified``."""
        return str(self.certificate.get("grade", "certified" if self.certified else "not certified"))

    @property
    def failed_gates(self) -> list[str]:
        """The gates that the draws did not pass, with their numbers."""
        return [f"{gate['gate']}: {gate['found']}" for gate in self.certificate.get("gates", ()) if not gate["passed"]]

    @cached_property
    def mean(self) -> Tensor:
        """Mean per coordinate, (D,): the certificate's (from all draws) where recorded."""
        recorded = self.certificate.get("mean")
        return self.draws.mean(0) if recorded is None else torch.tensor(recorded, dtype=torch.float64)

    @cached_property
    def sd(self) -> Tensor:
        """Standard deviation per coordinate, (D,); infinite where null is recorded."""
        recorded = self.certificate.get("sd")
        if recorded is None:
            return self.draws.std(0)
        return torch.tensor([math.inf if sd is None else sd for sd in recorded], dtype=torch.float64)

    @property
    def pool_sizes(self) -> tuple[int, ...]:
        """Sample sizes of which floors can be added, see ``parvibench.metrics.own_floors``."""
        return tuple(self.certificate.get("pool", {}).get("sizes", ()))

    @cached_property
    def units(self) -> Tensor | None:
        """Standard deviations in units of which metrics compare, (D,) > 0; None where they compare in units of x."""
        recorded = self.certificate.get("units")
        return None if recorded is None else torch.tensor(recorded, dtype=torch.float64)

    def in_units(self, x: Tensor) -> Tensor:
        """Points (..., D) in ``units``."""
        return x if self.units is None else x / self.units.to(x)

    @cached_property
    def standardised(self) -> Reference:
        """This reference with draws and moments in ``units``, as its bandwidth and floors are already."""
        moments = {key: self.in_units(value).tolist() for key, value in (("mean", self.mean), ("sd", self.sd))}
        certificate = self.certificate | moments | {"units": None}
        return Reference(self.in_units(self.draws), self.exact, certificate, self.floors)

    @cached_property
    def bandwidth(self) -> float:
        """Median distance between reference rows, the task's fixed kernel bandwidth: in ``units``, or units of x."""
        return float(self.certificate["bandwidth"])


class Certified(NamedTuple):
    """Posterior predictions of a batch of replicates at T held-out points, original units; None where not stored."""

    mean: Tensor  #: (R, T) of f(x_t)
    sd: Tensor  #: (R, T) of f(x_t)
    draws: Tensor | None = None  #: (R, m, T) draws of f, less ``mean``, over ``sd``
    noise: Tensor | None = None  #: (R, m) noise standard deviations of the same draws
    log_p: Tensor | None = None  #: (R, T) log predictive densities of the held-out responses


@dataclass(frozen=True)
class Predictions(Floored):
    """Posterior mean and standard deviation of the regression function at held-out points.

    The weights of a network have no comparable law (its hidden units may trade places), but its predictions do.
    Replicates 0 to K-1 have a posterior each: their data splits differ.
    """

    mean: Tensor  #: (K, T) of f(x_t), original units
    sd: Tensor  #: (K, T) of f(x_t), original units; the noise of the responses is not in it
    states: Tensor  #: (K, m, D) nearly independent draws behind them, for checks
    scores: Tensor  #: (K, F, D) the target's score at the first F of them: the density's fingerprint
    certificate: dict[str, Any] = field(repr=False)  #: the JSON next to the arrays
    floors: Floors = field(repr=False)  #: metric -> sample size -> simulated values, sorted
    draws: Tensor | None = None  #: (K, m, T), with ``noise`` (K, m) and ``log_p`` (K, T) as in ``Certified``; or None
    noise: Tensor | None = None
    log_p: Tensor | None = None

    def of(self, replicates: Sequence[int]) -> Certified | None:
        """The predictions of these replicates; None unless all are certified."""
        if max(replicates) >= len(self.mean):
            return None
        rows, more = torch.tensor(list(replicates)), (self.draws, self.noise, self.log_p)
        return Certified(self.mean[rows], self.sd[rows], *(None if a is None else a[rows] for a in more))


def _of_one_length(a: Values, b: Values) -> tuple[Values, Values]:
    """Two sorted samples as equally many quantiles: as many as the shorter has values."""
    if len(a) == len(b):
        return a, b
    levels = (np.arange(min(len(a), len(b))) + 0.5) / min(len(a), len(b))
    return np.quantile(a, levels), np.quantile(b, levels)


def load_reference(name: str, folder: Traversable | None = None) -> Reference | None:
    """The reference of a task, or None; ``folder`` is the only one to search, as in all that follow.

    ``<name>.npz`` holds ``draws``, (m, D), ``scores`` and an array ``<metric>/<n>`` a floor; ``InputError`` for a wrong
    hash.
    """
    found = read_certified(name, "draws", folder)
    if found is None:
        return None
    certificate, arrays, floors = found
    draws = torch.from_numpy(arrays["draws"].astype(np.float64))
    scores = torch.from_numpy(arrays["scores"]) if "scores" in arrays else None
    return Reference(draws, bool(certificate["exact"]), certificate, floors, scores)


def load_predictions(name: str, folder: Traversable | None = None) -> Predictions | None:
    """The certified predictions of a task, or None; errors as of ``load_reference``."""
    found = read_certified(name, "predictions", folder)
    if found is None:
        return None
    certificate, arrays, floors = found
    tensors = {key: torch.from_numpy(value.astype(np.float64)) for key, value in arrays.items()}
    return Predictions(**tensors, certificate=certificate, floors=floors)


def load_floored(name: str) -> Floored | None:
    """A task's reference, its certified predictions, or None; errors as of ``load_reference``."""
    return load_reference(name) or load_predictions(name)


def read_certified(
    name: str, kind: str, folder: Traversable | None = None
) -> tuple[dict[str, Any], dict[str, NDArray[Any]], Floors] | None:
    """A certificate of a kind (``draws``, ``predictions``), its arrays and their floors, or None; errors as above."""
    found = verified(name, folder)
    if found is None or found.facts.get("kind", "draws") != kind:
        return None
    with np.load(BytesIO(found.content), allow_pickle=False) as stored:
        arrays = {key: stored[key] for key in stored.files}
    arrays |= _later_floors(name, found.facts, folder)
    floors: dict[str, dict[int, Values]] = {}
    for key in [key for key in arrays if "/" in key]:
        metric, n = key.split("/")
        floors.setdefault(metric, {})[int(n)] = arrays.pop(key).astype(np.float64)
    return found.facts, arrays, floors


def _later_floors(name: str, certificate: Mapping[str, Any], folder: Traversable | None) -> dict[str, NDArray[Any]]:
    """Arrays ``<metric>/<n>`` of ``<name>.floors-<n>.npz``: floors added to a reference; damaged files are as none."""
    found: dict[str, NDArray[Any]] = {}
    home = folder or home_of(name)
    if home is None:
        return found
    for n in certificate.get("pool", {}).get("sizes", ()):
        try:
            with np.load(BytesIO((home / f"{name}.floors-{n}.npz").read_bytes()), allow_pickle=False) as stored:
                if str(stored["reference"]) == certificate["sha256"]:  # else of an earlier one
                    found |= {key: stored[key] for key in stored.files if "/" in key}
        except (OSError, ValueError, KeyError, BadZipFile):
            continue
    return found


def load_pool(name: str, certificate: Mapping[str, Any], folder: Traversable | None = None) -> Tensor:
    """Draws that a user-built reference's floors come from, (m, D) float64; ``InputError`` for a wrong file."""
    home = folder or home_of(name)
    file = None if home is None else home / f"{name}.pool.npy"
    content = file.read_bytes() if file is not None and file.is_file() else b""
    if hashlib.sha256(content).hexdigest() != certificate["pool"]["sha256"]:
        raise InputError(
            f"{file}: missing, or not the draws of the certificate, from which noise floors are simulated; "
            "build the reference again: parvibench reference build file.py:OBJECT"
        )
    return torch.from_numpy(np.load(BytesIO(content), allow_pickle=False).astype(np.float64))
