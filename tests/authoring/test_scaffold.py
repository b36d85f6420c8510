"""`parvibench new`: what is written runs as it is, and its test passes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import Run


def test_a_new_algorithm_runs_and_passes_its_test(call: Run, tmp_path: Path) -> None:
    answer = call("new", "algorithm", "my-sampler2")
    assert answer.out.split() == ["my_sampler2.py", "test_my_sampler2.py"]
    assert len((tmp_path / "my_sampler2.py").read_text().splitlines()) < 40
    assert "parvibench run --task banana --algorithm my_sampler2.py:MySampler2" in answer.err
    (cell,) = call("run", "--task", "banana", "-a", "my_sampler2.py:MySampler2", "--replicates", "2", "--budget", "iterations=50", "--workers", "0", "--json").json["cells"]  # fmt: skip
    assert (cell["label"], cell["status"]) == ("my-sampler2", "ok")
    done = pytest_in(tmp_path, "test_my_sampler2.py")
    assert done.returncode == 0, done.stdout
    source = (tmp_path / "my_sampler2.py").read_text()
    (tmp_path / "my_sampler2.py").write_text(source.replace("x + eta", "x - eta"))
    done = pytest_in(tmp_path, "test_my_sampler2.py")
    assert done.returncode == 1
    assert "regression" in done.stdout


def test_a_new_task_runs_and_passes_its_tests(call: Run, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    answer = call("new", "task", "My_posterior", "--to", "there")
    assert answer.out.split() == ["there/my_posterior.py", "there/test_my_posterior.py"]
    assert len((tmp_path / "there/my_posterior.py").read_text().splitlines()) < 40
    done = pytest_in(tmp_path / "there", "test_my_posterior.py")
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


def pytest_in(folder: Path, file: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-W", "error", file]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, env={**os.environ, "COLUMNS": "120"})


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["algorithm", "svgd"], "there is an algorithm of that name already"),
        (["task", "banana"], "there is a task of that name already"),
        (["algorithm", "../x"], "a name has letters, digits and single hyphens"),
        (["algorithm", "9lives"], "a name has letters, digits and single hyphens"),
        (["metric", "x"], "not one of algorithm, task"),
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
