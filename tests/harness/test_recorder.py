"""Chain positions are kept within a fixed memory and thinned evenly."""

from __future__ import annotations

import torch

from parvibench.harness.run.recorder import MAX_POSITIONS, PathRecorder


def record(steps: int, chains: int = 3) -> PathRecorder:
    """A path whose entries say their own step and chain."""
    recorder = PathRecorder(torch.zeros(1, chains, 2))
    for step in range(1, steps + 1):
        x = torch.empty(1, chains, 2)
        x[..., 0], x[..., 1] = step, torch.arange(chains)
        recorder.add(step, x)
    return recorder


def test_the_first_half_is_dropped() -> None:
    assert record(100).path()[0, :, 0, 0].tolist() == list(range(51, 101))


def test_long_runs_stay_within_memory_and_evenly_spaced() -> None:
    steps = record(7 * MAX_POSITIONS + 13).path()[0, :, 0, 0]
    assert len(steps) <= MAX_POSITIONS
    assert len(steps.diff().unique()) == 1
    assert steps[0] <= 0.55 * steps[-1]


def test_samples_are_spread_over_time_and_chains() -> None:
    samples = record(1000).samples(30)[0]
    assert torch.bincount(samples[:, 1].long()).tolist() == [10, 10, 10]
    assert len(samples[:, 0].unique()) == 30
    assert samples[:, 0].min() > 500


def test_a_run_of_one_step_repeats_positions() -> None:
    assert record(1).samples(5)[0].tolist() == [[1, 0], [1, 1], [1, 2], [1, 0], [1, 1]]
