"""The steps of CONTRIBUTING, followed to the letter: one file and `make index`, and everything passes."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import Run

ROOT = Path(__file__).parents[2]
TEMPLATE = ROOT / "baselines" / "_template.py"
TASK = '''"""A Gaussian with unequal sides."""

from dataclasses import dataclass

import torch

from parvibench.core.exact import ExactTask
from parvibench.core.target import Target


class Normal(Target):
    dim = 2

    def log_density(self, x, batch=None):
        return -0.5 * (x[..., 0] ** 2 + 4 * x[..., 1] ** 2)


@dataclass(frozen=True, kw_only=True)
class NormalTask(ExactTask):
    def target(self, replicates, device, dtype):
        return Normal()

    def exact(self, n, generator):
        return torch.randn(n, 2, generator=generator, dtype=torch.float64) / torch.tensor([1.0, 2.0])


MINE = NormalTask(
    name="mine-2d", summary="a Gaussian", dim=2, tags=frozenset({"2d", "exact"}), citation="ours"
)
'''

pytestmark = pytest.mark.skipif(not TEMPLATE.is_file(), reason="needs a checkout")


def run(folder: Path, *words: str) -> str:
    done = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the checkout that imports itself, whatever is installed: large files are links."""
    for name in ("parvibench", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for name in ("tasks", "baselines"):
        (tmp_path / name).mkdir()
        for item in (ROOT / name).iterdir():
            (tmp_path / name / item.name).symlink_to(item)
        (tmp_path / "parvibench" / name).symlink_to(tmp_path / name)
    return tmp_path


def test_the_template_runs_as_a_plug_in(call: Run, tmp_path: Path) -> None:
    shutil.copy(TEMPLATE, tmp_path / "mine.py")
    words = ["--task", "banana", "--algorithm", "mine.py:Template", "--replicates", "2", "--workers", "0"]
    (cell,) = call("run", *words, "--budget", "iterations=20", "--json").json["cells"]
    assert cell["status"] == "ok"


def test_an_algorithm_and_a_task_take_one_file_and_make_index(checkout: Path) -> None:
    text = TEMPLATE.read_text().replace('"template"', '"mine"').replace("class Template(", "class Mine(")
    (checkout / "baselines" / "mine.py").write_text(text)
    (checkout / "tasks" / "mine.py").write_text(TASK)
    run(checkout, "-m", "parvibench.core.indexing")
    index = json.loads((checkout / "parvibench" / "core" / "index.json").read_text())
    assert list(index["algorithms"])[-1] == "mine"
    assert index["tasks"]["mine-2d"]["reference"] == "exact draws"
    files = ["baselines/test_sampler_contract.py", "tasks/test_task_table.py", "core/test_indexing.py"]
    options = ["-q", "-n", "0", "-p", "no:cacheprovider", "-k", "mine or fresh or owes or ships"]
    assert " passed" in run(checkout, "-m", "pytest", *options, *(f"tests/{file}" for file in files))
    question = (
        "from parvibench.checks.selection import select_questions\n"
        "from parvibench.checks.outcomes import decide\n"
        "mine = [q for q in select_questions().truths if q.algorithm == 'mine']\n"
        "assert len(mine) == 4\n"
        "for q in mine: assert all(t.verdict == 'ok' for t in decide(q, q.measure(range(20), 5), 1e-6)), q\n"
    )
    run(checkout, "-c", question)
