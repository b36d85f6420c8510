"""Stan programs as tasks: densities equal programs by hand, what fails has zero density or one line, on both roads."""

import json
import pickle
import threading
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
from command_line import Run
from stan_twins import DATA, PROGRAMS, TWINS, Entry, write_posteriordb

import parvibench as pb
from parvibench.core.errors import InputError, ShapeError
from parvibench.core.registry import load_task
from parvibench.targets import posteriordb
from parvibench.targets.stan_programs import LIBRARY_VARIABLE, Program, StanModel, read

stanli = pytest.importorskip("stanli", reason="needs stanli: pip install '.[stan]'")
pytest.importorskip("bridgestan", reason="needs bridgestan: pip install '.[stan]'")


def task_of(name: str):
    return pb.from_stan(PROGRAMS / f"{name}.stan", DATA[name])


def points(task, n: int = 30) -> torch.Tensor:
    return task.problem(1, seed=3, particles=n, dtype=torch.float64).init()[0]


def model_of(text: str, data: str = "{}") -> StanModel:
    return StanModel(Program("own.stan", text, tuple(("own.stan", i + 1) for i in range(text.count("\n") + 1))), data)


def written(folder: Path, text: str, name: str = "own.stan") -> Path:
    (folder / name).write_text(text)
    return folder / name


@pytest.fixture
def compiled(tmp_path: Path) -> tuple[Path, Path, Path]:
    """A program, data and a library of BridgeStan's interface: stanli's own, to which the data name the program."""
    program = written(tmp_path, (PROGRAMS / "line.stan").read_text(), "line.stan")
    library = next((Path(stanli.__file__).parent / "_bin").glob("*stanli.*"))
    (tmp_path / f"line_model{library.suffix}").symlink_to(library)
    named = {"build_id": stanli.build_id(), "mir": stanli.stan_to_mir(program.read_text()), "name": "line_model"}
    data = written(tmp_path, json.dumps(DATA["line"] | {"__stanli": named}), "line.json")
    return program, data, tmp_path / f"line_model{library.suffix}"


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
    assert task.provides == {"score", "full-batch", "stan"}  # neither Hessian products
    assert getattr(task, "log_z", None) is None  # nor a normalising constant: Stan drops constants


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
        for wrong, told in (
            ({}, "no values of share"),
            ({"share": np.ones((2, 4))}, "number 1 of 2: Stan: .*share"),
            ({"share": np.eye(4)}, "number 1 of 4: on the edge"),
        ):
            with pytest.raises(ShapeError, match=told):
                task.unconstrain(wrong)


def test_a_unit_vector_does_not_come_back_from_its_values() -> None:
    """Its length is free: draws of its values would be judged as points of length 1."""
    task = task_of("direction")
    with pytest.raises(ShapeError, match="axis: values of a unit vector do not hold its coordinates"):
        task.unconstrain(task.constrain(points(task)))


def test_lengths_are_checked_before_the_library_reads_beyond_the_end() -> None:
    model = task_of("line").model
    with pytest.raises(InputError, match=r"values of shape \(2, 2\), not \(n, 3\)"):
        model.unconstrain(np.ones((2, 2)))
    with pytest.raises(InputError, match=r"points of shape \(2, 4\), not \(n, 3\)"):
        model.both(torch.ones(2, 4))


def test_a_batch_is_bitwise_bridgestans_in_threads_in_copies_and_at_once() -> None:
    model = task_of("correlated").model
    x = points(task_of("correlated"), 500)
    plain = [model._model.log_density_gradient(row) for row in x.numpy()]
    found = [model.both(x), pickle.loads(pickle.dumps(model)).both(x)]
    eight = [threading.Thread(target=lambda: found.append(model.both(x))) for _ in range(8)]
    for thread in eight:
        thread.start()
    for thread in eight:
        thread.join()
    assert len(found) == 10
    for values, slopes in found:
        assert values.tolist() == [value for value, _ in plain]
        assert np.array_equal(slopes.numpy(), [slope for _, slope in plain])
    assert torch.equal(model.density(x), found[0][0])
    assert torch.equal(model.density(x[3:4].expand(1, -1)), found[0][0][3:4])
    assert model.density(x[:0]).shape == (0,)


@pytest.mark.parametrize(
    ("body", "x", "finite"),
    [
        ("if (x > 0) reject(\"no\"); x ~ std_normal();", [-1.0, 1.0], [True, False]),
        ("x ~ uniform(0, 1);", [0.5, 1.5], [True, False]),
        ("if (x > 0) target += negative_infinity(); x ~ std_normal();", [-1.0, 1.0], [True, False]),
        ("x ~ normal(0, exp(x));", [-1.0, float("nan")], [True, False]),
        ("target += -square(x) + 0 * (x > 0 ? not_a_number() : 0);", [-1.0, 1.0], [True, False]),
        ("1 ~ normal(ode_rk45_tol(f, [1]', 0, {1}, 1e-9, 1e-9, 20, x)[1][1], 1);", [0.1, 1e9], [True, False]),
    ],
)  # fmt: skip
def test_what_gives_no_density_has_density_zero(body: str, x: list[float], finite: list[bool]) -> None:
    functions = "functions { vector f(real t, vector y, real x) { return -x * y; } }"
    model = model_of(f"{functions} parameters {{ real x; }} model {{ {body} }}")
    values, slopes = model.both(torch.tensor(x, dtype=torch.float64)[:, None])
    assert values.isfinite().tolist() == slopes[:, 0].isfinite().tolist() == finite
    assert values[1] == -torch.inf
    assert torch.equal(model.density(torch.tensor(x, dtype=torch.float64)[:, None]), values)


def test_starts_are_drawn_again_where_the_program_rejects_them(tmp_path: Path) -> None:
    task = pb.from_stan(written(tmp_path, "parameters { vector[3] x; } model { x ~ uniform(-0.5, 2); }"))
    with patch.object(StanModel, "density", autospec=True, side_effect=StanModel.density) as density:
        x = points(task, 200)
    asked = [len(call.args[1]) for call in density.call_args_list]
    assert sum(asked) < 1.5 * asked[0] * (4 / 2.5) ** 3  # only what was rejected is evaluated again
    assert x.min() > -0.5
    assert task.target([0], "cpu", torch.float64).log_density(x[None]).isfinite().all()


def test_prints_do_not_reach_standard_output(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Results are printed there."""
    text = (
        'transformed data { print("a"); } parameters { real x; } transformed parameters { real y = x; print("b"); } '
        'model { print("c"); x ~ std_normal(); } generated quantities { real z = x; print("d"); }'
    )
    task = pb.from_stan(written(tmp_path, text))
    task.model.both(torch.zeros(3, 1))
    task.constrain(torch.zeros(3, 1), generated=True)
    task.target([0], "cpu", torch.float64).native.block(
        np.zeros(1), 0.5, np.ones(1), seed=1, warmup=20, draws=2, depth=5, acceptance=0.8
    )
    assert capfd.readouterr().out == ""


PARAMETER = "parameters {{ {} a; }} model {{ }}"
UNSUPPORTED = {
    "trace": "parameters { cov_matrix[2] S; } model { target += trace(S); }",
    "hmm_marginal": "parameters { simplex[2] p; } model { target += hmm_marginal(rep_matrix(0, 2, 3), [p', p'], p); }",
    "Tuple": PARAMETER.format("tuple(real, real)"), "Complex": PARAMETER.format("complex"),
    "StochasticRow": PARAMETER.format("row_stochastic_matrix[2, 2]"),
    "StochasticColumn": PARAMETER.format("column_stochastic_matrix[2, 2]"),
}  # fmt: skip


@pytest.mark.parametrize("what", UNSUPPORTED)
def test_what_stanli_does_not_support_names_the_way_out(what: str) -> None:
    with pytest.raises(
        InputError, match=f"stanli cannot run `{what}`; give a library compiled by BridgeStan: --stan-library"
    ):
        model_of(UNSUPPORTED[what])


def test_errors_are_one_line_that_names_files_without_their_folders(tmp_path: Path, call: Run) -> None:
    def refused(place: str) -> str:
        answer = call("show", "task", place)
        assert (answer.code, answer.out) == (2, "")
        assert answer.err.count("\n") == 1
        assert str(tmp_path) not in answer.err
        return answer.err

    line = written(tmp_path, (PROGRAMS / "line.stan").read_text(), "line.stan").name
    for text, told in {
        "parameters {\n  real mu\n}\n": "Syntax error in 'own.stan', line 3",
        "parameters { int k; }\nmodel { k ~ poisson(3); }\n": "'own.stan', line 1, column 13 to column 19: Parameters cannot be integers",
        "parameters { real x; }\nmodel {\n#include part.stan\n  x ~ normal(0, 1);\n}\n": "Syntax error in 'part.stan', line 2",
        "model {\n#include gone.stan\n}\n": "no such Stan program: gone.stan",
        "#include own.stan\n": "files that include each other",
        "generated quantities { real x = normal_rng(0, 1); }": "the program has no parameters: nothing to sample",
    }.items():
        written(tmp_path, "  real y = 1;\n  y = ;\n", "part.stan")
        written(tmp_path, text)
        assert told in refused("own.stan")
    assert "no such Stan program: none.stan" in refused("none.stan")
    assert "no such data file: none.json" in refused(f"{line}:none.json")
    assert "the data: there is no n, which line.stan declares as data" in refused(line)
    for change, told in (
        ({"y": None}, "own.json: there is no y, which line.stan declares as data"),
        ({"n": -1}, "line.stan: negative vector extent"),
        ({"x": [1.0]}, "dims declared=(20); dims found=(1)"),
        ({"y": [float("nan")] * 20}, "own.json: y has missing numbers (NaN), which Stan does not take"),
    ):
        data = {k: v for k, v in (DATA["line"] | change).items() if v is not None}
        written(tmp_path, json.dumps(data), "own.json")
        assert told in refused(f"{line}:own.json")
    for text in ('{"n": ', "[1]"):
        written(tmp_path, text, "own.json")
        assert "own.json: expected the data of a Stan program in JSON" in refused(f"{line}:own.json")
    with pytest.raises(InputError, match="y has missing numbers"):
        pb.from_stan(PROGRAMS / "line.stan", DATA["line"] | {"y": [float("nan")] * 20})


def test_a_program_that_rejects_everything_is_refused_with_what_it_says(tmp_path: Path) -> None:
    program = written(tmp_path, 'parameters { real x; } model { reject("x is ", x, " as ever"); }', "never.stan")
    with pytest.raises(InputError, match=r"never: log_density is -inf .* Stan: .*as ever"):
        pb.from_stan(program)
    assert [p.name for p in tmp_path.iterdir()] == ["never.stan"]


def test_program_and_data_identify_a_density_whatever_runs_it(
    tmp_path: Path, compiled: tuple[Path, Path, Path]
) -> None:
    program, data, library = compiled
    first, again = pb.from_stan(program, data), pb.from_stan(program, data, library=library)
    assert first.source == again.source
    assert stanli.build_id() not in first.source
    (tmp_path / "included.stan").write_text("  sigma ~ exponential(0.7);\n")
    text = program.read_text().replace("  sigma ~ exponential(0.7);\n", "#include included.stan\n")
    assert read(written(tmp_path, text)).text == program.read_text()
    assert (
        pb.from_stan(program, json.loads(data.read_text()) | {"n": 19, "x": [0.0] * 19, "y": [0.0] * 19}).source
        != first.source
    )
    (tmp_path / "included.stan").write_text("  sigma ~ exponential(0.8);\n")
    assert read(written(tmp_path, text)).text != program.read_text()


def test_a_compiled_library_gives_the_same_task_without_stans_sampler(
    compiled: tuple[Path, Path, Path], call: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, data, library = compiled
    interpreted, task = pb.from_stan(program, DATA["line"]), pb.from_stan(program, data, library=library)
    x = points(interpreted)[None]
    for a, b in zip(
        *(t.target([0], "cpu", torch.float64).log_density_and_score(x) for t in (interpreted, task)), strict=True
    ):
        assert torch.equal(a, b)
    assert interpreted.provides - task.provides == {"stan"}
    assert torch.equal(pickle.loads(pickle.dumps(task.model)).density(x[0]), task.model.density(x[0]))
    monkeypatch.setenv(LIBRARY_VARIABLE, "")
    place = f"{program.name}:{data.name}"
    for name, told, provided in (
        ("gone.so", "--stan-library: no such file: gone.so", ""),
        (data.name, "", "stan"),  # a library of another name serves another program
        (library.name, "", "score"),
    ):
        answer = call("show", "task", place, "--stan-library", name, "--json")
        assert told in answer.err
        assert not provided or answer.json["provides"][-1] == provided
    with pytest.raises(InputError, match=r"line\.json: expected a library compiled by BridgeStan"):
        pb.from_stan(program, data, library=data)


@pytest.mark.ci
def test_worker_processes_take_the_library_too(
    compiled: tuple[Path, Path, Path], call: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, data, library = compiled
    monkeypatch.setenv(LIBRARY_VARIABLE, "")
    command = ("run", "-t", f"{program}:{data}", "-a", "ula", "-a", "stan-nuts", "--budget", "iterations=2", "--json")
    answer = call(*command, "--particles", "4", "--replicates", "1", "--workers", "1", "--stan-library", str(library))
    cells = answer.json["cells"]
    assert [(c["algorithm"], c["status"]) for c in cells] == [("ula", "ok"), ("stan-nuts", "unsupported")]
    assert "offers no stan, which stan-nuts needs" in cells[1]["reason"]


def test_the_built_in_task_of_a_posterior_is_named_and_agrees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Run
) -> None:
    """A folder with our program of the eight schools under posteriordb's name, against the task in PyTorch."""
    name, native = "eight_schools-eight_schools_centered", load_task("eight-schools-centered")
    data = {k: np.asarray(v).tolist() for k, v in native.variables().items()} | {"J": 8}
    program = Path(__file__).parents[1] / "tasks/stan/eight-schools-centered.stan"
    folder = write_posteriordb(tmp_path / "own", [], {name: Entry(program.read_text(), data)})
    monkeypatch.setenv(posteriordb.FOLDER_VARIABLE, str(folder))
    shown = call("show", "task", f"posteriordb:{name}", "--json").json
    assert "the built-in task eight-schools-centered is the same posterior" in shown["summary"]
    task = load_task(f"posteriordb:{name}")
    x = points(task)[None]
    for a, b in zip(
        *(t.target([0], "cpu", torch.float64).log_density_and_score(x) for t in (task, native)), strict=True
    ):
        torch.testing.assert_close(a - a.flatten()[0], b - b.flatten()[0], rtol=1e-9, atol=1e-8)
