"""The commands of CONTRIBUTING, run to the letter in a copy of the checkout: a new sampler, task and metric pass.

The type checker of ``make lint`` is left out: it takes minutes.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CONTRIBUTING, MAKEFILE = ROOT / "CONTRIBUTING.md", ROOT / "Makefile"
BIN = Path(sys.executable).parent
TASK = '''"""A Gaussian with unequal sides."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from parvibench.core.exact import ExactTask
from parvibench.core.target import Target
from parvibench.core.task import Facts

SD = torch.tensor([1.0, 0.5], dtype=torch.float64)


class Normal(Target):
    """N(0, diag(1, 1/4))."""

    dim = 2

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Unnormalised: (R, N, 2) -> (R, N)."""
        return -0.5 * (x / SD.to(x)).square().sum(-1)


@dataclass(frozen=True, kw_only=True)
class NormalTask(ExactTask):
    """The Gaussian as a task."""

    def target(self, replicates: Sequence[int], device: torch.device | str, dtype: torch.dtype) -> Normal:
        """Its density."""
        return Normal()

    def exact(self, n: int, generator: Generator) -> Tensor:
        """Independent draws, (n, 2)."""
        return SD * torch.randn(n, 2, generator=generator, dtype=torch.float64)


NEWCOMER = NormalTask(
    name="newcomer-2d",
    summary="a Gaussian with unequal sides",
    dim=2,
    tags=frozenset({"2d", "exact"}),
    citation="ours",
    facts=Facts(mean=torch.zeros(2, dtype=torch.float64), sd=SD),
)
'''
METRIC = '''"""Distance between medians."""

import torch
from torch import Tensor

from parvibench.core.metric import Context, metric


@metric("lower", "x", "reference", "distance between the coordinates' medians of samples and reference")
def newcomer(samples: Tensor, context: Context) -> Tensor:
    """Euclidean distance between the coordinates' medians of samples and reference.

    Args:
        samples: (R, n, D), in units of x.
        context: needs a reference.

    Returns:
        (R,) in units of x; lower is better.

    >>> newcomer(x, context)
    tensor([1.4142], dtype=torch.float64)
    """
    rows = [context.reference_rows(r) for r in range(len(samples))]
    return (samples.median(1).values - torch.stack([r.median(0).values for r in rows])).norm(dim=1)
'''
METRIC_TEST = '''"""The distance between medians."""

import torch

from parvibench.metrics.newcomer import newcomer


def test_a_shift_is_its_length(make_context) -> None:
    draws = torch.arange(6.0, dtype=torch.float64).view(3, 2)
    assert newcomer(draws[None] + torch.tensor([3.0, 4.0]), make_context(2, draws)).tolist() == [5.0]
'''

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not CONTRIBUTING.is_file(), reason="needs a checkout")]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the checkout that imports itself; files of tasks and baselines are links."""
    for name in ("parvibench", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for name in ("tasks", "tasks/references", "baselines"):
        (tmp_path / name).mkdir()
        for item in (ROOT / name).iterdir():
            if item.is_file():
                (tmp_path / name / item.name).symlink_to(item)
    for name in ("tasks", "baselines"):
        (tmp_path / "parvibench" / name).symlink_to(tmp_path / name)
    return tmp_path


def commands(kind: str, name: str) -> list[list[str]]:
    """The words of every command that CONTRIBUTING gives for adding one of a kind."""
    section = re.search(rf"^## How do I add {kind}\?\n+```sh\n(.*?)^```$", CONTRIBUTING.read_text("utf-8"), re.M | re.S)
    assert section
    return [shlex.split(line.replace("NAME", name)) for line in section[1].splitlines()]


def recipe(target: str, *variables: str) -> list[list[str]]:
    """The words of every command of a target of the Makefile."""
    lines = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE.read_text("utf-8"), re.M)
    assert lines, f"the Makefile has no target {target}"
    text = lines[1].replace("$(BIN)/", "")
    for key, value in (variable.split("=") for variable in variables):
        text = text.replace(f"$({key})", value)
    return [shlex.split(re.sub(r"\$\(\w+\)", "", line)) for line in text.splitlines()]


def follow(folder: Path, words: list[str]) -> str:
    """Run a command of CONTRIBUTING in the copy; what it prints."""
    if words[0] == "make":
        return "".join(follow(folder, line) for line in recipe(*words[1:]) if line[0] != "mypy")
    program = {
        "python": [sys.executable],
        "parvibench": [sys.executable, "-c", "from parvibench.cli import main; main()"],
    }
    options = ["-q", "-n", "0", "-p", "no:cacheprovider"] if words[1:3] == ["-m", "pytest"] else []
    call = [*program.get(words[0], [shutil.which(words[0], path=f"{BIN}{os.pathsep}{os.environ['PATH']}")]), *words[1:]]
    environment = os.environ | {"PYTHONPATH": str(folder), "NO_COLOR": "1"}
    done = subprocess.run(
        [*call, *options], cwd=folder, env=environment, capture_output=True, text=True, timeout=3000, check=False
    )
    assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout}\n{done.stderr}"
    if options:
        assert " passed" in done.stdout, f"{shlex.join(words)}: no test was run"
    return done.stdout


def test_a_sampler(checkout: Path) -> None:
    copied, *rest = commands("an algorithm", "newcomer")
    follow(checkout, copied)
    file = checkout / "baselines" / "newcomer.py"
    text = file.read_text("utf-8")
    file.write_text(text.replace('"psgld"', '"newcomer"').replace("class PSGLD(", "class Newcomer("), "utf-8")
    for words in rest:
        follow(checkout, words)
    follow(checkout, ["python", "-m", "pytest", "tests/core/test_indexing.py", "-k", "fresh"])


def test_a_task(checkout: Path) -> None:
    (checkout / "tasks" / "newcomer.py").write_text(TASK, "utf-8")
    for words in commands("a task", "newcomer-2d"):
        follow(checkout, words)
    assert (checkout / "tasks" / "references" / "newcomer-2d.npz").is_file()


def test_a_metric(checkout: Path) -> None:
    (checkout / "parvibench" / "metrics" / "newcomer.py").write_text(METRIC, "utf-8")
    (checkout / "tests" / "metrics" / "test_newcomer.py").write_text(METRIC_TEST, "utf-8")
    table = checkout / "tests" / "metrics" / "test_every_metric.py"
    line = '    "newcomer": "test_newcomer.py::test_a_shift_is_its_length",\n'
    text = table.read_text("utf-8")
    table.write_text(text.replace("KNOWN_ANSWERS = {\n", f"KNOWN_ANSWERS = {{\n{line}"), "utf-8")
    for words in commands("a metric", "newcomer"):
        follow(checkout, words)
    follow(checkout, ["python", "-m", "pytest", "tests/metrics/test_newcomer.py"])
