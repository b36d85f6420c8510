"""Data sets as numeric arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .fetch import fetch, registry

#: Sets that come with scikit-learn, by our name.
BUNDLED = ("sklearn-breast-cancer", "sklearn-diabetes")


class Table(NamedTuple):
    """Features X (n, p) and responses y (n,), float64, in original units; read only."""

    X: NDArray[np.float64]
    y: NDArray[np.float64]


@lru_cache(maxsize=16)
def load(name: str) -> Table:
    """A registered data set (``registry.json``) or a bundled one (``BUNDLED``); kept in memory.

    Only the registered feature columns are read: the second target of naval-propulsion-plant (column 17,
    turbine decay) is dropped.

    Raises:
        UnknownNameError, InputError, DataMissingError: as ``fetch``.
    """
    X, y = _load_bundled(name) if name in BUNDLED else _load_file(name)
    for array in (X, y):
        array.setflags(write=False)  # one array serves all callers
    return Table(X, y)


def _load_file(name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    path = fetch(name)
    delimiter = "," if path.suffix == ".csv" else None
    values = np.loadtxt(path, delimiter=delimiter, dtype=np.float64)
    entry = registry()[name]
    return values[:, : entry.features].copy(), values[:, entry.target_column].copy()


def _load_bundled(name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    from sklearn.datasets import load_breast_cancer, load_diabetes

    # scaled=False: scikit-learn's scaling of the diabetes features uses all rows, test rows included.
    loaders: dict[str, Callable[[], Any]] = {
        "sklearn-breast-cancer": lambda: load_breast_cancer(return_X_y=True),
        "sklearn-diabetes": lambda: load_diabetes(return_X_y=True, scaled=False),
    }
    X, y = loaders[name]()
    return X.astype(np.float64), y.astype(np.float64)
