"""The whole path of a chain: its states, their distance, and their equivalent n."""

import pytest
import torch

from parvibench.core import registry
from parvibench.core.metric import Context, NotApplicable
from parvibench.metrics.equivalent import path_equivalent_n, path_primary, whole_path
from parvibench.metrics.transport import sliced_w2

TASK = registry.load_task("banana")
NOTHING = torch.zeros(2, 1, 2, dtype=torch.float64)


def context(path: torch.Tensor) -> Context:
    return Context(TASK, reference=TASK.reference(), path=path)


def exact(count: int, replicates: int = 2) -> torch.Tensor:
    draws = TASK.exact(replicates * count, torch.Generator().manual_seed(3))
    return draws.view(replicates, count, 1, 2)


def test_a_long_path_is_thinned_over_times_and_chains() -> None:
    path = torch.arange(5000.0).view(1, 5000, 1, 1) + torch.arange(3.0).view(1, 1, 3, 1) / 10
    states = whole_path(Context(TASK, path=path))[0, :, 0]
    assert len(states) == 1000
    assert states.floor().diff().unique().tolist() == [5]
    assert torch.bincount((states * 10 % 10).round().long()).tolist() == [334, 333, 333]
    assert len(whole_path(Context(TASK, path=path[:, :7]))[0]) == 21


def test_equivalent_n_of_independent_and_of_repeated_states() -> None:
    """400 exact draws as a path; each of 25 of them 16 times over has the law of 25 draws."""
    draws = exact(400, replicates=40)
    assert 250 < path_equivalent_n(NOTHING, context(draws)).median() < 640
    repeated = draws[:, :25].repeat_interleave(16, 1)
    assert path_equivalent_n(NOTHING, context(repeated)).median() < 50
    assert (path_equivalent_n(NOTHING, context(draws + 50)) == 0).all()
    direct = sliced_w2(whole_path(context(draws)), context(draws))
    assert torch.equal(path_primary(NOTHING, context(draws)), direct)


def test_paths_that_left_the_numbers_and_no_paths() -> None:
    path = exact(50)
    path[1, 3] = torch.inf
    assert path_primary(NOTHING, context(path)).isnan().tolist() == [False, True]
    assert path_equivalent_n(NOTHING, context(path))[1] == 0
    for metric in (path_primary, path_equivalent_n):
        with pytest.raises(NotApplicable, match="no chain path"):
            metric(NOTHING, Context(TASK, reference=TASK.reference()))
