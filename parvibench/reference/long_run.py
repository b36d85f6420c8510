"""Long parallel chains for targets without an exact sampler, and the evidence that they have converged.

Three runs of many chains side by side, in float64: a pilot in the coordinates of Laplace's approximation, which
gives the others their covariance and starting points; the main run (HMC); and a check run by another exact method
(MALA), held to the same diagnostics, which has to agree on all means and standard deviations. Draws of different
chains are independent, and those of one chain are thinned until nearly so. Where exact draws rest on numerical
integration the same runs confirm them.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Generator, Tensor

from parvibench.core.algorithm import take_steps
from parvibench.core.errors import ParVIBenchError
from parvibench.core.registry import load_algorithm
from parvibench.core.streams import Streams
from parvibench.core.target import Target
from parvibench.core.task import Problem, Task
from parvibench.metrics.chains import array_stats
from parvibench.metrics.floors import Notify, silent
from parvibench.metrics.pairwise import thin

from .checks import z_limit

#: Per coordinate, by name; see ``diagnostics``.
Diagnostics = dict[str, NDArray[np.float64]]
MIN_ESS = 10_000
MAX_RHAT = 1.005


@dataclass(frozen=True)
class Plan:
    """Algorithm and lengths of a run."""

    algorithm: str  #: registered name
    settings: dict[str, Any]  #: of the algorithm, in whitened coordinates
    chains: int  #: how many run side by side
    warmup: int  #: transitions dropped
    draws: int  #: kept per chain
    thin: int  #: transitions between kept draws


PILOT = Plan("hmc", {"step_size": 0.01, "leapfrog_steps": 12, "jitter": 0.2}, 200, 200, 200, 1)
#: Trajectories of a quarter period. The last 10 draws of every chain are shipped, the 800 before make floors.
MAIN = Plan("hmc", {"step_size": 0.01, "leapfrog_steps": 11, "jitter": 0.2}, 1000, 200, 810, 2)
#: Fewer and longer chains: R-hat of halves that hold few effective draws exceeds one however well they mix.
CHECK = Plan("mala", {"step_size": 0.1}, 200, 500, 700, 12)
#: Coordinates diagnosed at once.
_COORDINATES = 25


class Whitened(Target):
    """A target, float64, in coordinates z with x = centre + L z: centre (D,), factor L (D, D).

    The map is linear, so the law sampled is exactly the target's; only its conditioning changes. L comes first from
    Laplace's approximation at the mode, then from a pilot run's covariance: a posterior may be wider than the curvature at
    its mode suggests, and centred elsewhere.
    """

    def __init__(self, base: Target, centre: Tensor, factor: Tensor) -> None:
        self.base, self.centre, self.factor = base, centre, factor
        self.dim = base.dim

    @classmethod
    def from_draws(cls, base: Target, draws: Tensor) -> Self:
        """Whiten by the mean and covariance of draws (n, D)."""
        return cls(base, draws.mean(0), torch.linalg.cholesky(torch.cov(draws.T)))

    @classmethod
    def at_mode(cls, base: Target, start: Tensor) -> Self:
        """Find a mode by a trust-region Newton method, beginning at ``start`` (D,), and factor the Hessian there."""

        def negative(x: NDArray[Any]) -> tuple[float, NDArray[Any]]:
            state = torch.from_numpy(x)[None, None]
            return -float(base.log_density(state)), -base.score(state).numpy().ravel()

        def hessian(x: NDArray[Any]) -> NDArray[Any]:
            return -_hessian(base, torch.from_numpy(x)).numpy()

        found = minimize(negative, start.numpy(), jac=True, hess=hessian, method="trust-exact", tol=1e-10)
        mode = torch.from_numpy(found.x)
        # H = C C^T gives H^-1 = C^-T C^-1, so L = C^-T.
        cholesky = torch.linalg.cholesky(-_hessian(base, mode))
        return cls(base, mode, torch.linalg.inv(cholesky).T)

    def to_base(self, z: Tensor) -> Tensor:
        """Points x = centre + L z, (..., D)."""
        return self.centre + z @ self.factor.T

    def from_base(self, x: Tensor) -> Tensor:
        """Points z = L^-1 (x - centre), (n, D)."""
        return torch.linalg.solve(self.factor, (x - self.centre).T).T

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Up to the constant log |det L|: (R, N, D) -> (R, N)."""
        return self.base.log_density(self.to_base(x), batch)

    def score(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Gradient in z: (R, N, D) -> (R, N, D)."""
        return self.base.score(self.to_base(x), batch) @ self.factor

    def log_density_and_score(self, x: Tensor, batch: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Both at once, sharing the target's computation."""
        log_density, score = self.base.log_density_and_score(self.to_base(x), batch)
        return log_density, score @ self.factor


def _hessian(base: Target, x: Tensor) -> Tensor:
    """Second derivatives of the log density at one point, (D,) -> (D, D)."""
    leaf = x.clone().requires_grad_()
    score = base.score(leaf[None, None]).flatten()
    return torch.stack([torch.autograd.grad(s, leaf, retain_graph=True)[0] for s in score])


@dataclass(frozen=True)
class LongRun:
    """A finished run."""

    draws: Tensor  #: of the main run, (draws, chains, D) float64
    check: Tensor  #: of the check run, likewise
    record: dict[str, Any]  #: their entry in the certificate


def long_run(task: Task, seed: int, notify: Notify = silent) -> LongRun:
    """The main run, certified by its diagnostics and by the check run; else ``ParVIBenchError``."""
    target, start = prepared(task, seed, notify)
    plans = {"main": MAIN, "check": CHECK}
    draws: dict[str, Tensor] = {}
    found: dict[str, Diagnostics] = {}
    record: dict[str, Any] = {"pilot": asdict(PILOT)}
    for number, (name, plan) in enumerate(plans.items(), 1):
        clock = time.perf_counter()
        draws[name], accepted = run_chains(target, plan, seed + number, start(plan.chains), target.to_base, notify)
        draws[name] = task.canonical(draws[name])
        found[name] = diagnostics(draws[name])
        record[name] = recorded(plan, accepted, found[name], time.perf_counter() - clock)
    record["check"] |= agreement(found["main"], found["check"])
    require_convergence(task.name, record)
    return LongRun(draws["main"], draws["check"], record)


def main_draws(task: Task, seed: int, notify: Notify = silent) -> Tensor:
    """The draws of the main run alone, (draws, chains, D) float64, without its evidence."""
    target, start = prepared(task, seed, notify)
    return task.canonical(run_chains(target, MAIN, seed + 1, start(MAIN.chains), target.to_base, notify)[0])


def prepared(task: Task, seed: int, notify: Notify = silent) -> tuple[Whitened, Callable[[int], Tensor]]:
    """The target in coordinates where a pilot run is white, and starting points there for so many chains."""
    base = task.target([0], "cpu", torch.float64)
    laplace = Whitened.at_mode(base, best_start(task, base, seed))
    noise = torch.randn(PILOT.chains, base.dim, generator=Generator().manual_seed(seed), dtype=torch.float64)
    pilot, _ = run_chains(laplace, PILOT, seed, noise, laplace.to_base, notify)
    target = Whitened.from_draws(base, pilot.flatten(0, 1))

    # Chains that start far out get stuck: steps suited to the bulk are too long for the curvature of the tails.
    def start(chains: int) -> Tensor:
        return target.from_base(thin(pilot, chains // PILOT.chains).flatten(0, 1))

    return target, start


def confirming_run(task: Task, seed: int, notify: Notify = silent) -> LongRun:
    """Chains that agree with the known mean and sd of every coordinate; else ``ParVIBenchError``."""
    run = long_run(task, seed, notify)
    mean, sd = task.facts.mean, task.facts.sd
    assert mean is not None
    assert sd is not None
    zero = np.zeros(task.dim)
    exact = {"mean": mean.numpy(), "sd": sd.numpy(), "mcse_mean": zero, "mcse_sd": zero}
    against = agreement(diagnostics(run.draws), exact)
    if not agrees(against):
        raise ParVIBenchError(f"{task.name}: the main run disagrees with the exact moments: {against}")
    return LongRun(run.draws, run.check, run.record | {"exact": against})


def best_start(task: Task, base: Target, seed: int) -> Tensor:
    """The most probable of the origin and 100 draws of the task's start, (D,) float64."""
    drawn = task.initial(base, 100, [Generator().manual_seed(seed)])[0].double()
    points = torch.cat([torch.zeros(1, base.dim, dtype=torch.float64), drawn])
    return points[base.log_density(points[None])[0].nan_to_num(nan=-torch.inf).argmax()]


def require_convergence(name: str, record: dict[str, Any]) -> None:
    """``ParVIBenchError`` for a run that has not converged or that the check run contradicts."""
    require_mixing(name, [record["main"], record["check"]])
    if not agrees(record["check"]):
        raise ParVIBenchError(f"{name}: the check run disagrees with the main run: {record['check']}")


def require_mixing(name: str, runs: Sequence[dict[str, Any]]) -> None:
    """``ParVIBenchError`` for runs with too few effective draws or too large an R-hat."""
    for run in runs:
        if min(run["ess_bulk_min"], run["ess_tail_min"]) < MIN_ESS or run["rhat_max"] >= MAX_RHAT:
            wanted = f"want ESS >= {MIN_ESS}, R-hat < {MAX_RHAT}"
            raise ParVIBenchError(f"{name}: the {run.get('algorithm')} run has not converged ({wanted}): {run}")


def agrees(compared: dict[str, Any]) -> bool:
    """Whether the differences of ``agreement`` are within their limit."""
    return max(compared["largest_z_of_means"], compared["largest_z_of_sds"]) <= compared["z_limit"]


def run_chains(
    target: Target, plan: Plan, seed: int, start: Tensor, record: Callable[[Tensor], Tensor], notify: Notify = silent
) -> tuple[Tensor, float]:
    """Run the chains of a plan from ``start``, (chains, D), in the target's coordinates.

    Returns what ``record`` makes of draws, (chains, D) -> (chains, K), as (draws, chains, K), and the share of accepted
    moves.
    """
    streams = Streams(seed, (0,), "cpu", torch.float64)
    problem = Problem(target, streams, start=lambda *_: start[None], particles=plan.chains)
    algorithm = load_algorithm(plan.algorithm)
    settings = algorithm.make_settings(plan.settings)
    total = plan.warmup + plan.draws * plan.thin
    kept, moved = [], []
    with torch.no_grad():
        first: Any = algorithm.init(problem, settings, streams, total)
        taken, before = take_steps(algorithm.step, problem, settings, first), first.x
        for step, (state, _) in enumerate(islice(taken, total)):
            if step >= plan.warmup:
                moved.append(float((state.x != before).any(-1).double().mean()))
                if (step - plan.warmup + 1) % plan.thin == 0:
                    kept.append(record(state.x[0]))
            before = state.x
            if step % 10 == 0:
                notify(f"{plan.chains} chains of {plan.algorithm}, steps", step, total)
    return torch.stack(kept), float(np.mean(moved))


def diagnostics(draws: Tensor) -> Diagnostics:
    """Per coordinate, (D,) each: bulk and tail ESS, R-hat, mean and sd with their Monte Carlo errors.

    A few coordinates at a time: ranks take several times the memory of the draws.
    """
    blocks = [_diagnostics(block.numpy()) for block in torch.split(draws, _COORDINATES, dim=2)]
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}


def _diagnostics(x: NDArray[np.float64]) -> Diagnostics:
    axes = {"chain_axis": 1, "draw_axis": 0}
    stats = array_stats()
    # The error of an sd is that of a mean of squares, which may mix at another speed than the draws: those of NUTS are
    # antithetic, their squares are not. arviz-stats 0.8 takes the ESS of the draws, and so 0.6 times the error.
    squares = (x - x.mean((0, 1))) ** 2
    sd = x.reshape(-1, x.shape[2]).std(0, ddof=1)
    return {
        "ess_bulk": stats.ess(x, method="bulk", **axes),
        "ess_tail": stats.ess(x, method="tail", prob=(0.05, 0.95), **axes),
        "rhat": stats.rhat(x, method="rank", **axes),
        "mean": x.mean((0, 1)),
        "sd": sd,
        "mcse_mean": stats.mcse(x, method="mean", **axes),
        "mcse_sd": stats.mcse(squares, method="mean", **axes) / (2 * sd),
    }


def recorded(plan: Plan, accepted: float, found: Diagnostics, seconds: float) -> dict[str, Any]:
    """A run's entry in the certificate."""
    return asdict(plan) | {
        "total_draws": plan.chains * plan.draws,
        "accepted": round(accepted, 4),
        "ess_bulk_min": round(float(found["ess_bulk"].min())),
        "ess_tail_min": round(float(found["ess_tail"].min())),
        "rhat_max": round(float(found["rhat"].max()), 6),
        "mcse_mean_max_in_sd": float(f"{float((found['mcse_mean'] / found['sd']).max()):.3g}"),
        "mcse_sd_max_in_sd": float(f"{float((found['mcse_sd'] / found['sd']).max()):.3g}"),
        "seconds": round(seconds, 1),
    }


def agreement(main: Diagnostics, other: Diagnostics) -> dict[str, float]:
    """Largest differences of a run from the main one, in standard errors of the difference."""

    def largest(value: str, error: str) -> float:
        z = (main[value] - other[value]) / np.hypot(main[error], other[error])
        return round(float(np.abs(z).max()), 2)

    return {
        "largest_z_of_means": largest("mean", "mcse_mean"),
        "largest_z_of_sds": largest("sd", "mcse_sd"),
        "z_limit": round(z_limit(len(main["mean"])), 2),
        "mean_sd_ratio": round(float((other["sd"] / main["sd"]).mean()), 5),
    }


def correlations(draws: Tensor) -> list[list[float]]:
    """Correlation matrix of (draws, chains, D), four decimals."""
    return [[round(v, 4) for v in row] for row in torch.corrcoef(draws.flatten(0, 1).T).tolist()]
