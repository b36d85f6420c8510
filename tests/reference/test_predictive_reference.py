"""Certified predictions: made by short runs here, verified, and used to judge samples."""

import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest
import torch
from torch import Tensor

import parvibench as pb
from parvibench.core.errors import ParVIBenchError
from parvibench.core.metric import Context, NotApplicable
from parvibench.core.reference import load_predictions
from parvibench.core.registry import load_task
from parvibench.metrics.predictive import predictive_mean_error, predictive_sd_error
from parvibench.reference import predictive_run as builder
from parvibench.reference.build import build, default_folder
from parvibench.reference.checks import verify
from parvibench.reference.long_run import MAX_RHAT, MIN_ESS, Plan
from parvibench.reference.predictive_run import MAX_CHECK_RHAT, predictive_floors, require_agreement

TASK = load_task("bnn-diabetes-sklearn")


class InProcess:
    """A pool that runs everything here: starting processes takes longer than the work."""

    def __init__(self, *_: object) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def map(self, function: Callable[..., Any], *arguments: Iterable[Any]) -> list[Any]:
        return [function(*job) for job in zip(*arguments, strict=True)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certified predictions of two splits from far too short runs, the bars lifted."""
    path = tmp_path_factory.mktemp("references")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builder, "ProcessPoolExecutor", InProcess)
        patch.setattr(builder, "require_agreement", lambda *_: None)
        patch.setattr(builder, "SETS", 200)
        main = Plan("hmc", {"step_size": 5e-5, "leapfrog_steps": 5, "jitter": 0.2}, 10, 5, 10, 1)
        builder.build_predictions(TASK, path, main=main, check=Plan("mala", {"step_size": 2e-4}, 4, 5, 8, 1), splits=2)
    return path


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
    builder.certificates.write(path, TASK.name, certificate, {**arrays, **floors}, {})
    return path


def test_the_certificate_says_what_was_done(folder: Path) -> None:
    found = load_predictions(TASK.name, folder)
    assert found is not None
    assert found.mean.shape == found.sd.shape == (2, 44)
    assert found.states.shape == (2, builder.STATES, 603)
    certificate = found.certificate
    assert [run["replicate"] for run in certificate["run"]["main"]] == [0, 1]
    assert certificate["run"]["main"][0]["algorithm"] == "hmc"
    assert certificate["run"]["check"]["algorithm"] == "mala"
    assert {"largest_z_of_means", "z_limit", "accepted", "seconds"} <= set(certificate["run"]["check"])
    assert np.shape(certificate["mcse_mean"]) == (2, 44)


def test_recorded_predictions_are_those_of_the_stored_draws(folder: Path) -> None:
    """100 draws stored are all 100 made: their moments are the recorded ones. Catches standardised units."""
    found = load_predictions(TASK.name, folder)
    f = TASK.predictive((0, 1), "cpu", torch.float64).predict(found.states)[0]
    torch.testing.assert_close(f.mean(1), found.mean, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(f.std(1), found.sd, rtol=1e-3, atol=0)
    assert found.mean.mean() > 100  # the disease score, not a standardised one


def test_an_untouched_copy_verifies_but_for_what_short_runs_cannot_know(folder: Path) -> None:
    found = outcome(folder)
    # Ten correlated draws of ten chains do not fulfil the Stein identities; everything else is of the files.
    assert all(passed for name, passed in found.items() if "score" not in name)
    assert {"files", "task version", "floors", "density"} <= set(found)
    assert {"predictive means", "predictive variances"} <= set(found)


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


def evidence(**changed: float) -> dict[str, Any]:
    good = {"ess_bulk_min": MIN_ESS, "ess_tail_min": MIN_ESS, "rhat_max": MAX_RHAT - 1e-3}
    agreement = {"largest_z_of_means": 3.0, "largest_z_of_sds": 3.0, "z_limit": 3.7}
    check = agreement | {"rhat_max": MAX_CHECK_RHAT - 0.01}
    main = {k: v for k, v in changed.items() if k in good}
    other = {k.removeprefix("check_"): v for k, v in changed.items() if k not in main}
    return {"main": [good, good | main], "check": check | other}


FLAWS = {
    "ess_bulk_min": MIN_ESS - 1, "ess_tail_min": MIN_ESS - 1, "rhat_max": MAX_RHAT, "largest_z_of_means": 3.8,
    "largest_z_of_sds": 3.8, "check_rhat_max": MAX_CHECK_RHAT,
}  # fmt: skip


@pytest.mark.parametrize("flaw", FLAWS)
def test_poor_evidence_is_refused(flaw: str) -> None:
    require_agreement("x", evidence())
    with pytest.raises(ParVIBenchError, match="x: the"):
        require_agreement("x", evidence(**{flaw: FLAWS[flaw]}))


def test_build_certifies_predictions_of_a_regression(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = "parvibench.reference.build.build_predictions"
    monkeypatch.setattr(made, lambda task, folder, notify: folder / task.name)
    assert build(TASK, tmp_path) == tmp_path / TASK.name


def test_floors_are_those_of_independent_draws() -> None:
    """n draws of a Gaussian have squared errors of mean 1/n, plus the reference's own 1/m, and half that.

    Two runs of 50 chains by 100 draws; within 10% of 1000 sets' root mean squares (5 sd). Catches resampling one
    point at a time and a reference taken for exact.
    """
    generator = torch.Generator().manual_seed(4)
    runs = [3 + 2 * torch.randn(100, 50, 30, generator=generator, dtype=torch.float64) for _ in range(2)]
    floors = predictive_floors(runs)
    for metric, share in (("predictive_mean_error", 1), ("predictive_sd_error", 1 / 2)):
        for n, values in floors[metric].items():
            assert np.mean(values**2) ** 0.5 == pytest.approx((share * (1 / n + 1 / 5000)) ** 0.5, rel=0.1)


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
    assert torch.equal(known.mean, found.mean.flip(0))
    assert torch.equal(known.sd, found.sd.flip(0))
    assert found.of((0, 2)) is None


def test_a_run_is_judged_on_certified_splits_only(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three replicates one at a time, two of them certified: the cell has no value, and says why.

    Catches replicates without a posterior ranked as failures, and values of some passed off as the cell's.
    """
    found = load_predictions(TASK.name, folder)
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
    require_agreement(TASK.name, found.certificate["run"])
    assert all(check.passed for check in verify(TASK))
    assert len(found.mean) == builder.SPLITS


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
