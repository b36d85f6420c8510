"""The measurements on a GPU, tried on the CPU: what fails is reported and the rest goes on; a second start resumes."""

import itertools
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import card
import pytest
from torch import Tensor

from parvibench.checks.questions import devices


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


def test_the_headline_is_of_the_rows() -> None:
    rows: list[card.Row] = [
        {"part": "agreement", "name": "ula", "status": "ok"}, {"part": "agreement", "name": "svgd", "status": "failed"},
        {"part": "steps", "name": "ula", "status": "ok", "particles": 100, "times faster": 0.5},
        {"part": "steps", "name": "svgd", "status": "ok", "particles": 100, "times faster": 3.5},
        {"part": "steps", "name": "mala", "status": "failed"},
    ]  # fmt: skip
    said = card.headline(rows)
    assert "1 of 2 algorithms agree" in said
    assert "With 100 particles, the card takes one step 2 times as fast" in said
    assert "with svgd, which gains most, 3.5 times" in said
    assert said.count("\n") == 1


def test_an_algorithm_agrees_with_itself_and_has_a_time() -> None:
    assert "status" not in card.agrees("ula", "cpu")
    assert card.step_times("ula", "cpu", 10, 100, 10)["CPU ms"] > 0


@pytest.mark.parametrize(
    ("which", "harm"),
    [("first", lambda x: x + 1e-3), ("first", lambda x: x * math.nan), ("law", lambda x: x + 2.0),
     ("law", lambda x: x * 3.0), ("law", lambda x: x * math.nan)],
)  # fmt: skip
def test_a_device_that_errs_is_told(
    which: str, harm: Callable[[Tensor], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error planted in what the second of the two devices gives: in a first step, or in the samples."""
    calls, states = itertools.count(), devices._states

    def wrong(*given: Any) -> Iterator[Any]:
        number = next(calls)  # first step here, there; then samples here, there
        for state in states(*given):
            yield state._replace(x=harm(state.x)) if number == {"first": 1, "law": 3}[which] else state

    assert devices.compare("hmc", "cpu").ok(50)
    monkeypatch.setattr(devices, "_states", wrong)
    found = devices.compare("hmc", "cpu")
    assert not found.ok(50)
    assert (which == "law") == (found.difference == 0)


@pytest.mark.ci
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_compiled_steps_have_a_time() -> None:
    """In the mode of the harness: in PyTorch's inference mode the median of SVGD's kernel fails."""
    assert card.step_times("svgd", "cpu", 5, 20, 2, compiled=True)["ms"] > 0


def test_nuts_has_a_time_per_leapfrog_of_a_chain() -> None:
    assert 0 < card.nuts("funnel-10d", 20, "cpu", 10, compiled=False)["us"] < 1e5
