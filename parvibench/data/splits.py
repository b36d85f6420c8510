"""Train/test splits of the UCI regression protocol, and standardisation by training statistics.

Hernandez-Lobato & Adams (2015), arXiv:1502.05336, whose splits most papers on these sets share: one
``RandomState(1)``, one permutation per split in turn, the first floor(0.9 n + 0.5) rows for training. The
published sets have 20 splits (protein: 5); later replicates simply continue the stream.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from parvibench.core.streams import derive_seed
from parvibench.core.task import TUNING_REPLICATES

from .loaders import Table


class Split(NamedTuple):
    """Row numbers of the training part, (n_train,), and of the test part, (n - n_train,)."""

    train: NDArray[np.int64]
    test: NDArray[np.int64]


class RegressionSplit(NamedTuple):
    """One split of a regression set, ready for a model.

    ``X_train``, ``y_train`` and ``X_test`` are standardised by the mean and the population standard
    deviation of the training rows; ``y_test`` is in original units, as are ``y_mean`` and ``y_sd``.
    """

    X_train: NDArray[np.float64]
    y_train: NDArray[np.float64]
    X_test: NDArray[np.float64]
    y_test: NDArray[np.float64]
    y_mean: float
    y_sd: float


def training_rows(n: int) -> int:
    """How many of n rows a split trains on: floor(0.9 n + 0.5), in integers."""
    return (9 * n + 5) // 10


def split(n: int, replicate: int) -> Split:
    """The split of replicate number ``replicate`` of a set of n rows.

    Ids from ``TUNING_REPLICATES`` on get a random split of their own, of the same sizes, so that tuning
    never sees the partition a result is computed on.
    """
    rows = _tuning_permutation(n, replicate) if replicate >= TUNING_REPLICATES else _permutation(n, replicate)
    return Split(rows[: training_rows(n)], rows[training_rows(n) :])


def regression_split(table: Table, replicate: int) -> RegressionSplit:
    """Split and standardise a table; nothing of the test rows enters the training part or its scaling."""
    train, test = split(len(table.y), replicate)
    X_mean, X_sd = moments(table.X[train])
    y_mean, y_sd = moments(table.y[train])
    return RegressionSplit(
        X_train=(table.X[train] - X_mean) / X_sd,
        y_train=(table.y[train] - y_mean) / y_sd,
        X_test=(table.X[test] - X_mean) / X_sd,
        y_test=table.y[test],
        y_mean=float(y_mean),
        y_sd=float(y_sd),
    )


def moments(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and population standard deviation over the rows, 1 where a column is constant."""
    # A constant column's computed deviation may be a rounding error instead of 0: ask for its range.
    constant = np.ptp(values, axis=0) == 0
    return values.mean(axis=0), np.where(constant, 1.0, values.std(axis=0))


def _permutation(n: int, replicate: int) -> NDArray[np.int64]:
    stream = np.random.RandomState(1)  # the published splits come from this legacy generator
    for _ in range(replicate):
        stream.choice(n, n, replace=False)
    return stream.choice(n, n, replace=False)


def _tuning_permutation(n: int, replicate: int) -> NDArray[np.int64]:
    return np.random.RandomState(derive_seed("tuning split", n, replicate) % 2**32).choice(
        n, n, replace=False
    )
