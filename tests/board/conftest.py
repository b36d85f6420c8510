"""A small board of the suite `quick`, a run of others, and its archive."""

import shutil
from pathlib import Path

import pytest

import parvibench as pb
from parvibench.api import stores as api
from parvibench.api.report import write

PLUGIN = '''"""A chain."""

import math
from typing import NamedTuple

from torch import Tensor

from parvibench.core.algorithm import Algorithm, SteppedSettings


class State(NamedTuple):
    """Positions."""

    x: Tensor


class Mine(Algorithm[SteppedSettings, State]):
    """Unadjusted Langevin."""

    name, kind = "mine", "chains"
    summary, citation = "a chain", "none"

    def init(self, problem, settings, streams, horizon):
        """Start."""
        return State(problem.init())

    def step(self, problem, settings, state, streams):
        """Step."""
        x, eta = state.x, settings.step_size
        return State(x + eta * problem.score(x) + math.sqrt(2 * eta) * streams.normal("noise", x.shape[1:]))
'''


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`reports/quick`, a board with one method; `theirs`, a store with a built-in method and the plug-in `mine.py`."""
    folder = tmp_path_factory.mktemp("board")
    (folder / "mine.py").write_text(PLUGIN)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        own = pb.run("quick", tasks=["banana"], algorithms=["ula"], workers=0, tracking=False, out="own")
        write(own, folder / "reports" / "quick", compact=True)
        (folder / "reports" / "quick" / "index.html").unlink()  # its picture of samples, which the archive lacks
        api.write_board(folder / "reports" / "quick")
        pb.run(
            "quick", tasks=["banana"], algorithms=["mala", "mine.py:Mine"], settings={"mine": {"step_size": 0.002}},
            workers=0, tracking=False, out="theirs",
        )  # fmt: skip
        api.submit("theirs", "theirs.zip", name="Theirs <b>", contact="them@example.org", warn=print)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of `made`, as the working directory."""
    copy = tmp_path / "board"
    shutil.copytree(made, copy)
    monkeypatch.chdir(copy)
    return copy
