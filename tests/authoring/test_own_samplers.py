"""Samplers written for one replicate: laws, cost, refusals; what is missing in a class is told."""

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from command_line import Run
from torch import Tensor

import parvibench as pb
from parvibench.core import registry
from parvibench.core.errors import BudgetExhausted, InputError, SettingsError
from parvibench.harness.store.store import Store

SMALL = {"replicates": 3, "budget": {"iterations": 40}, "particles": 6, "tracking": False}


def test_settings_are_found_without_being_named(own: Any) -> None:
    assert own.Batched.settings_type is own.Settings
    assert own.langevin.make_settings({"step_size": 0.5}).step_size == 0.5
    with pytest.raises(SettingsError, match=r"langevin.step: no such setting. Known: step_size"):
        own.langevin.make_settings({"step": 1})


@pytest.mark.ci
def test_importable_objects_run_in_workers_as_in_this_process(own: Any, tmp_path: Path) -> None:
    """The same cells, to the bit; the scores charged are those that the code asked for."""
    methods, options = [own.Batched, own.langevin, own.climb], SMALL | {"replicates": 1}
    runs = [
        pb.run(tasks=["multimodal"], algorithms=methods, workers=w, out=tmp_path / str(w), **options) for w in (0, 2)
    ]
    for here, there in zip(*(r.cells for r in runs), strict=True):
        assert (here.status, there.status) == ("ok", "ok"), (here.reason, there.reason)
        assert here.key == there.key
        assert here.score_evaluations == 40 * 6
        assert np.array_equal(runs[0].samples(here), runs[1].samples(there))
        assert here.process != there.process
    assert [c.label for c in runs[1].cells] == ["batched", "langevin", "np"]
    assert runs[1].cells[1].algorithm == "own_samplers_of_a_test:langevin"


def test_a_function_s_sampler_has_its_law(tmp_path: Path) -> None:
    """ULA on N(0, 1) with step h: stationary variance 1 / (1 - h / 2), mean 0; 200 chains, 5 sd: false alarm 1e-6."""
    h, chains = 0.2, 400

    @pb.sampler
    def ula(problem: Any, x0: Tensor, generator: torch.Generator, h: float = h) -> Iterator[Tensor]:
        x = x0
        while True:
            x = x + h * problem.score(x) + math.sqrt(2 * h) * torch.randn(x.shape, generator=generator)
            yield x

    options = SMALL | {"particles": chains, "replicates": 1}
    result = pb.run(tasks=["biased-start-gaussian"], algorithms=[ula], out=tmp_path, workers=0, **options)
    facts = pb.load_task("biased-start-gaussian").facts
    z = (result.samples(result.cells[0])[0] - facts.mean.numpy()) / facts.sd.numpy()
    variance = 1 / (1 - h / 2)
    assert np.abs(z.mean(0)).max() < 5 * math.sqrt(variance / chains)
    assert np.abs(z.var(0) / variance - 1).max() < 5 * math.sqrt(2 / chains)


def test_the_last_state_before_the_budget_s_end_stands(tmp_path: Path) -> None:
    yielded = []

    @pb.sampler
    def counted(problem: Any, x0: Tensor, generator: torch.Generator) -> Iterator[Tensor]:
        x = x0
        while True:
            try:
                x = x + 0.001 * problem.score(x) + 0.001 * problem.score(x)
            except BudgetExhausted:
                yielded.append(x)
                raise
            yield x

    options = SMALL | {"budget": {"score_evaluations": 33}, "replicates": 1}
    result = pb.run(tasks=["multimodal"], algorithms=[counted], out=tmp_path, workers=0, **options)
    (cell,) = result.cells
    # six rows a call: five calls, the second of every step; two whole steps
    assert (cell.iterations, cell.score_evaluations) == (2, 30)
    assert np.array_equal(result.samples(cell)[0], yielded[-1].numpy())


class Points(NamedTuple):
    x: Tensor


def one_state(problem: Any, x0: Any, generator: Any) -> Iterator[Any]:
    yield x0


def narrow(problem: Any, x0: Any, generator: Any) -> Iterator[Any]:
    while True:
        yield x0[:2]


def flat(problem: Any, x0: Any, generator: Any) -> Iterator[Any]:
    while True:
        yield problem.score(x0[0])


def returns(problem: Any, x0: Any, generator: Any) -> Any:
    return x0


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (one_state, "one-state: the function ended after 1 states; it should yield one a step"),
        (narrow, r"expected states of shape (6, 2), as x0; got (2, 2)"),
        (flat, r"expected states of shape (n, 2), got (2,)"),
        (returns, "returns: the function returned Tensor; it must yield states"),
    ],
)
def test_a_function_s_faults_are_told_in_its_row(function: Any, told: str, tmp_path: Path) -> None:
    result = pb.run(tasks=["banana"], algorithms=[pb.sampler(function)], out=tmp_path, workers=0, **SMALL)
    assert result.cells[0].status == "crashed"
    assert told in result.cells[0].reason


@pytest.mark.parametrize(
    ("function", "options", "told"),
    [
        (lambda problem: None, {}, "must take (problem, x0, generator), and takes (problem)"),
        (lambda problem, x0, generator, width: None, {}, "the argument width is a setting and needs a default"),
        (3, {}, "takes a function of (problem, x0, generator), got 3"),
        (one_state, {"kind": "generator"}, "makes chains or particles, not 'generator'"),
    ],
)
def test_what_is_no_sampling_function_is_refused(function: Any, options: Any, told: str) -> None:
    with pytest.raises(InputError) as caught:
        pb.sampler(**options)(function)
    assert told in str(caught.value)


def test_what_another_argument_or_another_body_makes_is_another_cell(tmp_path: Path) -> None:
    """Objects made within a function: their code, closures and attributes are all there is."""

    def made(width: int) -> pb.Algorithm:
        class Mine(pb.Algorithm[pb.AlgorithmSettings, Points]):
            name, kind = "mine", "chains"

            def __init__(self) -> None:
                self.width = width

            def init(self, problem: Any, settings: Any, streams: Any, horizon: int) -> Points:
                return Points(problem.init())

            def step(self, problem: Any, settings: Any, state: Points, streams: Any) -> Points:
                return Points(state.x + 0.01 * problem.score(state.x))

        return Mine()

    def key(method: pb.Algorithm) -> str:
        return pb.run(tasks=["banana"], algorithms=[method], out=tmp_path, **SMALL).cells[0].key

    assert key(made(1)) == key(made(1)) != key(made(2))

    exec_globals: dict[str, Any] = {"pb": pb, "__name__": "a_notebook"}
    keys = set()
    for body in ("0.01", "0.02"):
        exec(f"@pb.sampler\ndef f(problem, x0, generator):\n    while True:\n        x0 = x0 + {body} * problem.score(x0)\n        yield x0\n", exec_globals)  # fmt: skip
        keys |= {key(exec_globals["f"])}
    assert len(keys) == 2


BAD = """
import parvibench as pb
from parvibench import Algorithm

class Empty(pb.Algorithm):
    needs = "score"

class Wrong(pb.Algorithm):
    name, kind, settings_type = "svgd ", "chain", dict
    def init(self, problem, settings, streams, horizon): ...
    def step(self, problem, settings, state, streams): ...

class Shadow(pb.Algorithm):
    name, kind, step = "shadow", "chains", 0.1
    def init(self, problem, settings, streams, horizon): ...

class Hidden(Shadow):
    def __init__(self): self.step = 0.1
    def step(self, problem, settings, state, streams): ...

class Arguments(Wrong):
    kind, settings_type = "chains", pb.AlgorithmSettings
    def __init__(self, width): ...

def function(problem, x0, generator):
    yield x0
"""


@pytest.mark.parametrize(
    ("attribute", "told"),
    [
        ("Empty", ['Empty: no name: add name = "empty"', 'Empty: no kind: add kind = "chains"',
                   "Empty: no init: add def init(self, problem, settings, streams, horizon)",
                   "Empty: no step: add def step(self, problem, settings, state, streams)",
                   "Empty: needs is 'score', not a set of words"]),
        ("Wrong", ["Wrong: kind is 'chain', not one of particles, chains, generator",
                   "Wrong: settings_type is <class 'dict'>, not a class that derives from AlgorithmSettings"]),
        ("Arguments", ["the class must work without arguments: Arguments.__init__() missing 1 required"]),
        ("function", ["is a function, not a parvibench Algorithm; wrap a function of (problem, x0, generator) by pb.sampler"]),
        ("Shadow", ["Shadow: step is 0.1, an attribute that hides the method step(): give it another name"]),
        ("Hidden", ["Hidden: step is 0.1, an attribute that hides the method step(): give it another name"]),
        ("Nothing", ["there is no 'Nothing'; samplers there: Empty, Wrong, Shadow, Hidden, Arguments"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["run", "check", "tune"])
def test_what_is_missing_is_one_line_each(
    call: Run, tmp_path: Path, command: str, attribute: str, told: list[str]
) -> None:
    (tmp_path / "bad.py").write_text(BAD)
    words = {"run": ["--task", "banana"], "check": [], "tune": ["quick"]}[command]
    answer = call(command, *words, "-a", f"bad.py:{attribute}")
    assert answer.code == 2, answer.err
    assert "Traceback" not in answer.err
    for line in told:
        assert any(line in found for found in answer.err.splitlines()), answer.err


def test_a_file_that_does_not_run_is_told_by_its_line(call: Run, tmp_path: Path) -> None:
    """The object is not blamed, whether its file fails or a helper beside it."""
    (tmp_path / "helper.py").write_text("x = 1\n\nx.missing\n")
    for text, told in (
        ("x = 1 +\n", "broken.py fails in line 1: SyntaxError"),
        ("\nundefined\n", "broken.py fails in line 2: NameError: name 'undefined' is not defined"),
        ("1 / 0\n", "broken.py fails in line 1: ZeroDivisionError: division by zero"),
        ("x = 1\nimport no_such_module\n", "broken.py fails in line 2: ModuleNotFoundError: No module named 'no_such"),
        ("import torch\n\ntorch.zeros(-1)\n", "broken.py fails in line 3: RuntimeError"),
        ("import parvibench as pb\npb.task('ring', 0)\n", "broken.py fails in line 2: "),
        ("import helper\n", "helper.py fails in line 3: AttributeError"),
    ):
        (tmp_path / "broken.py").write_text(text)
        answer = call("run", "--task", "banana", "-a", "broken.py:X")
        assert (answer.code, "Traceback" in answer.err, "broken.py:X" in answer.err) == (2, False, False)
        assert told in answer.err, answer.err


@pytest.mark.ci
def test_a_plug_in_is_labelled_by_its_name(call: Run, own: Any, tmp_path: Path) -> None:
    place = "own_samplers_of_a_test.py:langevin"
    few = ("--workers", "0", "--quiet", "--replicates", "1", "--budget", "iterations=3")
    words = ["run", "--task", "banana", "-a", place, *few]
    (cell, _) = call(*words, "-a", "svgd", "--set", "langevin.step_size=0.5", "--json").json["cells"]
    assert (cell["label"], cell["status"]) == ("langevin", "ok")
    record = Store("parvibench-runs").run().cells[0]
    assert record.spec.settings == {"step_size": 0.5}
    assert record.spec.algorithm == "own_samplers_of_a_test.py:langevin"
    # by its place, or alone: the same
    for name, others in ((f"{place}.", ("-a", "svgd")), ("langevin.", ("-a", "svgd")), ("", ())):
        rows = call(*words, *others, "--set", f"{name}step_size=0.5", "--dry-run", "--json").json
        assert rows[0]["state"] == "cached"


def test_check_labels_a_sampler_as_a_run_does(call: Run, plug_in: str, tmp_path: Path) -> None:
    """Whether it passes or fails; the command that repeats a test has its place."""
    (tmp_path / "kw.py").write_text(plug_in)
    answer = call("check", "-a", "kw.py:KWFlow", "-t", "tilted", "--iterations", "20", "--workers", "0")
    assert "kw-flow on tilted" in answer.out
    assert "run again: parvibench check -a kw.py:KWFlow -t tilted" in answer.out


def refusal(method: type[Any]) -> str:
    try:
        method.require_complete()
    except InputError as error:
        return str(error)
    return ""


def test_everything_an_algorithm_must_have_is_there_in_the_built_in_ones() -> None:
    refused = {name: refusal(type(registry.load_method(name))) for name in registry.algorithms()}
    assert set(refused.values()) == {""}, refused


def test_it_starts_where_initial_points_depend_on_the_density(tmp_path: Path) -> None:
    """Their evaluations are the task's own, and no way past the meter."""

    def langevin(problem: Any, x0: Any, generator: Any) -> Any:
        x = x0
        while True:
            x = x + 1e-3 * problem.score(x)
            yield x

    options = {"workers": 0, "out": tmp_path, "tracking": False, "replicates": 1, "budget": {"iterations": 5}}
    (cell,) = pb.run(tasks=["eight-schools-noncentered"], algorithms=[pb.sampler(langevin)], **options).cells
    assert cell.status == "ok", cell.reason


def test_a_budget_of_scores_alone_ends_for_one_that_asks_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a limit of iterations, too, it runs to that; a charge now and then is enough."""
    from parvibench.harness.run import account

    monkeypatch.setattr(account, "_MOST_FREE", 60)

    def idle(problem, x0, generator, *, every: int = 0):
        for step in itertools.count():
            if every and step % every == 0:
                problem.score(x0)
            yield x0

    def ran(**budget: float) -> tuple[str, int, str]:
        given = {"tasks": ["banana"], "algorithms": [pb.sampler(idle)], "replicates": 1, "particles": 2, "samples": 2}
        (cell,) = pb.run(**given, budget=budget, settings=settings, workers=0, tracking=False, out=tmp_path).cells  # type: ignore[arg-type]
        return cell.status, cell.iterations, cell.reason

    settings: dict = {}
    status, _, reason = ran(score_evaluations=100)
    assert status == "crashed"
    assert "iterations without a score evaluation" in reason
    assert "--budget iterations=N" in reason
    assert ran(score_evaluations=100, iterations=200)[:2] == ("ok", 200)
    settings["idle"] = {"every": 50}
    assert ran(score_evaluations=8)[:2] == ("ok", 200)
