"""What every task must provide."""

import subprocess
import sys

import pytest
import torch
from few import needs_data

from parvibench.core import registry
from parvibench.core.registry import load_task
from parvibench.data.fetch import registry as data_sets

NAMES = [name for name, row in registry.tasks().items() if row.target.startswith("parvibench.tasks.")]


@pytest.mark.parametrize("name", NAMES)
def test_task_is_coherent(name: str) -> None:
    task = load_task(name)
    assert set(task.metrics) <= set(registry.metrics())
    assert task.primary in task.metrics
    assert set(task.data) <= set(data_sets())
    assert ("exact" in task.tags) == ("exact" in task.provides)
    # Beyond ten dimensions modes have weights but are not counted: no draws lie near a centre.
    assert ("mode_weight_tv" in task.metrics) == (task.facts.modes is not None)
    assert ("modes_found" in task.metrics) == (task.facts.modes is not None and task.dim <= 10)
    assert task.citation
    if task.batch_size is not None:
        # Exact scores of a posterior that grows do not hold from one step to the next.
        assert ("full-batch" in task.provides) == ("decisions" not in task.provides)


@pytest.mark.ci
def test_importing_tasks_loads_no_data() -> None:
    """Catches a data set read, or scikit-learn imported, while a task is constructed."""
    code = (
        "import sys\n"
        "from parvibench.core.registry import load_task\n"
        f"for name in {NAMES!r}: load_task(name)\n"
        "from parvibench.data.loaders import load\n"
        "assert load.cache_info().misses == 0\n"
        "assert not {'sklearn', 'pooch', 'requests'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=60, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", [pytest.param(n, marks=needs_data(n)) for n in NAMES])
def test_problem_of_every_task(name: str) -> None:
    """Declared sizes are the real ones; points and scores have the promised shapes and are finite."""
    task = load_task(name)
    target = task.target((0,), "cpu", torch.float32)
    assert (target.dim, target.rows) == (task.dim, task.rows)
    problem = task.problem(1, seed=3, particles=4)
    x = problem.init()
    score = problem.score(x)
    assert x.shape == score.shape == (1, 4, task.dim)
    assert x.dtype == score.dtype == torch.float32
    assert torch.isfinite(score).all()


@pytest.mark.parametrize("name", [n for n in NAMES if not registry.tasks()[n].data])
def test_start_belongs_to_the_replicate(name: str) -> None:
    """A replicate starts at the same points whatever its batch and dtype; another replicate starts elsewhere."""
    task = load_task(name)
    both = task.problem((0, 1), seed=3, dtype=torch.float64, particles=5).init()
    alone = task.problem((1,), seed=3, particles=5).init()
    torch.testing.assert_close(both[1].float(), alone[0], rtol=1e-5, atol=1e-5)
    assert not torch.equal(both[0], both[1])


def test_what_a_task_is_judged_by_is_what_it_ships() -> None:
    """Catches a reference that `list tasks` does not list, or lists though there is none."""
    for name in NAMES:
        reference = load_task(name).reference()
        words = registry.tasks()[name].judged_by
        if words in ("exact draws", "long run"):
            assert reference.exact == (words == "exact draws")
        else:
            assert reference is None
