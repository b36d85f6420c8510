"""Planted bugs: they apply, they are quiet, and the import of one module alone is changed by them."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from planted.catalogue import PlantedBug, bugs_named, catalogue
from planted.dependence import depends_on, modules_behind
from planted.planting import plant
from planted_bugs import ENVIRONMENT, BugResult, check_planted, table

from parvibench.checks.questions import Expected, Oracle, Question, Values
from parvibench.core.errors import InputError, UnknownNameError
from parvibench.core.registry import load_task

TOY = PlantedBug("toy", "toys", "Nothing.", "core.errors", "a + b", "a - b")


def in_a_process(code: str) -> Any:
    """What a fresh process prints as JSON."""
    command, environment = [sys.executable, "-c", code], os.environ | ENVIRONMENT
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return json.loads(done.stdout)


@pytest.mark.parametrize("bug", catalogue(), ids=lambda bug: bug.name)
def test_a_bug_applies_and_changes_what_the_module_does(bug: PlantedBug) -> None:
    found = find_spec(bug.full_module)
    source = Path(found.origin).read_text(encoding="utf-8")
    planted = bug.planted(source)
    compile(planted, found.origin, "exec")
    assert ast.dump(ast.parse(planted)) != ast.dump(ast.parse(source))


def test_the_catalogue_is_broad_and_says_what_is_wrong() -> None:
    names = [bug.name for bug in catalogue()]
    assert len(set(names)) == len(names) >= 36
    changes = {(bug.full_module, bug.old, bug.new) for bug in catalogue()}
    assert len(changes) == len(names)
    assert len({bug.family for bug in catalogue()}) >= 10
    assert all(bug.summary.endswith(".") for bug in catalogue())


@pytest.mark.parametrize(("source", "times"), [("x = a * b", 0), ("x = a + b\ny = a + b", 2)])
def test_a_text_that_is_not_there_once_is_refused(source: str, times: int) -> None:
    with pytest.raises(InputError, match=rf"'toy'.*once, it does {times} times:\na \+ b"):
        TOY.planted(source)


def test_an_unknown_bug_is_refused_before_anything_starts() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'ula-noise'"):
        check_planted(1, 0, ["ula-nose"])
    assert [bug.name for bug in bugs_named(["iaf-mask", "ula-noise"])] == ["iaf-mask", "ula-noise"]


def test_a_module_that_is_imported_cannot_be_planted() -> None:
    with pytest.raises(RuntimeError, match="fresh process"):
        plant(TOY)


PLANTED = """
import json, sys
from importlib.util import find_spec
from pathlib import Path
from planted.catalogue import PlantedBug
from planted.planting import plant

plant(PlantedBug("toy", "toys", "The second part of the score has lost its sign.", "tasks.banana", "- g1, -g2]", "- g1, g2]"))
import torch
from parvibench.core.registry import load_task
from parvibench.tasks import banana

x = torch.tensor([[[0.5, 0.2]]], dtype=torch.float64, requires_grad=True)
target = load_task("banana").target([0], "cpu", torch.float64)
log_density = target.log_density(x)
log_density.sum().backward()
print(json.dumps({
    "score": target.score(x.detach()).flatten().tolist(),
    "gradient": x.grad.flatten().tolist(),
    "file": banana.__file__,
    "modules": [name for name in sys.modules if name.startswith("parvibench.")],
}))
"""


def test_a_planted_process_runs_the_bug_and_leaves_the_files_alone() -> None:
    seen = in_a_process(PLANTED)
    score, gradient = seen["score"], seen["gradient"]
    assert score == pytest.approx([gradient[0], -gradient[1]], rel=1e-12)
    found = find_spec("parvibench.tasks.banana")
    assert seen["file"] == found.origin
    assert "- g1, g2]" not in Path(seen["file"]).read_text()
    # No compiled copy of the bug is left behind either: this process sees none of it.
    x = torch.tensor([[[0.5, 0.2]]], dtype=torch.float64)
    clean = load_task("banana").target([0], "cpu", torch.float64).score(x)
    assert clean[0, 0, 1] == pytest.approx(gradient[1])
    # The modules imported for a task are those that its sources name.
    loaded = {name for name in seen["modules"] if not name.startswith("parvibench.checks")}
    packages = {"parvibench.core", "parvibench.tasks"}
    expected = modules_behind("parvibench.tasks.banana") | modules_behind("parvibench.core.registry")
    assert loaded <= expected | packages


@dataclass(frozen=True)
class Asked(Question):
    """A question that measures nothing."""

    task: str
    algorithm: str
    oracle: Oracle = "truth"

    def measure(self, replicates: range, seed: int) -> Values:
        raise NotImplementedError

    def expected(self) -> Mapping[str, Expected]:
        raise NotImplementedError


def test_a_bug_is_seen_by_what_imports_its_module() -> None:
    behind = modules_behind("parvibench.baselines.sr_uld")
    assert {"parvibench.baselines.srld", "parvibench.baselines.uld", "parvibench.core.streams"} <= behind
    assert "parvibench.baselines.svgd" not in behind

    def seen(module: str, task: str, algorithm: str) -> bool:
        return depends_on(Asked(task, algorithm), f"parvibench.{module}")

    assert seen("baselines.uld", "banana", "sr-uld")
    assert not seen("baselines.uld", "banana", "sgld")
    assert seen("kernels.radial", "banana", "ksivi")
    assert not seen("kernels.radial", "banana", "ula")
    assert seen("tasks.banana", "banana", "svgd")
    assert not seen("tasks.banana", "linear-regression", "svgd")
    assert not seen("baselines.uld", "banana", "density")  # a question about the task alone
    assert seen("tasks.ica", "something of its own", "sgld")
    for house in ("core.streams", "harness.run.recorder", "metrics.mmd", "kernels.gram"):
        assert seen(house, "banana", "sgld")


def test_the_table_counts_what_was_caught() -> None:
    ula, sgld, w2 = bugs_named(["ula-noise", "sgld-half-step", "w2-no-root"])
    results = [
        BugResult(ula, True, "truth banana/ula mean | sd", 40, 12.4),
        BugResult(sgld, False, seconds=70.0, reason="all tests passed"),
        BugResult(w2, True, "past banana/sgld w2", 20, 3.0),
    ]
    text = table(reversed(results))
    assert text.startswith("2 of 3 planted bugs were caught.\n")
    assert "| Langevin | 2 | 1 |" in text
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    # in the catalogue's order
    assert [row.split("`")[1] for row in rows] == [result.bug.name for result in results]
    assert rows[0].endswith("| truth banana/ula mean \\| sd | 40 | 12 |")
    assert "**missed**: all tests passed |  | 70 |" in rows[1]
