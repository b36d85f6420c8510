"""Short versions of the studies."""

import os
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path

import hostile
import kills
import memory
import overhead
import pytest
import sample_files
import throughput
import torch
import tuned_and_presets
from papers import plain_times
from papers.kinds import read_study
from plain_programs import kernel_matrix

from parvibench.harness.suite.cells import expand

#: Tests of studies, which are no part of the product.
pytestmark = pytest.mark.ci

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="finds processes by /proc")


@on_linux
def test_hostile_samplers_get_their_status_and_harm_no_other() -> None:
    assert hostile.apart("--timeout", "10", "--memory", "1500") == 0


@on_linux
@pytest.mark.slow
def test_the_store_of_a_run_killed_many_times_is_that_of_an_undisturbed_run() -> None:
    assert kills.study(kills=4, tasks=1, iterations=300, longest=12.0, seed=1) == []


@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
def test_sample_files_are_read_as_meant_or_refused() -> None:
    found, answers = sample_files.study(12)
    assert found == []
    assert answers["good: read"] == answers["odd: refused"] == 4


@pytest.mark.slow
@pytest.mark.parametrize("suite", memory.SUITES)
def test_no_default_cell_holds_two_gigabytes(suite: str) -> None:
    """Every seventh cell: all tasks and all methods come up."""
    cells = islice(memory.default_cells(suite, memory.SUITES[suite], seconds=0.5), 0, None, 7)
    peaks = [memory.peak_mib(cell) for cell in cells]
    if not peaks:
        pytest.skip(f"no data of {suite} here")
    assert max(peaks) < memory.LIMIT_MIB


@pytest.mark.slow
def test_the_harness_costs_little() -> None:
    """Twice the share that was measured: room for a busy machine."""
    _, share, _ = overhead.measure("multimodal", "svgd", seconds=5.0, rounds=3)
    assert share < 0.05


@pytest.mark.slow
@pytest.mark.skipif(
    (os.cpu_count() or 1) < 2 or os.getloadavg()[0] > 0.5, reason="needs two cores with nothing else to do"
)
def test_a_second_worker_nearly_doubles_the_throughput() -> None:
    one, two = throughput.measure(share=0.1, rounds=3)
    assert one / two > 1.8


def test_plain_programs_are_timed_and_what_they_change_is_read_by_the_audit(tmp_path: Path) -> None:
    x, y = torch.randn(2, 9, 3)
    kernel = kernel_matrix("gaussian", x, y, "median", False)
    torch.testing.assert_close(plain_times.gaussian_kernel(x, y), kernel)
    plain_times.causes({"d=50": "diffusion-50"}, rounds=2, steps=1).to_csv(tmp_path / "causes.csv")
    changes = read_study(tmp_path / "causes.csv")
    assert [pointer.split("/")[3] for pointer in changes] == ["SIVI", "SIVI-SM", "KSIVI-ustat"]
    assert all(change.ours.mean > 0 for change in changes.values())


def test_tuned_settings_and_presets_run_under_one_protocol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for pair in tuned_and_presets.PAIRS:
        tuned, preset = (cell.spec for cell in expand(tuned_and_presets.arms(pair, "fast")))
        assert tuned.settings != preset.settings
        assert tuned.model_copy(update={"settings": preset.settings, "chunk": preset.chunk}) == preset
    pair = replace(tuned_and_presets.PAIRS[0], replicates=2)
    monkeypatch.setattr(tuned_and_presets, "PAIRS", (pair,))
    (line,) = tuned_and_presets.measured(tmp_path, "fast", 0)
    assert line[:4] == ["toy", "gmm5-2d", "sifg", "sliced_w2"]
    assert line[-1] in {"better", "worse", "no difference shown"}
