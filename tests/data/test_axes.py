"""Which dimension is which: names of dimensions decide, shapes only where they fit one reading."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parvibench.core.errors import InputError
from parvibench.data.draws.arrays import Choice
from parvibench.data.draws.forms import draws_of
from parvibench.data.draws.sample_formats import FORMATS

X = np.random.default_rng(3).normal(size=(4, 60, 3))  # chains, draws, coordinates
MU, THETA = X[..., 0], X[..., 1:]

#: Variables: name -> (values, names of dimensions); what is read, and its names.
NAMED: dict[str, tuple[dict[str, tuple[np.ndarray, tuple[str, ...]]], np.ndarray, list[str]]] = {
    "as ArviZ writes": ({"mu": (MU, ("chain", "draw")), "theta": (THETA, ("chain", "draw", "k"))}, X, ["mu", "theta[0]", "theta[1]"]),
    "draws first": ({"mu": (MU.T, ("draw", "chain")), "theta": (THETA.swapaxes(0, 1), ("draw", "chain", "k"))}, X, ["mu", "theta[0]", "theta[1]"]),
    "Julia's order": ({"theta": (THETA.transpose(2, 0, 1), ("k", "chain", "draw"))}, THETA, ["theta[0]", "theta[1]"]),
    "each its own order": ({"mu": (MU.T, ("draw", "chain")), "theta": (THETA, ("chain", "draw", "k"))}, X, ["mu", "theta[0]", "theta[1]"]),
    "plural names": ({"theta": (THETA.swapaxes(0, 1), ("draws", "chains", "k"))}, THETA, ["theta[0]", "theta[1]"]),
    "iterations": ({"mu": (MU.T, ("iteration", "chain"))}, MU[..., None], ["mu"]),
    "no chains": ({"theta": (THETA[0].T, ("k", "draw"))}, THETA[0], ["theta[0]", "theta[1]"]),
    "samples": ({"theta": (THETA[0].T, ("k", "sample"))}, THETA[0], ["theta[0]", "theta[1]"]),
    "capitals": ({"mu": (MU.T, ("Draw", "Chain"))}, MU[..., None], ["mu"]),
    "a matrix last": ({"L": (X.transpose(2, 1, 0)[:, None], ("i", "j", "draw", "chain"))}, X, ["L[0,0]", "L[1,0]", "L[2,0]"]),
}  # fmt: skip


class Labelled:
    """Looks like xarray's arrays as far as they are looked at: values, dims, coords."""

    def __init__(self, values: np.ndarray, dims: tuple[str, ...], coords: Mapping[str, Any] | None = None) -> None:
        self.values, self.dims, self.coords = values, dims, coords or {}


class Variables:
    """Likewise a data set."""

    def __init__(self, variables: Mapping[str, Labelled], coords: Mapping[str, Any] | None = None) -> None:
        self.data_vars, self.coords = variables, coords or {}


def of_file(path: Path, variables: dict[str, tuple[np.ndarray, tuple[str, ...]]], group: str = "posterior") -> Path:
    """A netCDF 4 file with dimension scales, as h5netcdf and netCDF4 write them."""
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        place = file.create_group(group) if group else file
        sizes = {d: n for values, dims in variables.values() for d, n in zip(dims, values.shape, strict=True)}
        for dim, size in sizes.items():
            place[dim] = np.arange(size)
            place[dim].make_scale(dim)
        for name, (values, dims) in variables.items():
            place[name] = values
            for i, dim in enumerate(dims):
                place[name].dims[i].attach_scale(place[dim])
    return path


@pytest.mark.parametrize("kind", NAMED)
@pytest.mark.parametrize("form", ["file", "file without groups", "memory"])
def test_names_of_dimensions_decide(kind: str, form: str, tmp_path: Path) -> None:
    variables, meant, names = NAMED[kind]
    if form == "memory":
        found = draws_of(Variables({k: Labelled(*v) for k, v in variables.items()}))
    else:
        path = of_file(tmp_path / "x.nc", variables, "posterior" if form == "file" else "")
        found = FORMATS[".nc"](path, Choice())
    assert np.array_equal(found.values, meant)
    assert list(found.names) == names


def test_variables_without_draws_are_refused(tmp_path: Path) -> None:
    path = of_file(tmp_path / "x.nc", {"y": (np.zeros(7), ("obs",)), "mu": (MU, ("chain", "draw"))})
    with pytest.raises(ValueError, match=r"'y' has the dimensions \(obs\), none of them draw"):
        FORMATS[".nc"](path, Choice())
    assert FORMATS[".nc"](path, Choice(variables=["mu"])).values.shape == (4, 60, 1)


def test_labels_of_coordinates_name_columns() -> None:
    """As of schools: their labels, where they are text or another order of numbers."""
    text = Labelled(THETA, ("chain", "draw", "school"), {"school": np.array(["Choate", "Deerfield"])})
    found = draws_of(Variables({"theta": text}, text.coords))
    assert list(found.names) == ["theta[Choate]", "theta[Deerfield]"]
    permuted = Labelled(THETA, ("chain", "draw", "i"), {"i": np.array([1, 0])})
    assert list(draws_of(Variables({"theta": permuted}, permuted.coords)).names) == ["theta[1]", "theta[0]"]
    single = Labelled(X.swapaxes(0, 1), ("draw", "chain", "parameter"), {"parameter": np.array(["mu", "a", "b"])})
    assert list(draws_of(single).names) == ["mu", "a", "b"]
    assert np.array_equal(draws_of(single).values, X)


#: Shapes without names of dimensions: what is read (chains or not), or the question.
PLACES: dict[str, tuple[Any, tuple[int, ...] | str]] = {
    "chains": (np.zeros((4, 60, 3)), (4, 60, 3)),
    "draws first": (np.zeros((60, 4, 3)), "60 chains of 4 draws.*draw,chain,dim"),
    "as many": (np.zeros((50, 50, 2)), "chain,draw,dim"),
    "one chain": (np.zeros((1, 60, 3)), (1, 60, 3)),
    "a flat array": (np.zeros(60), (60, 1)),
    "scalars and vectors in chains": ({"mu": MU, "theta": THETA}, (4, 60, 3)),
    "scalars in chains": ({"mu": MU, "tau": MU}, (4, 60, 2)),
    "draws of vectors": ({"theta": np.zeros((60, 5))}, (60, 5)),
    "wide draws of vectors": ({"theta": np.zeros((300, 400))}, "300 chains of 400 draws.*300 draws of 400"),
    "scalars and wide vectors": ({"mu": np.zeros(300), "theta": np.zeros((300, 400))}, (300, 401)),
    "wide, several": ({"a": np.zeros((100, 200)), "b": np.zeros((100, 200))}, "--axes"),
    "wide matrices": ({"a": np.zeros((100, 200)), "b": np.zeros((100, 200, 2))}, "--axes"),
    "lists": ({"a": [0.0] * 60, "b": [[0.0, 1.0]] * 60}, (60, 3)),
    "different lengths": ({"a": np.zeros(60), "b": np.zeros(59)}, "different lengths: a \\(60,\\), b \\(59,\\)"),
    "one draw a chain": (np.zeros((500, 1, 3)), "500 chains of 1 draws"),
}  # fmt: skip


@pytest.mark.parametrize("kind", PLACES)
def test_shapes_are_read_in_one_way_or_ask(kind: str) -> None:
    given, meant = PLACES[kind]
    if isinstance(meant, str):
        with pytest.raises(InputError, match=meant) as refused:
            draws_of(given)
        assert "\n" not in str(refused.value)
        return
    found = draws_of(given)
    assert found.values.shape == meant
    if np.ndim(given) == 3 or isinstance(given, dict):
        assert "by place" in "; ".join(found.read)


@pytest.mark.parametrize(
    ("given", "axes", "meant"),
    [
        (X.swapaxes(0, 1), "draw,chain,dim", X),
        (X, "chain,draw,dim", X),
        (X.transpose(2, 1, 0), "dim,draw,chain", X),
        (X[0].T, "dim,draw", X[0]),
        (MU, "chain,draw", MU[..., None]),
        ({"theta": THETA[0]}, "draw,dim", THETA[0]),
        ({"theta": THETA.swapaxes(0, 1)}, "draw,chain", THETA),
    ],
)
def test_axes_settle_it(given: Any, axes: str, meant: np.ndarray, tmp_path: Path) -> None:
    assert np.array_equal(draws_of(given, Choice(axes=axes)).values, meant)
    if isinstance(given, np.ndarray):
        np.save(tmp_path / "x.npy", given)
        assert np.array_equal(FORMATS[".npy"](tmp_path / "x.npy", Choice(axes=axes)).values, meant)


@pytest.mark.parametrize("axes", ["chain,dim", "draw,draw,dim", "draw,chain,dim,dim", "time"])
def test_axes_that_say_nothing_are_refused(axes: str) -> None:
    with pytest.raises(InputError, match=r"axes|--axes"):
        draws_of(X, Choice(axes=axes))


def test_a_stacked_sample_dimension_keeps_its_chains() -> None:
    """``arviz.extract`` puts chains and draws into one dimension ``sample``, the last."""
    stacked = Labelled(THETA.reshape(-1, 2).T, ("k", "sample"))
    coords = {"chain": Labelled(np.repeat(np.arange(4), 60), ("sample",))}
    assert np.array_equal(draws_of(Variables({"theta": stacked}, coords)).values, THETA)
