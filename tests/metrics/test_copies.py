"""Copies among draws are named and counted once; exact draws get no remark."""

import numpy as np
import pytest
import torch

import parvibench as pb
from parvibench.metrics.copies import find_copies

RNG = np.random.default_rng(23)
Y = RNG.normal(size=(1500, 2))


def judged(samples: np.ndarray, reference: np.ndarray = Y) -> dict:
    return pb.evaluate(
        samples, reference=reference, metrics=["sliced_w2", "mmd2", "kl_knn", "ks_marginal", "mean_error"]
    )


def test_equal_chains_are_worth_one() -> None:
    chain = RNG.normal(size=(300, 2))
    four = judged(np.stack([chain] * 4))
    assert "chains 2, 3, 4 equal chain 1" in four["read"]
    assert four["n"] == 1200
    assert four["chains"]["worth"] <= 450
    assert four["verdict"] == "indistinguishable"


def test_resampled_draws_lose_nearest_neighbours_and_keep_their_verdict() -> None:
    """Exact draws resampled in equal number are worth fewer distinct ones, none of them twice."""
    x = torch.tensor(RNG.normal(size=(500, 2))[RNG.integers(500, size=500)])
    found = find_copies(x)
    distinct = len(np.unique(x.numpy(), axis=0))
    assert found.said.startswith(f"{distinct} of 500 rows are distinct")
    counted = x.numpy()[found.counted]
    assert 80 <= len(np.unique(counted, axis=0)) == len(counted) < distinct
    document = judged(x.numpy())
    rows = {row["metric"]: row for row in document["metrics"]}
    assert "rows are distinct" in rows["kl_knn"]["reason"]
    assert rows["kl_knn"]["value"] is None
    assert document["verdict"] == "indistinguishable"
    assert "kl_knn" not in document["judged_by"]
    assert document["n_judged"] == len(counted)


def test_weights_of_resampled_draws_are_kept() -> None:
    """Of resampled points that a weight exp(x) tilts, the counted ones have its mean, one, and distinct ones a smaller one."""
    points = RNG.normal(size=(20_000, 2))
    weights = np.exp(points[:, 0])
    x = points[RNG.choice(20_000, 20_000, p=weights / weights.sum())]
    counted = x[find_copies(torch.tensor(x)).counted]
    assert abs(counted[:, 0].mean() - 1) < 4 / np.sqrt(len(counted))
    assert np.unique(x, axis=0)[:, 0].mean() < 0.8


def test_a_state_that_a_chain_holds_is_no_copy() -> None:
    chains = RNG.normal(size=(4, 100, 2)).repeat(3, axis=1)
    assert find_copies(torch.tensor(chains)).said == ""


@pytest.mark.parametrize("kind", ["resampled", "equal chains"])
def test_references_count_copies_once(kind: str) -> None:
    chain = RNG.normal(size=(1000, 2))
    given = np.stack([chain] * 4) if kind == "equal chains" else chain[RNG.integers(1000, size=3000)]
    document = judged(RNG.normal(size=(200, 2)), given)
    assert "of the reference" in document["read"]
    assert document["n_judged"] <= 200
    assert document["verdict"] == "indistinguishable"
    few = np.stack([chain[:200]] * 4)
    with pytest.raises(pb.core.errors.InputError, match=r"200 reference draws \(chains 2, 3, 4 equal chain 1"):
        judged(RNG.normal(size=(200, 2)), few)
