"""User-built references: gates that pass and refuse with advice, floors, the search path."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Generator

import parvibench as pb
from parvibench import core
from parvibench.api.certify import build_reference
from parvibench.core.errors import InputError, ParVIBenchError
from parvibench.core.metric import Context
from parvibench.core.reference import home_of, load_reference
from parvibench.metrics import own_floors
from parvibench.metrics.compute import compute
from parvibench.metrics.floors import verdict_metrics
from parvibench.reference import build, gates
from parvibench.reference.checks import verify

SD = torch.tensor([1.0, 3.0], dtype=torch.float64)


def draw(n: int, generator: Generator) -> torch.Tensor:
    return SD * torch.randn(n, 2, generator=generator, dtype=torch.float64)


def normal(x: torch.Tensor) -> torch.Tensor:
    return -0.5 * (x / SD).square().sum()


TASK = pb.task(normal, dim=2, exact=draw, name="own-normal", coordinates=["a", "b"])


def silent(what: str, done: int, total: int) -> None:
    pass


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Few rows, sizes and sets, and an empty folder."""
    for name, value in {"SIZES": (100,), "SETS_A_METRIC": 1, "FEWEST": 20, "CURVE": ()}.items():
        monkeypatch.setattr(own_floors, name, value)
    monkeypatch.setattr(build, "ROWS", 600)
    monkeypatch.setattr(build, "POOL", 3000)
    monkeypatch.chdir(tmp_path)


def chains(times: int, count: int, scale: float = 1.0) -> torch.Tensor:
    """Independent draws as (C, T, 2)."""
    return scale * draw(times * count, Generator().manual_seed(1)).reshape(count, times, 2)


def test_exact_draws_make_a_certified_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_floors, "FEWEST", 200)
    path, _ = build.build(TASK, None, gates.Effort("exact"), silent)
    assert path == tmp_path / "parvibench-references" / "own-normal.json"
    reference = TASK.reference()
    assert reference.exact
    assert reference.certified
    assert reference.certificate["coordinates"] == ["a", "b"]
    assert [c for c in verify(TASK) if c.passed is False] == []
    torch.testing.assert_close(reference.sd, SD, rtol=0.06, atol=0.0)  # 3,600 draws: five standard errors
    assert set(reference.floors) == {m for m in TASK.metrics if m in verdict_metrics(TASK)}
    # Sets that share draws of a pool have the law of fresh ones: at 1e-4, by Kolmogorov and Smirnov.
    g = Generator().manual_seed(9)
    context = Context(TASK, reference, TASK.target([0], "cpu", torch.float64))
    names = ("sliced_w2", "mmd2", "ks_marginal", "ksd")
    fresh = [compute(names, draw(100, g)[None], context)[0] for _ in range(200)]
    for name in names:
        values = [float(found[name][0]) for found in fresh]
        assert stats.ks_2samp(values, reference.floors[name][100]).pvalue > 1e-4


def test_one_s_own_reference_judges_and_another_density_s_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three hundred sets: the least that Holm can reject one of these metrics by."""
    monkeypatch.setattr(own_floors, "FEWEST", 300)
    build.build(TASK, None, gates.Effort("exact"), silent)
    x = draw(120, Generator().manual_seed(3))
    good, bad = pb.evaluate(x, task=TASK), pb.evaluate(x + SD, task=TASK)
    assert (good["verdict"], bad["verdict"]) == ("indistinguishable", "distinguishable")
    assert set(good["judged_by"]) == set(verdict_metrics(TASK))
    other = pb.task(lambda x: 2 * normal(x), dim=2, name="own-normal")
    with pytest.raises(InputError, match="its reference was made of another density; build it again"):
        other.reference()
    with pytest.raises(InputError, match="of 2 dimensions and not 3"):
        pb.task(lambda x: -x.square().sum(), dim=3, name="own-normal").reference()


def test_the_package_s_references_are_never_shadowed(tmp_path: Path) -> None:
    folder = tmp_path / "parvibench-references"
    folder.mkdir()
    (folder / "banana.json").write_text("{}")
    assert home_of("banana") == core.reference_folder()
    with pytest.raises(InputError, match=r"banana has a reference in the package.*--folder"):
        build_reference("banana", notify=silent, method="exact")
    (folder / "far.json").write_text("{}")
    assert home_of("far") == core.OWN_REFERENCES
    assert home_of("nowhere") is None


@pytest.mark.ci
def test_chains_pass_the_gates_and_agree_with_a_second_method(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few chains and lower bars."""
    monkeypatch.setattr(gates, "MIN_ESS", 500)
    monkeypatch.setattr(gates, "MAX_RHAT", 1.1)
    path, _ = build.build(TASK, None, gates.Effort("nuts", 60, 80, 30), silent)
    found = json.loads(path.read_text())
    assert (found["exact"], found["certified"]) == (False, True)
    assert {g["gate"] for g in found["gates"]} >= {"R-hat", "bulk ESS", "tail ESS", "divergences", "check by chees-hmc"}
    assert np.allclose(found["sd"], SD, rtol=0.2)


def test_a_refusal_says_which_gate_by_how_much_and_what_to_raise() -> None:
    """Nothing is written."""
    with pytest.raises(ParVIBenchError, match="no certificate, nothing is written") as refused:
        build.build(TASK, None, gates.Effort("nuts", 10, 12, 6), silent)
    told = str(refused.value)
    size, more = re.search(r"bulk ESS: (\d+) of [ab], wanted 10,000\n.*--draws (\d+) in place of 12", told).groups()
    assert int(more) == pytest.approx(12 * 1.2 * 10_000 / int(size), rel=0.12)
    assert "passed: " in told
    assert TASK.reference() is None


@pytest.mark.parametrize(
    ("effort", "told"),
    [({"warmup": 2}, "10 steps of warm-up"), ({"chains": 1}, "at least 2 chains"), ({"draws": 0}, "10 draws")],
)
def test_runs_too_short_to_be_runs(effort: dict, told: str) -> None:
    with pytest.raises(InputError, match=told):
        gates.Effort(**effort)


@pytest.mark.parametrize(
    ("draws", "failed"),
    [
        (chains(6000, 4), set()),
        (chains(1000, 4), {"bulk ESS", "tail ESS"}),
        (chains(6000, 4) + torch.tensor([[[4.0, 0.0]], [[0.0, 0.0]], [[0.0, 0.0]], [[0.0, 0.0]]]), {"R-hat", "bulk ESS"}),
        (chains(6000, 4, scale=1.1), {"Stein identity E[(x - c) score] = -1"}),
    ],
    ids=["good", "few", "apart", "wide"],
)  # fmt: skip
def test_draws_that_one_has_are_certified_by_the_same_gates(draws: torch.Tensor, failed: set[str]) -> None:
    path, found = build.build_from_draws(TASK, None, draws, silent)
    assert {g.name for g in found if not g.passed} >= failed
    assert all(g.passed for g in found) == (not failed)
    assert load_reference("own-normal").certified == (not failed)
    assert json.loads(path.read_text())["certified"] == (not failed)


@pytest.mark.parametrize(
    ("draws", "told"),
    [
        (torch.zeros(2000, 3), r"shape \(n, 2\)"),
        (torch.zeros(30, 2), "30 reference draws are too few"),
        (torch.full((2000, 2), torch.nan), "NaN"),
    ],
)
def test_draws_that_make_no_reference(draws: torch.Tensor, told: str) -> None:
    with pytest.raises(InputError, match=told):
        build.build_from_draws(TASK, None, draws, silent)


def test_chains_that_stand_still_have_no_neighbours_at_distance_zero() -> None:
    """Every state remains for three times: every third time is taken."""
    assert build.step_between(chains(400, 4).repeat_interleave(3, 1).transpose(0, 1)) == 3


def test_exact_draws_are_asked_for_where_there_are_some() -> None:
    with pytest.raises(InputError, match=r"no exact sampler; give pb\.task\(\.\.\., exact="):
        build.build(pb.task(normal, dim=2, name="plain"), None, gates.Effort("exact"), silent)


@pytest.mark.slow  # the road of the command line asks the same
def test_draws_as_reference_without_any_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_floors, "FEWEST", 300)
    trusted, g = chains(8000, 1)[0], Generator().manual_seed(5)
    good, bad = (pb.evaluate(draw(150, g) + shift, reference=trusted) for shift in (0.0, SD))
    assert (good["verdict"], bad["verdict"]) == ("indistinguishable", "distinguishable")
    assert "mmd2" in good["judged_by"]
    assert "ksd" not in good["judged_by"]
    with pytest.raises(InputError, match="no target to compare with"):
        pb.evaluate(draw(150, g))


@pytest.mark.parametrize("low", ["ess_bulk", "ess_tail", "rhat"])
def test_each_gate_alone_refuses(low: str) -> None:
    """One coordinate of two, just beyond its bound; the advice follows the lack."""
    good = {"rhat": np.array([1.0, 1.009]), "ess_bulk": np.array([1e4, 3e4]), "ess_tail": np.array([1e4, 3e4])}
    assert all(gate.passed for gate in gates.mixing_gates(TASK, good))
    bad = good | {low: np.array([1.01, 1.0]) if low == "rhat" else np.array([2e4, 8000.0])}
    (gate,) = (gate for gate in gates.mixing_gates(TASK, bad) if not gate.passed)
    assert gate.name == {"ess_bulk": "bulk ESS", "ess_tail": "tail ESS", "rhat": "R-hat"}[low]
    assert "about 1.5 times" in gate.advice or low == "rhat"
