"""Chain positions stay within a fixed memory and thinned evenly."""

import torch

from parvibench.harness.run.recorder import MAX_POSITIONS, PathRecorder


def record(steps: int, chains: int = 3, **protocol: float) -> PathRecorder:
    """A path whose entries say their own step and chain."""
    recorder = PathRecorder(torch.zeros(1, chains, 2), **protocol)
    for step in range(1, steps + 1):
        x = torch.empty(1, chains, 2)
        x[..., 0], x[..., 1] = step, torch.arange(chains)
        recorder.add(step, x)
    return recorder


def steps_of(recorder: PathRecorder) -> list[float]:
    return recorder.path()[0, :, 0, 0].tolist()


def test_burn_in_is_a_share_of_the_run_or_a_number_of_iterations() -> None:
    assert steps_of(record(100)) == list(range(51, 101))
    assert steps_of(record(100, burn_in=0.2)) == list(range(21, 101))
    assert steps_of(record(100, burn_in=30)) == list(range(31, 101))
    assert steps_of(record(100, burn_in=0.0, thinning=7)) == list(range(7, 101, 7))
    assert steps_of(record(100, burn_in=30, thinning=7)) == list(range(35, 101, 7))
    assert steps_of(record(100, burn_in=500)) == []


def test_iterations_of_burn_in_outlast_the_thinning_of_a_long_run() -> None:
    steps = steps_of(record(5 * MAX_POSITIONS, burn_in=1000))
    assert 1000 < steps[0] <= 1000 + steps[1] - steps[0]


def test_long_runs_stay_within_memory_and_evenly_spaced() -> None:
    steps = record(7 * MAX_POSITIONS + 13).path()[0, :, 0, 0]
    assert len(steps) <= MAX_POSITIONS
    assert len(steps.diff().unique()) == 1
    assert steps[0] <= 0.55 * steps[-1]


def present(step: int, chains: int = 3) -> torch.Tensor:
    return torch.stack((torch.full((chains,), float(step)), torch.arange(float(chains))), 1)[None]


def test_fewer_chains_than_samples_are_judged_by_all_chains_at_the_last_well_spaced_times() -> None:
    """Ten times over the second half, the present one last; the oldest states are dropped where n is no multiple."""
    samples = record(1000).samples(30, present(1000))[0]
    assert samples[:, 0].unique().tolist() == list(range(550, 1001, 50))
    assert samples[:3].tolist() == [[550, 0], [550, 1], [550, 2]]
    assert samples[-3:].tolist() == [[1000, 0], [1000, 1], [1000, 2]]
    shorter = record(1000).samples(29, present(1000))[0]
    assert torch.equal(shorter, samples[1:])
    single = record(1000, chains=1).samples(4, present(1000, 1))[0]
    assert single[:, 0].tolist() == [625, 750, 875, 1000]


def test_a_run_without_a_past_repeats_the_present() -> None:
    for recorder in (record(0), record(100, burn_in=500)):
        assert recorder.samples(5, present(7))[0].tolist() == [[7, 1], [7, 2], [7, 0], [7, 1], [7, 2]]
