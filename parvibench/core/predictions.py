"""Certified posterior predictions: what the samples of a regression are judged against.

The weights of a network have no comparable law (its hidden units may trade places), but its predictions do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources.abc import Traversable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .reference import Floored, Floors, load_reference, read_certified


@dataclass(frozen=True)
class Predictions(Floored):
    """Posterior mean and standard deviation of the regression function at held-out points.

    Replicates 0 to K-1 have a posterior each: their data splits differ.

    Attributes:
        mean: (K, T) of f(x_t), original units.
        sd: (K, T) of f(x_t), original units; the noise of the responses is not in it.
        states: (K, m, D) nearly independent draws behind them, for checks.
        scores: (K, F, D) the target's score at the first F of them: the density's fingerprint.
        certificate: the JSON beside the arrays.
        floors: metric -> sample size -> simulated values, sorted.
    """

    mean: Tensor
    sd: Tensor
    states: Tensor
    scores: Tensor
    certificate: dict[str, Any] = field(repr=False)
    floors: Floors = field(repr=False)

    def of(self, replicates: Sequence[int]) -> tuple[Tensor, Tensor] | None:
        """Means and standard deviations of these replicates, (R, T) each; None unless all are certified."""
        if max(replicates) >= len(self.mean):
            return None
        rows = torch.tensor(list(replicates))
        return self.mean[rows], self.sd[rows]


def load_predictions(name: str, folder: Traversable | None = None) -> Predictions | None:
    """Read the certified predictions of a task, or None when it has none.

    Args:
        name: the task's name.
        folder: where ``<name>.npz`` and ``<name>.json`` lie; default the installed package's.

    Raises:
        InputError: the arrays do not match the hash in the certificate.
    """
    found = read_certified(name, "predictions", folder)
    if found is None:
        return None
    certificate, arrays, floors = found
    names = ("mean", "sd", "states", "scores")
    tensors = {key: torch.from_numpy(arrays[key].astype(np.float64)) for key in names}
    return Predictions(**tensors, certificate=certificate, floors=floors)


def load_floored(name: str) -> Floored | None:
    """What a task's metrics have floors against: its reference, its certified predictions, or None.

    Raises:
        InputError: the arrays do not match the hash in the certificate.
    """
    return load_reference(name) or load_predictions(name)
