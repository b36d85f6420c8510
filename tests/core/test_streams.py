"""Stateless streams: addresses decide the draws, nothing else does."""

import torch

from parvibench.core.streams import Streams, derive_seed


def draws(streams: Streams, step: int, shape: tuple[int, ...] = (7, 2), **address: int) -> torch.Tensor:
    streams.step = step
    return streams.normal("noise", shape, **address).clone()


def test_a_draw_depends_on_its_address_only() -> None:
    one, other = Streams(3, range(4)), Streams(3, range(4))
    forward = [draws(one, k) for k in (0, 1, 2, 300)]
    backward = [draws(other, k) for k in (300, 2, 1, 0)][::-1]
    assert all(torch.equal(a, b) for a, b in zip(forward, backward, strict=True))


def test_replicates_keep_their_draws_in_any_batch() -> None:
    together, alone = Streams(3, [5, 9, 2]), Streams(3, [9])
    assert torch.equal(draws(together, 11)[1], draws(alone, 11)[0])


def test_streams_seeds_steps_and_indices_differ() -> None:
    streams = Streams(0, [0, 1])
    base = draws(streams, 4)
    streams.step = 4
    others = [draws(streams, 5), draws(streams, 4, index=1), streams.normal("output", (7, 2))]
    others += [draws(Streams(1, [0, 1]), 4), base.flip(0)]
    assert all(not torch.equal(base, o) for o in others)


def test_large_shapes_take_one_step_a_block_and_permutations_are_permutations() -> None:
    streams = Streams(0, [0, 1], dtype=torch.float64)
    big = draws(streams, 2, (600_000, 2))
    assert (big.shape, big.dtype) == ((2, 600_000, 2), torch.float64)
    rows = streams.permutation("batch", 50, block=3)
    assert torch.equal(rows.sort(1).values, torch.arange(50).expand(2, 50))
    assert not torch.equal(rows[0], rows[1])


def test_seeds_are_stable_and_spread() -> None:
    assert derive_seed(0, "noise", 1) == derive_seed(0, "noise", 1)
    assert derive_seed("ab", "c") != derive_seed("a", "bc")
    assert len({derive_seed(0, i) & 0xFFFFFFFF for i in range(20_000)}) > 19_990
