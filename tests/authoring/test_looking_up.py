"""Names on the command line: singulars, completion, what `show` says and writes, `--set` in every command."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import Run

from parvibench.cli.shared import names_of, parse_settings
from parvibench.core.errors import InputError


def test_singulars_and_plurals_are_the_same(call: Run) -> None:
    assert call("list", "task", "--json").json == call("list", "tasks", "--json").json
    assert call("show", "suites", "quick", "--json").json == call("show", "suite", "quick", "--json").json


def test_a_suite_is_shown(call: Run) -> None:
    shown = call("show", "suite", "toy", "--json").json
    assert "banana" in shown["tasks"]
    assert shown["algorithms"]["svgd"]
    assert call("show", "suite", "quick", "--json").json["tune"]["step_size"]
    assert "banana" in call("show", "suite", "toy").out
    assert "did you mean 'quick'" in call("show", "suite", "qick").err


def test_show_writes_only_when_asked(call: Run, tmp_path: Path) -> None:
    assert call("show", "task", "banana").code == 0
    assert list(tmp_path.iterdir()) == []
    assert call("show", "task", "banana", "--figure", "b.svg").code == 0
    assert [p.name for p in tmp_path.iterdir()] == ["b.svg"]
    assert "only a task has a corner plot" in call("show", "metric", "ksd", "--figure", "m.svg").err


def test_names_are_completed() -> None:
    assert names_of("task")("bana") == ["banana", "banana-ksivi-code"]
    assert "svgd" in names_of("algorithm")("sv")
    assert "toy" in names_of("suite")("t")
    assert "ksd" in names_of("metric")("k")


@pytest.mark.ci
@pytest.mark.parametrize(
    ("typed", "named"),
    [
        ("show algorithm svg", "svgd"),
        ("evaluate --task gmm5-2", "gmm5-2d"),
        ("evaluate --metric sliced", "sliced_w2"),
        ("reference build gmm5-2", "gmm5-2d"),
        ("data fetch boston", "bostonHousing"),
    ],
)
def test_a_shell_is_told_the_names(typed: str, named: str) -> None:
    """As bash asks for them."""
    words = f"parvibench {typed}"
    asked = {"_PARVIBENCH_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    program = Path(sys.executable).with_name("parvibench")
    done = subprocess.run([program], capture_output=True, text=True, env={**os.environ, **asked})
    assert named in done.stdout.split(), done.stderr


def test_settings_are_given_the_same_way_everywhere(call: Run, tmp_path: Path) -> None:
    assert parse_settings(["step_size=0.1", "b.c.d=[1]"], ["mala"]) == {"mala": {"step_size": 0.1}, "b.c": {"d": [1]}}
    with pytest.raises(InputError, match="expected ALGORITHM"):
        parse_settings(["step_size=0.1"], ["mala", "ula"])
    assert call("new", "algorithm", "mine").code == 0
    for given in ("step_size=-1", "mine.step_size=-1", "mine.py:Mine.step_size=-1"):
        for words in (["run", "--task", "banana"], ["check"], ["tune", "quick"]):
            answer = call(*words, "-a", "mine.py:Mine", "--set", given)
            assert (answer.code, "mine.step_size: Input should be greater than 0" in answer.err) == (2, True), (
                answer.err
            )
    answer = call("check", "-a", "mala", "--set", "step_size=-1")
    assert (answer.code, "mala.step_size: Input should be greater than 0" in answer.err) == (2, True), answer.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["check", "-a", "mala", "--baseline", "gone.json"], "gone.json: no baseline there"),
        (["tune", "gone.yaml"], "gone.yaml: no such file"),
        (["report", "--out", "gone"], "gone: no runs here"),
        (["run", "--task", "banana", "-a", "gone.py:X"], "no such file: gone.py"),
        (["new", "task", "mine", "--to", "gone"], "--to gone: no such folder"),
    ],
)
def test_what_is_missing_is_named_by_its_path(call: Run, words: list[str], told: str) -> None:
    answer = call(*words)
    assert (answer.code, told in answer.err, "Traceback" in answer.err) == (2, True, False), answer.err
