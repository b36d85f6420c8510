"""Moment errors and mode counting on samples made to measure."""

import pytest
import torch
from torch import Generator

from parvibench.core.metric import NotApplicable
from parvibench.core.task import Facts, Modes
from parvibench.metrics.modes import modes_found
from parvibench.metrics.moments import mean_error, sd_error


def test_errors_are_in_units_of_the_target(make_context) -> None:
    facts = Facts(mean=torch.tensor([1.0, 0.0]), sd=torch.tensor([2.0, 5.0]))
    # Coordinate 0: mean 3, sd sqrt(2); coordinate 1: mean 0, sd sqrt(200).
    samples = torch.tensor([[[2.0, -10.0], [4.0, 10.0]]], dtype=torch.float64)
    context = make_context(task={"facts": facts})
    assert mean_error(samples, context).item() == pytest.approx((0.5 * (1 + 0)) ** 0.5)
    a, b = 2**0.5 / 2 - 1, 200**0.5 / 5 - 1
    assert sd_error(samples, context).item() == pytest.approx((0.5 * (a * a + b * b)) ** 0.5)


def test_moments_fall_back_on_the_reference(make_context, generator: Generator) -> None:
    draws = torch.randn(100, 2, generator=generator, dtype=torch.float64)
    assert mean_error(draws[None], make_context(2, draws)).item() == pytest.approx(0, abs=1e-14)
    with pytest.raises(NotApplicable, match="moments"):
        mean_error(draws[None], make_context())


def test_a_mode_needs_two_percent_within_three_sds(make_context, generator: Generator) -> None:
    means = torch.tensor([[0.0, 0.0], [5.0, 0.0], [0.0, 5.0]])
    modes = Modes(means, torch.tensor([0.1, 0.2, 0.3]), torch.full((3,), 1 / 3))
    context = make_context(task={"facts": Facts(modes=modes)})

    def points(*counts: int, away: float = 0.0) -> torch.Tensor:
        offset = torch.tensor([away, 0.0])
        return torch.cat([(m + offset).expand(c, 2) for m, c in zip(means, counts, strict=True)]).double()

    found = [
        modes_found(p[None], context).item() for p in (points(96, 2, 2), points(98, 1, 1), points(100, 0, 0))
    ]
    assert found == [3, 1, 1]
    # 0.35 off: outside three sds of the first mode only.
    assert modes_found(points(40, 30, 30, away=0.35)[None], context).item() == 2


def test_a_task_without_modes(make_context) -> None:
    with pytest.raises(NotApplicable, match="modes"):
        modes_found(torch.zeros(1, 3, 2, dtype=torch.float64), make_context())
