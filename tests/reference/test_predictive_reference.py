"""Certified predictions: those that are shipped hold, edited ones do not; and they judge samples."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import parvibench as pb
from parvibench.core.metric import Context, NotApplicable
from parvibench.core.reference import load_predictions
from parvibench.core.registry import load_task
from parvibench.metrics.predictive import predictive_mean_error, predictive_sd_error
from parvibench.reference import build as built
from parvibench.reference.build import default_folder
from parvibench.reference.checks import verify

TASK = load_task("bnn-diabetes-sklearn")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the shipped reference."""
    (tmp_path / "copy").mkdir()
    for suffix in ("npz", "json"):
        shutil.copy(default_folder() / f"{TASK.name}.{suffix}", tmp_path / "copy")
    return tmp_path / "copy"


def outcome(folder: Path) -> dict[str, bool | None]:
    return {check.name: check.passed for check in verify(TASK, folder)}


def altered(folder: Path, tmp_path: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> Path:
    """A copy whose arrays and certificate were changed and signed anew."""
    path = tmp_path / "altered"
    shutil.copytree(folder, path)
    certificate = json.loads((path / f"{TASK.name}.json").read_text())
    with np.load(path / f"{TASK.name}.npz") as stored:
        arrays = dict(stored)
    change(arrays, certificate)
    floors = {key: arrays.pop(key) for key in [k for k in arrays if "/" in k]}
    built.write(path, TASK.name, certificate, {**arrays, **floors}, {})
    return path


@pytest.mark.parametrize(
    ("key", "check"), [("mean", "predictive means"), ("sd", "predictive variances"), ("scores", "density")]
)
def test_edited_numbers_are_found(folder: Path, tmp_path: Path, key: str, check: str) -> None:
    """Signed anew, so that the hash does not give them away."""

    def change(arrays: dict[str, Any], _: dict[str, Any]) -> None:
        arrays[key] = arrays[key] * 1.5

    assert outcome(altered(folder, tmp_path, change))[check] is False


def test_a_truncated_file_and_another_version_are_found(folder: Path, tmp_path: Path) -> None:
    assert outcome(altered(folder, tmp_path, lambda _, c: c.update(task_version=99)))["task version"] is False
    path = tmp_path / "cut"
    shutil.copytree(folder, path)
    arrays = path / f"{TASK.name}.npz"
    arrays.write_bytes(arrays.read_bytes()[:-10])
    assert outcome(path) == {"files": False}


@dataclass
class Points:
    """Samples are the predictions at T points themselves."""

    y: Tensor
    certified: tuple[Tensor, ...] | None

    def predict(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        return samples, torch.ones_like(samples[..., 0])


def test_errors_are_in_units_of_the_certified_sd() -> None:
    """Samples with mean M + 0.5 S and twice the spread: errors 0.5 and 1. Collapsed ones: spread error 1."""
    mean, sd = torch.tensor([[1.0, -2.0, 5.0]]).double(), torch.tensor([[0.1, 1.0, 10.0]]).double()
    z = torch.tensor([-1.0, 0.0, 1.0]).double()[None, :, None]  # standard deviation 1
    context = Context(TASK, predictive=Points(torch.zeros(1, 3).double(), (mean, sd)))
    samples = (mean + 0.5 * sd)[:, None] + 2 * sd[:, None] * z
    assert predictive_mean_error(samples, context).item() == pytest.approx(0.5)
    assert predictive_sd_error(samples, context).item() == pytest.approx(1.0)
    exact = mean[:, None] + sd[:, None] * z
    assert predictive_sd_error(exact, context).item() == pytest.approx(0.0, abs=1e-12)
    assert predictive_sd_error(exact * 0 + mean[:, None], context).item() == pytest.approx(1.0)


def test_errors_do_not_apply_without_certified_predictions() -> None:
    context = Context(TASK, predictive=Points(torch.zeros(1, 3).double(), None))
    with pytest.raises(NotApplicable, match="certified"):
        predictive_mean_error(torch.zeros(1, 4, 3).double(), context)


def test_only_certified_splits_have_predictions(folder: Path) -> None:
    """Catches a split judged against another's posterior."""
    found = load_predictions(TASK.name, folder)
    known = found.of((1, 0))
    assert torch.equal(known.mean, found.mean[[1, 0]])
    assert torch.equal(known.sd, found.sd[[1, 0]])
    assert found.of((0, len(found.mean))) is None


def test_a_run_is_judged_on_certified_splits_only(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three replicates one at a time, two of them certified: the cell has no value, and says why.

    Catches replicates without a posterior ranked as failures, and values of some passed off as the cell's.
    """
    found = load_predictions(TASK.name, folder)
    found = replace(found, mean=found.mean[:2], sd=found.sd[:2])
    monkeypatch.setattr("parvibench.tasks.bnn.load_predictions", lambda _: found)
    cells = [
        pb.run(tasks=[TASK], replicates=r, out=tmp_path / str(r), budget={"iterations": 1}, workers=0, tracking=False,
               algorithms=["initial"]).cells[0]
        for r in (2, 3)
    ]  # fmt: skip
    assert len(cells[0].values["predictive_sd_error"]) == 2
    assert all(value > 1 for value in cells[0].values["predictive_mean_error"])  # untrained networks
    assert "predictive_sd_error" not in cells[1].values
    assert "certified" in cells[1].absent["predictive_sd_error"]
    assert len(cells[1].values["nll"]) == 3


def test_the_shipped_certificate_meets_the_bars() -> None:
    found = load_predictions(TASK.name, default_folder())
    runs, check = found.certificate["run"]["main"], found.certificate["run"]["check"]
    assert len(found.mean) == len(runs) == 5
    for run in (*runs, check):
        assert min(run["ess_bulk_min"], run["ess_tail_min"]) >= 10_000 or run is check
        assert run["rhat_max"] < (1.02 if run is check else 1.005)
    assert max(check["largest_z_of_means"], check["largest_z_of_sds"]) <= check["z_limit"]
    assert all(found.passed for found in verify(TASK))


@pytest.mark.parametrize(("name", "rows"), [("bnn-wine-red", 160), ("bnn-boston", 51), ("bnn-yacht", 31)])
def test_the_shipped_reference_of_a_uci_set_meets_its_gates_and_reads_as_what_it_is(name: str, rows: int) -> None:
    """Two samplers, three splits, draws in units of the sds; the mixture of the stored draws has the recorded likelihood."""
    task = load_task(name)
    found = load_predictions(task.name, default_folder())
    run = found.certificate["run"]
    assert all(run["gates"].values())
    assert max(run["wide"]["rhat_max"], run["modes"]["rhat_max"]) < 1.02
    assert min(run[role]["ess_bulk_min"] for role in ("wide", "modes")) > 500
    assert found.draws.shape == (3, 300, rows)
    assert float((found.draws.mean(1).abs() * 300**0.5).square().mean().sqrt()) == pytest.approx(1, abs=0.3)
    assert float(found.draws.std(1).mean()) == pytest.approx(1, abs=0.05)
    assert {metric for metric, table in found.floors.items() if 20 in table} >= {
        "predictive_w2",
        "predictive_nll_error",
    }
