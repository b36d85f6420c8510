"""How often the intervals of log Z hold the truth, and how often runs that are right are in doubt.

    OMP_NUM_THREADS=1 python tests/studies/log_z.py [--algorithm smc] [--seed 47] [--budget 1000] [--replicates 20] [TASK...]

Tasks of known log Z at defaults, 100 particles, ``budget`` score evaluations a particle, stepped outside the harness. A run is right
where 1.96 stated standard errors hold the truth. Formulas and mixtures are normalised; a linear regression is Gaussian.
"""

import argparse
import math
from typing import Any

import torch

from parvibench.core import registry
from parvibench.core.algorithm import take_steps
from parvibench.core.errors import BudgetExhausted
from parvibench.core.task import Task

SIX = ("gmm40-2d", "gmm40-50d", "many-well-32", "brownian-32", "phi4-100", "student-mixture-50d")
NORMALISED = (
    "banana", "x-shaped", "correlated-2d", "multimodal", "gmm2-2d", "gmm2-20d", "gaussian-100d", "gmm5-2d", "gmm5-10d",
    "phase-transition-20d", "lapd-mixture-8", "lapd-mixture-32", "lapd-mixture-128", "biased-start-gaussian", "monomial-gamma",
    "funnel-10d",
)  # fmt: skip


def truth_of(task: Task) -> float:
    """log Z of a task."""
    if task.name == "linear-regression":
        mean, covariance = task.model.mean, task.model.covariance
        peak = task.target([0], "cpu", torch.float64).log_density(mean[None, None]).item()
        return peak + 0.5 * float(torch.logdet(2 * math.pi * covariance))
    return task.facts.log_z or 0.0


def last_info(name: str, task: Task, replicates: int, seed: int, budget: int) -> Any:
    """The last Info of a run at defaults."""
    algorithm, info = registry.load_algorithm(name), None
    problem, settings = task.problem(replicates, seed, limit=100 * (budget + 1)), algorithm.make_settings({})
    with torch.inference_mode():
        state = algorithm.init(problem, settings, problem.streams, budget)
        try:
            for after in take_steps(algorithm.step, problem, settings, state, 0):
                info = after[1]
        except BudgetExhausted:
            pass
    return info


def main() -> None:
    """A row a task: right, right and in doubt, wrong and in doubt, wrong; median error and stated error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", default=[*SIX, *NORMALISED, "linear-regression"])
    parser.add_argument("--algorithm", default="smc", choices=["smc", "parallel-tempering"])
    for option, value in (("seed", 47), ("budget", 1000), ("replicates", 20)):
        parser.add_argument(f"--{option}", type=int, default=value)
    options = parser.parse_args()
    for name in options.tasks:
        task = registry.load_task(name)
        info = last_info(options.algorithm, task, options.replicates, options.seed, options.budget)
        off, doubt = info.log_z.double() - truth_of(task), info.log_z_doubt > 0
        right = off.abs() <= 1.96 * info.log_z_se
        counts = [int(v.sum()) for v in (right & ~doubt, right & doubt, ~right & doubt, ~right & ~doubt)]
        print(
            f"| `{name}` | {' / '.join(map(str, counts))} | {off.median():.3g} | {info.log_z_se.median():.2g} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
