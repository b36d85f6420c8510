"""How many replicates go through one call."""

import pytest

from parvibench.core import registry
from parvibench.harness.suite.cells import chunk_width, expand
from parvibench.harness.suite.suite import Suite


@pytest.mark.parametrize(
    ("task", "method", "particles", "cpu"),
    [
        ("banana", "sgld", 100, 20),
        ("banana", "sgld", 1000, 2),
        ("banana", "sgld", 5000, 1),
        ("lapd-mixture-512", "sgld", 100, 4),
        ("lapd-mixture-2048", "sgld", 100, 1),
        ("bnn-diabetes-sklearn", "svgd", 20, 5),  # particles times rows of a mini-batch, 100
        ("bnn-diabetes-sklearn", "svgd", 100, 1),
        ("bnn-diabetes-sklearn", "ula", 20, 1),  # all rows, 398
        ("bnn-diabetes-sklearn", "srld", 1, 30),
        ("banana", "laplace", 100, 1),
    ],
)
def test_a_chunk_fits_the_cache_and_on_a_gpu_is_the_cell(task: str, method: str, particles: int, cpu: int) -> None:
    algorithm = registry.load_method(method)
    found = [chunk_width(registry.load_task(task), algorithm, particles, 30, d) for d in ("cpu", "cuda")]
    assert found == [cpu, algorithm.max_chunk or 30]


@pytest.mark.parametrize(("chunk", "widths"), [(None, [20, 4]), (1, [1] * 24), (50, [20, 4])])
def test_a_suite_may_ask_for_fewer_replicates_at_a_time(chunk: int | None, widths: list[int]) -> None:
    suite = {
        "name": "timed", "tasks": ["banana"], "algorithms": ["sgld"], "replicates": 24, "chunk": chunk,
        "budget": {"iterations": 10}, "particles": 100,
    }  # fmt: skip
    (cell,) = expand(Suite.model_validate(suite))
    assert [len(ids) for ids in cell.chunks] == widths
