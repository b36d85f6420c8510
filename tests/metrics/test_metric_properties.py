"""Invariances by Hypothesis, and what every metric on samples does with bad input."""

import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Generator, Tensor

from parvibench.core.task import Facts, Modes
from parvibench.metrics.compute import compute

#: Invariant when samples and reference are moved together.
REFERENCE_METRICS = (
    "sliced_w2", "w1", "w2", "mmd2", "mmd2_u", "energy_distance", "kl_knn",
    "ks_marginal", "correlation_error", "mean_error", "sd_error", "c2st",
)  # fmt: skip
#: Tied to where the target lies.
FIXED_METRICS = ("ksd", "modes_found", "mode_weight_tv", "amari", "w2sq_window_5", "tail_error")
METRICS = REFERENCE_METRICS + FIXED_METRICS
#: Folds are cut in the order of the samples.
ORDERED = ("c2st",)

shapes = st.tuples(st.integers(1, 3), st.integers(6, 25), st.sampled_from([4, 9]), st.integers(0, 2**32))
examples = settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def scene(make_context, shape: tuple[int, int, int, int], shift: float = 0.0) -> tuple[Tensor, object]:
    """Samples (R, n, D) and the context of a task for which every metric applies."""
    replicates, n, dim, seed = shape
    generator = Generator().manual_seed(seed)
    draws = torch.randn(40, dim, generator=generator, dtype=torch.float64)
    x = 0.3 + 1.2 * torch.randn(replicates, n, dim, generator=generator, dtype=torch.float64)
    modes = Modes(torch.stack([torch.zeros(dim), torch.ones(dim)]), torch.ones(2), torch.tensor([0.4, 0.6]))
    unmixing = torch.randn(math.isqrt(dim), math.isqrt(dim), generator=generator, dtype=torch.float64)
    task = {"tags": frozenset({"heavy-tailed"}), "facts": Facts(modes=modes, unmixing=unmixing)}
    return x + shift, make_context(dim, draws + shift, task=task)


#: Their pairs are taken in single precision.
SINGLE = ("mmd2", "mmd2_u", "energy_distance")


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor], rtol: float) -> None:
    assert set(found) == set(expected)
    for name, values in expected.items():
        limits = {"rtol": 1e-5, "atol": 1e-6} if name in SINGLE else {"rtol": rtol, "atol": 1e-10}
        torch.testing.assert_close(found[name], values, **limits, msg=lambda m, n=name: f"{n}: {m}")


@examples
@given(shape=shapes)
def test_batch_equals_loop(make_context, shape) -> None:
    x, context = scene(make_context, shape)
    together, absent = compute(METRICS, x, context)
    assert not absent
    alone = [compute(METRICS, one[None], context)[0] for one in x]
    assert_same({m: torch.cat([a[m] for a in alone]) for m in METRICS}, together, 1e-9)


@examples
@given(shape=shapes)
def test_order_does_not_matter(make_context, shape) -> None:
    x, context = scene(make_context, shape)
    names = [m for m in METRICS if m not in ORDERED]
    order = torch.randperm(x.shape[1], generator=Generator().manual_seed(shape[3]))
    assert_same(compute(names, x[:, order], context)[0], compute(names, x, context)[0], 1e-8)


@examples
@given(shape=shapes, shift=st.floats(-100, 100))
def test_a_common_translation_does_not_matter(make_context, shape, shift: float) -> None:
    """Catches Gram products taken far from the origin, and bandwidths that see the origin."""
    moved = compute(REFERENCE_METRICS, *scene(make_context, shape, shift))[0]
    assert_same(moved, compute(REFERENCE_METRICS, *scene(make_context, shape))[0], 1e-6)


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_broken_replicate_is_worst_and_alone(name: str, bad: float, make_context) -> None:
    x, context = scene(make_context, (3, 12, 4, 1))
    clean = compute([name], x, context)[0][name]
    x[1, 5, 0] = bad
    values = compute([name], x, context)[0][name]
    assert torch.equal(values[[0, 2]], clean[[0, 2]])
    assert values[1].isnan() if name == "modes_found" else values[1] == math.inf


@pytest.mark.parametrize("name", METRICS)
def test_samples_that_overflow_do_not_crash(name: str, make_context) -> None:
    x, context = scene(make_context, (2, 12, 4, 2))
    x[0] = 1e200 * x[0].sign()
    values = compute([name], x, context)[0][name]
    assert not values[0].isnan()
    assert values[1].isfinite()
