"""Short runs in this process."""

from pathlib import Path

import parvibench as pb
from parvibench.core.algorithm import Algorithm
from parvibench.harness.store.results import StoredRun
from parvibench.harness.suite.suite import Suite

QUICK = {"replicates": 2, "budget": {"scores_per_particle": 20}, "tracking": False, "workers": 0}


def run_here(tmp_path: Path, *algorithms: Algorithm | type[Algorithm] | str, **options: object) -> StoredRun:
    return pb.run(tasks=["multimodal"], algorithms=list(algorithms), out=tmp_path, **{**QUICK, **options})


def suite(**values: object) -> Suite:
    given = {
        "name": "t", "tasks": ["banana"], "algorithms": ["svgd", "sgld", "mala", "ksivi"], "replicates": 3,
        "particles": 1000, "samples": 100, "budget": {"scores_per_particle": 10},
    }  # fmt: skip
    return Suite.model_validate({**given, **values})
