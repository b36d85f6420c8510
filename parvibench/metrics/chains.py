"""Diagnostics of recorded chains: effective sample size and R-hat.

Vehtari et al. (2021), Bayesian Analysis 16:667-718, as implemented by ArviZ. They tell how well chains mix,
not whether they mix to the right law. Both look at every coordinate up to 100, beyond that at 100 evenly
spaced ones, and report the worst.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parvibench.core.metric import Context, NotApplicable

MOST_COORDINATES = 100
FEWEST_DRAWS = 4


def ess_bulk(samples: Tensor, context: Context) -> Tensor:
    """Effective sample size of the rank-normalised split chains, worst coordinate.

    Args:
        samples: (R, n, D); not looked at.
        context: needs a path, (R, T, N, D) with T >= 4.

    Returns:
        (R,) in draws, out of T N; higher is better; not cut at T N (antithetic chains exceed it). Zero
        when a coordinate never moved. O(T N log(T N)) a coordinate.
    """
    values = []
    for path in _paths(context):
        each = array_stats().ess(path, chain_axis=0, draw_axis=1, method="bulk")
        # ArviZ gives constant chains the full T N.
        values.append(float(np.where(np.ptp(path, axis=(0, 1)) > 0, each, 0.0).min()))
    return torch.tensor(values, dtype=samples.dtype)


def rhat(samples: Tensor, context: Context) -> Tensor:
    """Rank-normalised split R-hat, the larger of bulk and folded, worst coordinate.

    A single chain is cut into two halves first.

    Args:
        samples: (R, n, D); not looked at.
        context: needs a path, (R, T, N, D) with T >= 4 (8 for a single chain).

    Returns:
        (R,), dimensionless; lower is better, 1 for mixed chains; +inf when no chain ever moved.
    """
    values = []
    for path in _paths(context):
        chains = path if len(path) > 1 else _halves(path)
        with np.errstate(divide="ignore", invalid="ignore"):
            each = array_stats().rhat(chains, chain_axis=0, draw_axis=1, method="rank")
        values.append(float(np.where(np.isnan(each), np.inf, each).max()))
    return torch.tensor(values, dtype=samples.dtype)


def array_stats() -> Any:
    """ArviZ's diagnostics on plain arrays; imported late, and loosely, for its types are incomplete."""
    return importlib.import_module("arviz_stats.base").array_stats


def _paths(context: Context) -> list[NDArray[np.float64]]:
    """Every replicate's path as (N chains, T draws, at most 100 coordinates); zeros where not finite."""
    if context.path is None:
        raise NotApplicable("no chain path is recorded")
    draws, dim = context.path.shape[1], context.path.shape[3]
    if draws < FEWEST_DRAWS:
        raise NotApplicable(f"the chain path has {draws} draws; at least {FEWEST_DRAWS} are needed")
    kept = torch.arange(min(dim, MOST_COORDINATES)) * dim // min(dim, MOST_COORDINATES)
    chains = context.path[..., kept].transpose(1, 2).to(torch.float64).cpu()
    return list(torch.where(chains.isfinite(), chains, 0.0).numpy())


def _halves(path: NDArray[np.float64]) -> NDArray[np.float64]:
    """(1, T, D) -> (2, T // 2, D)."""
    half = path.shape[1] // 2
    if half < FEWEST_DRAWS:
        raise NotApplicable(f"a single chain of {path.shape[1]} draws is too short to be split")
    return np.concatenate([path[:, :half], path[:, half : 2 * half]])
