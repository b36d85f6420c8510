"""Planted bugs: they apply, they are quiet, a private copy alone has them, and the tests that they concern are chosen."""

import ast
import json
import subprocess
import sys
from contextlib import nullcontext
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
from planted.choosing import GOLDEN, Measured, MeasuredTests
from planted.copies import ROOT, PrivateCopy
from planted_bugs import Bench, BugResult, Trial, bench, table

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


def test_a_bug_follows_a_module_that_has_moved() -> None:
    (bug,) = bugs_named(["psgld-noise"])
    assert bug.home() == "parvibench.baselines.psgld"
    assert replace(bug, module="elsewhere.psgld").home() == bug.home()
    assert replace(bug, module="elsewhere.preconditioned").home() == bug.home()


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


def measured(seconds: float, *modules: str) -> Measured:
    return Measured(seconds, True, frozenset(f"parvibench.{name}" for name in modules))


TESTS = {
    f"{GOLDEN}::test_trace[mala defaults]": measured(3.0, "baselines.mala", "core.streams"),
    f"{GOLDEN}::test_trace[mala later]": measured(1.0, "core.streams"),
    f"{GOLDEN}::test_trace[sr-uld defaults]": measured(2.0, "baselines.uld", "core.streams"),
    f"{GOLDEN}::test_trace[uld defaults]": measured(9.0, "baselines.uld", "core.streams"),
    f"{GOLDEN}::test_trace[run banana/ula]": measured(5.0, "metrics.transport", "core.streams"),
    f"{GOLDEN}::test_every_trace_is_stored[algorithm mala]": measured(0.1),
}


def named(module: str) -> list[str]:
    nodes = choosing.golden_nodes(TESTS, f"parvibench.{module}")
    return [node.partition("[")[2].removesuffix("]") for node in nodes]


def test_golden_values_that_a_module_can_move_are_chosen_its_own_first() -> None:
    assert named("baselines.mala") == ["mala defaults", "mala later", "algorithm mala"]
    assert named("baselines.uld") == ["uld defaults", "sr-uld defaults"]
    assert named("metrics.transport") == ["run banana/ula"]
    assert named("core.streams")[:2] == ["run banana/ula", "sr-uld defaults"]
    assert named("data.draws_files") == []
    # What a module states when it is imported is in no call.
    assert "sr-uld defaults" in named("baselines.srld")


def test_methods_that_run_through_a_module_the_nearest_first() -> None:
    assert choosing.methods(TESTS, "parvibench.baselines.uld") == ["uld", "sr-uld"]
    assert choosing.methods(TESTS, "parvibench.metrics.transport") == []


def test_tests_that_call_a_module_or_whose_file_imports_it_quick_ones_first() -> None:
    tests = {
        "tests/kernels/test_gram_kernels.py::test_a": measured(2.0),
        "tests/nn/test_lbfgs.py::test_b": measured(1.0, "kernels.gram"),
        "tests/nn/test_lbfgs.py::test_c": measured(0.5, "nn.lbfgs"),
    }
    assert choosing.other_nodes(tests, "parvibench.kernels.gram") == [
        "tests/nn/test_lbfgs.py::test_b",
        "tests/kernels/test_gram_kernels.py::test_a",
    ]


def test_tests_of_constants_and_of_shared_values() -> None:
    """No function of a module of constants is called, and only the first case of a test where its cases share values."""
    tests = {
        "tests/tasks/test_multimodal_targets.py::test_forty": measured(2.0),
        "tests/metrics/test_chains.py::test_a[1]": measured(1.0, "metrics.chains"),
        "tests/metrics/test_chains.py::test_a[2]": measured(0.1),
        "tests/metrics/test_stein.py::test_a[1]": measured(0.1),
    }
    assert choosing.other_nodes(tests, "parvibench.tasks.gmm40") == [
        "tests/tasks/test_multimodal_targets.py::test_forty"
    ]
    assert choosing.other_nodes({n: t for n, t in tests.items() if "test_a" in n}, "parvibench.metrics.chains") == [
        "tests/metrics/test_chains.py::test_a[2]",
        "tests/metrics/test_chains.py::test_a[1]",
    ]


def test_own_tests_mirror_the_package_and_those_it_serves() -> None:
    found = choosing.own_files("parvibench.nn.mlp")
    assert found[:2] == ["tests/nn/test_lbfgs.py", "tests/nn/test_mlp_optim.py"]
    assert "tests/baselines/test_sifg_programs.py" in found
    assert "tests/test_statistics.py" in choosing.own_files("parvibench.statistics")
    assert "tests/core/test_indexing.py" not in choosing.own_files("parvibench.core.streams")


def test_golden_values_of_some_are_left_out() -> None:
    known = SimpleNamespace(of=lambda files: TESTS if files == [GOLDEN] else {})
    for golden, names in (
        ("on", ["mala defaults", "mala later", "algorithm mala", "run banana/ula"]),
        ("without mala", ["run banana/ula"]),
        ("off", []),
    ):
        asked = [
            node
            for module in ("baselines.mala", "metrics.transport")
            for request in Trial(known, golden)._regression(Bench(None, None), f"parvibench.{module}")
            for node in request.args[2]
        ]
        assert [node.partition("[")[2].removesuffix("]") for node in asked] == names


def test_of_all_tests_one_that_fails_without_the_bug_too_finds_nothing() -> None:
    """And the next failure is looked at."""
    left_out: list[list[str]] = []

    def tests(step: str, files: Any, without: list[str]) -> Any:
        left_out.append(list(without))
        return {"failed": "real" if "always" in without else "always", "count": 1, "text": ""}

    known = SimpleNamespace(passes=lambda node: node == "real")
    (request,) = Trial(known)._whole(SimpleNamespace(tests=tests), "parvibench.core.streams")
    assert request()["failed"] == "real"
    assert left_out == [[], ["always"]]


def test_tests_that_plant_bugs_themselves_find_none() -> None:
    laws, every = choosing.law_files(), choosing.all_files(golden=True)
    assert set(laws) < set(every)
    assert "tests/regression/laws/test_gradients.py" in laws
    assert not [file for file in every if "slips" in file or "planted" in file or "test_stored" in file]
    assert set(every) - set(choosing.all_files(golden=False)) == {GOLDEN}


def test_what_tests_run_through_is_measured_once_and_failed_tests_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def measure(files: Any) -> Any:
        asked.append(files)
        return {"a::good": (1.0, True, ["parvibench.nn.mlp"]), "a::bad": (1.0, False, [])}

    for _ in range(2):
        tests = MeasuredTests(tmp_path / "map.json", measure, lambda node: True)
        assert tests.of(["a"]) == {"a::good": measured(1.0, "nn.mlp")}
    assert asked == [["a"]]
    monkeypatch.setattr(choosing, "_digest", lambda: "other code")
    MeasuredTests(tmp_path / "map.json", measure, lambda node: True).of(["a"])
    assert asked == [["a"], ["a"]]


@pytest.mark.slow
def test_a_bug_fails_the_golden_value_of_its_method_in_the_private_copy() -> None:
    (bug,) = bugs_named(["mala-inverted"])
    nodes = [f"{GOLDEN}::test_trace[mala defaults]"]
    with bench() as own:
        assert not own.tests("regression", [GOLDEN], nodes)["failed"]
        with own.copy.with_bug(bug):
            found = own.tests("regression", [GOLDEN], nodes)
        assert not own.tests("regression", [GOLDEN], nodes)["failed"]
    assert (found["failed"], found["count"]) == (nodes[0], 1)
    assert "mala defaults: from step" in found["text"]


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
    monkeypatch.setattr(planted_bugs, "bench", lambda: nullcontext(SimpleNamespace(watched=None)))
    monkeypatch.setattr(planted_bugs, "MeasuredTests", lambda *_: None)
    for golden in ("on", "off", "off"):
        names = ["ula-noise", "w2-no-root", "mala-inverted"]
        monkeypatch.setattr(sys, "argv", ["planted_bugs.py", str(file), "--ids", *names, "--golden", golden])
        assert planted_bugs.main() == 0
    assert tried == [f"catalogue:{name}" for name in ("mala-inverted", "ula-noise", "mala-inverted", "w2-no-root")]
