"""The metered problem: when it stops, what it refuses. `tests/regression/laws/test_meter.py` has its charges."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError
from torch import Generator, Tensor

from parvibench.core.budget import Budget, Meter
from parvibench.core.errors import BudgetExhausted, ShapeError, UnsupportedError
from parvibench.core.registry import load_task
from parvibench.core.streams import Streams
from parvibench.core.target import Target
from parvibench.core.task import Problem


class Normal(Target):
    """A standard normal whose data are only there to be counted."""

    dim = 3

    def __init__(self, rows: int | None) -> None:
        self.rows = rows
        self.batches: list[Tensor | None] = []

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        return -0.5 * (x**2).sum(-1)

    def score(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        self.batches.append(batch)
        return -x * (1 + 0 * x)


def start(target: Target, n: int, generators: Sequence[Generator]) -> Tensor:
    return torch.stack([torch.randn(n, 3, generator=g, dtype=torch.float64) for g in generators])


def problem(limit: float | None = None, rows: int | None = None, batch: int | None = None) -> Problem:
    streams = Streams(0, [0, 1], dtype=torch.float64)
    return Problem(Normal(rows), streams, start=start, particles=5, batch_size=batch, limit=limit)


class Typed(Normal):
    """Takes states of one type."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__(None)
        self.weight = torch.ones(3, 1, dtype=dtype)

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        return -0.5 * (x**2 @ self.weight).squeeze(-1)


def test_states_in_double_precision_are_evaluated_so_and_charged_alike() -> None:
    made: list[Typed] = []

    def double() -> Typed:
        made.append(Typed(torch.float64))
        return made[-1]

    streams = Streams(0, [0, 1])
    p = Problem(Typed(torch.float32), streams, start=start, particles=5, double=double)
    x = p.init()
    assert (p.dtype, x.dtype, p.finest, made) == (torch.float32, torch.float32, torch.float64, [])
    for states in (x, x.double()):
        value, score = p.log_density_and_score(states)
        p.score(states)
        p.log_density(states)
        assert (value.dtype, score.dtype) == (states.dtype, states.dtype)
    assert p.meter.charged == 20
    assert len(made) == 1
    assert Problem(Typed(torch.float32), streams, start=start, particles=5).finest == torch.float32


def test_only_densities_that_take_double_precision_are_given_it() -> None:
    """A bandit's posterior grows with its own history, of which a second target would know nothing."""
    assert load_task("banana").problem(1, 0).finest == torch.float64
    assert replace(load_task("banana"), precision=torch.float32).problem(1, 0).finest == torch.float32
    assert load_task("bandit-wheel").problem(1, 0).finest == torch.float32


def test_the_meter_stops_before_the_overrun() -> None:
    p = problem(limit=12)
    x = p.init()
    p.score(x)
    p.score(x)
    with pytest.raises(BudgetExhausted):
        p.score(x)
    assert p.meter.charged == 10


def test_a_product_costs_a_score_and_densities_beyond_the_scores_one_each() -> None:
    meter = Meter()
    meter.charge(scores=3, hvps=2, log_densities=1)
    assert meter.charged == 5
    meter.charge(log_densities=4)
    assert meter.charged == 3 + 2 + (1 + 4 - 3)


def test_the_meter_also_stops_inside_a_backward_pass() -> None:
    p = problem(limit=7)
    x = p.init().requires_grad_()
    value = p.score(x)
    with pytest.raises(BudgetExhausted):
        torch.autograd.grad(value.sum(), x)


def test_mini_batches_cost_their_share_and_visit_every_row_once_an_epoch() -> None:
    p = problem(rows=40, batch=10)
    x = p.init()
    for step in range(8):
        p.streams.step = step
        p.score(x)
    assert p.meter.charged == pytest.approx(8 * 5 * 10 / 40)
    first, second = (torch.cat(epoch, dim=1) for epoch in (p._target.batches[:4], p._target.batches[4:]))
    assert torch.equal(first.sort(1).values, torch.arange(40).expand(2, 40))
    assert not torch.equal(first, second)


def test_vmap_is_refused_because_it_hides_rows() -> None:
    p = problem()
    with pytest.raises(UnsupportedError, match="hides rows"):
        torch.vmap(p.log_density, in_dims=1)(p.init().unsqueeze(2))


def test_wrong_shapes_are_told() -> None:
    with pytest.raises(ShapeError, match=r"\(2, N, 3\)"):
        problem().score(torch.zeros(2, 5, 4))


@pytest.mark.parametrize("values", [{}, {"iterations": 0}, {"iterations": -4}, {"seconds": -1}, {"steps": 4}])
def test_bad_budgets_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        Budget(**values)


def test_scores_per_particle_resolve_to_rows() -> None:
    budget = Budget(scores_per_particle=1000, iterations=7).resolve(particles=20, batch_share=0.25)
    assert (budget.score_evaluations, budget.scores_per_particle, budget.iterations) == (5000, None, 7)


def test_rounding_does_not_stop_a_budget_one_step_early() -> None:
    """A thousand mini-batches of 100/455 must fit into 1000 * 100/455."""
    share = 100 / 455
    meter = Meter(limit=1000 * share)
    for _ in range(1000):
        meter.charge(scores=share)
    with pytest.raises(BudgetExhausted):
        meter.charge(scores=share)


def test_sequential_steps_are_calls_whatever_their_rows() -> None:
    """A score of 5 or of 500 rows is one; a density and its gradient are one together, as they cost; a product is one more."""
    p = problem()
    for n in (1, 100):
        p.score(torch.zeros(2, n, 3, dtype=torch.float64))
    assert (p.meter.sequential_steps, p.meter.charged) == (2, 101)
    x = p.init().requires_grad_()
    torch.autograd.grad(p.log_density(x).sum(), x)
    assert p.meter.sequential_steps == 3
    torch.autograd.grad(p.score(x).sum(), x)
    assert p.meter.sequential_steps == 5
    p.log_density_and_score(p.init())
    assert p.meter.sequential_steps == 6


def test_a_refused_call_is_no_step() -> None:
    p = problem(limit=4)
    with pytest.raises(BudgetExhausted):
        p.score(p.init())
    assert p.meter.sequential_steps == 0


def test_the_problem_knows_whether_its_start_was_asked_for() -> None:
    p = problem()
    assert not p.started
    p.init(2)
    assert p.started


def test_a_warm_start_is_one_reference_draw_with_a_tenth_of_its_spread() -> None:
    task = load_task("funnel-10d")
    reference = task.reference()
    assert reference is not None
    x = task.problem((0, 1), 3, dtype=torch.float64, particles=400, start="warm").init()
    centre = x.mean(1, keepdim=True)
    apart = (reference.draws[None] - centre).div(reference.draws.std(0)).abs().amax(-1).min(1).values
    assert (apart < 0.03).all()  # of 0.1 / sqrt(400), the largest of 20
    assert torch.allclose(x.std(1) / reference.draws.std(0), torch.tensor(0.1, dtype=torch.float64), rtol=0.2)
    assert not torch.allclose(centre[0], centre[1])
    again = task.problem((1,), 3, dtype=torch.float64, particles=400, start="warm").init()
    assert torch.equal(again[0], x[1])


def test_a_prior_start_has_the_declared_precision_or_is_refused() -> None:
    task = load_task("blr-breast-cancer")
    problem = task.problem((0,), 3, dtype=torch.float64, particles=4000, start="prior")
    assert problem.prior_precision is not None
    assert problem.init().var().item() == pytest.approx(1 / problem.prior_precision, rel=0.05)
    with pytest.raises(UnsupportedError, match="no prior"):
        load_task("banana").problem((0,), 3, start="prior").init()
    with pytest.raises(UnsupportedError, match="no reference"):
        load_task("bnn-boston").warm(None, 1, ())  # type: ignore[arg-type]
