"""Memory of every metric that judges samples, at n = 10,000 against 10,000 reference rows."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import resource, sys, torch
from parvibench.core.metric import Context
from parvibench.core.reference import Reference
from parvibench.metrics.compute import compute
from parvibench.metrics.floors import judged_metrics
from parvibench.metrics.common import median_distance
from calibration_trials import make_task

torch.set_num_threads(1)
task, g = make_task(22), torch.Generator().manual_seed(0)
rows = task.exact(10_000, g)
certificate = {"mean": task.facts.mean.tolist(), "sd": task.facts.sd.tolist(), "bandwidth": median_distance(rows)}
context = Context(task, Reference(rows, True, certificate), task.target([0], "cpu", torch.float64))
x = task.exact(10_000, g)[None]
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
compute(judged_metrics(), x[:, :60], Context(task, Reference(rows[:60], True, certificate), context.target))
for metric in sys.argv[1:] or judged_metrics():
    before = peak()
    compute([metric], x, context)
    print(metric, peak() - before)
"""


@pytest.mark.slow
def test_metrics_need_little_memory_beyond_the_samples() -> None:
    """Peaks add up in one process, so the last line's growth is at most what some metric needs."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1] / "studies")}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, env=environment)
    grown = {name: float(mib) for name, mib in (line.split() for line in done.stdout.splitlines())}
    assert len(grown) > 15
    assert sum(grown.values()) < 500
