"""Building references: exact and by long runs, small; and the certificates that are shipped."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.signal import lfilter
from torch import Generator, Tensor

from parvibench.core import registry
from parvibench.core.errors import InputError, ParVIBenchError
from parvibench.core.exact import ExactTask
from parvibench.core.reference import load_reference
from parvibench.core.registry import load_task
from parvibench.core.target import Target
from parvibench.core.task import Facts, Task
from parvibench.metrics import floors
from parvibench.reference import build as builder
from parvibench.reference import long_run
from parvibench.reference.checks import verify
from parvibench.reference.long_run import Plan, Whitened, require_convergence

SHIPPED = ("banana", "blr-breast-cancer", "correlated-2d", "gmm5-2d", "multimodal", "x-shaped")
MEAN = torch.tensor([3.0, -2.0], dtype=torch.float64)
FACTOR = torch.tensor([[10.0, 0.0], [0.9, 0.1]], dtype=torch.float64)
SD = (FACTOR @ FACTOR.T).diagonal().sqrt()


class Ellipse(Target):
    """N(MEAN, FACTOR FACTOR^T): sds 10 and 0.9, correlation 0.99."""

    dim = 2

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        z = torch.linalg.solve(FACTOR, (x - MEAN).mT).mT
        return -0.5 * z.square().sum(-1)


@dataclass(frozen=True, kw_only=True)
class EllipseTask(Task):
    metrics: tuple[str, ...] = ("sliced_w2", "mmd2", "mean_error")

    def target(self, replicates: Sequence[int], device: Any, dtype: torch.dtype) -> Ellipse:
        return Ellipse()

    def initial(self, target: Target, n: int, generators: Sequence[Generator]) -> Tensor:
        return torch.stack([self.exact(n, g) for g in generators])

    def exact(self, n: int, generator: Generator) -> Tensor:
        return MEAN + torch.randn(n, 2, generator=generator, dtype=torch.float64) @ FACTOR.T


def make_task(kind: type[Task] = EllipseTask, **extra: Any) -> Any:
    return kind(name="ellipse", summary="", dim=2, tags=frozenset(), citation="", **extra)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = ["sliced_w2", "mmd2", "mean_error", "w2sq_window_5"]
    hmc = {"step_size": 0.1, "leapfrog_steps": 3}
    changes = {
        floors: {
            "SIZES": (10, 20),
            "CURVE_SIZES": (5, 20),
            "_FULL_SIZES": (),
            "OTHER_SETS": 20,
            "SETS_A_METRIC": 10,
            "judged_metrics": lambda: judged,
        },
        builder: {
            "POOLS": 5,
            "NUMERICAL_DRAWS": 15_000,
            "POOL_SIZE": 500,
            "SETS": 30,
            "ROWS": 400,
            "judged_metrics": lambda: judged,
        },
        long_run: {
            "PILOT": Plan("hmc", hmc, 50, 20, 20, 1),
            "MAIN": Plan("hmc", hmc, 200, 20, 160, 1),
            "CHECK": Plan("mala", {"step_size": 0.5}, 100, 50, 240, 5),
        },
    }
    for module, values in changes.items():
        for name, value in values.items():
            monkeypatch.setattr(module, name, value)


def test_exact_reference_reads_back(tmp_path: Path) -> None:
    facts = Facts(mean=MEAN, sd=SD)
    task = make_task(provides=frozenset({"score", "exact"}), facts=facts)
    said: list[tuple[str, int, int]] = []
    certificate = json.loads(builder.build(task, tmp_path, lambda *news: said.append(news)).read_text())
    progress = [done for text, done, _ in said if text == "noise floors of 3 metrics"]
    assert progress == list(range(1, said[-1][2] + 1))
    reference = load_reference("ellipse", tmp_path)
    assert reference.exact
    assert reference.draws.shape == (400, 2)
    assert torch.equal(reference.mean, MEAN)
    assert reference.bandwidth == pytest.approx(float(torch.pdist(reference.draws).median()))
    assert certificate["floors"].keys() == reference.floors.keys() == {"sliced_w2", "mmd2", "mean_error"}
    assert reference.floor("sliced_w2", 20).values.shape == (30,)
    median = np.median(reference.floor("sliced_w2", 20).values)
    assert certificate["floors"]["sliced_w2"]["20"]["q50"] == pytest.approx(median, rel=1e-3)
    assert torch.equal(reference.scores, Ellipse().score(reference.draws[None, :100])[0])
    # Rebuilding gives the same draws, whose hash the certificate holds.
    again = json.loads(builder.build(task, tmp_path).read_text())
    assert again["sha256"] == certificate["sha256"]
    assert again["floors"] == certificate["floors"]


def test_missing_floors_are_completed_as_if_built_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new metric, a new size and more sets; draws and known values stay, and nothing is left to do."""
    task = make_task(provides=frozenset({"score", "exact"}), facts=Facts(mean=MEAN, sd=SD))
    builder.build(task, tmp_path / "whole")
    with monkeypatch.context() as before:
        before.setattr(floors, "SIZES", (10,))
        before.setattr(floors, "SETS_A_METRIC", 5)
        builder.build(replace(task, metrics=("sliced_w2", "mmd2")), tmp_path / "part")
    early = load_reference("ellipse", tmp_path / "part")
    assert set(early.floors) == {"sliced_w2", "mmd2"}
    assert len(early.floors["mmd2"][10]) == 20
    assert builder.complete_floors(task, tmp_path / "part") is not None
    found, whole = (load_reference("ellipse", tmp_path / name) for name in ("part", "whole"))
    assert torch.equal(found.draws, whole.draws)
    assert found.certificate["floors"] == whole.certificate["floors"]
    assert {m: set(t) for m, t in found.floors.items()} == {m: set(t) for m, t in whole.floors.items()}
    assert all(np.array_equal(v, found.floors[m][n]) for m, t in whole.floors.items() for n, v in t.items())
    assert builder.complete_floors(task, tmp_path / "part") is None
    assert all(check.passed is not False for check in verify(task, tmp_path / "part") if check.name != "floors")


def test_floors_of_metrics_outside_the_verdict_come_with_their_constants(tmp_path: Path) -> None:
    task = make_task(provides=frozenset({"score", "exact"}), facts=Facts(mean=MEAN, sd=SD))
    builder.build(task, tmp_path)
    before = load_reference("ellipse", tmp_path)
    assert set(before.certificate["v_statistics"]) == {"mmd2"}
    builder.complete_floors(task, tmp_path, ["energy_distance"])
    after = load_reference("ellipse", tmp_path)
    assert set(after.floors) == {*before.floors, "energy_distance"}
    assert after.certificate["v_statistics"]["mmd2"] == before.certificate["v_statistics"]["mmd2"]
    # The gap of the distance kernel is the mean distance of two draws.
    gap = after.certificate["v_statistics"]["energy_distance"]["gap"]
    apart = task.exact(4000, torch.Generator().manual_seed(8)).chunk(2)
    assert gap == pytest.approx(float((apart[0] - apart[1]).norm(dim=1).mean()), rel=0.1)


def test_only_references_of_draws_have_floors_to_complete(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no reference draws"):
        builder.complete_floors(make_task(), tmp_path)


def test_moments_come_from_further_draws_where_they_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "MOMENT_DRAWS", 20_000)
    source = builder.exact_source(make_task(provides=frozenset({"exact"})))
    assert ((source.mean - MEAN).abs() < 5 * SD / math.sqrt(20_000)).all()
    assert source.record["method"] == "exact sampler; moments of 20000 draws"


def test_infinite_standard_deviations_are_recorded_as_null(tmp_path: Path) -> None:
    """Those of draws would be numbers without a meaning."""
    facts = Facts(mean=MEAN, infinite_moments=True)
    task = make_task(provides=frozenset({"score", "exact"}), facts=facts)
    certificate = json.loads(builder.build(task, tmp_path).read_text())
    assert certificate["mean"] == MEAN.tolist()
    assert certificate["sd"] == [None, None]
    assert load_reference("ellipse", tmp_path).sd.tolist() == [math.inf, math.inf]
    found = {check.name: check for check in verify(task, tmp_path)}
    assert found["means"].passed
    assert found["standard deviations"].passed is None


@dataclass(frozen=True, kw_only=True)
class NumericalEllipse(ExactTask):
    metrics: tuple[str, ...] = ("sliced_w2", "mmd2", "mean_error")
    numerical: bool = True
    target = EllipseTask.target
    exact = EllipseTask.exact


def make_numerical(mean: Tensor) -> NumericalEllipse:
    return make_task(NumericalEllipse, facts=Facts(mean=mean, sd=SD))


@pytest.mark.ci
def test_numerical_draws_are_confirmed_by_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    run = long_run.long_run(make_numerical(MEAN), 1)
    monkeypatch.setattr(long_run, "long_run", lambda *_: run)
    source = builder.exact_source(make_numerical(MEAN))
    record = source.record["run"]
    assert source.exact
    assert record["exact"]["largest_z_of_means"] < record["exact"]["z_limit"]
    assert source.check is not None
    assert len(source.check) >= builder.COMPARED
    with pytest.raises(ParVIBenchError, match="disagrees with the exact moments"):
        builder.exact_source(make_numerical(MEAN + 0.05 * SD))


def test_long_run_finds_the_law_and_keeps_its_pool_apart() -> None:
    source = builder.run_source(make_task())
    main, check = source.record["run"]["main"], source.record["run"]["check"]
    assert main["ess_bulk_min"] >= 10_000
    assert check["largest_z_of_means"] < 4.7
    error = SD / math.sqrt(main["ess_bulk_min"])
    assert ((source.mean - MEAN).abs() < 5 * error).all()
    assert ((source.sd - SD).abs() < 5 * error).all()
    shipped = {row.tobytes() for row in source.rows.numpy()}
    pooled = torch.cat(list(source.sets(20))).numpy()
    assert pooled.shape == (600, 2)
    assert not any(row.tobytes() in shipped for row in pooled)


def test_a_run_that_agrees_is_certified_with_its_evidence(tmp_path: Path) -> None:
    certificate = json.loads(builder.build(make_task(), tmp_path).read_text())
    run = certificate["run"]
    assert run["check"]["rhat_max"] < 1.005
    assert run["check"]["largest_z_of_means"] < run["check"]["z_limit"] == pytest.approx(2.81, abs=0.01)
    assert run["distances"]["check"]["mmd2"]["p_value"] > 0.01
    assert run["correlations"][0][1] == pytest.approx(0.99, abs=0.01)
    assert load_reference("ellipse", tmp_path).exact is False


@pytest.mark.ci
def test_draws_of_another_law_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A second method that agrees in mean and sd but not in law must not certify."""
    monkeypatch.setattr(builder, "SETS", 150)  # p-values below 1% take more than a hundred
    monkeypatch.setattr(floors, "SETS_A_METRIC", 50)
    real = builder.run_source

    def spoilt(task: Task, *_: Any) -> builder.Source:
        source = real(task)
        return replace(source, check=4 * (source.check - MEAN) + MEAN)

    monkeypatch.setattr(builder, "run_source", spoilt)
    with pytest.raises(ParVIBenchError, match="not inside the floor"):
        builder.build(make_task(), tmp_path)


def test_other_methods_are_held_to_the_floor_of_their_own_size() -> None:
    task = load_task("diffusion-50")
    reference = task.reference()
    assert reference is not None
    assert max(reference.floors["mmd2"]) > builder.COMPARED
    drawn = task.exact(builder.COMPARED, Generator().manual_seed(1))
    found = builder.between_methods(task, reference, drawn)["distances"]["check"]
    assert all(entry["p_value"] > 0.05 for entry in found.values())
    with pytest.raises(ParVIBenchError, match="not inside the floor"):
        builder.between_methods(task, reference, 1.3 * drawn)


@pytest.mark.ci
@pytest.mark.parametrize("rho", [-0.5, 0.0, 0.5])
def test_errors_of_means_and_sds_of_autoregressive_chains(rho: float) -> None:
    """Of antithetic chains too: draws have the correlation rho, their squares rho^2. Both errors are right within 10%."""
    chains, draws = 100, 1000
    noise = np.random.default_rng(1).normal(size=(draws + 50, chains, 20))
    x = lfilter([math.sqrt(1 - rho**2)], [1, -rho], noise, axis=0)[50:]
    found = long_run.diagnostics(torch.from_numpy(x))
    n = chains * draws
    of_mean, of_sd = math.sqrt((1 + rho) / (1 - rho) / n), math.sqrt((1 + rho**2) / (1 - rho**2) / (2 * n))
    assert np.mean(found["mcse_mean"]) == pytest.approx(of_mean, rel=0.1)
    assert np.mean(found["mcse_sd"]) == pytest.approx(of_sd, rel=0.1)


def test_whitening_of_a_gaussian_is_exact() -> None:
    white = Whitened.at_mode(Ellipse(), torch.zeros(2, dtype=torch.float64))
    torch.testing.assert_close(white.centre, MEAN)
    torch.testing.assert_close(white.factor @ white.factor.T, FACTOR @ FACTOR.T)
    z = torch.tensor([[[0.3, -1.0], [2.0, 0.5]]], dtype=torch.float64)
    torch.testing.assert_close(white.score(z), -z)
    torch.testing.assert_close(white.from_base(white.to_base(z[0])), z[0])
    value, score = white.log_density_and_score(z)
    torch.testing.assert_close(value, -0.5 * z.square().sum(-1))
    torch.testing.assert_close(score, -z)


@pytest.mark.parametrize(("flaw", "value"), [("ess_tail_min", 9000), ("rhat_max", 1.02), ("largest_z_of_sds", 6.0)])
def test_a_run_that_has_not_converged_is_refused(flaw: str, value: float) -> None:
    main = {"ess_bulk_min": 20_000, "ess_tail_min": 20_000, "rhat_max": 1.001}
    check = main | {"largest_z_of_means": 2.0, "largest_z_of_sds": 2.0, "z_limit": 3.5}
    require_convergence("x", {"main": main, "check": check})
    with pytest.raises(ParVIBenchError, match=r"has not converged|disagrees"):
        require_convergence("x", {"main": main | {flaw: value}, "check": check | {flaw: value}})


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_certificates_hold(name: str) -> None:
    """Beyond what `verify` asks of them: rows, facts and floors are whole; files are small."""
    task, reference = load_task(name), load_reference(name)
    assert reference.exact == ("exact" in task.provides)
    assert reference.draws.shape == (min(10_000, 1_250_000 // (4 * task.dim)), task.dim)
    if task.facts.mean is not None:
        torch.testing.assert_close(reference.mean, task.facts.mean, rtol=1e-12, atol=1e-12)
    judged = [m for m in task.metrics if registry.metrics()[m].need in floors.JUDGED]
    assert set(judged) <= set(reference.floors)
    for table in reference.floors.values():
        assert set(table) >= {100, 500, 1000}
        assert all(len(values) >= 200 for values in table.values())
    folder = builder.default_folder()
    assert (folder / f"{name}.npz").stat().st_size < 2e6
    assert (folder / f"{name}.json").stat().st_size < 200e3


def test_the_long_run_of_the_logistic_task_converged() -> None:
    run = load_reference("blr-breast-cancer").certificate["run"]
    require_convergence("blr-breast-cancer", run)
    assert run["main"]["rhat_max"] < 1.005
    assert min(run["main"]["ess_bulk_min"], run["main"]["ess_tail_min"]) >= 10_000


def test_differences_of_runs_are_in_standard_errors_of_the_difference() -> None:
    """3 and 4 make 5."""
    main = {"mean": np.zeros(2), "mcse_mean": np.array([3.0, 1.0]), "sd": np.ones(2), "mcse_sd": np.array([0.3, 0.1])}
    other = main | {
        "mean": np.array([10.0, 0.5]),
        "mcse_mean": np.array([4.0, 1.0]),
        "sd": np.array([2.0, 1.0]),
        "mcse_sd": np.array([0.4, 0.1]),
    }
    found = long_run.agreement(main, other)
    assert (found["largest_z_of_means"], found["largest_z_of_sds"], found["mean_sd_ratio"]) == (2.0, 2.0, 1.5)


def test_shipped_draws_of_a_run_are_in_no_set_of_its_floors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 30 times of four chains the last six are shipped: 96 draws are left, in sets of neighbours of different chains."""
    draws = torch.arange(240.0, dtype=torch.float64).view(30, 4, 2)
    monkeypatch.setattr(builder, "ROWS", 24)
    sets = list(builder._earlier(draws)(12))
    assert len(sets) == 8
    assert torch.cat(sets).tolist() == draws[:24].reshape(-1, 2).tolist()
