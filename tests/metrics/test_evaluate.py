"""The document behind ``parvibench evaluate``, on the shipped banana."""

import json

import pytest
import torch
from torch import Generator

import parvibench as pb
from parvibench.core.errors import ShapeError
from parvibench.core.metric import Cost
from parvibench.core.registry import load_task
from parvibench.metrics.evaluate import evaluate_samples

BANANA = load_task("banana")
SD = BANANA.facts.sd


@pytest.fixture(scope="module")
def exact() -> torch.Tensor:
    return BANANA.exact(1000, Generator().manual_seed(11))


def rows(document: dict) -> dict[str, dict]:
    return {row["metric"]: row for row in document["metrics"]}


def test_exact_draws(exact: torch.Tensor) -> None:
    document = evaluate_samples(BANANA, exact)
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert (document["task"], document["n"], document["verdict"]) == ("banana", 1000, "indistinguishable")
    found = rows(document)
    assert set(found) == set(BANANA.metrics)
    sliced = found["sliced_w2"]
    assert sliced["verdict"] == "indistinguishable"
    assert sliced["ratio"] == pytest.approx(sliced["value"] / sliced["floor"]["median"])
    low, high = sliced["equivalent_sample_size_interval"]
    assert low <= sliced["equivalent_sample_size"] <= high <= 4000
    assert found["ksd"]["ratio"] is None  # its floor is no yardstick
    assert found["rhat"]["verdict"] == found["seconds"]["verdict"] == "not applicable"
    assert "path" in found["rhat"]["reason"]


@pytest.mark.parametrize(
    ("spoil", "witness"),
    [
        (lambda x: x + 0.25 * SD, "mean_error"),
        (lambda x: BANANA.facts.mean + 0.8 * (x - BANANA.facts.mean), "sd_error"),
        (lambda x: x[:50].repeat(20, 1), "mmd2"),
    ],
    ids=["shifted", "shrunk", "repeated"],
)
def test_spoilt_draws_are_found(spoil, witness: str, exact: torch.Tensor) -> None:
    document = evaluate_samples(BANANA, spoil(exact))
    assert document["verdict"] == "distinguishable"
    assert rows(document)[witness]["verdict"] == "distinguishable"
    assert rows(document)["mmd2"]["equivalent_sample_size"] < 500


def test_rows_of_the_reference_are_reported_not_scored() -> None:
    reference = BANANA.reference()
    document = evaluate_samples(BANANA, reference.draws[:100].numpy().astype("float32"))
    assert document["verdict"] == "not applicable"
    assert all(row["value"] is None for row in document["metrics"])
    assert "100 of 100 samples are rows of the reference" in document["metrics"][0]["reason"]


def test_no_floor_at_this_size_and_a_cost() -> None:
    document = evaluate_samples(BANANA, BANANA.exact(50, Generator().manual_seed(2)), Cost(1, 5000.0, 2.0))
    mmd2 = rows(document)["mmd2"]
    assert mmd2["value"] > 0
    assert mmd2["verdict"] == "not applicable"
    assert "n = 100 to 1000, not for 50" in mmd2["reason"]
    assert rows(document)["score_evaluations"]["value"] == 5000


def test_wrong_input() -> None:
    with pytest.raises(ShapeError, match="banana wants samples of shape"):
        evaluate_samples(BANANA, [[1.0, 2.0, 3.0]] * 5)


@pytest.mark.parametrize(
    "convert", [lambda x: x + 1j, lambda x: x > 0, lambda x: x.astype("M8[s]"), lambda x: x.astype(str)]
)
def test_anything_but_real_numbers_is_refused(convert) -> None:
    """NumPy would turn dates and text into numbers, and drop imaginary parts with a warning."""
    x = BANANA.exact(50, Generator().manual_seed(3)).numpy()
    with pytest.raises(ShapeError, match="not real numbers"):
        pb.evaluate(convert(x), BANANA)
