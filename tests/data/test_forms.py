"""Samples in memory and in tables: every numeric type, columns that number draws, and names that decide."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import parvibench as pb
from parvibench.core.errors import InputError
from parvibench.data.draws.arrays import Choice
from parvibench.data.draws.forms import against, draws_of, in_coordinates
from parvibench.data.draws.sample_formats import FORMATS
from parvibench.data.samples import read_draws

X = np.random.default_rng(9).normal(size=(60, 2)).astype(np.float16).astype(np.float64)
NAMES = ["mu", "tau"]
FRAME = pd.DataFrame(X, columns=NAMES)
CHAINS, TIMES = np.repeat([1, 2, 3], 20), np.tile(np.arange(20), 3)
IN_CHAINS = X.reshape(3, 20, 2)

TYPES: dict[str, Any] = {
    "bfloat16": torch.tensor(X).bfloat16(),
    "half": torch.tensor(X).half(),
    "float16": X.astype(np.float16),
    "a graph": torch.tensor(X, requires_grad=True),
    "nullable": FRAME.astype("Float64"),
    "integers": torch.arange(120).reshape(60, 2),
    "lists": X.tolist(),
    "sparse": torch.tensor(X).to_sparse(),
    "long double": X.astype(np.longdouble),
    "nullable integers": pd.DataFrame({"a": pd.array(range(60), "Int64"), "b": pd.array(range(60), "Int32")}),
    "arrow": FRAME.convert_dtypes(dtype_backend="pyarrow"),
    "records": np.rec.fromarrays(X.T, names="mu,tau"),
    "masked by nothing": np.ma.masked_array(X),
}


@pytest.mark.parametrize("kind", TYPES)
def test_types_of_numbers_are_read(kind: str) -> None:
    given = TYPES[kind]
    found = draws_of(given)
    meant = {
        "bfloat16": lambda: torch.tensor(X).bfloat16().double().numpy(),
        "integers": lambda: np.arange(120.0).reshape(60, 2),
        "nullable integers": lambda: np.repeat(np.arange(60.0)[:, None], 2, 1),
    }.get(kind, lambda: X)()
    assert found.values.dtype == np.float64
    assert np.array_equal(found.values, meant)
    if isinstance(given, (pd.DataFrame, np.recarray)):
        assert len(found.names) == 2


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (X > 0, "bool, not real numbers"),
        (X + 1j, "complex128, not real numbers"),
        (FRAME.assign(model="a"), "column 'model' holds .*, not real numbers"),
        (FRAME.set_axis(["mu", "mu"], axis=1), "two columns named 'mu'"),
        (np.ma.masked_less(X, 0), "masked"),
        (object(), "not real numbers"),
        (np.zeros((2, 3, 4, 5)), r"shape \(2, 3, 4, 5\)"),
        ({}, "no variables"),
        (np.zeros((0, 2)), r"shape \(0, 2\) holds no draws"),
        (np.float64(3), "holds no draws"),
        ({"a": np.zeros(3), "b": 1.0}, "'b' of shape \\(\\) holds no draws"),
        (FRAME[:0], "no column of draws"),
        ("samples.csv", "no such file"),
    ],
)
def test_what_is_no_table_of_numbers_is_refused(given: Any, told: str) -> None:
    with pytest.raises(InputError, match=told) as refused:
        draws_of(given)
    assert "\n" not in str(refused.value)


def numbered(**ids: Any) -> pd.DataFrame:
    return pd.concat([pd.DataFrame(ids), FRAME], axis=1)


#: Tables, what is read, and a word of what is said.
TABLES: dict[str, tuple[pd.DataFrame, np.ndarray, str]] = {
    "plain": (FRAME, X, ""),
    "posterior of R": (numbered(**{".chain": CHAINS, ".iteration": TIMES, ".draw": range(60)}), IN_CHAINS, ".chain"),
    "ArviZ's": (numbered(chain=CHAINS, draw=TIMES), IN_CHAINS, "chain"),
    "Julia's": (numbered(iteration=TIMES, chain=CHAINS), IN_CHAINS, "chain"),
    "chains alone": (numbered(chain=CHAINS), IN_CHAINS, "chain"),
    "rows with numbers": (numbered(id=range(60)), X, "id"),
    "draws alone": (numbered(draw=range(60)), X, "draw"),
    "rows saved with their numbers": (numbered(**{"Unnamed: 0": range(60)}), X, "Unnamed: 0"),
    "by draw, then chain": (numbered(chain=CHAINS, draw=TIMES).sort_values("draw", kind="stable"), IN_CHAINS, "chain"),
    "the sampler's": (numbered(lp__=X[:, 0], energy__=X[:, 1]), X, ""),
    "shuffled": (numbered(chain=CHAINS, draw=TIMES).sample(frac=1, random_state=1), IN_CHAINS, "chain"),
    "a coordinate named chain": (FRAME.rename(columns={"mu": "chain"}), X, ""),
    "a coordinate named draw": (FRAME.rename(columns={"mu": "draw"}), X, ""),
    "thinned numbers": (numbered(iteration=range(100, 700, 10)), X, "iteration"),
    "capitals": (numbered(Chain=CHAINS, Iteration=TIMES), IN_CHAINS, "Chain"),
}


@pytest.mark.parametrize("form", ["frame", ".csv", ".parquet"])
@pytest.mark.parametrize("kind", TABLES)
def test_columns_that_number_draws_are_no_coordinates(kind: str, form: str, tmp_path: Path) -> None:
    table, meant, said = TABLES[kind]
    if form == "frame":
        found = draws_of(table)
    else:
        path = tmp_path / f"x{form}"
        (table.to_csv if form == ".csv" else table.to_parquet)(path, index=False)
        read = FORMATS[form](path, Choice())
        found = read
    assert np.array_equal(found.values, meant)
    assert list(found.names) in (NAMES, ["chain", "tau"], ["draw", "tau"])
    assert said in "; ".join(found.read)


@pytest.mark.parametrize(
    "ids",
    [{"chain": np.repeat([1, 2, 3], 20), "draw": np.repeat(np.arange(30), 2)}, {"draw": np.repeat(np.arange(20), 3)}],
)
def test_draws_in_long_form_are_refused(ids: dict[str, Any], tmp_path: Path) -> None:
    """Several rows a draw, as ``posterior.to_dataframe()`` has them where a variable is a vector."""
    table = numbered(**ids, dim_0=np.arange(60) % 3)
    with pytest.raises(InputError, match="long form"):
        draws_of(table)
    with pytest.raises(InputError, match="long form"):
        draws_of(table.assign(chain=1).set_index(["chain", "draw", "dim_0"]))
    table.to_csv(tmp_path / "x.csv", index=False)
    with pytest.raises(ValueError, match="long form"):
        FORMATS[".csv"](tmp_path / "x.csv", Choice())


def test_an_index_of_chains_and_draws_is_used(tmp_path: Path) -> None:
    """As ``idata.posterior.to_dataframe()`` has it."""
    frame = FRAME.set_index(pd.MultiIndex.from_arrays([CHAINS, TIMES], names=["chain", "draw"]))
    assert np.array_equal(draws_of(frame).values, IN_CHAINS)
    frame.to_parquet(tmp_path / "x.parquet")
    assert np.array_equal(FORMATS[".parquet"](tmp_path / "x.parquet", Choice()).values, IN_CHAINS)


def test_brain_floats_of_a_pytorch_file(tmp_path: Path) -> None:
    torch.save(torch.tensor(X).bfloat16(), tmp_path / "x.pt")
    assert np.array_equal(
        FORMATS[".pt"](tmp_path / "x.pt", Choice()).values, torch.tensor(X).bfloat16().double().numpy()
    )


OWN = pb.task(lambda x: -x.square().sum(), dim=2, name="own-names", coordinates=NAMES)
PLAIN = pb.task(lambda x: -x.square().sum(), dim=2, name="own-plain")


@pytest.mark.parametrize(
    ("given", "read", "said"),
    [
        (FRAME[["tau", "mu"]], X, "by name"),
        (FRAME, X, "by name"),
        (X, X, "by place"),
        (FRAME.assign(other=1.0)[["other", "tau", "mu"]], X, "left out: other"),
        ({"tau": X[:, 1], "mu": X[:, 0]}, X, "by name"),
        (FRAME.set_axis(["V1", "V2"], axis=1), X, "by place"),
        (FRAME.set_axis(["a", "b"], axis=1), "the samples have a, b; the task's coordinates have mu, tau", ""),
        (FRAME[["mu"]], "the samples have mu; the task's coordinates have mu, tau", ""),
        (np.zeros((60, 3)), X, None),
    ],
)
def test_a_task_s_coordinates_count(given: Any, read: Any, said: str | None) -> None:
    draws = draws_of(given)
    if said is None:
        assert in_coordinates(draws, OWN).values.shape == (60, 3)  # whose shape is refused where it is judged
    elif isinstance(read, str):
        with pytest.raises(InputError, match=read):
            in_coordinates(draws, OWN)
    else:
        found = in_coordinates(draws, OWN)
        assert np.array_equal(found.values, read)
        assert said in "; ".join(found.read)


def test_columns_that_are_chosen_stand_in_the_order_of_the_task() -> None:
    renamed = FRAME.set_axis(["a", "b"], axis=1)
    assert np.array_equal(in_coordinates(draws_of(renamed, Choice(columns=["b", "a"])), OWN).values, X[:, ::-1])
    assert np.array_equal(in_coordinates(draws_of(FRAME, Choice(columns=["tau", "mu"])), OWN).values, X)
    read = "; ".join(in_coordinates(draws_of(FRAME), PLAIN).read)
    assert read == "columns taken by place (the task's coordinates have no names): mu, tau"


def test_samples_are_matched_to_the_reference() -> None:
    draws, given = draws_of(FRAME[["tau", "mu"]]), draws_of(FRAME)
    assert np.array_equal(against(draws, given).values, X)
    with pytest.raises(InputError, match="the samples have a, b; the reference has mu, tau"):
        against(draws_of(FRAME.set_axis(["a", "b"], axis=1)), given)


def test_a_column_named_posterior_is_a_column() -> None:
    found = draws_of(FRAME.set_axis(["posterior", "dims"], axis=1))
    assert (found.names, found.values.shape) == (("posterior", "dims"), (60, 2))


@pytest.mark.ci
def test_files_of_chains_are_matched_by_name(tmp_path: Path) -> None:
    paths = [tmp_path / "1.csv", tmp_path / "2.csv", tmp_path / "3.csv"]
    FRAME.to_csv(paths[0], index=False)
    FRAME[["tau", "mu"]].to_csv(paths[1], index=False)
    FRAME[["tau"]].to_csv(paths[2], index=False)
    assert np.array_equal(read_draws(paths[:2]).values, np.stack([X, X]))
    with pytest.raises(InputError, match=r"3\.csv has tau; .*1\.csv has mu, tau"):
        read_draws(paths)
