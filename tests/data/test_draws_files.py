"""Files of chains and named draws, as Stan, R, ArviZ and PyTorch write them."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from parvibench.core.errors import InputError
from parvibench.data.draws.arrays import Choice, Draws
from parvibench.data.draws.sample_formats import FORMATS
from parvibench.data.samples import read_draws

X = np.random.default_rng(1).normal(size=(4, 30, 3))  # four chains of mu, theta[1], theta[2]
NAMES = ("mu", "theta[1]", "theta[2]")
ALL = Choice()


def here(path: Path, choice: Choice = ALL) -> Draws:
    """What the reader gives, in this process: starting another takes most of the time."""
    return FORMATS[path.suffix](path, choice)


def stan_csv(chain: np.ndarray, warmup: int = 0) -> str:
    """As CmdStan 2.35 writes it: comments before, after the warm-up, and at the end; ``chain`` begins with the warm-up."""
    head = f"# stan_version_major = 2\n# model = eight\n#     num_warmup = {2 * warmup}\n#     save_warmup = {int(warmup > 0)}\n#     thin = 2\n"
    rows = [f"-1.5,0.9,{a!r},{b!r},{c!r}\n" for a, b, c in chain.tolist()]
    adapted = "# Adaptation terminated\n# Step size = 0.8\n# Diagonal elements of inverse mass matrix:\n# 1,2,3,4,5\n"
    body = "".join(rows[:warmup]) + adapted + "".join(rows[warmup:])
    return head + "lp__,accept_stat__,mu,theta.1,theta.2\n" + body + "# \n#  Elapsed Time: 0.1 seconds (Warm-up)\n"


def frame() -> pd.DataFrame:
    return pd.DataFrame(X.reshape(-1, 3), columns=["mu", "theta[1]", "theta[2]"])


def posterior_csv() -> str:
    """As ``write.csv(posterior::as_draws_df(...))`` does: names of rows, and three columns that number draws."""
    table = frame().assign(
        **{".chain": np.repeat([1, 2, 3, 4], 30), ".iteration": np.tile(np.arange(30), 4), ".draw": range(120)}
    )
    table.index = [str(i + 1) for i in range(120)]
    return table.to_csv(quoting=2)


@pytest.fixture
def place(tmp_path: Path) -> Callable[[str, str | bytes], Path]:
    def write(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


@pytest.mark.ci
def test_stan_files_are_chains(place: Callable[..., Path]) -> None:
    found = read_draws([place(f"out_{i}.csv", stan_csv(chain)) for i, chain in enumerate(X)])
    assert found.names == NAMES
    assert np.array_equal(found.values, X)


def test_saved_warmup_is_left_out(place: Callable[..., Path]) -> None:
    """Ten rows of a warm-up of twenty iterations thinned by two."""
    assert np.array_equal(here(place("x.csv", stan_csv(X[0], warmup=10))).values, X[0, 10:])


def test_names_of_rows_and_numbers_of_draws_are_no_coordinates(place: Callable[..., Path]) -> None:
    found = here(place("x.csv", posterior_csv()))
    assert found.names == NAMES
    assert np.array_equal(found.values, X)
    flat = X.reshape(-1, 3)
    for text in (frame().to_csv(), frame().to_csv().removeprefix(","), frame().to_csv(index=False)):
        plain = here(place("x.csv", text))
        assert np.array_equal(plain.values, flat)
        assert plain.names == NAMES


@pytest.mark.parametrize(
    ("choice", "kept"),
    [
        (Choice(columns=["theta[2]", "mu"]), [2, 0]),
        (Choice(columns=["3", "1"]), [2, 0]),
        (Choice(variables=["theta"]), [1, 2]),
        (Choice(variables=["theta", "mu"]), [1, 2, 0]),
    ],
)
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_columns_are_chosen_and_ordered(choice: Choice, kept: list[int], ending: str, tmp_path: Path) -> None:
    """Beside a column of text, which is not asked for."""
    path = tmp_path / f"x.{ending}"
    table = frame().assign(model="a")
    table.to_csv(path, index=False) if ending == "csv" else table.to_parquet(path)
    if choice.columns == ["3", "1"] and ending == "parquet":
        pytest.skip("counts the same way")
    assert np.array_equal(here(path, choice).values, X.reshape(-1, 3)[:, kept])


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        (Choice(columns=["nu"]), "no column 'nu'; it has mu, theta[1], theta[2]"),
        (Choice(columns=["4"]), "no column '4'"),
        (Choice(variables=["thet"]), "no variable 'thet'; it has mu, theta"),
    ],
)
def test_what_is_not_there_is_told(choice: Choice, told: str, place: Callable[..., Path]) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        here(place("x.csv", frame().to_csv(index=False)), choice)


def test_chains_of_different_length_are_refused(place: Callable[..., Path]) -> None:
    paths = [place(f"{i}.csv", stan_csv(X[i, : 30 - i])) for i in range(2)]
    with pytest.raises(InputError, match=r"equally long.*\(30, 3\).*\(29, 3\)"):
        read_draws(paths)
    uneven = posterior_csv().rsplit("\n", 2)[0] + "\n"
    with pytest.raises(ValueError, match=r"'\.chain' separates chains of 30, 30, 30, 29 draws"):
        here(place("x.csv", uneven))


def test_arrays_of_several_variables(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", theta=X[..., 1:], mu=X[..., 0], other=np.zeros(3))
    found = here(tmp_path / "x.npz", Choice(variables=["mu", "theta"]))
    assert found.names == ("mu", "theta[0]", "theta[1]")
    assert np.array_equal(found.values, X)
    with pytest.raises(ValueError, match="join several with --variables"):
        here(tmp_path / "x.npz")
    np.save(tmp_path / "x.npy", X)
    assert np.array_equal(here(tmp_path / "x.npy").values, X)
    assert np.array_equal(here(tmp_path / "x.npy", Choice(columns=["2"])).values, X[..., 1:2])


@pytest.mark.ci
def test_tensors_and_nothing_else_come_from_pytorch_files(tmp_path: Path) -> None:
    x = torch.from_numpy(X)
    torch.save(x, tmp_path / "x.pt")
    torch.save({"mu": x[..., 0], "theta": x[..., 1:]}, tmp_path / "named.pt")
    torch.save({"mu": Path("a path is no tensor")}, tmp_path / "bad.pt")
    assert np.array_equal(here(tmp_path / "x.pt").values, X)
    assert np.array_equal(here(tmp_path / "named.pt").values, X)
    with pytest.raises(InputError, match=r"cannot be read as \.pt numbers"):
        read_draws([tmp_path / "bad.pt"])


def test_the_posterior_of_an_arviz_file(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.nc", "w") as file:
        group = file.create_group("posterior")
        for name, length in (("chain", 4), ("draw", 30), ("school", 2)):
            group[name] = np.arange(length)
            group[name].make_scale(name)
        group["mu"], group["theta"] = X[..., 0], X[..., 1:]
        file.create_group("observed_data")["y"] = np.zeros(8)
    found = here(tmp_path / "x.nc")
    assert (found.names, found.values.shape) == (("mu", "theta[0]", "theta[1]"), X.shape)
    assert np.array_equal(found.values, X)
    assert np.array_equal(here(tmp_path / "x.nc", Choice(variables=["theta"])).values, X[..., 1:])
    with h5py.File(tmp_path / "linked.nc", "w") as file:
        file.create_group("posterior")["mu"] = h5py.ExternalLink("x.nc", "/posterior/mu")
    with pytest.raises(ValueError, match="'mu' is a link"):
        here(tmp_path / "linked.nc")


def test_the_posterior_of_a_zarr_folder(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(str(tmp_path / "x.zarr"), mode="w").create_group("posterior")
    for name, values, dims in (
        ("chain", np.arange(4), ("chain",)),
        ("mu", X[..., 0], ("chain", "draw")),
        ("theta", X[..., 1:], ("chain", "draw", "school")),
    ):
        group.create_array(name, data=values, dimension_names=dims)
    assert np.array_equal(here(tmp_path / "x.zarr").values, X)


def test_without_the_library_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader is a process of its own: h5py is hidden from it by a module that fails."""
    (tmp_path / "h5py.py").write_text("raise ImportError")
    (tmp_path / "x.nc").write_bytes(b"\x89HDF\r\n\x1a\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(InputError, match=r"pip install '\.\[arviz\]'"):
        read_draws([tmp_path / "x.nc"])
