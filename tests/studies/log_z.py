"""How often intervals of log Z hold the truth, and how often right runs are in doubt, on tasks of known log Z.

    python tests/studies/log_z.py [smc|parallel-tempering] [SEED] [TASK...]

20 runs at defaults, 100 particles, 1,000 score evaluations each. A row has runs that are right (1.96 stated standard errors hold
the truth), right and in doubt, wrong and in doubt, wrong; the median error and the median stated error, nats.
"""

import sys
from contextlib import suppress

import torch

from parvibench.core import registry
from parvibench.core.algorithm import take_steps
from parvibench.core.errors import BudgetExhausted

TASKS = (
    "gmm40-2d", "gmm40-50d", "many-well-32", "brownian-32", "phi4-100", "student-mixture-50d", "phase-transition-20d",
    "banana", "x-shaped", "correlated-2d", "multimodal", "gmm2-2d", "gmm2-20d", "gaussian-100d", "gmm5-2d", "gmm5-10d",
    "lapd-mixture-8", "lapd-mixture-32", "lapd-mixture-128", "biased-start-gaussian", "monomial-gamma", "funnel-10d",
)  # fmt: skip


def main(name: str = "smc", seed: str = "47", *tasks: str) -> None:
    """Print a row a task."""
    algorithm = registry.load_algorithm(name)
    for task in map(registry.load_task, tasks or TASKS):
        problem, settings = task.problem(20, int(seed), limit=100_100), algorithm.make_settings({})
        with torch.inference_mode():
            state = algorithm.init(problem, settings, problem.streams, 1000)
            with suppress(BudgetExhausted):
                for _, info in take_steps(algorithm.step, problem, settings, state, 0):
                    last = info
        off, doubt = last.log_z.double() - (task.facts.log_z or 0.0), last.log_z_doubt > 0
        right = off.abs() <= 1.96 * last.log_z_se
        counts = [int(v.sum()) for v in (right & ~doubt, right & doubt, ~right & doubt, ~right & ~doubt)]
        print(task.name, *counts, f"{off.median():.3g} {last.log_z_se.median():.2g}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
