"""Pyro's guides: the bound's gradient by hand, exact families matched, costs as charged, global state left alone."""

from typing import Any

import pyro
import pytest
import torch
from sampler_toys import Bent, Gaussian, Run, make_problem
from torch import Tensor
from torch.nn.functional import softplus

from parvibench.core.errors import ShapeError
from parvibench.core.target import Target

GUIDES = ["normal", "multivariate-normal", "low-rank", "iaf"]


def fitted(target: Target, guide: str, steps: int, *, seed: int = 7, **settings: Any) -> Run:
    problem = make_problem(target, [0], seed=seed)
    return Run("pyro-svi", problem, steps, **({"guide": guide} | settings)).steps(steps)


class Watched(Bent):
    """Remembers where it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Tensor] = []

    def log_density_and_score(self, x: Tensor, batch: Tensor | None = None) -> tuple[Tensor, Tensor]:
        self.asked.append(x[0].clone())
        return super().log_density_and_score(x, batch)


def test_the_diagonal_guide_climbs_as_a_plain_program_does() -> None:
    """Five steps of Adam by hand, from the draws that the guide made: scale = softplus(u)."""
    target, steps, rate = Watched(), 5, 0.03
    run = Run("pyro-svi", make_problem(target, [0]), steps, guide="normal", step_size=rate, final_rate=0.25, batch=3)
    start = run.state.parameters[0]
    torch.testing.assert_close(softplus(start[2:]), torch.full((2,), 0.1, dtype=torch.float64))
    found = [run.steps(1).state.parameters[0] for _ in range(steps)]
    plain, first, second = start.clone(), torch.zeros_like(start), torch.zeros_like(start)
    for t, x in enumerate(target.asked, 1):
        mean, scale = plain[:2], softplus(plain[2:])
        noise, score = (x - mean) / scale, Bent().score(x)
        by_scale = (score * noise).mean(0) + 1 / scale
        grad = -torch.cat((score.mean(0), by_scale * plain[2:].sigmoid()))
        first, second = 0.9 * first + 0.1 * grad, 0.999 * second + 0.001 * grad**2
        size = rate * 0.25 ** ((t - 1) / steps)
        plain = plain - size * first / (1 - 0.9**t) / ((second / (1 - 0.999**t)).sqrt() + 1e-8)
        torch.testing.assert_close(found[t - 1], plain, rtol=1e-9, atol=1e-12)


@pytest.mark.ci
@pytest.mark.parametrize(
    "guide", [pytest.param(g, marks=[pytest.mark.slow] if g in GUIDES[::2] else []) for g in GUIDES]
)
def test_every_guide_holds_a_gaussian(guide: str) -> None:
    """N(1, diag(1, 1/4)): 4,000 draws have its moments to 0.1, of which their own noise is 0.016. The flow's bound is
    tighter than its draws show, so it has twice the room.
    """
    run = fitted(Gaussian([1.0, 4.0], mean=1.0), guide, 800, step_size=0.05, batch=20, final_rate=0.01)
    x = run.output(4000)[0]
    room = 0.2 if guide == "iaf" else 0.1
    assert (x.mean(0) - 1).abs().max() < room
    assert (x.std(0) * torch.tensor([1.0, 2.0]) - 1).abs().max() < room


@pytest.mark.parametrize("guide", GUIDES)
def test_a_step_is_charged_by_its_draws_and_repeats_by_its_streams(guide: str) -> None:
    pyro.clear_param_store()
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    a, b, other = (fitted(Bent(), guide, 4, seed=seed, batch=3) for seed in (7, 7, 8))
    assert a.problem.meter.charged == 12
    assert torch.equal(a.output(5), b.output(5))
    assert not torch.equal(a.output(5), other.output(5))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert not list(pyro.get_param_store())


def test_several_replicates_are_refused() -> None:
    with pytest.raises(ShapeError, match="one replicate at a time, got 3"):
        Run("pyro-svi", make_problem(Bent()))
