"""The template runs as a plug-in; as a built-in: ``tests/test_contributing.py``."""

import shutil
from pathlib import Path

import pytest
from command_line import Run

TEMPLATE = Path(__file__).parents[2] / "baselines" / "_template.py"


@pytest.mark.skipif(not TEMPLATE.is_file(), reason="needs a checkout")
def test_the_template_runs_as_a_plug_in(call: Run, tmp_path: Path) -> None:
    shutil.copy(TEMPLATE, tmp_path / "mine.py")
    words = ["--task", "banana", "--algorithm", "mine.py:Template", "--replicates", "2", "--workers", "0"]
    (cell,) = call("run", *words, "--budget", "iterations=20", "--json").json["cells"]
    assert cell["status"] == "ok"
