"""`parvibench new`: what is written runs as it is, and its test passes."""

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import Run


@pytest.mark.ci
def test_a_new_algorithm_runs_and_passes_its_test(call: Run, tmp_path: Path) -> None:
    answer = call("new", "algorithm", "my-sampler2")
    assert answer.out.split() == ["my_sampler2.py", "test_my_sampler2.py"]
    assert len((tmp_path / "my_sampler2.py").read_text().splitlines()) < 40
    assert "parvibench run --task banana --algorithm my_sampler2.py:MySampler2" in answer.err
    (cell,) = call("run", "--task", "banana", "-a", "my_sampler2.py:MySampler2", "--replicates", "2", "--budget", "iterations=50", "--workers", "0", "--json").json["cells"]  # fmt: skip
    assert (cell["label"], cell["status"]) == ("my-sampler2", "ok")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "test_my_sampler2.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_test_of_a_new_algorithm_finds_a_wrong_sign(
    call: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call("new", "algorithm", "uphill")
    file = tmp_path / "uphill.py"
    file.write_text(file.read_text().replace("x + eta", "x - eta"))
    (marked,) = loaded("test_uphill", monkeypatch).test_it_samples_what_it_should.pytestmark
    checks = {param.id: param.values[0] for param in marked.args[1]}
    with pytest.raises(pytest.fail.Exception, match="WRONG"):
        checks["moments on tilted"]()


@pytest.mark.ci
def test_a_new_task_passes_its_tests(call: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "there").mkdir()
    answer = call("new", "task", "My_posterior", "--to", "there")
    assert answer.out.split() == ["there/my_posterior.py", "there/test_my_posterior.py"]
    assert len((tmp_path / "there/my_posterior.py").read_text().splitlines()) < 40
    monkeypatch.chdir(tmp_path / "there")
    tests = loaded("test_my_posterior", monkeypatch)
    tests.test_draws_and_score_are_of_one_law()
    tests.test_a_sampler_runs_on_it(tmp_path / "store")
    words = ["--replicates", "1", "--budget", "iterations=5", "--workers", "0", "--json"]
    (cell,) = call("run", "--task", "my_posterior.py:MY_POSTERIOR", "-a", "mala", *words).json["cells"]
    assert (cell["task"], cell["status"]) == ("My_posterior", "ok")


def test_the_test_of_a_new_task_finds_a_wrong_density(
    call: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call("new", "task", "askew")
    file = tmp_path / "askew.py"
    file.write_text(file.read_text().replace("- 0.5 * w.square()", "- 0.55 * w.square()"))
    with pytest.raises(AssertionError):
        loaded("test_askew", monkeypatch).test_draws_and_score_are_of_one_law()


def loaded(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of this folder."""
    monkeypatch.syspath_prepend(Path.cwd())
    return importlib.import_module(name)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["algorithm", "svgd"], "there is an algorithm of that name already"),
        (["task", "banana"], "there is a task of that name already"),
        (["algorithm", "../x"], "a name has letters, digits and single hyphens"),
        (["algorithm", "9lives"], "a name has letters, digits and single hyphens"),
        (["metric", "x"], "not one of 'algorithm', 'task'"),
        (["algorithm", "x", "--to", "nowhere"], "--to nowhere: no such folder"),
        (["algorithm", "twice"], "twice.py is there already; nothing is written"),
    ],
)
def test_what_cannot_be_written_is_told(call: Run, tmp_path: Path, words: list[str], told: str) -> None:
    (tmp_path / "twice.py").write_text("mine")
    answer = call("new", *words)
    assert answer.code == 2
    assert told in " ".join(answer.err.split())
    assert [p.name for p in tmp_path.iterdir()] == ["twice.py"]
