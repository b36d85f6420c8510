"""Regret, displacement and what algorithms report, by hand."""

import pytest
import torch
from torch import Tensor

from parvibench.core.metric import Decisions, NotApplicable
from parvibench.core.registry import load_metric
from parvibench.core.task import Facts
from parvibench.metrics.recorded import contexts, displacement, regret, regret_percent

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
    assert contexts(NOTHING, context).tolist() == [3.0, 3.0]


def test_regret_needs_decisions(make_context) -> None:
    with pytest.raises(NotApplicable, match="no decisions"):
        regret(NOTHING, make_context(1))


def test_errors_of_log_z_are_absolute(make_context) -> None:
    estimates = {"log_z": torch.tensor([-1.0, 2.5]), "log_z_se": torch.tensor([0.5, 0.25])}
    context = make_context(1, task={"facts": Facts(log_z=1.5)}, diagnostics=estimates)
    assert load_metric("log_z_error")(NOTHING, context).tolist() == [2.5, 1.0]
    assert load_metric("log_z_deviation")(NOTHING, context).tolist() == [5.0, 4.0]
    with pytest.raises(NotApplicable, match="states no log Z"):
        load_metric("log_z_error")(NOTHING, make_context(1, diagnostics=estimates))


def test_displacement_by_hand(make_context) -> None:
    earlier = torch.zeros(1, 2, 2)
    now = torch.tensor([[[3.0, 4.0], [0.0, 1.0]]])
    assert displacement(NOTHING[:1], make_context(1, moved=(earlier, now))).tolist() == [3.0]
    with pytest.raises(NotApplicable, match="generator"):
        displacement(NOTHING, make_context(1))


@pytest.mark.parametrize(
    "name", ["acceptance", "divergences", "tree_depth", "refit_loss", "log_z", "log_z_se", "log_z_doubt"]
)
def test_reports_are_passed_on_under_their_own_names(name: str, make_context) -> None:
    context = make_context(1, diagnostics={name: torch.tensor([0.25, 3.0])})
    assert load_metric(name)(NOTHING, context).tolist() == [0.25, 3.0]
    with pytest.raises(NotApplicable, match="reports none"):
        load_metric(name)(NOTHING, make_context(1))
