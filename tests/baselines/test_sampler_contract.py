"""What every algorithm must keep, run over the registry."""

import io
import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from sampler_toys import SAMPLERS, VARIANTS, Gaussian, Regression, Run, make_problem
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from parvibench.core import registry
from parvibench.core.algorithm import finite_replicates
from parvibench.core.errors import BudgetExhausted, SettingsError
from parvibench.core.streams import Streams
from parvibench.core.target import Target
from parvibench.core.task import Problem

PRECISION = [1.0, 4.0, 0.25]
EACH = pytest.mark.parametrize("name", SAMPLERS)
EACH_VARIANT = pytest.mark.parametrize(
    ("name", "settings"),
    [(name, {}) for name in SAMPLERS] + VARIANTS,
    ids=lambda value: value if isinstance(value, str) else " ".join(map(str, value.values())),
)
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


def cost(name: str) -> int:
    """Score evaluations of four steps on eight points, or as many as the algorithm has."""
    algorithm = registry.load_algorithm(name)
    return (algorithm.n_particles or 8) * (algorithm.example.first_scores + 4 * algorithm.example.scores)


def tensors(state: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(state) if isinstance(leaf, Tensor)]


@pytest.mark.parametrize("name", registry.algorithms())
def test_settings_are_described_frozen_and_strict(name: str) -> None:
    algorithm = registry.load_method(name)
    settings = algorithm.make_settings()
    assert all(field.description for field in algorithm.settings_type.model_fields.values())
    with pytest.raises(SettingsError, match="no such setting"):
        algorithm.make_settings({"no_such": 1})
    if name in SAMPLERS:
        with pytest.raises(SettingsError, match="step_size"):
            algorithm.make_settings({"step_size": 0.0})
        assert algorithm.effective_step(settings) in (None, settings.model_dump().get("step_size"))


@EACH
@DTYPES
def test_shapes_dtype_and_finiteness(name: str, dtype: torch.dtype) -> None:
    run = Run(name, make_problem(Gaussian(PRECISION), dtype=dtype)).steps(5)
    assert finite_replicates(run.state).tolist() == [True] * 3
    assert all((field.shape[0], field.dtype) == (3, dtype) for field in tensors(run.state))
    assert all(isinstance(leaf, Tensor | int) for leaf in tree_leaves(run.state))
    if run.algorithm.kind != "generator":
        assert run.state._fields[0] == "x"
        assert run.state.x.shape == (3, run.algorithm.n_particles or 8, 3)
    sizes = [8] if run.algorithm.n_particles is None else [1]
    for n in [5, 19] if run.algorithm.kind == "generator" or "sifg" in name else sizes:
        samples = run.output(n)
        assert (samples.shape, samples.dtype) == ((3, n, 3), dtype)
        assert samples.isfinite().all()


@EACH_VARIANT
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)], ids=str)
def test_replicates_run_alone_as_together(name: str, settings: Any, dtype: Any, tolerance: float) -> None:
    together = Run(name, make_problem(Gaussian(PRECISION), dtype=dtype), **settings).steps(4).output()
    for r in range(3):
        problem = make_problem(Gaussian(PRECISION), [r], dtype=dtype)
        alone = Run(name, problem, **settings).steps(4).output()
        torch.testing.assert_close(alone[0], together[r], rtol=tolerance, atol=tolerance)


@EACH
def test_same_seed_same_bits_whatever_the_global_state_and_it_is_left_alone(name: str) -> None:
    torch_state, python_state = torch.get_rng_state(), random.getstate()
    problems = [make_problem(Gaussian(PRECISION), seed=seed) for seed in (7, 7, 8)]
    first, again, other = (Run(name, problem).steps(4).output() for problem in problems)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first[0], first[1])
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert random.getstate() == python_state


@EACH
def test_a_step_changes_neither_its_state_nor_the_noise(name: str) -> None:
    run = Run(name, make_problem(Gaussian(PRECISION))).steps(3)
    held = run.state
    before = [field.clone() for field in tensors(held)]
    run.steps(1)
    blocks = run.problem.streams._blocks
    noise = {key: block.clone() for key, (_, block) in blocks.items()}
    run.steps(1).output()
    assert all(torch.equal(a, b) for a, b in zip(before, tensors(held), strict=True))
    assert all(torch.equal(noise[key], blocks[key][1]) for key in noise)


@EACH
@pytest.mark.parametrize("batched", [False, True])
def test_cost_equals_the_hand_count(name: str, batched: bool) -> None:
    """Four steps; a mini-batch of 5 of 10 rows halves each score."""
    halved = batched and "full-batch" not in registry.load_algorithm(name).needs
    problem = make_problem(Regression(), batch_size=5 if halved else None)
    run = Run(name, problem)
    first = problem.meter.charged
    run.steps(4)
    share = (0.5 if halved else 1.0) * (run.algorithm.n_particles or 8)
    counted = f"Example(scores={(problem.meter.charged - first) / (4 * share):g}, first_scores={first / share:g})"
    message = f"{name}: counted were {counted}; if that is the method's cost, state it as the class attribute `example`"
    assert problem.meter.charged == cost(name) * (0.5 if halved else 1.0), message


@EACH
def test_budget_stops_it_and_the_last_state_stands(name: str) -> None:
    problem = make_problem(Gaussian(PRECISION), limit=cost(name))
    run = Run(name, problem).steps(4)
    with pytest.raises(BudgetExhausted):
        run.steps(1)
    assert run.iteration == 4
    assert run.output().isfinite().all()


class Cliff(Target):
    """In single precision beyond all numbers from 2.3 on, and steep before: what a leapfrog step overshoots."""

    dim = 2

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        return -(0.5 * x.square() + (x / 1.5) ** 200 / 200).sum(-1)

    def score(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        return -(x + (x / 1.5) ** 199 / 1.5)


@pytest.mark.parametrize("name", ["mala", "hmc", "nuts", "adjusted-mclmc", "chees-hmc"])
def test_a_proposal_beyond_all_numbers_is_rejected_and_no_divergence(name: str) -> None:
    """Catches a replicate that counts as lost because a trajectory overflowed, as NUTS's on arma11 did."""

    def start(target: Target, n: int, generators: Sequence[torch.Generator]) -> Tensor:
        drawn = [torch.rand(n, target.dim, generator=g, dtype=torch.float64) for g in generators]
        return 3.8 * torch.stack(drawn) - 1.9

    streams = Streams(7, (0, 1, 2), dtype=torch.float32)
    run = Run(name, Problem(Cliff(), streams, start=start, particles=40))
    may_overflow, whole = run.algorithm.may_overflow, []
    for _ in range(60):
        state = run.steps(1).state
        assert finite_replicates(state, may_overflow).all()
        whole.append(bool(finite_replicates(state).all()))
    assert bool(may_overflow) != all(whole)  # the target is steep enough to tell


@EACH
def test_a_saved_state_continues_to_the_same_bits(name: str) -> None:
    straight = Run(name, make_problem(Gaussian(PRECISION))).steps(6).output()
    saved = Run(name, make_problem(Gaussian(PRECISION))).steps(3)
    buffer = io.BytesIO()
    leaves, layout = tree_flatten(saved.state)
    torch.save(leaves, buffer)
    buffer.seek(0)
    resumed = Run(name, make_problem(Gaussian(PRECISION)))
    resumed.state, resumed.iteration = tree_unflatten(torch.load(buffer), layout), 3
    assert torch.equal(resumed.steps(3).output(), straight)


@EACH_VARIANT
def test_a_diverged_replicate_disturbs_no_other(name: str, settings: dict[str, Any]) -> None:
    clean = Run(name, make_problem(Gaussian(PRECISION)), **settings).steps(5).output()
    run = Run(name, make_problem(Gaussian(PRECISION)), **settings).steps(2)
    with run.mode():
        leaves, layout = tree_flatten(run.state)
        leaves[0] = leaves[0].clone()
        leaves[0][1] = float("nan")
        run.state = tree_unflatten(leaves, layout)
    assert torch.equal(run.steps(3).output()[[0, 2]], clean[[0, 2]])
    assert finite_replicates(run.state).tolist() == [True, False, True]
