"""The measurements on a GPU, tried on the CPU: what fails is reported and the rest goes on; a second start resumes."""

import itertools
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import card
import pytest
import torch
from torch import Tensor


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


@pytest.mark.parametrize("harm", [lambda x: x, lambda x: x + 1e-3, lambda x: x * math.nan])
def test_a_device_that_errs_is_told(harm: Callable[[Tensor], Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    """An error planted in the first step on the second of the two devices."""
    take, calls = card.take_steps, itertools.count()

    def wrong(*given: Any) -> Iterator[Any]:
        second = next(calls) == 1
        for state, info in take(*given):
            yield state._replace(x=harm(state.x)) if second else state, info

    monkeypatch.setattr(card, "take_steps", wrong)
    row = card.agrees("hmc", "cpu")
    assert ("status" in row) is not torch.equal(harm(torch.ones(1)), torch.ones(1))


@pytest.mark.parametrize(("name", "plain"), [("svgd", True), ("sivi", False), ("nuts", None)])
def test_steps_have_times(name: str, plain: bool | None) -> None:
    row = card.step_times("gmm5-2d", name, "cpu", 5, 20, 2)
    assert min(row["ms"], row["CPU ms"], row.get("compiled ms", 1)) > 0
    assert "status" not in row
    assert plain is None or row["plain"] == "replays are not faster" or bool(row["plain"]) is plain  # on a busy machine


def test_nuts_has_a_time_per_leapfrog_of_a_chain() -> None:
    assert 0 < card.nuts("funnel-10d", 20, "cpu", 10, compiled=False)["us"] < 1e5
