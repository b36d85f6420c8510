"""What runs say of their ranks, grades of references, what chains are worth, and saved files that must not be misread."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import numpy as np
import pandas as pd
import pytest
import torch
from few import every
from records import make_record

import parvibench as pb
from parvibench.core.errors import ParVIBenchError
from parvibench.core.reference import Reference
from parvibench.data.draws.arrays import Choice
from parvibench.data.draws.forms import in_coordinates
from parvibench.data.samples import read_draws
from parvibench.harness.marks.convergence import undiagnosed
from parvibench.metrics.evaluate import chain_diagnostics
from parvibench.reference.checks import stein_checks
from parvibench.reference.gates import Gate, grade_of
from parvibench.reporting import doubts
from parvibench.reporting.formatting import number

X = np.random.default_rng(0).normal(size=(2, 30, 3))
FLAT = X.reshape(-1, 3)


def normal(x: torch.Tensor) -> torch.Tensor:
    return -0.5 * (x - 3).square().sum()


def archive(**arrays: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def table(**columns: Any) -> bytes:
    return pd.DataFrame(dict(zip("abc", FLAT.T, strict=True)) | columns).to_csv(index=False).encode()


#: Ending, content, and the array that is meant, or words of the refusal.
SAVED: dict[str, tuple[str, bytes, np.ndarray | str]] = {
    "one array without a name": ("npz", archive(arr_0=FLAT), FLAT),
    "a member for each chain": ("npz", archive(chain_0=X[0], chain_1=X[1]), X),
    "equal weights": ("npz", archive(samples=FLAT, weights=np.ones(60)), FLAT),
    "weights": ("npz", archive(samples=FLAT, weights=np.arange(60.0)), "draws with weights"),
    "log weights of nested sampling": ("npz", archive(samples=FLAT, logwt=-np.arange(60.0)), "draws with weights"),
    "a column of weights": ("csv", table(weight=np.arange(60)), "have weights"),
    "a density in place of a coordinate": ("csv", table(c=None).replace(b"c", b"log_prob").replace(b",\n", b",1\n"), "may be a density"),
    "R's long form": ("csv", b".chain,.iteration,.variable,.value\n1,1,mu,0.5\n1,2,mu,0.7\n", "long form"),
    "ggmcmc's long form": ("csv", b"Iteration,Chain,Parameter,value\n1,1,mu,0.5\n2,1,mu,0.7\n", "long form"),
    "a column w beside the coordinates": ("csv", table(w=np.arange(60.0)), "have weights"),
    "a column of multiplicities": ("csv", table(mult=np.arange(60) % 3 + 1), "have weights"),
    "rows of a warm-up": ("csv", table(is_warmup=np.arange(60) < 10).replace(b"True", b"1").replace(b"False", b"0"), "'is_warmup' tells rows apart"),
    "a column that flags no row": ("csv", table(warmup=np.zeros(60)), FLAT),
    "truth values in a column": ("csv", table(accepted=["true"] * 60), FLAT),
}  # fmt: skip


DEFAULT = (
    "one array without a name", "equal weights", "log weights of nested sampling", "a density in place of a coordinate",
    "ggmcmc's long form", "a column of multiplicities", "a column that flags no row",
)  # fmt: skip


@pytest.mark.parametrize("case", every(DEFAULT, SAVED))
def test_a_saved_file_is_read_as_meant_or_refused(tmp_path: Path, case: str) -> None:
    ending, content, meant = SAVED[case]
    path = tmp_path / f"x.{ending}"
    path.write_bytes(content)
    task = pb.task(normal, dim=3, name="three", coordinates=tuple("abc") if "column" in case else ())

    def read() -> Any:
        return in_coordinates(read_draws([path], Choice()), task).values

    if isinstance(meant, str):
        with pytest.raises(ParVIBenchError, match=meant):
            read()
    else:
        np.testing.assert_allclose(read(), meant, rtol=1e-12)


def test_stacked_chains_of_a_netcdf_file_are_chains(tmp_path: Path) -> None:
    """``arviz.extract`` stacks chains and draws; both stay as variables of the one dimension."""
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.nc", "w") as file:
        file["sample"] = np.arange(60)
        file["sample"].make_scale("sample")
        chain, draw = (v.ravel() for v in np.indices((2, 30)))
        columns = {"chain": chain, "draw": draw} | dict(zip("abc", FLAT.T, strict=True))
        for name, values in columns.items():
            file[name] = values
            file[name].dims[0].attach_scale(file["sample"])
    read = read_draws([tmp_path / "x.nc"])
    assert read.names == ("a", "b", "c")
    np.testing.assert_array_equal(read.values, X)


def autoregressive(rho: np.ndarray, chains: int, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Stationary chains (C, T, D) of N(0, I) with autocorrelation rho: their ESS is C T (1 - rho) / (1 + rho)."""
    x = [rng.normal(size=(chains, len(rho)))]
    for _ in range(draws - 1):
        x.append(rho * x[-1] + np.sqrt(1 - rho**2) * rng.normal(size=x[0].shape))
    return np.stack(x, 1)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("rho", "low", "high"),
    [(np.zeros(100), 0.82, 1.05), (np.r_[0.5, np.zeros(99)], 0.8, 1.25)],
    ids=["alike", "one slow"],
)
def test_the_worth_of_chains_is_that_of_the_slowest_coordinate(rho: np.ndarray, low: float, high: float) -> None:
    """The plain smallest of 100 ESS of independent draws is 0.73 of their number."""
    rng = np.random.default_rng(5)
    found = [chain_diagnostics(torch.tensor(autoregressive(rho, 4, 250, rng)))["worth"] for _ in range(4)]
    assert low < np.mean(found) / (1000 * (1 - rho.max()) / (1 + rho.max())) < high


def test_identities_of_right_chains_are_refused_at_their_level() -> None:
    """Two identities at 1% each: 60 sets of correlated right draws, where at most 6 are refused but for one in 10,000."""
    rng, refused = np.random.default_rng(2), 0
    for _ in range(60):
        x = torch.tensor(autoregressive(np.full(3, 0.7), 10, 300, rng)).transpose(0, 1).contiguous()
        refused += any(not check.passed for check in stein_checks(x, -x))
    assert refused <= 6
    assert not all(check.passed for check in stein_checks(1.15 * x, -1.15 * x))


@pytest.mark.parametrize(
    ("failed", "ess", "grade"),
    [
        ((), 12_000, "certified"),
        (("bulk ESS", "tail ESS"), 9_500, "standard"),
        (("bulk ESS",), 8_000, "not certified"),
        (("bulk ESS", "R-hat"), 9_500, "not certified"),
    ],
)
def test_grades(failed: tuple[str, ...], ess: float, grade: str) -> None:
    gates = [Gate(name, name not in failed, "", "") for name in ("R-hat", "bulk ESS", "tail ESS")]
    sizes = np.array([ess, 2 * ess])
    assert grade_of(gates, {"ess_bulk": sizes, "ess_tail": sizes}) == grade  # type: ignore[typeddict-item]


def test_the_command_names_the_file_of_a_suite_s_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "import parvibench as pb\nNAMED = pb.task(lambda x: -0.5 * (x**2).sum(-1), dim=2, name='named')\n"
    )
    Path("s.yaml").write_text("name: s\ntasks: [mine.py:NAMED]\nalgorithms: [ula]\nbudget: {iterations: 3}\n")
    results = pb.run("s.yaml", allow_plugins=True, replicates=1, particles=60, out=tmp_path, tracking=False)
    assert results.document()["without_reference"]["named"]["commands"] == ["parvibench reference build mine.py:NAMED"]


def test_a_run_without_a_reference_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    task = pb.task(normal, dim=2, name="without", exact=None)
    results = pb.run(
        tasks=[task], algorithms=["svgd"], replicates=1, budget={"iterations": 3}, particles=60, out=tmp_path, tracking=False
    )  # fmt: skip
    method, ksd, trust, settled = doubts.doubts(results)
    assert method.startswith("  svgd: KSD 3.")
    assert "diagnostics none; agrees with none" in method
    assert "neither wrong weights" in ksd
    assert (
        trust
        == "without has no reference. Trust none: R-hat, ESS and divergences pass for no method; none has an R-hat, add chains such as nuts."
    )
    assert settled.endswith("parvibench reference build FILE.py:OBJECT")
    answer = results.document()["without_reference"]["without"]
    assert (answer["trusted"], answer["commands"]) == ("", ["parvibench reference build FILE.py:OBJECT"])
    assert f"KSD {number(answer['methods'][0]['ksd'])}; by chance" in method
    page = pb.report(results, tmp_path / "page").read_text()
    assert trust in page
    schema = json.loads((tmp_path / "page" / "results.schema.json").read_text())
    jsonschema.validate(json.loads((tmp_path / "page" / "results.json").read_text()), schema)


@pytest.mark.parametrize(("place", "said"), [(60.0, 1), (2.0, 0)])
def test_a_start_far_from_the_mass_is_measured_in_its_standard_deviations(place: float, said: int) -> None:
    g = torch.Generator().manual_seed(0)
    reference = Reference(place + 2 * torch.randn(500, 2, generator=g, dtype=torch.float64), True, {})
    start: Callable[..., torch.Tensor] = lambda t, n, gs: torch.zeros(1, n, 2)  # noqa: E731
    task: Any = SimpleNamespace(
        name="far", dim=2, reference=lambda: reference, initial=start, target=lambda *_: None, coordinates=("a", "b")
    )
    board = pd.DataFrame({"task": ["far"] * 2, "anchor": [False, True], "floor_ratio": [30.0, 1.0]})
    found = doubts._far(SimpleNamespace(board=board), task)  # type: ignore[arg-type]
    assert len(found) == said
    assert not found or " 30 posterior standard deviations" in found[0] or " 29 " in found[0]


@pytest.mark.parametrize(
    ("kind", "values", "absent", "expected"),
    [
        ("chains", {}, {"rhat": "too short"}, True),
        ("chains", {"rhat": [1.0] * 3}, {}, False),
        ("chains", {}, {}, False),
        ("particles", {}, {"rhat": "no path"}, False),
    ],
)
def test_chains_without_diagnostics_are_marked(kind: str, values: Any, absent: Any, expected: bool) -> None:
    assert undiagnosed(None, make_record(kind=kind, values=values, absent=absent)) is expected
