"""Every algorithm on every task whose needs it meets: a few steps, on real data where they are here."""

from itertools import islice

import pytest
import torch

from parvibench.core import registry
from parvibench.core.algorithm import take_steps
from parvibench.core.errors import DataMissingError
from parvibench.core.sequential import SequentialTask

STEPS = 3
#: Entries of a full covariance matrix beyond which one is not asked for: a quarter of a gigabyte in single precision.
LARGEST_MATRIX = 2**26
#: Densities with exponentials that overflow not far from the start: methods run there, and may diverge.
OVERFLOW = {"accel-gp", "arma11", "glmm-poisson", "lotka-volterra"}

ALGORITHMS = [name for name, row in registry.algorithms().items() if row.kind != "anchor" and not row.library]
TASKS = [name for name, row in registry.tasks().items() if row.target.startswith("parvibench.tasks.")]


@pytest.mark.slow
@pytest.mark.parametrize("task_name", TASKS)
def test_every_algorithm_runs_on_the_task(task_name: str) -> None:
    """Catches a method that assumes two dimensions, full batches or finite variances."""
    task = registry.load_task(task_name)
    if isinstance(task, SequentialTask):
        pytest.skip("its posterior grows in the harness's own loop, tested there")
    if "stress" in task.tags:
        pytest.skip("matrices of its dimension take tens of gigabytes")
    ran = 0
    step = 1e-15 if "posterior" in task.tags else 1e-7  # scores at Stan's start reach 1e14
    for name in ALGORITHMS:
        algorithm = registry.load_algorithm(name)
        if algorithm.needs - task.provides or (name == "full-rank" and task.dim**2 > LARGEST_MATRIX):
            continue
        values = {"step_size": step} if "step_size" in algorithm.settings_type.model_fields else {}
        settings = algorithm.make_settings(values)
        width = 1 if algorithm.max_chunk == 1 else 2
        try:
            problem = task.problem(width, seed=7, particles=algorithm.n_particles or 4)
        except DataMissingError as missing:
            pytest.skip(str(missing).splitlines()[0])
        start = algorithm.init(problem, settings, problem.streams, STEPS)
        *_, (state, _) = islice(take_steps(algorithm.step, problem, settings, start), STEPS)
        x = algorithm.output(problem, settings, state, 4, problem.streams)
        rows = algorithm.n_particles if algorithm.kind == "chains" and algorithm.n_particles else 4
        assert x.shape == (width, rows, task.dim), name
        assert torch.isfinite(x).all() or task_name in OVERFLOW, name
        assert problem.meter.charged > 0, name
        ran += 1
    assert ran >= 15
