"""Paired ratios and the verdicts on them."""

from types import SimpleNamespace

import pytest
import watch
from jobs import JOBS, METRIC_JOBS
from pairing import Run, paired_ratio


def spinning(turns: int, work: float) -> Run:
    """A program whose step costs ``turns`` and does that much work."""

    def run(steps: int) -> float:
        sum(range(steps * turns))
        return steps * work

    return run


@pytest.mark.parametrize(("work", "low", "high"), [(1.0, 3.5, 7.0), (5.0, 0.7, 1.4)])
def test_ratios_are_of_time_for_the_same_work(work: float, low: float, high: float) -> None:
    """Five times the time for a step: a ratio of 5, or of 1 where the step does five times the work."""
    ratio = paired_ratio(spinning(2000, 1.0), spinning(10_000, work), seconds=0.01, rounds=9)
    assert low < ratio.value < high
    assert ratio.low <= ratio.value <= ratio.high


@pytest.mark.parametrize(
    ("ratios", "fine"),
    [([3.0], True), ([2.4], True), ([2.2, 2.2, 2.2], False), ([2.2, 1.0, 3.0], True), ([2.2, 2.4], True)],
)
def test_a_job_fails_when_all_its_attempts_are_30_percent_slower(
    monkeypatch: pytest.MonkeyPatch, ratios: list[float], fine: bool
) -> None:
    left = iter(ratios)
    monkeypatch.setattr(watch, "attempt", lambda job: next(left))
    assert watch.judge(SimpleNamespace(name="job"), baseline=3.0) == (fine, ratios)


def test_the_baseline_holds_just_the_watched_jobs() -> None:
    watched = {job.name for job in (*JOBS, *METRIC_JOBS) if job.watched}
    assert set(watch.json.loads(watch.BASELINE.read_text())["ratios"]) == watched
    assert not any(job.missing for job in watch.watched())
