"""Samples against draws that were given: constant columns, far from the origin, one dimension, the same file twice."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from few import every
from scipy import stats

import parvibench as pb
from parvibench.core.errors import InputError
from parvibench.core.metric import Context
from parvibench.core.reference import Reference
from parvibench.metrics.compute import copied_rows, values_of
from parvibench.reference import given

RNG = np.random.default_rng(17)
Y, X = RNG.normal(size=(4000, 2)), RNG.normal(size=(200, 2))
CHAINS = RNG.normal(size=(4, 100, 2))
METRICS = ["sliced_w2", "mmd2", "kl_knn", "mean_error", "sd_error", "correlation_error", "ks_marginal"]


@pytest.fixture(autouse=True, scope="module")
def small() -> Iterator[None]:
    """Two sizes of floors, and fewer rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(given, "SIZES", (50, 100))
        patch.setattr(given, "ROWS", 1500)
        yield


def judged(samples: Any, reference: Any, **options: Any) -> dict[str, Any]:
    document = pb.evaluate(samples, reference=reference, **options)
    for row in document["metrics"]:
        if row["p_value"] is not None:
            assert row["p_value"] < (0.05 if row["judged"] is None else 1.1)  # infinite: the worst
    return document


def with_column(x: np.ndarray, value: Any) -> np.ndarray:
    return np.concatenate([x, np.broadcast_to(value, (*x.shape[:-1], 1))], -1)


def values(document: dict[str, Any]) -> dict[str, float]:
    return {row["metric"]: row["value"] for row in document["metrics"]}


#: Samples, reference, verdict, and a word of the document.
DEGENERATE: dict[str, tuple[np.ndarray, np.ndarray, str, str]] = {
    "constant in both": (with_column(X, 1.0), with_column(Y, 1.0), "indistinguishable", "constant, and left out: column 3"),
    "constant up to rounding": (with_column(X, 1 + 2e-16), with_column(Y, 1.0), "indistinguishable", "left out: column 3"),
    "constant in chains": (with_column(CHAINS, 0.0), with_column(Y, 0.0), "indistinguishable", "left out"),
    "another constant": (with_column(X, 2.0), with_column(Y, 1.0), "distinguishable", "not computed"),
    "varies in the samples alone": (with_column(X, RNG.normal(size=(200, 1))), with_column(Y, 0.0), "distinguishable", "not computed"),
    "stuck in the samples alone": (with_column(X, 0.0), with_column(Y, RNG.normal(size=(4000, 1))), "distinguishable", "never vary"),
    "stuck in chains": (with_column(CHAINS, 0.0), with_column(Y, RNG.normal(size=(4000, 1))), "distinguishable", "never vary"),
    "tiny": (with_column(X, 1e-17 * RNG.normal(size=(200, 1))), with_column(Y, 1e-17 * RNG.normal(size=(4000, 1))), "indistinguishable", ""),
    "tiny and too wide": (with_column(X, 2e-17 * RNG.normal(size=(200, 1))), with_column(Y, 1e-17 * RNG.normal(size=(4000, 1))), "distinguishable", ""),
    "repeated rows of the reference": (X, np.repeat(Y, 5, 0), "indistinguishable", ""),
    "rows of the reference repeated anywhere": (X, RNG.permutation(np.repeat(Y, 5, 0)), "indistinguishable", ""),
    "tiny chains": (1e-17 * CHAINS, 1e-17 * Y, "indistinguishable", ""),
    "huge": (1e25 * X, 1e25 * Y, "indistinguishable", ""),
    "mostly zero": (np.where(RNG.random((200, 2)) < 0.7, 0, X), np.where(RNG.random((4000, 2)) < 0.7, 0, Y), "indistinguishable", ""),
    "one row over and over": (np.tile(X[:1], (200, 1)), Y, "distinguishable", "never vary"),
    "several constants": (with_column(with_column(X, 1.0), 0.0), with_column(with_column(Y, 1.0), 0.0), "indistinguishable", "column 3, column 4"),
}  # fmt: skip


@pytest.mark.parametrize("kind", every(("constant in both", "tiny and too wide"), DEGENERATE))
def test_degenerate_columns(kind: str) -> None:
    samples, reference, verdict, told = DEGENERATE[kind]
    document = judged(samples, reference)
    assert document["verdict"] == verdict
    assert told in document["read"] + "; ".join(row["reason"] for row in document["metrics"])
    if document["chains"]:
        assert document["chains"]["worth"] > 100


def test_what_cannot_be_judged_is_told_before_floors_are_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(given, "reference_of_draws", None)
    one, many, lost = np.ones((1, 2)), np.ones((4000, 2)), np.where(X[7] == X, np.nan, X)
    told = {"one draw: at least two": ((one, many), (many, one)), "every column has one": ((many[1:], many),), "is number 8:": ((lost, Y),)}  # fmt: skip
    for match, pairs in told.items():
        for samples, reference in pairs:
            with pytest.raises(InputError, match=match):
                pb.evaluate(samples, reference=reference)


@pytest.fixture(scope="module")
def at_the_origin() -> dict[str, float]:
    return values(judged(X, Y))


@pytest.mark.ci
@pytest.mark.parametrize("offset", [*(pytest.param(v, marks=pytest.mark.slow) for v in (3e5, -1e9)), 1e11, "mixed"])
def test_far_from_the_origin(offset: Any, at_the_origin: dict[str, float]) -> None:
    """The shift changes no metric that is compared with the reference: values as at the origin, to what doubles hold."""
    shift: Any = np.array([1e9, -3.0]) if offset == "mixed" else offset
    there = judged(X + shift, Y + shift)
    for name, value in at_the_origin.items():
        if value is not None:
            assert values(there)[name] == pytest.approx(value, rel=1e-3, abs=1e-3), name
    assert there["verdict"] == "indistinguishable"
    assert judged(1.5 * X + shift, Y + shift)["verdict"] == "distinguishable"


def test_one_dimension_has_its_level() -> None:
    """Exact draws that come near rows by chance are no copies: none of 300 sets; 100 copies among 500 are seen."""
    for law in (stats.norm, stats.t(2), stats.expon, stats.poisson(40)):
        draw = law.rvs if hasattr(law, "rvs") else law
        rows = np.asarray(draw(size=5000, random_state=1), dtype=float)[:, None]
        reference = Reference(given.torch.tensor(rows), False, {})
        sets = np.asarray(draw(size=(300, 500, 1), random_state=2), dtype=float)
        assert sum(copied_rows(given.torch.tensor(x), reference) > 0 for x in sets) == 0
        if law is not stats.poisson(40) and len(np.unique(rows)) == len(rows):
            copied = np.concatenate([rows[:100], sets[0][100:]])
            assert copied_rows(given.torch.tensor(copied), reference) >= 100


def test_a_floor_s_sets_are_as_samples_are() -> None:
    """In 200 dimensions, where errors hardly vary: the floor's medians are those of fresh sets, to a tenth of their spread.

    Moments of draws with the floor's sets among them made it lower by five spreads.
    """
    task, rng = given.DrawsTask(dim=200), np.random.default_rng(3)
    task = replace(task, metrics=("mean_error", "sd_error"))
    for rows, n in ((400, 50), (12_000, 100)):
        reference, _ = given.reference_of_draws(task, given.torch.tensor(rng.normal(size=(rows, 200))), n)
        for name in task.metrics:
            fresh = [
                values_of([name], given.torch.tensor(rng.normal(size=(n, 200))), Context(task, reference))[name]
                for _ in range(200)
            ]
            assert abs(np.median(fresh) - reference.floor(name, n).median) < 0.6 * np.std(fresh), (rows, name)


def test_coincidences_in_one_dimension_are_no_copies() -> None:
    """Few rows meet none of each other; samples of single precision, and rounded ones, meet some of them."""
    for form in (np.float32, np.float64, lambda x: x.round(4)):
        for seed in range(40):
            rng = np.random.default_rng(seed)
            reference = Reference(given.torch.tensor(form(rng.normal(size=(300, 1))).astype(float)), False, {})
            assert copied_rows(given.torch.tensor(form(rng.normal(size=(500, 1))).astype(float)), reference) == 0


@pytest.mark.parametrize("shape", every([(200,)], [(200,), (200, 1), (4, 100, 1), "frame"]))
def test_one_dimension_is_judged(shape: Any) -> None:
    rng = np.random.default_rng(1)  # of its own: the verdict does not depend on which tests ran before
    x: Any = pd.Series(rng.normal(size=200), name="mu") if shape == "frame" else rng.normal(size=shape)
    document = judged(x, rng.normal(size=4000))
    assert document["verdict"] == "indistinguishable"
    assert document["judged_by"]


@pytest.mark.ci
def test_correlated_references_are_worth_less_and_few_draws_serve() -> None:
    """An AR(0.9) chain of 4,000 is worth 210 draws, too few; of 400 independent ones a fifth is judged."""
    chain = np.zeros((4000, 2))
    for i in range(1, 4000):
        chain[i] = 0.9 * chain[i - 1] + np.sqrt(1 - 0.81) * Y[i]
    document = judged(X, np.tile(chain, (3, 1)))
    assert "are correlated, worth" in document["read"]
    few = judged(X, Y[:400])
    assert few["n_judged"] == 80
    assert few["verdict"] == "indistinguishable"
    assert judged(X[:20], Y)["reason"] == "no floors for 20 samples, fewer than 50"
    with pytest.raises(InputError, match="399 reference draws are too few: 400 are needed"):
        pb.evaluate(X, reference=Y[:399])


def test_the_same_draws_twice_are_one_line() -> None:
    with pytest.raises(InputError, match="samples and reference are the same draws"):
        pb.evaluate(Y, reference=Y.copy())


@pytest.mark.ci
def test_long_names_and_other_columns() -> None:
    frame = pd.DataFrame(Y, columns=["a" * 300, "b" * 300])
    assert judged(pd.DataFrame(X, columns=frame.columns)[frame.columns[::-1]], frame)["verdict"] == "indistinguishable"
    with pytest.raises(InputError, match="the samples have 3 columns, the reference has 2 columns"):
        pb.evaluate(np.zeros((200, 3)), reference=Y)
