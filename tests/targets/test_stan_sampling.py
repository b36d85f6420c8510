"""Stan's own sampler on a program: the law of its draws, and what it evaluates, counted by the program's own prints."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import Run
from scipy import stats
from stan_twins import DATA, PROGRAMS, write_posteriordb

import parvibench as pb
from parvibench.core.algorithm import take_steps
from parvibench.core.errors import UnsupportedError
from parvibench.targets import posteriordb
from parvibench.targets.stan_sampling import searches, windows

stanli = pytest.importorskip("stanli", reason="needs stanli: pip install '.[stan]'")
c_print_callback = pytest.importorskip(
    "bridgestan.model", reason="needs bridgestan: pip install '.[stan]'"
).c_print_callback


@pytest.mark.parametrize(("warmup", "step"), [(0, 0.1), (10, 1.0), (149, 1.0), (150, 1.0), (151, 2.0), (400, 1.0)])
def test_evaluations_are_those_that_the_program_sees(warmup: int, step: float, tmp_path: Path) -> None:
    """A program that prints says how often it was called: searches for a step length are in no count of Stan's."""
    text = 'parameters { vector[2] x; } model { print("here"); x[1] ~ normal(0, 1e-3); x[2] ~ student_t(3, 0, 1); }'
    (tmp_path / "own.stan").write_text(text)
    task, seen = pb.from_stan(tmp_path / "own.stan"), []
    native = task.target([0], "cpu", torch.float64).native
    native.require(torch.zeros(1, 2, dtype=torch.float64))
    task.model._model._set_print_callback(printed := c_print_callback(lambda *_: seen.append(1)), None)
    options = {"seed": 3, "warmup": warmup, "draws": 4, "depth": 6, "acceptance": 0.8}
    block = native.block(np.array([1e-3, 0.3]), step, np.ones(2), **options)
    assert len(seen) == block.evaluations
    assert printed
    assert block.step == step or warmup


def test_windows_are_stans() -> None:
    """Of 1000 transitions: 75 before, windows of 25, 50, 100, 200 and 500, 50 after."""
    assert list(windows(1000)) == [99, 149, 249, 449, 949]
    assert list(windows(150)) == [99]
    assert list(windows(149)) == []
    assert searches(np.array([0.25]), np.zeros(0), 1.0, 0.8) == 0


def test_stan_s_nuts_has_the_posterior_and_its_cost() -> None:
    """The shares' law is a Dirichlet's: each mean, by Student's t over 20 chains, p > 1e-5."""
    task, method = pb.from_stan(PROGRAMS / "shares.stan", DATA["shares"]), pb.load_algorithm("stan-nuts")
    problem = task.problem(1, seed=1, particles=20, dtype=torch.float64)
    settings = method.make_settings({})
    path = []
    for state, info in take_steps(
        method.step, problem, settings, method.init(problem, settings, problem.streams, 1000)
    ):
        path.append(state.x[0])
        assert 0.3 < info.acceptance.item() <= 1
        if len(path) == 60:
            break
    share = task.constrain(torch.stack(path).flatten(0, 1))["share"].reshape(60, 20, 4).mean(0)
    alpha = np.add(DATA["shares"]["alpha"], DATA["shares"]["counts"])
    for k in range(4):
        assert stats.ttest_1samp(share[:, k], alpha[k] / alpha.sum()).pvalue > 1e-5
    assert problem.meter.charged > 20 * (1000 + 300)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("parameters { unit_vector[3] u; } model { u[1] ~ std_normal(); }", "u, a unit vector"),
        (
            "transformed data { real m = normal_rng(0, 9); } parameters { real x; } model { x ~ normal(m, 1); }",
            "its transformed data are random",
        ),
    ],
)
def test_what_the_sampler_cannot_run_is_unsupported(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "own.stan").write_text(text)
    problem = pb.from_stan(tmp_path / "own.stan").problem(1, seed=1, particles=2, dtype=torch.float64)
    method = pb.load_algorithm("stan-nuts")
    with pytest.raises(UnsupportedError, match=f"stan-nuts does not run own.stan: .*{told}"):
        method.init(problem, method.make_settings({}), problem.streams, 100)


def test_generated_quantities_that_fail_lose_no_draws(tmp_path: Path) -> None:
    text = 'parameters { real x; } model { x ~ std_normal(); } generated quantities { reject("never"); }'
    (tmp_path / "own.stan").write_text(text)
    native = pb.from_stan(tmp_path / "own.stan").target([0], "cpu", torch.float64).native
    options = {"seed": 3, "warmup": 0, "draws": 4, "depth": 6, "acceptance": 0.8}
    assert math.isfinite(native.block(np.zeros(1), 0.5, np.ones(1), **options).position[0])


@pytest.mark.ci
def test_a_folder_in_posteriordb_s_layout_is_run_by_one_command(
    tmp_path: Path, call: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three programs and a broken one; with Stan's own sampler beside ours."""
    folder = write_posteriordb(tmp_path / "own", names := ["line", "shares", "growth"])
    monkeypatch.setenv(posteriordb.FOLDER_VARIABLE, str(folder))
    budget = ("--budget", "score_evaluations=6000", "--particles", "4", "--replicates", "1", "--workers", "0", "--json")
    answer = call("run", "--task", "posteriordb:*", "-a", "nuts", "-a", "stan-nuts", *budget)
    assert answer.code == 0, answer.err
    cells = answer.json["cells"]
    assert {c["task"] for c in cells} == {f"{n}-{n}" for n in names}
    assert [c["status"] for c in cells] == ["ok"] * 6
    assert "posteriordb:broken-broken is left out" in answer.err
    assert "Syntax error in 'broken.stan', line 3" in answer.err
    assert all(c["score_evaluations"] <= 6000 for c in cells)
