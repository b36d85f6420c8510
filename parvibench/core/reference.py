"""Reference samples, their noise floors and their certificate."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable
from io import BytesIO
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .errors import InputError


@dataclass(frozen=True)
class Floor:
    """Distribution of a metric between n independent exact draws and the shipped reference.

    Attributes:
        n: number of draws.
        values: the simulated values, sorted, at least 200.
    """

    n: int
    values: NDArray[np.float64]

    @property
    def median(self) -> float:
        """Median of the floor, in the metric's unit."""
        return float(np.median(self.values))

    def quantile(self, q: float) -> float:
        """Quantile of the floor at level q in [0, 1]."""
        return float(np.quantile(self.values, q))

    def p_value(self, value: float) -> float:
        """One-sided p-value of ``value`` under exact sampling (Monte Carlo, (1 + #>=) / (1 + m)).

        Larger values of the metric must mean worse samples. NaN counts as worst.
        """
        worse = int(np.sum(self.values >= value)) if np.isfinite(value) else 0
        return (1 + worse) / (1 + len(self.values))


@dataclass(frozen=True)
class Reference:
    """What samples of a task are judged against.

    Attributes:
        draws: (m, D) float64.
        exact: True for independent exact draws, False for a certified long run.
        certificate: the JSON beside the draws.
    """

    draws: Tensor
    exact: bool
    certificate: dict[str, Any] = field(repr=False)

    @cached_property
    def mean(self) -> Tensor:
        """Mean per coordinate, (D,): the certificate's (from all draws) where recorded."""
        recorded = self.certificate.get("mean")
        return self.draws.mean(0) if recorded is None else torch.tensor(recorded, dtype=torch.float64)

    @cached_property
    def sd(self) -> Tensor:
        """Standard deviation per coordinate, (D,)."""
        recorded = self.certificate.get("sd")
        return self.draws.std(0) if recorded is None else torch.tensor(recorded, dtype=torch.float64)

    @cached_property
    def bandwidth(self) -> float:
        """Median distance between reference rows: the task's fixed kernel bandwidth, in units of x."""
        return float(self.certificate["bandwidth"])

    def floor(self, metric: str, n: int) -> Floor | None:
        """The floor of a metric at sample size n.

        Between stored sizes the quantiles are interpolated linearly in log value against log n, which is
        exact for a power law.

        Returns:
            None when the metric has no floor or n lies outside the stored sizes: no guess outside.
        """
        table: dict[str, list[float]] = self.certificate.get("floors", {}).get(metric, {})
        sizes = sorted(int(k) for k in table)
        if not sizes or not sizes[0] <= n <= sizes[-1]:
            return None
        high = next(s for s in sizes if s >= n)
        upper = np.asarray(table[str(high)])
        if high == n:
            return Floor(n, upper)
        low = max(s for s in sizes if s < n)
        share = (np.log(n) - np.log(low)) / (np.log(high) - np.log(low))
        return Floor(n, np.asarray(table[str(low)]) ** (1 - share) * upper**share)


def load_reference(name: str, folder: Traversable | None = None) -> Reference | None:
    """Read the shipped reference of a task, or None when it has none.

    Args:
        name: the task's name.
        folder: where ``<name>.npz`` and ``<name>.json`` lie; default the installed package's.

    Raises:
        InputError: the draws do not match the hash in the certificate.
    """
    folder = folder or files("parvibench.tasks") / "references"
    certificate_file, draws_file = folder / f"{name}.json", folder / f"{name}.npz"
    if not certificate_file.is_file():
        return None
    certificate = json.loads(certificate_file.read_text())
    content = draws_file.read_bytes() if draws_file.is_file() else b""
    found = hashlib.sha256(content).hexdigest()
    if found != certificate["sha256"]:
        raise InputError(
            f"{draws_file}: the reference draws do not match their certificate\n"
            f"expected sha256 {certificate['sha256']}, found {found}.\n"
            "Reinstall the package, or rebuild with: parvibench reference build " + name
        )
    with np.load(BytesIO(content), allow_pickle=False) as arrays:
        draws = torch.from_numpy(arrays["draws"].astype(np.float64))
    return Reference(draws, bool(certificate["exact"]), certificate)
