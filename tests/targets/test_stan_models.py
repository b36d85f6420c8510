"""Stan programs as tasks: densities against programs in PyTorch, errors in a line, references, Stan's own sampler.

Slow, since every program is compiled once, in 20 s of processor time: run by a Python that has httpstan.
"""

import json
import pickle
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import Run
from scipy import stats
from stan_twins import DATA, PROGRAMS, TWINS, write_posteriordb

import parvibench as pb
from parvibench.core.algorithm import take_steps
from parvibench.core.errors import InputError, ShapeError
from parvibench.core.registry import load_task
from parvibench.targets import posteriordb

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("httpstan") is None, reason="needs httpstan: pip install '.[stan]'"),
]


def task_of(name: str):
    return pb.from_stan(PROGRAMS / f"{name}.stan", DATA[name])


def points(task, n: int = 30) -> torch.Tensor:
    return task.problem(1, seed=3, particles=n, dtype=torch.float64).init()[0]


@pytest.mark.parametrize("name", TWINS)
def test_density_and_gradient_equal_a_program_by_hand(name: str) -> None:
    """At 30 points, relative, to 1e-8: the density up to a constant, and every score."""
    task = task_of(name)
    x = points(task)
    density, score = task.target([0], "cpu", torch.float64).log_density_and_score(x[None])
    leaf = x.clone().requires_grad_()
    own = torch.stack([TWINS[name](DATA[name], point) for point in leaf])
    (slopes,) = torch.autograd.grad(own.sum(), leaf)
    gap = density[0] - own.detach()
    assert ((gap - gap[0]).abs() / density[0].abs().clamp_min(1)).max() < 1e-8
    assert ((score[0] - slopes).abs().amax(1) / slopes.abs().amax(1).clamp_min(1)).max() < 1e-8


@pytest.mark.parametrize("name", ["correlated", "groups", "shares", "covariance"])
def test_values_of_parameters_go_there_and_back(name: str) -> None:
    """Columns of a matrix come first in Stan: a wrong order would not return."""
    task = task_of(name)
    x = points(task)
    values = task.constrain(x)
    torch.testing.assert_close(task.unconstrain(values), x, rtol=1e-9, atol=1e-9)
    assert {site.name: (len(x), *site.shape) for site in task.sites} == {k: tuple(v.shape) for k, v in values.items()}
    if name == "groups":
        torch.testing.assert_close(values["w"].permute(0, 2, 1).reshape(len(x), -1), x[:, -10:])
    if name == "correlated":
        factor, all_values = values["L"], task.constrain(x, generated=True)
        torch.testing.assert_close(all_values["correlation"], factor @ factor.mT)
        assert factor.triu(1).abs().max() == 0
    if name == "shares":
        assert task.constrain(x, generated=True)["largest"].tolist() == values["share"].amax(1).tolist()
        with pytest.raises(ShapeError, match="no values of share"):
            task.unconstrain({})
        with pytest.raises(ShapeError, match=r"share"):
            task.unconstrain({"share": np.ones((2, 4))})


def test_values_do_not_depend_on_threads_and_a_copy_gives_the_same() -> None:
    model = task_of("correlated").model
    x = points(task_of("correlated"), 500)
    model.both(x)
    model._seconds, before = 1.0, torch.get_num_threads()
    copy = pickle.loads(pickle.dumps(model))
    torch.set_num_threads(3)
    try:
        threaded = model.both(x)
    finally:
        torch.set_num_threads(before)
    for a, b in zip(threaded, copy.both(x), strict=True):
        assert torch.equal(a, b)


def test_errors_are_one_line_with_what_stan_says(tmp_path: Path, call: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(place: str) -> str:
        answer = call("show", "task", place)
        assert (answer.code, answer.out) == (2, "")
        assert answer.err.count("\n") == 1
        return answer.err

    (tmp_path / "wrong.stan").write_text("parameters {\n  real mu\n}\n")
    assert "wrong.stan: Syntax error in 'wrong.stan', line 3" in refused("wrong.stan")
    (tmp_path / "counts.stan").write_text("parameters { int k; }\nmodel { k ~ poisson(3); }\n")
    assert "Parameters cannot be integers" in refused("counts.stan")
    assert "no such Stan program: none.stan" in refused("none.stan")
    (tmp_path / "less.json").write_text(json.dumps({k: v for k, v in DATA["line"].items() if k != "y"}))
    assert "the data lack y" in refused(f"{PROGRAMS / 'line.stan'}:less.json")
    (tmp_path / "negative.json").write_text(json.dumps(DATA["line"] | {"n": -1}))
    assert "n is -1, but must be greater than or equal to 1" in refused(f"{PROGRAMS / 'line.stan'}:negative.json")
    (tmp_path / "cut.json").write_text('{"n": ')
    assert "cut.json: expected the data of a Stan program in JSON" in refused(f"{PROGRAMS / 'line.stan'}:cut.json")
    monkeypatch.setenv("CXX", "no-such-compiler")
    (tmp_path / "new.stan").write_text("parameters { real mu; } model { mu ~ std_normal(); }")
    assert "need a C++ compiler: CXX=no-such-compiler is not there" in refused("new.stan")


def test_a_folder_in_posteriordb_s_layout_is_run_by_one_command(
    tmp_path: Path, call: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five programs and a broken one; with Stan's own sampler beside ours, in worker processes."""
    folder = write_posteriordb(tmp_path / "own", ["line", "grades", "shares", "growth", "correlated"])
    monkeypatch.setenv(posteriordb.FOLDER_VARIABLE, str(folder))
    budget = [
        "--budget",
        "score_evaluations=12000",
        "--particles",
        "4",
        "--replicates",
        "2",
        "--workers",
        "1",
        "--json",
    ]
    answer = call("run", "--task", "posteriordb:*", "-a", "nuts", "-a", "stan-nuts", *budget)
    assert answer.code == 0, answer.err
    cells = answer.json["cells"]
    assert {c["task"] for c in cells} == {f"{n}-{n}" for n in ("line", "grades", "shares", "growth", "correlated")}
    assert [c["status"] for c in cells] == ["ok"] * 10
    assert "posteriordb:broken-broken is left out" in answer.err
    assert "Syntax error in 'broken.stan', line 3" in answer.err
    assert all(c["score_evaluations"] <= 12000 for c in cells)
    records = [json.loads(p.read_text()) for p in (tmp_path / "parvibench-runs/cells").rglob("cell.json")]
    flagged = {r["label"] for r in records if any("counted afterwards" in f for f in r["flags"])}
    assert flagged == {"stan-nuts"}


@pytest.mark.parametrize("name", ["line", "grades", "shares"])
def test_a_reference_is_built_and_certified(name: str, tmp_path: Path, call: Run) -> None:
    (tmp_path / f"{name}.json").write_text(json.dumps(DATA[name]))
    answer = call("reference", "build", f"{PROGRAMS / f'{name}.stan'}:{name}.json")
    assert answer.code == 0, answer.err
    assert f"{name}: certified" in answer.err
    record = json.loads((tmp_path / f"parvibench-references/{name}.json").read_text())
    assert record["certified"]
    assert tuple(record["coordinates"]) == task_of(name).coordinates


def test_stan_s_nuts_has_the_posterior_and_its_cost(tmp_path: Path) -> None:
    """The shares' law is a Dirichlet's: each mean, by Student's t over 20 chains, p > 1e-5; evaluations counted exactly."""
    task, method = task_of("shares"), pb.load_algorithm("stan-nuts")
    problem = task.problem(1, seed=1, particles=20, dtype=torch.float64)
    settings = method.make_settings({})
    first = method.init(problem, settings, problem.streams, 1000)
    path = []
    for state, info in take_steps(method.step, problem, settings, first):
        path.append(state.x[0])
        assert 0.3 < info.acceptance.item() <= 1
        if len(path) == 60:
            break
    draws = torch.stack(path)
    share = task.constrain(draws.flatten(0, 1))["share"].reshape(60, 20, 4).mean(0)
    alpha = np.add(DATA["shares"]["alpha"], DATA["shares"]["counts"])
    for k in range(4):
        assert stats.ttest_1samp(share[:, k], alpha[k] / alpha.sum()).pvalue > 1e-5
    limited = task.problem(1, seed=1, particles=20, dtype=torch.float64, limit=problem.meter.charged)
    assert limited.meter.limit > 20 * (1000 + 300)


def test_the_built_in_task_of_a_posterior_is_named_and_agrees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Run
) -> None:
    """A folder with our program of the eight schools under posteriordb's name, against the task in PyTorch."""
    folder = write_posteriordb(tmp_path / "own", [])
    root, native = folder / "posterior_database", load_task("eight-schools-centered")
    name = "eight_schools-eight_schools_centered"
    entry = {"model_name": "eight_schools_centered", "data_name": "eight_schools"}
    code = {"model_implementations": {"stan": {"model_code": "models/stan/eight_schools_centered.stan"}}}
    data = {k: np.asarray(v).tolist() for k, v in native.variables().items()} | {"J": 8}
    program = Path(__file__).parents[1] / "tasks/stan/eight-schools-centered.stan"
    for path, content in {
        f"posteriors/{name}.json": json.dumps(entry),
        "models/info/eight_schools_centered.info.json": json.dumps(code),
        "models/stan/eight_schools_centered.stan": program.read_text(),
        "data/info/eight_schools.info.json": json.dumps({"data_file": "data/data/eight_schools.json"}),
        "data/data/eight_schools.json": json.dumps(data),
    }.items():
        (root / path).write_text(content)
    monkeypatch.setenv(posteriordb.FOLDER_VARIABLE, str(folder))
    shown = call("show", "task", f"posteriordb:{name}", "--json").json
    assert "the built-in task eight-schools-centered is the same posterior" in shown["summary"]
    task = load_task(f"posteriordb:{name}")
    x = points(task)[None]
    for a, b in zip(
        *(t.target([0], "cpu", torch.float64).log_density_and_score(x) for t in (task, native)), strict=True
    ):
        torch.testing.assert_close(a - a.flatten()[0], b - b.flatten()[0], rtol=1e-9, atol=1e-8)


def test_a_program_that_rejects_everything_is_refused_with_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "never.stan").write_text('parameters { real x; } model { reject("x is ", x, " as ever"); }')
    with pytest.raises(InputError, match=r"never: log_density is -inf .* Stan: .*as ever"):
        pb.from_stan(tmp_path / "never.stan")
    assert [p.name for p in tmp_path.iterdir()] == ["never.stan"]
