"""Samples as programs and people write them: read as meant, or refused with one line that says what to do."""

import re
import zipfile
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from parvibench.core.errors import InputError
from parvibench.data.draws.arrays import Choice, Draws, settled
from parvibench.data.draws.forms import against, draws_of
from parvibench.data.draws.sample_formats import FORMATS
from parvibench.data.samples import read_draws

X = np.random.default_rng(8).normal(size=(40, 2)).round(6)
HALVES = X.reshape(2, 20, 2)
NAMES = ("mu", "tau")
EVEN = np.arange(40) % 2
STAN = "# method = sample\nlp__,mu,tau\n"


def rows(x: np.ndarray = X, separator: str = ",", form: str = "{:.6f}") -> str:
    return "".join(separator.join(form.format(v) for v in row) + "\n" for row in x)


def beside(cells: Any, head: str) -> str:
    """A table with a further column of ``cells``."""
    return f"mu,tau,{head}\n" + "".join(f"{a:.6f},{b:.6f},{c}\n" for (a, b), c in zip(X, cells, strict=True))


#: Content of a CSV file, what is meant (X where nothing is said), and its names.
READ: dict[str, tuple[str, np.ndarray, tuple[str, ...]]] = {
    "R's formulas": ('"(Intercept)","poly(x, 2)1"\n' + rows(), X, ("(Intercept)", "poly(x, 2)1")),
    "brms and Bambi": ('"1|subject[A]","age>50TRUE"\n' + rows(), X, ("1|subject[A]", "age>50TRUE")),
    "LaTeX": ('"beta%","$\\Omega_m$"\n' + rows(), X, ("beta%", "$\\Omega_m$")),
    "not quoted": ("b[(Intercept) county:1],sigma|x^2\n" + rows(), X, ("b[(Intercept) county:1]", "sigma|x^2")),
    "a semicolon in a name": ('"a;b","c"\n' + rows(), X, ("a;b", "c")),
    "truth values": (beside(["false"] * 39 + ["true"], "numerical_error"), X, NAMES),
    "blanks": (rows(separator=" "), X, ()),
    "padded": ("mu   tau\n" + rows(separator="", form="{:14.6f}"), X, NAMES),
    "blanks, a comment of names": ("# mu tau\n" + rows(separator=" "), X, NAMES),
    "tabs, names of rows": ("mu\ttau\n" + "".join(f"{i}\t{a}\t{b}\n" for i, (a, b) in enumerate(X)), X, NAMES),
    "semicolons": ("mu;tau\n" + rows(separator=";"), X, NAMES),
    "decimal commas": ('"mu";"tau"\n' + rows(separator=";").replace(".", ","), X, NAMES),
    "decimal commas, no names": (rows(separator=";").replace(".", ","), X, ()),
    "a blank after the comma": ("mu, tau\n" + rows(separator=", "), X, NAMES),
    "commas at the ends": (("mu,tau\n" + rows()).replace("\n", ",\n"), X, NAMES),
    "commas at the ends of rows": ("mu,tau\n" + rows().replace("\n", ",\n"), X, NAMES),
    "blank lines": ("mu,tau\n" + rows(X[:20]) + "\n\n" + rows(X[20:]), X, NAMES),
    "Fortran": (rows(form="{:.8e}").replace("e", "D"), X, ()),
    "chains by text": (beside(["a"] * 20 + ["b"] * 20, ".chain"), HALVES, NAMES),
}  # fmt: skip
REFUSED: dict[str, tuple[str, str]] = {
    "a warm-up's truth values": (beside(EVEN == 0, "burn_in"), "'burn_in', row 2"),
    "a number beyond the names": ("mu,tau\n1,2,\n3,4,5\n", "row 3 has 3 fields instead of 2"),
    "decimal commas alone": ("mu\n" + "1,5\n" * 30, "row 2 has 2 fields instead of 1"),
    "joined": ("mu,tau\n" + rows() + "mu,tau\n" + rows(), "row 42: the row of names again: files joined"),
    "joined by cat": (2 * (STAN + rows(np.c_[X, X[:, 0]])), "names again"),
    "cut in a row": ("mu,tau\n" + rows().rpartition(",")[0], "row 41 has 1 fields instead of 2: the file is cut off"),
    "cut in a number": ((STAN + rows(np.c_[X, X[:, 0]]))[:-3], "cut off, perhaps within a number"),
    "a spliced comment": (STAN + rows(np.c_[X, X[:, 0]]).replace(",", "# Elapsed\n,", 1), "a comment stands within"),
    "chains and draws swapped": (beside(np.repeat(range(20), 2), "chain"), "20 chains of 2 draws.*--axes"),
}  # fmt: skip


def here(path: Path, choice: Choice = Choice()) -> Draws:  # noqa: B008 - frozen
    """What the reader's process gives, in this one."""
    found = settled(FORMATS[path.suffix](path, choice), choice)
    return found


@pytest.mark.parametrize("kind", READ)
def test_tables_are_read_as_meant(kind: str, tmp_path: Path) -> None:
    content, meant, names = READ[kind]
    (tmp_path / "x.csv").write_text(content)
    found = here(tmp_path / "x.csv")
    assert np.allclose(found.values, meant, atol=1e-9)
    assert found.names == names
    assert ("truth values left out: numerical_error" in "; ".join(found.read)) == (kind == "truth values")


@pytest.mark.parametrize("kind", REFUSED)
def test_damage_is_named(kind: str, tmp_path: Path) -> None:
    content, told = REFUSED[kind]
    (tmp_path / "x.csv").write_text(content)
    with pytest.raises(ValueError, match=told) as refused:
        here(tmp_path / "x.csv")
    assert "\n" not in str(refused.value)


FRAME = pd.DataFrame(X, columns=NAMES)
WANTED = Draws(np.zeros((2, 2)), NAMES)
WEIGHTS = [".log_weight", "sample_weight", "posterior_weight", "ln_weight", "lnw", "log-weight", "weight_", "weight__", "wt", "logwt", "W", "importance_weights"]  # fmt: skip


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_are_used_or_refused(name: str, tmp_path: Path) -> None:
    """Of weights 0 and 1 (or their logarithms) those of weight 1 are kept."""
    logs = bool(re.search("log|ln", name))
    frame = FRAME.assign(**{name: np.where(EVEN, 0.0, -1e4) if logs else EVEN})
    frame.to_csv(tmp_path / "x.csv", index=False)
    for read in (lambda c: draws_of(frame, c), lambda c: here(tmp_path / "x.csv", c)):
        with pytest.raises(InputError, match=f"--weights {name}"):
            against(read(Choice()), WANTED)
        found = against(read(Choice(columns=["tau", "mu"], weights=name)), WANTED)
        assert np.array_equal(found.values, X[1::2])
        assert "20 of 40 rows" in "; ".join(found.read)
        assert "effective size 20" in "; ".join(found.read)
    assert np.array_equal(against(draws_of(FRAME.assign(**{name: 1.0})), WANTED).values, X)  # equal ones say nothing


def test_rows_are_kept_in_proportion_to_their_weights() -> None:
    x = np.random.default_rng(1).normal(size=100_000)
    found = draws_of({"x": x, "lw": x}, Choice(weights="lw")).values[:, 0]  # exp(x) makes N(0, 1) into N(1, 1)
    assert abs(found.mean() - 1) < 5 / len(found) ** 0.5
    assert len(np.unique(found)) == len(found)
    with pytest.raises(InputError, match="no column 'w' of weights"):
        draws_of(FRAME, Choice(weights="w"))


class Mcmc:
    """The accessor of NumPyro's and Pyro's MCMC."""

    def get_samples(self, *, group_by_chain: bool) -> dict[str, np.ndarray]:
        return {"mu": HALVES[..., 0], "tau": HALVES[..., 1]} if group_by_chain else {}


class Fit:
    """Likewise of CmdStanPy: draws first."""

    column_names = ("lp__", *NAMES)

    def draws(self) -> np.ndarray:
        return np.concatenate([np.zeros((20, 2, 1)), HALVES.swapaxes(0, 1)], -1)


State = namedtuple("State", "position logdensity")
OBJECTS: dict[str, tuple[Any, Any]] = {
    "frames in two orders": ([FRAME[:20], FRAME[20:][["tau", "mu"]]], HALVES),
    "dicts": ([{"mu": h[:, 0], "tau": h[:, 1].tolist()} for h in HALVES], HALVES),
    "MCMC": (Mcmc(), HALVES),
    "a fit": (Fit(), HALVES),
    "states": (State({"mu": X[:, 0], "tau": X[:, 1]}, X[:, 0]), X),
    "flags beside": ({"mu": X[:, 0], "tau": X[:, 1], "diverging": X[:, 0] > 0}, X),
    "chains by letters": (FRAME.assign(chain=["a"] * 20 + ["b"] * 20), HALVES),
    "unequal frames": ([FRAME[:30], FRAME[30:]], r"equally long: element 0: \(30, 2\), element 1: \(10, 2\)"),
    "unequal arrays": ([X[:30], X[30:]], "equally long"),
    "more frames than draws": ([FRAME[:3]] * 8, "8 chains of 3 draws.*--axes"),
    "ragged": ([[1.0, 2.0], [3.0]], "rows of different lengths"),
    "a sampler of emcee": (SimpleNamespace(get_chain=None), "get_chain"),
    "results of dynesty": (SimpleNamespace(samples_equal=None), "samples_equal"),
    "a dict of dynesty": (
        {"samples": X, "logwt": X[:, 0], "blob": {}},
        r"{'samples': d\['samples'\], 'logwt': d\['logwt'\]} with weights",
    ),
    "a nested dict": ({"samples": X, "posterior": {}}, r"the draws alone: {'samples': d\['samples'\]}"),
    "marked warm-up": (FRAME.assign(warmup=X[:, 0] > 0), "'warmup' holds bool"),
}


@pytest.mark.parametrize("kind", OBJECTS)
def test_objects_are_read_or_the_way_is_given(kind: str, tmp_path: Path) -> None:
    given, meant = OBJECTS[kind]
    if isinstance(meant, str):
        with pytest.raises(InputError, match=meant):
            draws_of(given)
        return
    assert np.array_equal(against(draws_of(given), WANTED).values, meant)


def test_a_path_is_read(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    assert np.array_equal(draws_of(str(tmp_path / "x.npy")).values, X)


@pytest.mark.parametrize("fill", [False, True])
def test_packed_numbers_are_unpacked(fill: bool, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.nc", "w") as file:
        packed = file.create_group("posterior").create_dataset("mu", data=np.arange(80, dtype="i2").reshape(2, 40))
        packed.attrs.update({"scale_factor": 0.5, "add_offset": -3.0, "_FillValue": np.int16(7 if fill else -1)})
    if fill:
        with pytest.raises(ValueError, match="'mu' has 1 missing numbers"):
            here(tmp_path / "x.nc")
    else:
        assert np.array_equal(here(tmp_path / "x.nc").values[..., 0], np.arange(80).reshape(2, 40) / 2 - 3)


def test_files_cannot_hurt(tmp_path: Path) -> None:
    """A long name, a wide header, an archive and a stride that expand: within seconds."""
    with pytest.raises(InputError, match="File name too long"):
        read_draws([tmp_path / ("a" * 300 + ".csv")])
    (tmp_path / "x.csv").write_text(",".join(f"v{i}" for i in range(100_000)) + "\n" + ",".join(["1"] * 100_000) + "\n")
    assert here(tmp_path / "x.csv").values.shape == (1, 100_000)
    torch.save(torch.zeros(1).expand(2**28), tmp_path / "x.pt")
    with pytest.raises(ValueError, match="holds 268435456 numbers"):
        here(tmp_path / "x.pt")
    with (
        zipfile.ZipFile(tmp_path / "y.pt", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("y/data/0", "w") as file,
    ):
        for _ in range(2**9):
            file.write(bytes(2**20))
    with pytest.raises(ValueError, match="more than 33554432"):
        here(tmp_path / "y.pt")
