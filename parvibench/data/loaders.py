"""Data sets as numeric arrays."""

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from parvibench.core.errors import InputError

from .fetch import DataSet, fetch, registry

#: Data sets bundled with scikit-learn, by our name.
BUNDLED = ("sklearn-breast-cancer", "sklearn-diabetes")


class Table(NamedTuple):
    """Features X (n, p) and responses y (n,), float64, in original units; read only."""

    X: NDArray[np.float64]
    y: NDArray[np.float64]


@lru_cache(maxsize=16)
def load(name: str) -> Table:
    """A registered data set (``registry.json``) or a bundled one (``BUNDLED``); cached in memory.

    Only the registered feature columns are read: the second target of naval-propulsion-plant (column 17,
    turbine decay) is dropped. Letters become 0/1 columns: mushroom has 22 attributes and 117 columns, and its
    response is 1 where a mushroom is edible. Errors as of ``fetch``.
    """
    X, y = _load_bundled(name) if name in BUNDLED else _load_file(name)
    for array in (X, y):
        array.setflags(write=False)  # one array serves all callers
    return Table(X, y)


def _load_file(name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    path, entry = fetch(name), registry()[name]
    if path.suffix == ".mat":
        return _load_training_part(path)
    if entry.target_column is None:
        raise InputError(f"data set {name!r} is no table: it has no response")
    if path.suffix == ".data":
        return _load_letters(path, entry, entry.target_column)
    delimiter = "," if path.suffix in (".csv", ".data-numeric") else None
    values = np.loadtxt(path, delimiter=delimiter, dtype=np.float64, skiprows=entry.header_lines)
    return values[:, : entry.features].copy(), values[:, entry.target_column].copy()


def _load_letters(path: Path, entry: DataSet, target: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """One 0/1 column per attribute and letter, in their order; the response is 1 for its first letter.

    A letter for missing values counts as any other.
    """
    letters = np.loadtxt(path, delimiter=",", dtype="U1", skiprows=entry.header_lines)
    response = letters[:, target]
    attributes = np.delete(letters, target, axis=1).T
    X = np.column_stack([column[:, None] == np.unique(column) for column in attributes])
    return X.astype(np.float64), (response == np.unique(response)[0]).astype(np.float64)


def _load_training_part(path: Path) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """``X_train`` without its first column of ones and ``y_train`` of a MATLAB file.

    The file's other entries are test rows and results of others.
    """
    from scipy.io import loadmat

    arrays = loadmat(path, variable_names=["X_train", "y_train"])
    return arrays["X_train"][:, 1:].astype(np.float64), arrays["y_train"].ravel().astype(np.float64)


def _load_bundled(name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    from sklearn.datasets import load_breast_cancer, load_diabetes

    if name == "sklearn-diabetes":  # scikit-learn's scaling of the features uses all rows, test rows included
        X, y = load_diabetes(return_X_y=True, scaled=False)
    else:
        X, y = load_breast_cancer(return_X_y=True)
    return X.astype(np.float64), y.astype(np.float64)
