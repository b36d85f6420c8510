"""Laws that hold under every value of every option, without a stored number."""

import warnings
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from golden.response import Response
from golden.variants import variants
from law_tools import problem_at, run
from torch import Tensor
from torch.utils._pytree import tree_leaves

from parvibench.core import registry
from parvibench.core.algorithm import Algorithm

pytestmark = pytest.mark.ci

_POINTS, _STEPS, _BATCH, _SEED = 6, 6, 4, 11
_IDS = (4, 7, 9)
_BUILT_IN = [row.name for row in registry.algorithms().values() if row.built_in and not row.library]
#: Built-in algorithms of no other library that take many replicates at a time.
NAMES = [n for n in _BUILT_IN if isinstance(m := registry.load_method(n), Algorithm) and m.max_chunk != 1]


def after(name: str, settings: dict[str, Any], start: Tensor, ids: Sequence[int]) -> list[Tensor]:
    """Numbers of the state after a few steps of the given replicates, whose starts are given, (R, N, D)."""
    algorithm = registry.load_algorithm(name)
    made, batch = algorithm.make_settings(settings), None if "full-batch" in algorithm.needs else _BATCH
    steps = _STEPS + sum(getattr(made, name, 0) for name in ("pretraining", "critic_pretraining"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of options that the target makes idle
        state = run(algorithm, made, problem_at(Response(), start, ids, _SEED, batch), steps).state
    leaves = [leaf for leaf in tree_leaves(state) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
    return [leaf for leaf in leaves if leaf.ndim and len(leaf) == len(ids)]


@pytest.mark.parametrize("name", NAMES)
def test_replicates_run_alone_as_together(name: str) -> None:
    """The last replicate starts ten times as far away: what is shared, such as a norm, shows."""
    start = torch.randn(3, 64, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    start[2] *= 10
    points = registry.load_algorithm(name).n_particles or _POINTS
    differ = []
    for label, settings in variants(registry.load_algorithm(name)):
        together = after(name, settings, start[:, :points], _IDS)
        for i in (0, 2):
            alone = after(name, settings, start[i : i + 1, :points], _IDS[i : i + 1])
            if any(
                not torch.allclose(a[0], b[i], 1e-9, 1e-9, equal_nan=True) for a, b in zip(alone, together, strict=True)
            ):
                differ.append(f"{label}, replicate {i}")
    assert differ == []
