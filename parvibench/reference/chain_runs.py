"""Chains for the reference of a task: two runs of many chains from the task's start, float64.

The main run by NUTS, and a check run by ChEES-HMC, after a warm-up of NUTS, in coordinates where the main run is white
(``method="hmc"`` has them change places).
"""

import time
from dataclasses import asdict, replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from parvibench.core.algorithm import take_steps
from parvibench.core.errors import ParVIBenchError
from parvibench.core.registry import load_algorithm
from parvibench.core.streams import Streams
from parvibench.core.target import Target
from parvibench.core.task import Problem, Task
from parvibench.metrics.floors import Notify as Notify
from parvibench.metrics.own_floors import SEED
from parvibench.targets.starts import FITS, fitted_points

from .gates import Effort, Gate, agreement, agreement_gate, diagnostics, divergence_gate, mixing_gates, summary

#: Steps of warm-up of the trial that a forecast is made of; a multiple of ten.
_TRIAL = 20
_ALGORITHMS = {"nuts": "nuts", "hmc": "chees-hmc"}


class Whitened(Target):
    """A target, float64, in coordinates z with x = centre (D,) + L (D, D) z: the same law in another conditioning."""

    def __init__(self, base: Target, centre: Tensor, factor: Tensor) -> None:
        self.base, self.centre, self.factor = base, centre, factor
        self.dim = base.dim

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


def chains_of(task: Task, effort: Effort, notify: Notify) -> tuple[Tensor, list[Gate], dict[str, Any]]:
    """Draws of the main run, (T, C, D) float64, its gates and its record."""
    base = task.target([0], "cpu", torch.float64)
    other = {"nuts": "hmc", "hmc": "nuts"}[effort.method]
    target: Target = base
    if effort.method == "hmc":  # ChEES has no mass matrix of its own
        pilot, *_ = _run(base, "nuts", effort, effort.warmup, _start(task, effort, 0), SEED, "pilot run", notify)
        target = _whitened(task.name, base, pilot[len(pilot) // 2 :].flatten(0, 1))
    main, divergent, cost = _run(
        target, effort.method, effort, effort.draws, _start(task, effort, 1), SEED + 1, "main run", notify
    )
    main = task.canonical(main)
    found = diagnostics(main)
    gates = [*mixing_gates(task, found, effort), divergence_gate(divergent)]
    record = {"main": asdict(effort) | summary(found) | {"divergent": round(divergent, 5)}}
    record["main"]["evaluations_per_effective_draw"] = float(f"{cost / max(1, record['main']['ess_bulk_min']):.3g}")
    if all(gate.passed for gate in gates):
        white = _whitened(task.name, base, main.flatten(0, 1)) if other == "hmc" else base
        first = _start(task, effort, 2)
        if other == "hmc":  # ChEES leaves chains behind that start far out; in the warm-up of NUTS they catch up
            first = _run(base, "nuts", effort, 10, first, SEED + 3, "start of the check run", notify)[0][-1]
        check, *_ = _run(white, other, effort, effort.draws, first, SEED + 2, "check run", notify)
        again = diagnostics(task.canonical(check))
        compared = agreement(found, again)
        record["check"] = {"method": other} | summary(again) | compared
        gates.append(agreement_gate(compared, _ALGORITHMS[other]))
    return main, gates, record


def _start(task: Task, effort: Effort, number: int) -> Tensor:
    """First points (C, D) of the run of this number."""
    kind = task.begins if effort.start == "task" else effort.start
    if kind in FITS:
        return fitted_points(task, kind, effort.chains, SEED + number)
    target = task.target([0], "cpu", torch.float64)
    return task.initial(target, effort.chains, [Generator().manual_seed(SEED + number)])[0].double()


def _run(
    target: Target, method: str, effort: Effort, draws: int, start: Tensor, seed: int, what: str, notify: Notify
) -> tuple[Tensor, float, float]:
    """Draws (T, C, D) in the task's coordinates, the share of divergent transitions and the score evaluations of them."""
    white = target if isinstance(target, Whitened) else None
    first = white.from_base(start) if white else start
    streams = Streams(seed, (0,), "cpu", torch.float64)
    problem = Problem(target, streams, start=lambda *_: first[None], particles=len(first))
    algorithm = load_algorithm(_ALGORITHMS[method])
    of_nuts = {"warmup_steps": effort.warmup, "target_acceptance": effort.target_acceptance, "mass": effort.mass}
    settings = algorithm.make_settings(of_nuts if method == "nuts" else {})
    total, kept, divergent, before = effort.warmup + draws, [], [], 0.0
    with torch.no_grad():
        # Both adapt for a quarter of the steps foreseen.
        first_state: Any = algorithm.init(problem, settings, streams, 4 * effort.warmup)
        taken = take_steps(algorithm.step, problem, settings, first_state)
        for step, (state, info) in enumerate(islice(taken, total)):
            if step >= effort.warmup:
                kept.append(white.to_base(state.x[0]) if white else state.x[0])
                divergent.append(float(info.divergences[0]))
            elif step == effort.warmup - 1:
                before = problem.meter.charged
            if step % 10 == 0 or step == total - 1:
                notify(what, step + 1, total)
    x = torch.stack(kept)
    if not bool(x.isfinite().all()):
        raise ParVIBenchError(f"{what}: chains left the finite numbers; look at the density far from its start")
    return x, float(np.mean(divergent)), problem.meter.charged - before


def _whitened(name: str, base: Target, draws: Tensor) -> Whitened:
    """The target, whitened by the mean and covariance of draws (n, D)."""
    try:
        return Whitened(base, draws.mean(0), torch.linalg.cholesky(torch.cov(draws.T)))
    except RuntimeError:
        raise ParVIBenchError(
            f"{name}: the chains' covariance is singular: they do not move in every direction"
        ) from None


def trial(task: Task, effort: Effort) -> tuple[Tensor, float]:
    """Draws (T, C, D) of a few steps of NUTS, and the seconds that all runs will take at the pace of the last ones."""
    clock: list[float] = []
    target, short = task.target([0], "cpu", torch.float64), replace(effort, warmup=_TRIAL)
    first = _start(task, effort, 0)
    draws, *_ = _run(target, "nuts", short, 10, first, SEED, "trial", lambda *_: clock.append(time.perf_counter()))
    runs = 3 if effort.method == "hmc" else 2
    return draws, (runs * (effort.warmup + effort.draws) + effort.warmup) * (clock[-1] - clock[-2]) / 9
