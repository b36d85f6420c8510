"""Planted bugs: they apply, they are quiet, a private copy alone has them, and the tests that they concern are chosen."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import planted_bugs
import pytest
import torch
from planted import choosing
from planted.catalogue import CATALOGUES, HARMLESS, PlantedBug, bugs_named, catalogue, sources
from planted.choosing import GOLDEN
from planted.copies import ROOT, PrivateCopy
from planted_bugs import BugResult, Trial, table

from parvibench.core.errors import InputError, UnknownNameError
from parvibench.core.registry import load_task

TOY = PlantedBug("toy", "toys", "Nothing.", "core.errors", "a + b", "a - b")
BUGS = [bug for name in (*CATALOGUES, HARMLESS) for bug in catalogue(name)]

pytestmark = [pytest.mark.ci, pytest.mark.skipif(not (ROOT / "baselines").is_dir(), reason="needs a checkout")]


@cache
def source(module: str) -> tuple[str, str]:
    """A module's text and what it means."""
    text = sources()[module].read_text("utf-8")
    return text, ast.dump(ast.parse(text))


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.id)
def test_a_bug_applies_and_changes_what_the_module_does(bug: PlantedBug) -> None:
    text, meaning = source(bug.home())
    assert ast.dump(ast.parse(bug.planted(text))) != meaning


def test_the_catalogues_are_broad_and_say_what_is_wrong() -> None:
    assert len({bug.id for bug in BUGS}) == len(BUGS) >= 350
    for name in CATALOGUES:
        changes = {(bug.module, bug.old, bug.new) for bug in catalogue(name)}
        assert len(changes) == len(catalogue(name)) >= 35
    assert len({bug.family for bug in catalogue()}) >= 10
    assert all(bug.summary.endswith(".") for bug in BUGS)


@pytest.mark.parametrize(("text", "times"), [("x = a * b", 0), ("x = a + b\ny = a + b", 2)])
def test_a_text_that_is_not_there_once_is_refused(text: str, times: int) -> None:
    with pytest.raises(InputError, match=rf"'toy'.*once, it does {times} times:\na \+ b"):
        TOY.planted(text)


def test_a_bug_of_a_module_that_is_gone_is_refused() -> None:
    with pytest.raises(InputError, match=r"'toy': there is no module core\.mistakes"):
        replace(TOY, module="core.mistakes").home()


def test_an_unknown_bug_is_refused_before_anything_starts() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'ula-noise'"):
        bugs_named(["ula-nose"])
    with pytest.raises(UnknownNameError, match="did you mean 'second'"):
        bugs_named([], ["secnd"])
    assert [bug.name for bug in bugs_named(["iaf-mask", "ula-noise"])] == ["ula-noise", "iaf-mask"]
    assert [bug.id for bug in bugs_named(["second:hmc-last-kick-without-jitter"])] == [
        "second:hmc-last-kick-without-jitter"
    ]


SCORE = """
import json, torch
from parvibench.core.registry import load_task
from parvibench.tasks import banana

x = torch.tensor([[[0.5, 0.2]]], dtype=torch.float64)
print(json.dumps([load_task("banana").target([0], "cpu", torch.float64).score(x).flatten().tolist(), banana.__file__]))
"""


def in_a_process(copy: PrivateCopy) -> Any:
    """Score and file of a task, as a fresh process in the copy has them."""
    command = [sys.executable, "-c", SCORE]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=copy.environment, cwd=copy.root)
    return json.loads(done.stdout)


def test_a_private_copy_has_the_bug_while_it_is_planted_and_the_checkout_never(tmp_path: Path) -> None:
    copy = PrivateCopy(tmp_path / "copy")
    bug = PlantedBug("toy", "toys", "The score has lost a sign.", "tasks.banana", "- g1, -g2]", "- g1, g2]")
    mine = ROOT / "tasks" / "banana.py"
    before = mine.read_text("utf-8")
    x = torch.tensor([[[0.5, 0.2]]], dtype=torch.float64)
    clean = load_task("banana").target([0], "cpu", torch.float64).score(x).flatten()
    with copy.with_bug(bug) as file:
        planted, imported = in_a_process(copy)
        assert "- g1, g2]" in file.read_text("utf-8")
    assert Path(imported).resolve() == copy.root / "tasks" / "banana.py" == file
    assert planted == pytest.approx([clean[0].item(), -clean[1].item()], rel=1e-12)
    assert file.read_text("utf-8") == mine.read_text("utf-8") == before
    assert file.stat().st_mtime_ns == mine.stat().st_mtime_ns  # compiled copies are valid again
    assert in_a_process(copy)[0] == pytest.approx(clean.tolist(), rel=1e-12)


def named(*traces: str, module: str) -> list[str]:
    nodes = choosing.golden_nodes(traces, f"parvibench.{module}")
    return [node.partition("[")[2].removesuffix("]") for node in nodes]


def test_golden_values_that_a_module_can_change_are_chosen_its_own_first() -> None:
    traces = ("banana density", "mala defaults", "run banana/ula", "sr-uld defaults", "svgd defaults", "uld defaults")
    assert named(*traces, module="baselines.uld") == ["uld defaults", "sr-uld defaults", "run banana/ula"]
    assert named(*traces, module="baselines.mala") == ["mala defaults", "run banana/ula"]
    assert named(*traces, module="kernels.gram")[0] == "svgd defaults"
    assert named(*traces, module="data.draws_files") == ["run banana/ula"]


def test_methods_that_a_module_is_behind_the_nearest_first() -> None:
    assert choosing.methods("parvibench.baselines.uld") == ["uld", "sr-uld"]
    assert choosing.methods("parvibench.metrics.transport") == []


def test_own_tests_mirror_the_package_and_name_the_module() -> None:
    own = choosing.own_files("parvibench.nn.mlp")
    assert "tests/nn/test_mlp_optim.py" in own[:3]
    assert "tests/baselines/test_sifg_programs.py" in own
    assert "tests/test_statistics.py" in choosing.own_files("parvibench.statistics")
    assert "tests/core/test_indexing.py" not in choosing.own_files("parvibench.core.streams")
    assert choosing.law_files("parvibench.baselines.mala")[0].startswith("tests/regression/laws")
    assert not [f for f in choosing.all_files() if "slips" in f or "planted" in f or "golden" in f]


@pytest.mark.slow
def test_a_bug_fails_the_golden_value_of_its_method_in_the_private_copy(tmp_path: Path) -> None:
    (bug,) = bugs_named(["mala-inverted"])
    result = Trial().of(bug, PrivateCopy(tmp_path / "copy"))
    assert (result.step, result.by) == ("regression", f"{GOLDEN}::test_trace[mala all moved]")
    assert "mala all moved: from step" in result.text


def test_a_test_that_fails_without_the_bug_too_detects_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests without it are run again."""

    def first_failure(copy: Any, arguments: Any) -> tuple[str, str] | None:
        if copy.bug is None:
            return ("always", "") if arguments[-1] == "always" else None
        return ("real", "why") if "always" in arguments else ("always", "")

    copy: Any = SimpleNamespace(bug=None)

    @contextmanager
    def with_bug(bug: PlantedBug) -> Iterator[None]:
        copy.bug = bug
        yield
        copy.bug = None

    copy.with_bug = with_bug
    monkeypatch.setattr(planted_bugs, "first_failure", first_failure)
    result = Trial(steps=["whole"]).of(TOY, copy)
    assert (result.step, result.by, result.text) == ("whole", "real", "why")


def results() -> list[BugResult]:
    (ula,), (w2,), (sgld,) = (bugs_named([name]) for name in ("ula-noise", "w2-no-root", "sgld-half-step"))
    made = [BugResult(bug.id, bug.family, bug.aside, bug.summary, "on") for bug in (ula, sgld, w2)]
    node = f"{GOLDEN}::test_trace[run gmm2-2d/srld]"
    return [
        replace(made[0], step="regression", by=node, seconds={"regression": 12.4}),
        replace(made[1], text="all | passed", seconds={"regression": 4.0, "own": 66.0}),
        replace(made[2], step="check", by="parvibench check -a svgd", seconds={"check": 3.0}),
    ]


def test_the_table_counts_what_found_the_bugs() -> None:
    text = table(results())
    assert text.startswith("2 of 3 planted bugs were found.\n")
    assert "| Catalogue | Family | Planted | regression | check | missed |" in text
    assert "| catalogue | Langevin | 2 | 1 | 0 | 1 |" in text
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert rows[0].endswith("| regression | test_traces.py::test_trace[run gmm2-2d/srld] | 12 |")
    assert rows[1].endswith("| **missed** | all \\| passed | 70 |")


def test_bugs_that_have_a_result_are_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, tried = tmp_path / "results.jsonl", list[str]()
    file.write_text("".join(json.dumps(asdict(result)) + "\n" for result in results()))

    def trying(bugs: Any, trial: Any, workers: int) -> Any:
        tried.extend(bug.id for bug in bugs)
        return (BugResult(b.id, b.family, b.aside, b.summary, trial.golden, "own", "x::y") for b in bugs)

    monkeypatch.setattr(planted_bugs, "tried", trying)
    for golden in ("on", "off", "off"):
        names = ["ula-noise", "w2-no-root", "mala-inverted"]
        monkeypatch.setattr(sys, "argv", ["planted_bugs.py", str(file), "--ids", *names, "--golden", golden])
        assert planted_bugs.main() == 0
    assert tried == [f"catalogue:{name}" for name in ("mala-inverted", "ula-noise", "mala-inverted", "w2-no-root")]
