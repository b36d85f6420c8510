"""The noise and the data under which traces are taken: their laws, and that nothing of them stays behind."""

import numpy as np
import pytest
import torch
from scipy import stats

from parvibench.core.errors import UnsupportedError
from parvibench.data.loaders import load
from parvibench.metrics.transport import projections

from .noise import Noise, uniform_numbers
from .stand_ins import ROWS, generated_data


def generator(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_uniform_numbers_are_the_high_bits_of_philox() -> None:
    """By Philox 4x64-10 written out (Salmon et al. 2011), counter 1 first, as NumPy begins."""
    mask, key = 2**64 - 1, [7, 0]
    counter = [1, 0, 0, 0]
    for _ in range(10):
        a, b = 0xD2E7470EE14C6C93 * counter[0], 0xCA5A826395121157 * counter[2]
        counter = [(b >> 64) ^ counter[1] ^ key[0], b & mask, (a >> 64) ^ counter[3] ^ key[1], a & mask]
        key = [(key[0] + 0x9E3779B97F4A7C15) & mask, (key[1] + 0xBB67AE8584CAA73B) & mask]
    expected = [(raw >> 11) * 2.0**-53 + 2.0**-54 for raw in counter]
    assert uniform_numbers(7, 4).tolist() == expected


def test_laws_of_the_noise() -> None:
    """Kolmogorov and Smirnov's tests at 1e-6, frequencies within five standard errors."""
    n, g = 4000, generator()
    with Noise():
        normal, uniform = torch.randn(n, generator=g), torch.rand(n, generator=g, dtype=torch.float64)
        exponential = torch.empty(n, dtype=torch.float64).exponential_(0.5, generator=g)
        drawn = torch.multinomial(torch.tensor([1.0, 2.0, 5.0]), n, replacement=True, generator=g)
        integers = torch.randint(-1, 3, (n,), generator=g)
        order = torch.randperm(50, generator=g)
        normals = torch.normal(torch.full((n,), 2.0), 3.0, generator=g)
    assert (normal.dtype, uniform.dtype, integers.dtype) == (torch.float32, torch.float64, torch.int64)
    for values, law in (
        (normal, stats.norm()),
        (uniform, stats.uniform()),
        (exponential, stats.expon(scale=2)),
        (normals, stats.norm(2, 3)),
    ):
        assert stats.kstest(values.numpy(), law.cdf).pvalue > 1e-6
    for counts, shares in ((drawn.bincount(), [1 / 8, 2 / 8, 5 / 8]), ((integers + 1).bincount(), [1 / 4] * 4)):
        p = np.array(shares)
        assert (np.abs(counts.numpy() / n - p) < 5 * np.sqrt(p * (1 - p) / n)).all()
    assert order.sort().values.tolist() == list(range(50))


def test_noise_follows_the_generator_and_leaves_pytorch_as_it_was() -> None:
    plain = torch.randn(3, generator=generator())
    with Noise():
        g = generator()
        first, second = torch.randn(3, generator=g), torch.randn(3, generator=g)
        again, other = torch.randn(3, generator=generator()), torch.randn(3, generator=generator(4))
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    assert not torch.equal(first, other)
    assert torch.equal(torch.randn(3, generator=generator()), plain)


def test_a_random_function_without_a_formula_is_refused() -> None:
    with Noise(), pytest.raises(UnsupportedError, match="poisson"):
        torch.poisson(torch.ones(2), generator=generator())


def test_generated_tables_stand_in_for_a_while() -> None:
    with generated_data():
        table = load("bostonHousing")
        assert table.X.shape == (ROWS, 13)
        assert load("mushroom").X.shape == (ROWS, 117)
        assert set(np.unique(load("waveform").y)) == {0.0, 1.0}
    assert load.cache_info().currsize == 0


def test_what_was_drawn_under_the_noise_is_forgotten_and_what_was_drawn_before() -> None:
    """Cached projections are the same before and after, and others within."""
    before = projections(7).clone()
    with Noise(), generated_data():
        within = projections(7).clone()
    assert torch.equal(projections(7), before)
    assert not torch.equal(within, before)
