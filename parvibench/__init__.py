"""ParVIBench: benchmark and evaluation suite for samplers of unnormalised densities.

>>> import parvibench as pb
>>> result = pb.run(tasks=["banana"], algorithms=["svgd"], replicates=5)   # doctest: +SKIP
>>> pb.evaluate(samples, task="banana")                                      # doctest: +SKIP

Names are imported on first use: ``import parvibench`` itself loads neither torch nor MLflow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api.check import calibrate, check
    from .api.compare import compare
    from .api.evaluate import evaluate
    from .api.report import load, report
    from .api.run import run
    from .api.stores import merge, verify
    from .api.tune import tune
    from .authoring.functions import OneReplicate, sampler
    from .authoring.jax_kernels import jax_sampler
    from .core.algorithm import Algorithm, AlgorithmSettings, SteppedSettings
    from .core.budget import Budget
    from .core.errors import ParVIBenchError
    from .core.registry import load_algorithm, load_task
    from .core.streams import Streams
    from .core.target import Target
    from .core.task import Facts, Modes, Problem, Task
    from .reporting.presented import Results
    from .targets.densities import task
    from .targets.jax_models import from_jax, from_numpyro
    from .targets.pymc_models import from_pymc
    from .targets.pyro_models import from_pyro
    from .targets.stan_models import from_stan

_NAMES = {
    "api.check": "calibrate check",
    "api.compare": "compare",
    "api.evaluate": "evaluate",
    "api.report": "load report",
    "api.run": "run",
    "api.stores": "merge verify",
    "api.tune": "tune",
    "authoring.functions": "OneReplicate sampler",
    "authoring.jax_kernels": "jax_sampler",
    "core.algorithm": "Algorithm AlgorithmSettings SteppedSettings",
    "core.budget": "Budget",
    "core.errors": "ParVIBenchError",
    "core.registry": "load_algorithm load_task",
    "core.streams": "Streams",
    "core.target": "Target",
    "core.task": "Facts Modes Problem Task",
    "reporting.presented": "Results",
    "targets.densities": "task",
    "targets.jax_models": "from_jax from_numpyro",
    "targets.pymc_models": "from_pymc",
    "targets.pyro_models": "from_pyro",
    "targets.stan_models": "from_stan",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

__all__ = [  # noqa: RUF022 - in the order of use
    "run", "load", "report", "compare", "tune", "evaluate", "check", "calibrate", "merge", "verify", "Results", "Algorithm", "AlgorithmSettings", "SteppedSettings", "Task", "Target",
    "sampler", "OneReplicate", "Problem", "Facts", "Modes", "Streams", "Budget", "ParVIBenchError", "load_task", "load_algorithm",
    "task", "from_pyro", "from_jax", "from_numpyro", "from_pymc", "from_stan", "jax_sampler",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'parvibench' has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
