"""The measurements on a GPU, tried on the CPU: what fails is reported and the rest goes on; a second start resumes."""

from pathlib import Path
from typing import Any

import card
import pytest


def fails() -> card.Row:
    raise RuntimeError("CUDA error: device-side assert triggered\nmore")


def lacks() -> card.Row:
    import no_such_package  # noqa: F401

    return {}


def test_what_fails_is_reported_and_the_rest_goes_on() -> None:
    found = card.Together((
        card.Item("a", "bad", fails), card.Item("a", "lacking", lacks), card.Item("a", "good", lambda: {"ms": 1.0}),
    )).run(lambda news: None)  # fmt: skip
    assert [row["status"] for row in found] == ["failed", "skipped", "ok"]
    assert found[0]["reason"] == "RuntimeError: CUDA error: device-side assert triggered"
    assert found[1]["reason"] == "no_such_package is not installed"


@pytest.fixture
def facts() -> dict[str, Any]:
    return card.environment("cpu", card.FAST)


def test_a_second_start_measures_what_is_missing(tmp_path: Path, facts: dict[str, Any]) -> None:
    report = card.Report(tmp_path, facts, fresh=False)
    report.add([
        {"part": "steps", "name": "ula", "status": "ok", "ms": 0.5},
        {"part": "steps", "name": "svgd", "status": "failed", "reason": "hung"},
    ])  # fmt: skip
    again = card.Report(tmp_path, facts, fresh=False)
    assert again.done("steps: ula")
    assert not again.done("steps: svgd")
    assert not card.Report(tmp_path, facts | {"stamp": ["another card"]}, fresh=False).rows
    assert "| ula | 0.5 |" in (tmp_path / "README.md").read_text()
    assert "- steps: svgd: failed, hung" in (tmp_path / "README.md").read_text()


def test_an_algorithm_agrees_with_itself_and_has_a_time() -> None:
    assert "status" not in card.agrees("ula", "cpu")
    assert card.step_times("ula", "cpu", 10)["ms"] > 0


def test_nuts_has_a_time_per_leapfrog_of_a_chain() -> None:
    assert 0 < card.nuts("funnel-10d", 20, "cpu", 10, compiled=False)["us"] < 1e5
