"""Train/test splits of the UCI regression protocol, and standardisation by training statistics.

Hernandez-Lobato & Adams (2015), arXiv:1502.05336, whose splits most papers on these sets share: one
``RandomState(1)``, one permutation per split in turn, the first floor(0.9 n + 0.5) rows for training. The
published sets have 20 splits (protein: 5); later replicates continue the stream.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from parvibench.core.streams import derive_seed
from parvibench.core.task import TUNING_REPLICATES

from .loaders import Table

Moments = tuple[NDArray[np.float64], NDArray[np.float64]]
#: Share of a benchmark split's training rows that tuning holds out.
VALIDATION_SHARE = 0.2
#: Number of rows and replicate -> a permutation of the rows.
Recipe = Callable[[int, int], NDArray[np.int64]]


class Split(NamedTuple):
    """Row numbers of the parts, (n_train,), (n_test,) and (n_dev,); the standard protocol has no third one."""

    train: NDArray[np.int64]
    test: NDArray[np.int64]
    dev: NDArray[np.int64] = np.empty(0, dtype=np.int64)


class RegressionSplit(NamedTuple):
    """One split of a regression set, ready for a model.

    ``X_train``, ``y_train``, ``X_test`` and ``X_dev`` are standardised; ``y_test`` and ``y_dev`` are in original
    units, as are ``y_mean`` and ``y_sd``, which standardised ``y_train``.
    """

    X_train: NDArray[np.float64]
    y_train: NDArray[np.float64]
    X_test: NDArray[np.float64]
    y_test: NDArray[np.float64]
    X_dev: NDArray[np.float64]
    y_dev: NDArray[np.float64]
    y_mean: float
    y_sd: float


def training_rows(n: int) -> int:
    """Number of training rows of n: floor(0.9 n + 0.5), in integers."""
    return (9 * n + 5) // 10


def split(n: int, replicate: int) -> Split:
    """The split of replicate number ``replicate`` of a set of n rows; of a tuning replicate see ``tuning_split``."""
    rows = permutation_for(n, replicate, _permutation)
    return tuning_split(Split(rows[: training_rows(n)], rows[training_rows(n) :]), replicate)


def permutation_for(n: int, replicate: int, recipe: Recipe) -> NDArray[np.int64]:
    """``recipe(n, replicate)``; tuning replicates, whose ids begin at ``TUNING_REPLICATES``, start from those of id 0, 1, ..."""
    return recipe(n, replicate - TUNING_REPLICATES if replicate >= TUNING_REPLICATES else replicate)


def tuning_split(rows: Split, replicate: int) -> Split:
    """The split of a tuning replicate: of a benchmark split's training rows, a fifth takes the place of the test rows.

    Rows of the benchmark's test and development parts are not used at all, but for the development rows of protocols
    that refit on them, which stay. Other replicates keep their split.
    """
    if replicate < TUNING_REPLICATES:
        return rows
    stream = np.random.RandomState(derive_seed("tuning split", len(rows.train), replicate) % 2**32)
    shuffled = stream.permutation(rows.train)
    held_out = round(VALIDATION_SHARE * len(shuffled))
    return Split(shuffled[held_out:], shuffled[:held_out], rows.dev)


def regression_split(table: Table, replicate: int) -> RegressionSplit:
    """Split and standardise by the mean and the population standard deviation of the training rows.

    Nothing of the test rows enters the training part or its scaling.
    """
    rows = split(len(table.y), replicate)
    return standardised(table, rows, moments(table.X[rows.train]), moments(table.y[rows.train]))


def standardised(table: Table, rows: Split, X_moments: Moments, y_moments: Moments) -> RegressionSplit:
    """The parts of a table (n, p), less a mean and over a standard deviation: (p,) each, scalars for y."""
    (X_mean, X_sd), (y_mean, y_sd) = X_moments, y_moments
    X = (table.X - X_mean) / X_sd
    return RegressionSplit(
        X_train=X[rows.train],
        y_train=(table.y[rows.train] - y_mean) / y_sd,
        X_test=X[rows.test],
        y_test=table.y[rows.test],
        X_dev=X[rows.dev],
        y_dev=table.y[rows.dev],
        y_mean=float(y_mean),
        y_sd=float(y_sd),
    )


def moments(values: NDArray[np.float64]) -> Moments:
    """Mean and population standard deviation over the rows, 1 where a column is constant."""
    # A constant column's computed deviation may be a rounding error instead of 0: ask for its range.
    constant = np.ptp(values, axis=0) == 0
    return values.mean(axis=0), np.where(constant, 1.0, values.std(axis=0))


def _permutation(n: int, replicate: int) -> NDArray[np.int64]:
    stream = np.random.RandomState(1)  # the published splits come from this legacy generator
    for _ in range(replicate):
        stream.choice(n, n, replace=False)
    return stream.choice(n, n, replace=False)
