"""The oracle of the stored past, from suites to exit codes."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import Run

from parvibench.checks.outcomes import RED, decide
from parvibench.checks.past import baseline as past
from parvibench.checks.past.baseline import Baseline
from parvibench.checks.past.replicates import TIME, as_array, density_values, moments
from parvibench.checks.questions import Fixed, Law
from parvibench.checks.rounds import check
from parvibench.checks.selection import select_questions
from parvibench.core.errors import InputError
from parvibench.core.registry import load_task
from parvibench.core.streams import Streams
from parvibench.harness.suite.cells import Cell, expand
from parvibench.harness.suite.suite import Suite

MADE = {"parvibench": "test"}


def cells(step_size: float = 0.1, **more: object) -> list[Cell]:
    """ULA and exact draws on a Gaussian, a few steps."""
    suite = {
        "name": "tiny", "tasks": ["biased-start-gaussian"], "replicates": 20, "particles": 20,
        "algorithms": [{"name": "ula", "settings": {"step_size": step_size}}, "exact"],
        "budget": {"iterations": 30}, "metrics": ["sliced_w2"], **more,
    }  # fmt: skip
    return expand(Suite.model_validate(suite))


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A baseline of 40 replicates."""
    file = tmp_path_factory.mktemp("baseline") / "b.json"
    past.make(cells(), ["banana"], seed=1, workers=0, made=MADE, replicates=40).write(file)
    return file


def test_clean_replicates_pass_and_a_bug_does_not(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, *others = past.questions(Baseline.load(stored), cells(), ["banana"])
    assert others == [[], []]
    assert check(asked, seed=2).verdict == "pass"
    clean = Streams.normal
    monkeypatch.setattr(Streams, "normal", lambda *a, **k: clean(*a, **k) * 0.5**0.5)
    result = check(asked, seed=2)
    assert result.verdict == "regression"
    red = {t.metric for t in result.red if t.algorithm == "ula"}
    assert {"log_sd[0]", "log_sd[1]"} <= red
    assert not any(t.metric == TIME for t in result.red)


def test_half_a_step_size_is_detected(stored: Path) -> None:
    """The identity tells; even without it the distributions do, while the chains are on their way."""
    (problem,) = past.questions(Baseline.load(stored), cells(0.05), []).incomparable
    assert problem.startswith("biased-start-gaussian/ula: settings changed")
    short = {"budget": {"iterations": 10}}
    baseline = past.make(cells(**short), [], seed=1, workers=0, made=MADE, replicates=40)
    half = cells(0.05, **short)
    baseline.cells["biased-start-gaussian/ula"]["identity"] = json.loads(json.dumps(past.identity(half[0])))
    asked, new, incomparable = past.questions(baseline, half, [])
    assert not new + incomparable
    assert any(t.metric == "mean[0]" for t in check(asked, seed=3).red)


def test_what_is_not_stored_is_new(stored: Path) -> None:
    asked = past.questions(Baseline.load(stored), cells(tasks=["gmm2-2d"]), ["multimodal"])
    assert asked == ([], ["multimodal/density", "gmm2-2d/ula", "gmm2-2d/exact"], [])


def test_changes_are_told_before_they_are_written(stored: Path) -> None:
    old = Baseline.load(stored)
    again = past.make(cells(), ["banana"], seed=9, workers=0, made=MADE, replicates=40)
    assert past.changes(old, again) == []
    other = past.make(cells(0.8), ["banana"], seed=9, workers=0, made=MADE, replicates=40)
    lines = past.changes(old, other)
    assert "biased-start-gaussian/ula: settings changed" in lines
    assert any("log_sd[0] by" in line for line in lines)


def test_a_part_leaves_the_rest(stored: Path) -> None:
    old = Baseline.load(stored)
    part = past.make(cells(0.3)[:1], ["multimodal"], seed=9, workers=0, made=MADE, replicates=20)
    both = old.with_part(part)
    assert both.cells["biased-start-gaussian/exact"] == old.cells["biased-start-gaussian/exact"]
    assert both.cells["biased-start-gaussian/ula"] != old.cells["biased-start-gaussian/ula"]
    assert set(both.densities) == {"banana", "multimodal"}


def test_density_values_tell_a_change_in_the_last_digits() -> None:
    """They are the same at every call, and depend on the data where there are some."""
    assert density_values("banana") == density_values("banana")
    names = {n.partition("[")[0] for n in density_values("bnn-diabetes-sklearn")}
    assert names == {"log_density", "score", "batch_score", "prediction", "noise_sd", "held_out"}


def test_rounding_is_far_below_the_spread() -> None:
    values = np.random.default_rng(1).normal(size=100) * 3e-4 + 7
    error = np.abs(np.array(past.rounded(values.tolist())) - values)
    assert error.max() < 3e-6
    assert past.rounded([2.0, 2.0, float("inf")]) == [2.0, 2.0, None]
    shares = [k / 44 for k in (40, 41, 42, 43, 44)] * 8
    assert past.rounded(shares) == shares
    # Heavy tails do not blot out the small values.
    assert past.rounded([1.23456e-3, 1.0, 1e20, 1e30]) == [1.235e-3, 1.0, 1e20, 1e30]


@pytest.mark.parametrize("algorithm", ["srld", "sr-uld", "sr-sghmc"])
def test_laws_of_chains_that_blow_up_are_stored_value_by_value(algorithm: str) -> None:
    """Their directions span forty decades: zeros in place of the smaller half made one clean check in fourteen red."""
    (question,) = select_questions(algorithms=[algorithm], tasks=["options"], oracle="past").resolve().questions
    law = question.expected()["step_size=0.1: samples"]
    assert isinstance(law, Law)
    assert np.ptp(np.log10(np.abs(law.values))) > 10
    assert len(np.unique(law.values)) > 0.9 * len(law.values)


@pytest.mark.parametrize(
    ("found", "red"),
    [
        ([1.0] * 20, False),
        ([1.0 + 1e-9] * 20, False),  # rounding
        ([1.0] * 19 + [1.1], False),  # what comes up once in a hundred may not have come up in forty
        ([1.1] * 20, True),
        ([1.0] * 5 + [math.inf] * 15, True),
    ],
    ids=["same", "last digits", "one off", "all off", "diverged"],
)
def test_statistics_that_never_varied_are_laws_too(stored: Path, found: list[float], red: bool) -> None:
    baseline = Baseline.load(stored)
    statistics = baseline.cells["biased-start-gaussian/ula"]["statistics"]
    statistics["sliced_w2"] = [1.0 + 1e-10 * i for i in range(40)]
    (question,) = past.questions(baseline, cells()[:1], []).questions
    values = {name: as_array(x).tolist() for name, x in statistics.items()} | {"sliced_w2": found}
    tests = {t.metric: t for t in decide(question, values, 1e-7)}
    assert (tests["sliced_w2"].verdict in RED) == red
    assert isinstance(question.expected()["score_evaluations"], Fixed)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"format": 0}'])
def test_a_file_that_is_no_baseline(tmp_path: Path, text: str) -> None:
    file = tmp_path / "b.json"
    file.write_text(text)
    with pytest.raises(InputError, match=r"--update|not a baseline"):
        Baseline.load(file)


def test_command_line(call: Run, tmp_path: Path, stored: Path) -> None:
    """One cell through worker processes; the exit code tells which verdict it was."""
    only = ("check", "--oracle", "past", "-a", "exact", "-t", "biased-start-gaussian", "--seed", "5")
    made = call(*only, "--workers", "1", "--update", "--yes", "--baseline", "mine.json")
    assert made.code == 0, made.err
    done = call(*only, "--workers", "0", "--baseline", "mine.json", "--json", "--junit", "j.xml")
    assert done.code == 0, done.err
    assert done.json["verdict"] == "pass"
    asked = call(*only, "--workers", "1", "--update", "--baseline", "mine.json")
    assert (asked.code, "add --yes" in asked.err) == (2, True)  # before it measures anything
    assert {t["algorithm"] for t in done.json["tests"]} == {"exact"}
    assert (tmp_path / "j.xml").read_text().startswith("<?xml")
    foreign = call(*only, "--workers", "0", "--baseline", str(stored), "--json")
    assert foreign.code == 2
    assert foreign.json["incomparable"]


def test_a_cell_without_a_baseline_is_new_and_fails_nothing(call: Run, stored: Path) -> None:
    """The stored baseline holds no cell of this task."""
    only = ("--oracle", "past", "-t", "linear-regression", "-a", "exact", "--workers", "0")
    done = call("check", *only, "--baseline", str(stored))
    assert done.code == 0, done.err
    assert "new: no baseline yet, run parvibench check --update: linear-regression/exact" in done.err
    assert "0 red, 1 new" in done.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-a", "svdg"), "svdg"),
        (("-t", "bananna"), "banana"),
        (("--baseline", "nowhere.json"), "no baseline there"),
        (("-a", "nomodule:Nothing"), "nomodule"),
    ],
)
def test_wrong_input_is_told(arguments: tuple[str, ...], message: str, call: Run) -> None:
    answer = call("check", *arguments)
    assert answer.code == 2
    assert message in answer.err


def test_points_that_are_all_the_same_have_no_spread() -> None:
    """The mean of equal numbers may miss them by rounding, which must not look like a spread of its own."""
    points = torch.full((3, 7, 2), 0.1, dtype=torch.float64) * torch.tensor([1.0, 3.0], dtype=torch.float64)
    points[1, 0, 1] += 1e-3
    points[2] += 1e-16 * torch.randn(7, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = moments(load_task("banana"), points)
    assert found["log_sd[0]"].tolist() == [-math.inf] * 3
    assert found["log_sd[1]"].isfinite().tolist() == [False, True, False]
