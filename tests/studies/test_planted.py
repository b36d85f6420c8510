"""Planted bugs: they apply, they are quiet, and the import of one module alone is changed by them."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from planted.catalogue import Mutant, catalogue, select
from planted.planting import plant
from planted.reach import modules_behind, reaches
from planted.study import MutantResult, mutants_table, run_mutants

from parvibench.check.past.replicates import TIME, CellQuestion, DensityQuestion
from parvibench.check.questions import Expected, Oracle, Question, Values
from parvibench.check.selection import select as select_questions
from parvibench.core.errors import InputError, UnknownNameError

TOY = Mutant("toy", "toys", "Nothing.", "core.errors", "a + b", "a - b")


def in_a_process(code: str) -> object:
    """What a fresh process prints as JSON."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("mutant", catalogue(), ids=lambda mutant: mutant.name)
def test_a_bug_applies_and_changes_what_the_module_does(mutant: Mutant) -> None:
    found = find_spec(mutant.place)
    assert found is not None
    assert found.origin is not None
    source = Path(found.origin).read_text(encoding="utf-8")
    planted = mutant.planted(source)
    compile(planted, found.origin, "exec")
    assert ast.dump(ast.parse(planted)) != ast.dump(ast.parse(source))


def test_the_catalogue_is_broad_and_says_what_is_wrong() -> None:
    names = [mutant.name for mutant in catalogue()]
    assert len(set(names)) == len(names) >= 36
    changes = {(mutant.place, mutant.old, mutant.new) for mutant in catalogue()}
    assert len(changes) == len(names)
    assert len({mutant.family for mutant in catalogue()}) >= 10
    assert all(mutant.summary.endswith(".") for mutant in catalogue())


@pytest.mark.parametrize(("source", "times"), [("x = a * b", 0), ("x = a + b\ny = a + b", 2)])
def test_a_text_that_is_not_there_once_is_refused(source: str, times: int) -> None:
    with pytest.raises(InputError, match=rf"'toy'.*once, it does {times} times:\na \+ b"):
        TOY.planted(source)


def test_an_unknown_bug_is_refused_before_anything_starts() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'ula-noise'"):
        run_mutants(1, 0, ["ula-nose"])
    assert [mutant.name for mutant in select(["iaf-mask", "ula-noise"])] == ["iaf-mask", "ula-noise"]


def test_a_module_that_is_imported_cannot_be_planted() -> None:
    with pytest.raises(RuntimeError, match="fresh process"):
        plant(TOY)


PLANTED = """
import json, sys
from importlib.util import find_spec
from pathlib import Path
from planted.catalogue import Mutant
from planted.planting import plant

plant(Mutant("toy", "toys", "The second part of the score has lost its sign.", "tasks.banana", "- g1, -g2]", "- g1, g2]"))
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
    assert isinstance(seen, dict)
    (score, gradient) = seen["score"], seen["gradient"]
    assert score == pytest.approx([gradient[0], -gradient[1]], rel=1e-12)
    found = find_spec("parvibench.tasks.banana")
    assert found is not None
    assert seen["file"] == found.origin
    assert "- g1, g2]" not in Path(seen["file"]).read_text()
    # No compiled copy of the bug is left behind either: this process sees none of it.
    import torch

    from parvibench.core.registry import load_task

    x = torch.tensor([[[0.5, 0.2]]], dtype=torch.float64)
    assert load_task("banana").target([0], "cpu", torch.float64).score(x)[0, 0, 1] == pytest.approx(
        gradient[1]
    )
    # What was imported for a task is what reading its imports foretells.
    loaded = {name for name in seen["modules"] if not name.startswith("parvibench.check")}
    packages = {"parvibench.core", "parvibench.tasks"}
    assert loaded <= modules_behind("parvibench.tasks.banana") | packages


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
        return reaches(f"parvibench.{module}", Asked(task, algorithm))

    assert seen("baselines.uld", "banana", "sr-uld")
    assert not seen("baselines.uld", "banana", "sgld")
    assert seen("kernels.radial", "banana", "ksivi")
    assert not seen("kernels.radial", "banana", "svgd")
    assert seen("tasks.banana", "banana", "svgd")
    assert not seen("tasks.banana", "linear-regression", "svgd")
    assert not seen("baselines.uld", "banana", "density")  # a question about the task alone
    assert seen("tasks.ica", "something of its own", "sgld")
    for house in ("core.streams", "harness.run.recorder", "metrics.mmd", "kernels.gram"):
        assert seen(house, "banana", "sgld")


def test_the_table_counts_what_was_caught() -> None:
    results = [
        MutantResult("ula-noise", "Langevin", True, "truth banana/ula mean | sd", 40, 12.4),
        MutantResult("sgld-half-step", "Langevin", False, seconds=70.0, reason="all tests passed"),
        MutantResult("w2-no-root", "metrics", True, "past banana/sgld w2", 20, 3.0),
    ]
    text = mutants_table(reversed(results))
    assert text.startswith("2 of 3 planted bugs were caught.\n")
    assert "| Langevin | 2 | 1 |" in text
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == [result.name for result in results]  # the catalogue's order
    assert rows[0].endswith("| truth banana/ula mean \\| sd | 40 | 12 |")
    assert "**missed**: all tests passed |  | 70 |" in rows[1]


@cache
def everything() -> list[Question]:
    """All that a check can measure, cheap things first; no stored past is needed for that."""
    chosen = select_questions()
    densities = [DensityQuestion(task, {}) for task in chosen.densities]
    return [*densities, *(CellQuestion(cell, {}) for cell in chosen.cells), *chosen.truths]


@cache
def measured(number: int) -> dict[str, list[float]]:
    """What two replicates of a question give; times left out."""
    values = everything()[number].measure(range(2), 3)
    return {name: [float(v) for v in found] for name, found in values.items() if name != TIME}


MEASURED_WITH_A_BUG = """
import json, sys
from planted.catalogue import select
from planted.planting import plant

folder, name = sys.argv[1:]
(mutant,) = select([name])
plant(mutant)
sys.path.insert(0, folder)
from test_mutants import everything, measured
from planted.reach import reaches

for number, question in enumerate(everything()):
    if reaches(mutant.place, question):
        try:
            found = measured(number)
        except Exception as error:
            found = {"error": repr(error)}
        print(json.dumps([number, found]), flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("mutant", catalogue(), ids=lambda mutant: mutant.name)
def test_no_bug_is_without_consequences(mutant: Mutant) -> None:
    command = [sys.executable, "-c", MEASURED_WITH_A_BUG, str(Path(__file__).parent), mutant.name]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
        assert child.stdout is not None
        for line in child.stdout:
            number, found = json.loads(line)
            if repr(found) != repr(measured(number)):
                child.kill()
                return
    pytest.fail("nothing that a check measures has changed by a bit")
