"""A baseline of one's own, from recorded replicates to exit codes."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
import wrong_samplers
from command_line import Run

from parvibench.checks import baseline as past
from parvibench.checks.baseline import Baseline, as_array, moments
from parvibench.checks.evidence import law_p_values
from parvibench.checks.outcomes import RED, decide
from parvibench.checks.question import Fixed
from parvibench.checks.rounds import Plan, check
from parvibench.core.errors import InputError
from parvibench.core.registry import load_task
from parvibench.core.streams import Streams
from parvibench.harness.suite.cells import Cell, expand
from parvibench.harness.suite.suite import Suite


def cells(step_size: float = 0.1, **more: object) -> list[Cell]:
    """ULA and exact draws on a Gaussian, a few steps."""
    suite = {
        "name": "tiny", "tasks": ["biased-start-gaussian"], "replicates": 20, "particles": 20,
        "algorithms": [{"name": "ula", "settings": {"step_size": step_size}}, "exact"],
        "budget": {"iterations": 30}, "metrics": ["sliced_w2"], **more,
    }  # fmt: skip
    return expand(Suite.model_validate(suite))


def made(of: Sequence[Cell], seed: int = 1, replicates: int = 40) -> Baseline:
    return past.make(of, seed=seed, date="today", replicates=replicates)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A baseline of 40 replicates."""
    file = tmp_path_factory.mktemp("baseline") / "b.json"
    made(cells()).write(file)
    return file


def test_four_of_five_checks_see_the_smallest_loss() -> None:
    """Simulated by the rules of a check, over baselines: about four of five fail at that loss, few at half of it."""
    generator, plan, tests, own = np.random.default_rng(1), Plan(), 40, 8

    def seen(factor: float) -> bool:
        values = generator.lognormal(0.0, 0.2, 120)
        fresh = generator.lognormal(0.0, 0.2, plan.stages[-1])
        fresh *= 1 + factor * past.smallest_loss(values, tests, own, plan)
        for n in plan.stages:
            p = law_p_values(fresh[:n, None], values[:, None])[0]
            if p <= plan.threshold(tests) or p * own >= plan.doubt:
                break
        return bool(p <= plan.threshold(tests))

    assert 0.7 <= np.mean([seen(1.0) for _ in range(150)]) <= 0.9
    assert np.mean([seen(0.5) for _ in range(100)]) < 0.25


def test_clean_replicates_pass_and_a_bug_does_not(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, *others = past.questions(Baseline.load(stored), cells())
    assert others == [[], []]
    assert check(asked, seed=2).verdict == "pass"
    clean = Streams.normal
    monkeypatch.setattr(Streams, "normal", lambda *a, **k: clean(*a, **k) * 0.5**0.5)
    result = check(asked, seed=2)
    assert result.verdict == "regression"
    red = {t.metric for t in result.red if t.algorithm == "ula"}
    assert {"log_sd[0]", "log_sd[1]"} <= red


@pytest.mark.ci
def test_half_a_step_size_is_detected(stored: Path) -> None:
    """By the identity; even without it by the distributions, while the chains are on their way."""
    (problem,) = past.questions(Baseline.load(stored), cells(0.05)).incomparable
    assert problem.startswith("biased-start-gaussian/ula: settings changed")
    short = {"budget": {"iterations": 10}}
    baseline = made(cells(**short))
    half = cells(0.05, **short)
    baseline.cells["biased-start-gaussian/ula"]["identity"] = json.loads(json.dumps(past.identity(half[0])))
    asked, new, incomparable = past.questions(baseline, half)
    assert not new + incomparable
    assert any(t.metric == "mean[0]" for t in check(asked, seed=3).red)


def test_what_is_not_stored_is_new(stored: Path) -> None:
    asked = past.questions(Baseline.load(stored), cells(tasks=["gmm2-2d"]))
    assert asked == ([], ["gmm2-2d/ula", "gmm2-2d/exact"], [])


def test_changes_are_listed_before_they_are_written(stored: Path) -> None:
    old = Baseline.load(stored)
    assert past.changes(old, made(cells(), seed=9)) == []
    lines = past.changes(old, made(cells(0.8), seed=9))
    assert "biased-start-gaussian/ula: settings changed" in lines
    assert any("log_sd[0] by" in line for line in lines)


def test_an_update_leaves_what_has_not_changed(stored: Path) -> None:
    """To the digit: a diff of the file shows changes beyond chance alone."""
    old = Baseline.load(stored)
    same, lines = past.replaced(old, made(cells()[1:], seed=9))
    assert (same, lines) == (old, [])
    both, lines = past.replaced(old, made(cells(0.3), seed=9))
    assert both.cells["biased-start-gaussian/exact"] == old.cells["biased-start-gaussian/exact"]
    assert both.cells["biased-start-gaussian/ula"] != old.cells["biased-start-gaussian/ula"]
    assert any("settings changed" in line for line in lines)


def test_a_file_has_a_line_for_every_statistic(stored: Path) -> None:
    """So that a diff shows which ones have changed."""
    lines = stored.read_text().splitlines()
    for name in ("mean[0]", "log_sd[1]", "sliced_w2"):
        assert sum(f'"{name}":[' in line for line in lines) == 2
    assert not any(line.count(":[") > 1 for line in lines)


def test_rounding_is_far_below_the_spread() -> None:
    values = np.random.default_rng(1).normal(size=100) * 3e-4 + 7
    error = np.abs(np.array(past.rounded(values.tolist())) - values)
    assert error.max() < 3e-6
    assert past.rounded([2.0, 2.0, float("inf")]) == [2.0, 2.0, None]
    shares = [k / 44 for k in (40, 41, 42, 43, 44)] * 8
    assert past.rounded(shares) == shares
    # Heavy tails do not blot out the small values.
    assert past.rounded([1.23456e-3, 1.0, 1e20, 1e30]) == [1.235e-3, 1.0, 1e20, 1e30]


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
    (question,) = past.questions(baseline, cells()[:1]).questions
    values = {name: as_array(x).tolist() for name, x in statistics.items()} | {"sliced_w2": found}
    tests = {t.metric: t for t in decide(question, values, 1e-7)}
    assert (tests["sliced_w2"].verdict in RED) == red
    assert isinstance(question.expected()["score_evaluations"], Fixed)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"format": 1}'])
def test_a_file_that_is_no_baseline(tmp_path: Path, text: str) -> None:
    file = tmp_path / "b.json"
    file.write_text(text)
    with pytest.raises(InputError, match=r"--update|not a baseline"):
        Baseline.load(file)


def test_points_that_are_all_the_same_have_no_spread() -> None:
    """The mean of equal numbers may miss them by rounding, which must not look like a spread of its own."""
    points = torch.full((3, 7, 2), 0.1, dtype=torch.float64) * torch.tensor([1.0, 3.0], dtype=torch.float64)
    points[1, 0, 1] += 1e-3
    points[2] += 1e-16 * torch.randn(7, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = moments(load_task("banana"), points)
    assert found["log_sd[0]"].tolist() == [-math.inf] * 3
    assert found["log_sd[1]"].isfinite().tolist() == [False, True, False]


# -- the command line --------------------------------------------------------------------------------------------

#: A sampler from outside, on one task.
MINE = ("check", "-a", f"{wrong_samplers.__file__}:Langevin", "--iterations", "60", "--seed", "5", "--workers", "0")
ON_GAUSSIAN = (*MINE, "-t", "biased-start-gaussian", "--baseline", "mine.json")


@pytest.mark.ci
def test_a_baseline_of_ones_own(call: Run, tmp_path: Path) -> None:
    """Recorded, compared, changed, extended: the truth questions are asked every time."""
    recorded = call(*ON_GAUSSIAN, "--set", "step_size=0.1", "--update")
    assert recorded.code == 0, recorded.err
    assert list(Baseline.load(tmp_path / "mine.json").cells) == ["biased-start-gaussian/langevin"]

    def against(*arguments: str) -> dict[str, set[str]]:
        document = call(*arguments, "--baseline", "mine.json", "--json").json
        tests = document.pop("tests")
        return document | {o: {t["verdict"] for t in tests if t["oracle"] == o} for o in ("past", "truth")}

    same = against(*MINE, "--set", "step_size=0.1")  # on the tasks of the file
    assert (same["past"], same["new"], same["incomparable"]) == ({"ok"}, [], [])
    assert same["truth"]
    other = call(*ON_GAUSSIAN, "--set", "step_size=0.2")
    assert other.code == 1
    assert "biased-start-gaussian/langevin: settings changed since the baseline was made" in other.err
    elsewhere = against(*MINE, "--set", "step_size=0.1", "-t", "banana")
    assert elsewhere["new"] == ["banana/langevin"]
    again = call(*ON_GAUSSIAN, "--update")
    assert (again.code, "add --yes" in again.err) == (2, True)  # before it measures anything


@pytest.mark.ci
def test_a_sampler_that_got_worse_is_a_regression(call: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that asks again."""
    only = ("check", "-a", "ula", "-t", "biased-start-gaussian", "--baseline", "mine.json", "--workers", "0")
    only = (*only, "--iterations", "60")
    assert call(*only, "--update").code == 0
    clean = Streams.normal
    monkeypatch.setattr(Streams, "normal", lambda *a, **k: clean(*a, **k) * 0.5**0.5)
    worse = call(*only, "--seed", "2")
    assert (worse.code, worse.out.splitlines()[-1].partition(":")[0]) == (1, "regression")
    assert "source: parvibench.baselines.ula" in worse.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-a", "svdg"), "svdg"),
        (("-a", "ula", "-t", "bananna"), "bananna"),
        (("-a", "ula", "--baseline", "nowhere.json"), "no baseline there"),
        (("-a", "nomodule:Nothing"), "nomodule"),
        (("-a", "ula", "--update"), "--baseline FILE"),
        (("--baseline", "b.json", "--update"), "--algorithm"),
        (("-a", "ula", "--suite", "ci"), "--suite"),
        (("-a", "ula", "--exact", "perhaps"), "adapted"),
    ],
)
def test_wrong_input_is_named(arguments: tuple[str, ...], message: str, call: Run) -> None:
    answer = call("check", *arguments)
    assert answer.code == 2
    assert message in answer.err
