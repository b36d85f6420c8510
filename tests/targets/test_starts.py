"""Initial points that a fit finds: in the mass where N(0, I) is thousands of standard deviations off, and paid for."""

from pathlib import Path

import numpy as np
import pytest
import torch
from few import every

import parvibench as pb
from parvibench.core import registry
from parvibench.core.errors import BudgetExhausted, InputError, UnsupportedError
from parvibench.core.result import Status
from parvibench.core.task import Task
from parvibench.reference.chain_runs import chains_of
from parvibench.reference.gates import Effort
from parvibench.targets.starts import begin_at_fits

FITS = ("pathfinder", "laplace")
HEIGHT = torch.linspace(58, 77, 200, dtype=torch.float64)
EARNINGS = -61_316 + 1_262 * HEIGHT + 18_000 * torch.sin(torch.arange(200, dtype=torch.float64) * 12.9898)


def earnings(x: torch.Tensor) -> torch.Tensor:
    residuals = EARNINGS.to(x) - x[0] - x[1] * HEIGHT.to(x)
    return -0.5 * residuals.square().sum() * (-2 * x[2]).exp() - 200 * x[2]


def posterior() -> tuple[np.ndarray, np.ndarray]:
    """Mean and sd of the two coefficients and the log of the noise, by least squares."""
    design = np.column_stack([np.ones(200), HEIGHT.numpy()])
    beta, residual, _, _ = np.linalg.lstsq(design, EARNINGS.numpy(), rcond=None)
    s2 = residual[0] / 200
    sd = np.sqrt(np.diag(np.linalg.inv(design.T @ design)) * s2)
    return np.array([*beta, np.log(s2) / 2]), np.array([*sd, 1 / np.sqrt(400)])


def begun(task: Task, kind: str, **options: object) -> tuple[torch.Tensor, float]:
    problem = task.problem((0, 1), 3, particles=100, **options)  # type: ignore[arg-type]
    begin_at_fits(task, problem, kind)
    return problem.init().double(), problem.meter.charged


@pytest.mark.ci
@pytest.mark.parametrize("kind", FITS)
def test_starts_lie_in_the_mass_of_a_badly_scaled_regression(kind: str) -> None:
    """Catches a fit that ends early or is drawn from wrongly, and repeated points, which particles never part."""
    x, cost = begun(pb.task(earnings, dim=3), kind)
    mean, sd = posterior()
    z = (x.numpy() - mean) / sd
    assert np.abs(mean[0] / sd[0]) > 5  # N(0, I) is that far off
    assert np.abs(z.mean(1)).max() < 0.5, z.mean(1)
    assert (z.std(1) > 0.7).all(), z.std(1)
    assert (z.std(1) < 1.4).all(), z.std(1)
    assert len(x[0].unique(dim=0)) == 100
    assert cost > 100
    assert not torch.equal(x[0], x[1])


@pytest.mark.ci
@pytest.mark.parametrize(("kind", "asked"), [("pathfinder", "task"), ("laplace", "task"), ("", "laplace")])
def test_chains_of_a_reference_begin_there(kind: str, asked: str) -> None:
    """From N(0, I) they are tens of thousands from the coefficients, and 10 steps do not reach them."""
    effort = Effort("nuts", warmup=10, draws=10, chains=45, start=asked)
    chains, _, _ = chains_of(pb.task(earnings, dim=3, initial=kind or None), effort, lambda *_: None)
    mean, sd = posterior()
    first = (chains[0].numpy() - mean) / sd
    assert chains.shape == (10, 45, 3)
    assert np.abs(first).max() < 8
    assert len(chains[0].unique(dim=0)) == 45


def test_the_fit_of_a_replicate_does_not_depend_on_others() -> None:
    task = pb.task(earnings, dim=3)
    both, _ = begun(task, "laplace")
    problem = task.problem((1,), 3, particles=100)
    begin_at_fits(task, problem, "laplace")
    torch.testing.assert_close(problem.init().double()[0], both[1], rtol=0, atol=0)


def test_scores_after_a_fit_cost_as_many_as_without() -> None:
    """Catches log densities of the fit that later scores are set against, and a fit past the budget."""
    task = pb.task(earnings, dim=3)
    free = task.problem(1, 3, particles=100)
    begin_at_fits(task, free, "laplace")
    x = free.init()
    before = free.meter.charged
    assert free.start_cost == before
    free.score(x)
    assert free.meter.charged == before + 100
    tight = task.problem(1, 3, particles=100, limit=500)
    begin_at_fits(task, tight, "pathfinder")
    assert tight.init().isfinite().all()
    assert 0 < tight.meter.charged <= 500
    with pytest.raises(BudgetExhausted):
        tight.score(x)


@pytest.mark.parametrize("place", every(["task"], ["task", "run", "suite"]))
def test_runs_begin_there(place: str, tmp_path: Path) -> None:
    """MALA cannot walk to the mass: from N(0, I) it stays where it began."""
    task = pb.task(earnings, dim=3, name="earnings", initial="laplace" if place == "task" else None)
    suite = tmp_path / "suite.yaml"
    suite.write_text(
        "{name: starts, tasks: [banana], replicates: 2, particles: 20, budget: {score_evaluations: 1000}, algorithms: [initial, "
        f"{{name: mala, settings: {{step_size: 1.0e-4}}{', start: laplace' * (place == 'suite')}}}]}}"
    )
    options = {"start": "laplace"} if place == "run" else {}
    result = pb.run(str(suite), tasks=[task], out=tmp_path, workers=0, **options)  # type: ignore[arg-type]
    cells = {cell.algorithm: cell for cell in result.cells}
    mean, sd = posterior()
    z = {name: (result.samples(cell) - mean) / sd for name, cell in cells.items()}
    assert np.abs(z["mala"].mean(1)).max() < 1
    assert np.abs(z["initial"].mean(1)).max() > 5
    assert cells["mala"].score_evaluations <= 1000
    assert cells["mala"].start == ("task" if place == "task" else "laplace")


def test_what_has_no_fit_is_told() -> None:
    with pytest.raises(InputError, match=r"initial='advi' is none of pathfinder, laplace"):
        pb.task(earnings, dim=3, initial="advi")  # type: ignore[arg-type]
    bandit = registry.load_task("bandit-wheel")
    with pytest.raises(UnsupportedError, match="scores on all data"):
        begin_at_fits(bandit, bandit.problem(1, 0), "laplace")


def test_a_budget_that_a_fit_spends_is_said(tmp_path: Path) -> None:
    run = {"budget": {"score_evaluations": 2}, "particles": 4, "replicates": 1, "start": "pathfinder", "workers": 0}
    (cell,) = pb.run(tasks=["banana"], algorithms=["nuts"], out=tmp_path, **run).cells  # type: ignore[arg-type]
    assert cell.status is Status.UNSUPPORTED
    assert "the budget ends before the first step" in cell.reason
