"""Times of a step of every algorithm: ``make benchmark``."""

from typing import Any

import pytest
import torch
from stepping import Stepper

from parvibench.core import registry

ALGORITHMS = [name for name, row in registry.algorithms().items() if row.kind != "anchor" and not row.library]


@pytest.mark.benchmark(group="a step on gmm5-2d, 100 particles")
@pytest.mark.parametrize("name", ALGORITHMS)
def test_step(benchmark: Any, name: str) -> None:
    """Defaults, step sizes small enough for the narrowest mode."""
    algorithm = registry.load_algorithm(name)
    fits = algorithm.needs <= registry.load_task("gmm5-2d").provides
    task = "gmm5-2d" if fits else "bnn-diabetes-sklearn"
    settings = {"step_size": 1e-4} if "step_size" in algorithm.settings_type.model_fields else {}
    ours = Stepper(task, name, settings, algorithm.n_particles or 100)
    benchmark(ours.step)
    assert all(torch.isfinite(t).all() for t in ours.state if isinstance(t, torch.Tensor))
