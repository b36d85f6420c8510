"""Regret and displacement by hand."""

import pytest
import torch
from torch import Tensor

from parvibench.core.metric import Decisions, NotApplicable
from parvibench.metrics.decisions import regret, regret_percent
from parvibench.metrics.motion import displacement

NOTHING = torch.zeros(2, 3, 1, dtype=torch.float64)


def columns(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def test_regret_by_hand(make_context) -> None:
    made = Decisions(
        reward=columns([1, 0, 5], [5, 5, 5]), best=columns([5, 5, 5], [5, 5, 5]), uniform=columns([2, 2, 1], [5, 5, 5])
    )  # fmt: skip
    context = make_context(1, decisions=made)
    assert regret(NOTHING, context).tolist() == [9.0, 0.0]
    percent = regret_percent(NOTHING, context).tolist()
    assert percent[0] == pytest.approx(90.0)
    assert percent[1] != percent[1]  # chance misses nothing


def test_regret_needs_decisions(make_context) -> None:
    with pytest.raises(NotApplicable, match="no decisions"):
        regret(NOTHING, make_context(1))


def test_displacement_by_hand(make_context) -> None:
    earlier = torch.zeros(1, 2, 2)
    now = torch.tensor([[[3.0, 4.0], [0.0, 1.0]]])
    assert displacement(NOTHING[:1], make_context(1, moved=(earlier, now))).tolist() == [3.0]
    with pytest.raises(NotApplicable, match="generator"):
        displacement(NOTHING, make_context(1))
