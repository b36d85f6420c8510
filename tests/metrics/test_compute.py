"""What holds for every metric: batches, order of the samples, failures, errors."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Generator

from parvibench.core.errors import ShapeError, UnknownNameError
from parvibench.core.metric import Cost
from parvibench.core.task import Facts, Modes
from parvibench.metrics.compute import check_samples, compute


@pytest.fixture
def context(make_context, generator: Generator):
    draws = torch.randn(300, 2, generator=generator, dtype=torch.float64)
    modes = Modes(torch.zeros(1, 2), torch.ones(1), torch.ones(1))
    return make_context(2, draws, task={"facts": Facts(modes=modes)}, cost=Cost(10, 50.0, 0.5))


@pytest.fixture
def samples(generator: Generator) -> torch.Tensor:
    return torch.randn(3, 40, 2, generator=generator, dtype=torch.float64)


def test_costly_metrics_wait_for_the_last_checkpoint(context, samples: torch.Tensor) -> None:
    names = ["sliced_w2", "w2", "rhat", "nll"]
    for when, computed, inapplicable in (
        ("every", {"sliced_w2"}, {"nll"}),
        ("last", {"sliced_w2", "w2"}, {"rhat", "nll"}),
    ):
        values, absent = compute(names, samples, context, when)
        assert (set(values), set(absent)) == (computed, inapplicable)


def test_unknown_metric_and_wrong_batches(context, samples: torch.Tensor) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'mmd2'"):
        compute(["mmd"], samples, context)
    for bad in (samples[0], samples[..., :1], samples[:, :1]):
        with pytest.raises(ShapeError, match=r"\(R, n, 2\)"):
            compute(["mmd2"], bad, context)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (torch.zeros(5), r"shape \(n, 2\), got \(5,\)"),
        (torch.zeros(5, 3), r"got \(5, 3\)"),
        (torch.zeros(1, 2), r"n >= 2, got \(1, 2\)"),
        (torch.tensor([[0.0, 1.0], [math.nan, 0.0]]), "1 of 2 samples hold NaN or infinity, the first is number 2:"),
        (torch.tensor([[0.0, math.inf], [1.0, 0.0]]), "the first is number 1"),
        ([["a", "b"]], "no array of numbers"),
    ],
)
def test_samples_from_outside_are_checked(samples, message: str, context) -> None:
    with pytest.raises(ShapeError, match=message):
        check_samples(samples, context.task)


def test_samples_become_float64(context) -> None:
    assert check_samples([[1, 2], [3, 4]], context.task).dtype == torch.float64


def test_samples_and_paths_are_canonical_before_they_are_measured(context, samples: torch.Tensor) -> None:
    """Of a task that does not tell x from -x: signs change nothing, of samples nor of a chain's path."""
    path = samples.view(3, 10, 4, 2)
    kind = type("Folded", (type(context.task),), {"canonical": lambda self, x: x.abs()})
    folded = replace(context, task=kind(**vars(context.task)))
    found = [
        compute(["sliced_w2", "rhat"], s * x, replace(folded, path=s * path)) for s, x in ((1, samples), (-1, samples))
    ]
    flipped = torch.where(torch.arange(10)[:, None, None] % 2 == 0, path, -path)
    found.append(compute(["sliced_w2", "rhat"], samples, replace(folded, path=flipped)))
    for values, _ in found[1:]:
        assert torch.equal(values["sliced_w2"], found[0][0]["sliced_w2"])
        assert torch.equal(values["rhat"], found[0][0]["rhat"])
