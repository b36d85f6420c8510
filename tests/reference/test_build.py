"""Building references that the package ships, small; completing their floors; and the certificates that are shipped."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.signal import lfilter
from torch import Generator, Tensor

from parvibench.core import registry
from parvibench.core.errors import InputError
from parvibench.core.reference import load_reference
from parvibench.core.registry import load_task
from parvibench.core.target import Target
from parvibench.core.task import Facts, Task
from parvibench.metrics import floors, own_floors
from parvibench.reference import build as builder
from parvibench.reference import gates
from parvibench.reference.chain_runs import Whitened
from parvibench.reference.checks import verify
from parvibench.reference.gates import Effort

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


def make_task(**extra: Any) -> EllipseTask:
    return EllipseTask(name="ellipse", summary="", dim=2, tags=frozenset(), citation="", **extra)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sizes, few sets and rows; the task counts as one that the package ships."""
    changes = {
        own_floors: {"SIZES": (10, 20), "CURVE": (5,), "FEWEST": 20, "SETS_A_METRIC": 1},
        builder: {
            "POOL": 2000, "ROWS": 400, "built_in": lambda task: True,
            "judged_metrics": lambda: ["sliced_w2", "mmd2", "mean_error", "w2sq_window_5"],
        },
    }  # fmt: skip
    for module, values in changes.items():
        for name, value in values.items():
            monkeypatch.setattr(module, name, value)


def built(folder: Path, **extra: Any) -> EllipseTask:
    task = make_task(provides=frozenset({"score", "exact"}), **extra)
    builder.build(task, folder, Effort("exact"), lambda *_: None)
    return task


def test_a_reference_of_the_package_has_all_floors_and_no_pool(tmp_path: Path) -> None:
    """Its moments are the task's where they are known; building again gives the same files but for the date."""
    task = built(tmp_path, facts=Facts(mean=MEAN, sd=SD))
    certificate = json.loads((tmp_path / "ellipse.json").read_text())
    reference = load_reference("ellipse", tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {"ellipse.json", "ellipse.npz"}
    assert reference.exact
    assert reference.draws.shape == (400, 2)
    assert torch.equal(reference.mean, MEAN)
    assert reference.bandwidth == pytest.approx(float(torch.pdist(reference.draws).median()))
    assert {m: set(t) for m, t in reference.floors.items()} == {
        "sliced_w2": {5, 10, 20}, "mmd2": {10, 20}, "mean_error": {10, 20},
    }  # fmt: skip
    median = np.median(reference.floor("sliced_w2", 20).values)
    assert certificate["floors"]["sliced_w2"]["20"]["q50"] == pytest.approx(median, rel=1e-3)
    assert torch.equal(reference.scores, Ellipse().score(reference.draws[None, :100])[0])
    builder.build(task, tmp_path / "again", Effort("exact"), lambda *_: None)
    assert json.loads((tmp_path / "again" / "ellipse.json").read_text())["sha256"] == certificate["sha256"]


def test_infinite_standard_deviations_are_recorded_as_null(tmp_path: Path) -> None:
    """Those of draws would be numbers without a meaning."""
    task = built(tmp_path, facts=Facts(mean=MEAN, infinite_moments=True))
    assert load_reference("ellipse", tmp_path).sd.tolist() == [math.inf, math.inf]
    found = {check.name: check for check in verify(task, tmp_path)}
    assert found["means"].passed
    assert found["standard deviations"].passed is None


def test_missing_floors_are_completed(tmp_path: Path) -> None:
    """A new metric; draws and known values stay, and nothing is left to do."""
    built(tmp_path, metrics=("sliced_w2", "mmd2"))
    early = load_reference("ellipse", tmp_path)
    task = make_task(provides=frozenset({"score", "exact"}))
    assert builder.add_floors(task, tmp_path, None, lambda *_: None) is not None
    found = load_reference("ellipse", tmp_path)
    assert torch.equal(found.draws, early.draws)
    assert {m: set(t) for m, t in found.floors.items()} == {
        "sliced_w2": {5, 10, 20}, "mmd2": {10, 20}, "mean_error": {10, 20},
    }  # fmt: skip
    assert all(np.array_equal(v, found.floors[m][n]) for m, t in early.floors.items() for n, v in t.items())
    assert builder.add_floors(task, tmp_path, None, lambda *_: None) is None
    assert all(check.passed is not False for check in verify(task, tmp_path) if check.name != "floors")


def test_floors_of_metrics_outside_the_verdict_come_with_their_constants(tmp_path: Path) -> None:
    task = built(tmp_path)
    before = load_reference("ellipse", tmp_path)
    assert set(before.certificate["v_statistics"]) == {"mmd2"}
    builder.add_floors(task, tmp_path, ["energy_distance"], lambda *_: None)
    after = load_reference("ellipse", tmp_path)
    assert set(after.floors) == {*before.floors, "energy_distance"}
    assert after.certificate["v_statistics"]["mmd2"] == before.certificate["v_statistics"]["mmd2"]
    # The gap of the distance kernel is the mean distance of two draws.
    gap = after.certificate["v_statistics"]["energy_distance"]["gap"]
    apart = task.exact(4000, torch.Generator().manual_seed(8)).chunk(2)
    assert gap == pytest.approx(float((apart[0] - apart[1]).norm(dim=1).mean()), rel=0.1)


def test_only_references_of_draws_have_floors_to_complete(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no reference draws"):
        builder.add_floors(make_task(), tmp_path, None, lambda *_: None)


@pytest.mark.ci
@pytest.mark.parametrize("rho", [-0.5, 0.0, 0.5])
def test_errors_of_means_and_sds_of_autoregressive_chains(rho: float) -> None:
    """Of antithetic chains too: draws have the correlation rho, their squares rho^2. Both errors are right within 10%."""
    chains, draws = 100, 1000
    noise = np.random.default_rng(1).normal(size=(draws + 50, chains, 20))
    x = lfilter([math.sqrt(1 - rho**2)], [1, -rho], noise, axis=0)[50:]
    found = gates.diagnostics(torch.from_numpy(x))
    n = chains * draws
    of_mean, of_sd = math.sqrt((1 + rho) / (1 - rho) / n), math.sqrt((1 + rho**2) / (1 - rho**2) / (2 * n))
    assert np.mean(found["mcse_mean"]) == pytest.approx(of_mean, rel=0.1)
    assert np.mean(found["mcse_sd"]) == pytest.approx(of_sd, rel=0.1)


def test_whitening_of_a_gaussian_is_exact() -> None:
    white = Whitened(Ellipse(), MEAN, FACTOR)
    z = torch.tensor([[[0.3, -1.0], [2.0, 0.5]]], dtype=torch.float64)
    torch.testing.assert_close(white.score(z), -z)
    torch.testing.assert_close(white.from_base(white.to_base(z[0])), z[0])
    value, score = white.log_density_and_score(z)
    torch.testing.assert_close(value, -0.5 * z.square().sum(-1))
    torch.testing.assert_close(score, -z)


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


def test_differences_of_runs_are_in_standard_errors_of_the_difference() -> None:
    """3 and 4 make 5."""
    main = {"mean": np.zeros(2), "mcse_mean": np.array([3.0, 1.0]), "sd": np.ones(2), "mcse_sd": np.array([0.3, 0.1])}
    other = main | {
        "mean": np.array([10.0, 0.5]),
        "mcse_mean": np.array([4.0, 1.0]),
        "sd": np.array([2.0, 1.0]),
        "mcse_sd": np.array([0.4, 0.1]),
    }
    found = gates.agreement(main, other)
    assert (found["largest_z_of_means"], found["largest_z_of_sds"], found["mean_sd_ratio"]) == (2.0, 2.0, 1.5)
