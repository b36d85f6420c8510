"""The rule of claims, and claims whose data are flipped."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from papers.claims.claim import INCONCLUSIVE, NOT_SUPPORTED, SUPPORTED, Laboratory, Measured, judge
from papers.claims.sifg import fisher_divergence
from papers.claims_page import CLAIMS, measure_claims, write_claims

#: Tests of studies, which are no part of the product.
pytestmark = pytest.mark.ci

BOUNDS = {"a": 0.0, "b": 1.0}


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        ([1.0, 1.1, 0.9], [2.0, 2.1, 1.9], SUPPORTED),
        ([1.0, 1.1, 0.9], [0.0, 0.1, -0.1], NOT_SUPPORTED),
        ([1.0, -1.0, 0.5], [2.0, 2.1, 1.9], INCONCLUSIVE),
        ([1.0], [2.0], INCONCLUSIVE),
        # A method that fails where the other does not has lost by more than any finite difference.
        ([1.0, 1.2, np.inf, 1.1] * 2, [2.0, 2.1, 1.9, 2.0] * 2, SUPPORTED),
        ([-np.inf] * 3, [2.0, 2.1, 1.9], NOT_SUPPORTED),
        # Two failures compared tell nothing.
        ([np.nan] * 3, [2.0, 2.1, 1.9], INCONCLUSIVE),
        ([1.0, 1.1, 0.9], [np.nan] * 3, INCONCLUSIVE),
    ],
)
def test_a_claim_stands_where_all_its_effects_clear_their_bounds(a: list, b: list, verdict: str) -> None:
    assert judge(BOUNDS, {"a": a, "b": b})[0] == verdict


def test_effects_at_their_bound_are_called_supported_rarely() -> None:
    rng = np.random.default_rng(0)
    verdicts = [judge({"a": 0.0}, {"a": rng.standard_normal(8)})[0] for _ in range(1000)]
    # At most 2.5% on either side; 45 of 1,000 have a chance of 1e-4.
    assert verdicts.count(SUPPORTED) <= 45
    assert verdicts.count(NOT_SUPPORTED) <= 45


def test_effects_must_be_those_that_are_claimed() -> None:
    with pytest.raises(ValueError, match="'c'"):
        judge(BOUNDS, {"a": [1.0], "c": [1.0]})


class Made(Measured):
    """Runs whose numbers are given: a good method's and a bad one's."""

    def __init__(self, good: frozenset[str], swapped: bool) -> None:
        self.good, self.swapped = good, swapped

    def is_good(self, label: str) -> bool:
        return (label in self.good) is not self.swapped

    def last(self, label: str, metric: str, task: str | None = None) -> np.ndarray:
        higher = metric in ("modes_found", "ess_bulk", "displacement")
        value = 5.0 if self.is_good(label) is higher else 0.2
        return value * np.linspace(0.99, 1.01, 6)

    def curve(self, label: str, metric: str, task: str | None = None) -> np.ndarray:
        return self.last(label, metric)[:, None] * [4.0, 2.0, 1.0]

    def samples(self, label: str, task: str | None = None) -> np.ndarray:
        rng = np.random.default_rng(0)
        return rng.standard_normal((6, 50, 2)) * (1.0 if self.is_good(label) else 5.0)


class FlippedLaboratory(Laboratory):
    """Gives the good method's numbers to the bad one, if swapped."""

    good = frozenset({"sifg", "ada-sifg", "srld", "ksivi"})
    swapped = False

    def run(self, task: str, methods: Mapping[str, Mapping[str, Any]], **protocol: Any) -> Any:
        return Made(self.good, self.swapped)

    def rows(self, suite: str, *rows: str, replicates: int | None = None) -> Any:
        return Made(self.good, self.swapped)


@pytest.mark.parametrize("number", ["C01", "C02", "C03", "C08", "C12", "C17", "C21"])
def test_verdicts_flip_with_the_data(number: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claim, lab = CLAIMS[number], FlippedLaboratory(tmp_path, "matched", 6)
    assert judge(claim.bounds, claim.effects(lab))[0] == SUPPORTED
    monkeypatch.setattr(lab, "swapped", True)
    assert judge(claim.bounds, claim.effects(lab))[0] == NOT_SUPPORTED


def test_fisher_divergence_of_gaussians() -> None:
    """Against the mean over draws of the squared difference of the scores, within five standard errors."""
    rng = np.random.default_rng(1)
    z = torch.as_tensor(rng.standard_normal((1, 200, 2)) @ [[1.0, 0.4], [0.0, 0.8]] + [0.5, -1.0])
    mean, covariance = torch.tensor([0.2, 0.1]).double(), torch.tensor([[1.0, 0.3], [0.3, 2.0]]).double()
    sigma = 0.4
    m, v = z[0].mean(0), torch.cov(z[0].T, correction=0) + sigma**2 * torch.eye(2)
    x = torch.as_tensor(rng.multivariate_normal(m.numpy(), v.numpy(), size=20_000))
    gap = torch.linalg.solve(covariance, (x - mean).T) - torch.linalg.solve(v, (x - m).T)
    squared = gap.square().sum(0)
    error = 5 * squared.std().item() / 20_000**0.5
    assert fisher_divergence(z, sigma, mean, covariance).item() == pytest.approx(squared.mean().item(), abs=error)


def test_rows_of_a_suite_are_read_by_task_and_label(tmp_path: Path) -> None:
    runs = Laboratory(tmp_path, replicates=2, workers=0).rows("srld-figure-1", "*")
    cells = runs.results.cells
    assert len(cells) == 2
    for cell in cells:
        assert runs.last(cell.label, "mmd2", cell.spec.task).shape == (2,)


def test_steps_that_a_claim_goes_through_are_not_tuned_away(tmp_path: Path) -> None:
    lab = Laboratory(tmp_path, "tuned", replicates=2, workers=0)
    steps = {f"ula @ {eta:g}": eta for eta in (0.1, 0.5)}
    entries = {label: {"name": "ula", "settings": {"step_size": eta}} for label, eta in steps.items()}
    runs = lab.run("biased-start-gaussian", entries, given_steps=True, particles=20, budget={"iterations": 5})
    assert {cell.label: cell.spec.settings["step_size"] for cell in runs.results.cells} == steps


def test_a_claim_is_measured_written_and_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for claim in set(CLAIMS) - {"C34"}:
        monkeypatch.delitem(CLAIMS, claim)
    measure_claims([], None, tmp_path / "store", tmp_path)
    assert "C34 paper: supported" in capsys.readouterr().out
    write_claims(tmp_path)
    assert "| C34 |" in (tmp_path / "claims.md").read_text()
    measure_claims([], None, tmp_path / "store", tmp_path)
    assert "C34" not in capsys.readouterr().out


def test_a_metric_that_another_claim_did_not_ask_for_is_measured_by_a_new_run(tmp_path: Path) -> None:
    """Stored samples do not tell how far particles move: without a run the metric would be missing, which is no effect."""
    lab = Laboratory(tmp_path, replicates=2, workers=0)
    methods, budget = {"ula": {"name": "ula"}}, {"iterations": 20}
    first = lab.run("banana", methods, budget=budget, metrics=["sliced_w2"])
    second = lab.run("banana", methods, budget=budget, metrics=["displacement"])
    assert (second.last("ula", "displacement") > 0).all()
    first.results.cells[0].absent["displacement"] = "nobody looked"
    with pytest.raises(ValueError, match="ula has no displacement: nobody looked"):
        first.last("ula", "displacement")
