"""Short versions of the studies."""

import os
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path

import broken_stores
import clocks
import damaged_stores
import densities
import hostile
import kills
import malformed_suites
import memory
import overhead
import owners_files
import pyro_kinds
import pytest
import sample_files
import snapshots
import throughput
import torch
import tracking_outage
import tuned_and_presets
from papers import plain_times
from papers.measured import read_changes
from plain_kernels import kernel_matrix

from parvibench.harness.suite.cells import expand

#: Of programs beside the product.
pytestmark = pytest.mark.ci

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="finds processes by /proc")


@pytest.mark.parametrize("check", [broken_stores.full_disk, broken_stores.read_only_disk])
def test_disks_that_are_full_or_read_only(check, tmp_path: Path) -> None:
    try:
        assert check(tmp_path) == []
    except broken_stores.NoMountError as error:
        pytest.skip(f"cannot mount a small disk: {error}")


@pytest.mark.slow
@pytest.mark.parametrize("study", [broken_stores.corrupt_database, broken_stores.two_runs, tracking_outage.study])
def test_databases_and_servers_that_fail(study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_HTTP_REQUEST_MAX_RETRIES"):
        monkeypatch.setenv(name, "")  # restored at the end: the study of outages sets them
    assert study(tmp_path) == []


@on_linux
def test_hostile_samplers_get_their_status_and_harm_no_other() -> None:
    assert hostile.apart("--timeout", "10", "--memory", "1500") == 0


@on_linux
@pytest.mark.slow
def test_the_store_of_a_run_killed_many_times_is_that_of_an_undisturbed_run() -> None:
    assert kills.study(kills=4, tasks=1, iterations=300, longest=12.0, seed=1) == []


def test_malformed_files_exit_2_with_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["parvibench"])
    # The study redirects the console; `file` would be restored to the stream of this test.
    monkeypatch.setattr("parvibench.cli.shared.console._file", None)
    found, codes, _ = malformed_suites.study(40, limit=10.0)  # other tests may run beside this one
    assert found == []
    assert codes == {2: 40}


@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
def test_sample_files_are_read_as_meant_or_refused() -> None:
    found, answers = sample_files.study(12)
    assert found == []
    assert answers["good: read"] == answers["odd: refused"] == 4


def test_samples_are_read_as_their_owners_mean_them() -> None:
    counts, wrong, _ = owners_files.study(50, seed=2)
    assert wrong == []
    assert sum(found["right"] for found in counts.values()) > 25


def test_pyro_models_have_pyro_s_density() -> None:
    counts, wrong, _ = pyro_kinds.study(8, seed=2)
    assert wrong == []
    assert counts["function: right"] + counts["module: right"] >= 4


def test_a_flipped_bit_in_a_snapshot_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the study would notice: without the checksum some bits do."""
    assert snapshots.study(18)[0] == []
    unchecked = lambda self: self.path.read_bytes()[32:] if self.path.is_file() else None  # noqa: E731
    monkeypatch.setattr(snapshots.SnapshotFile, "load", unchecked)
    assert snapshots.study(36)[0] != []


def test_the_latest_run_is_shown_whatever_the_clock(tmp_path: Path) -> None:
    assert clocks.study(tmp_path) == (8, [])


def test_densities_that_go_wrong_in_a_run_are_told() -> None:
    found, told = densities.study(24)
    assert found == []
    assert told["crashed"]
    assert told["ok, flagged"]


def test_damaged_stores_are_told_and_mended() -> None:
    found, told = damaged_stores.study(21)
    assert found == []
    assert told == {"the cell is damaged": 18, "the run is refused": 3}


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
    plain_times.write(plain_times.causes({"d=50": "diffusion-50"}, rounds=2, steps=1), tmp_path / "causes.csv")
    found = read_changes(tmp_path)
    assert [change.pointer.split("/")[3] for change in found] == ["SIVI", "SIVI-SM", "KSIVI-ustat"]
    assert all(change.changed.mean > 0 for change in found)


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
