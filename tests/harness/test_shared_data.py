"""A sampler that edits the reference that cells share is reported, and no later cell of its process is judged by it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

#: A process of its own: what is edited, and what metrics derive from it, serves all later tests.
PROGRAM = """
import json, sys
import parvibench as pb
from parvibench.core.algorithm import Algorithm, AlgorithmSettings, ParticleState
from parvibench.core.registry import load_task

class Edits(Algorithm[AlgorithmSettings, ParticleState]):
    "Halves the reference draws of banana."
    name, kind = "edits", "particles"
    def init(self, problem, settings, streams, horizon):
        return ParticleState.start(problem)
    def step(self, problem, settings, state, streams):
        if sys.argv[1] == "edit":
            load_task("banana").reference().draws.mul_(0.5)
        return state

options = dict(replicates=1, budget={"iterations": 3}, workers=0, out=sys.argv[2])
result = pb.run(tasks=["banana"], algorithms=[Edits(), "ula"], **options)
print(json.dumps([[cell.status, cell.reason] for cell in result.cells]))
"""


@pytest.mark.parametrize("edit", ["edit", "leave"])
def test_edited_references_stop_the_process(tmp_path: Path, edit: str) -> None:
    command = [sys.executable, "-c", PROGRAM, edit, str(tmp_path)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    (first, why), (later, refused) = json.loads(shown.stdout.splitlines()[-1])
    assert [first, later] == (["crashed"] * 2 if edit == "edit" else ["ok"] * 2)
    if edit == "edit":
        assert "changed reference or data" in why
        assert "edits on banana changed data" in refused
