"""Errors of public bug reports, planted into JAX kernels, are found by ``check``; the same kernels without them pass."""

from typing import Any

import pytest

import parvibench as pb

pytest.importorskip("blackjax", reason="needs BlackJAX: pip install '.[jax]'")
import wrong_jax_kernels as kernels

pytestmark = pytest.mark.slow
#: Name -> iterations: a tempered sampler is there after a few.
PLANTED = {"HMC": 500, "ALWAYS": 500, "INDEPENDENT": 500, "LANGEVIN": 500, "TEMPERED": 8}
#: The right one of ALWAYS has not converged on ``tilted`` after 500: the mean log density is 0.24 too low.
RIGHT = {**PLANTED, "ALWAYS": 2000}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_error_is_found(name: str) -> None:
    assert pb.check(getattr(kernels, name), iterations=PLANTED[name], seed=1).verdict == "wrong"


@pytest.mark.parametrize("name", RIGHT)
def test_without_it_the_kernel_passes(name: str) -> None:
    assert pb.check(getattr(kernels, f"RIGHT_{name}"), iterations=RIGHT[name], seed=1).verdict == "pass"


@pytest.mark.parametrize("name", ["AVERAGING", "RIGHT_AVERAGING"])
def test_an_adaptation_that_ends_badly_leaves_the_law_and_passes(name: str) -> None:
    assert pb.check(getattr(kernels, name), seed=1).verdict == "pass"


def test_blackjax_passes() -> None:
    import blackjax
    import jax.numpy as jnp

    made: dict[str, Any] = {
        "nuts": lambda log_density, dim: blackjax.nuts(log_density, 0.3, jnp.ones(dim)),
        "mclmc": lambda log_density, dim: blackjax.mclmc(log_density, L=0.8, step_size=0.15),
    }
    for name, make in made.items():
        assert pb.check(pb.jax_sampler(make, name=name), seed=1).verdict == "pass", name
