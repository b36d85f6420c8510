"""The suite ``posteriordb`` on a local copy of six posteriors with simulated draws: judged by them, and gaps are named."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Run
from stan_twins import Entry, write_posteriordb

import parvibench as pb
from parvibench.core.errors import DataMissingError
from parvibench.core.registry import load_task
from parvibench.data.draws.forms import in_coordinates
from parvibench.metrics import own_floors
from parvibench.reference import build
from parvibench.reporting.facts.board import task_group
from parvibench.targets import posteriordb

RNG = np.random.default_rng(72)
SHAPE = (10, 1000)
SMALL = {
    own_floors: {"SIZES": (100,), "FEWEST": 300, "SETS_A_METRIC": 1, "CURVE": ()},
    build: {"ROWS": 600, "POOL": 3000},
}
X = np.linspace(-1, 1, 3)


def chains(**values: np.ndarray) -> list[dict[str, list[float]]]:
    """Values (10, 1000) or (10, 1000, k) as posteriordb stores them."""
    columns = {
        name if v.ndim == 2 else f"{name}[{i + 1}]": v if v.ndim == 2 else v[..., i]
        for name, v in values.items()
        for i in range(1 if v.ndim == 2 else v.shape[2])
    }
    return [{name: column[c].tolist() for name, column in columns.items()} for c in range(SHAPE[0])]


mu, tau, z = RNG.normal(0, 5, SHAPE), RNG.lognormal(0, 0.3, SHAPE), RNG.normal(size=(*SHAPE, 2))
rho, alpha, f_tilde = RNG.gamma(25, 1 / 4, SHAPE), RNG.lognormal(0, 0.5, SHAPE), RNG.normal(size=(*SHAPE, 3))
_kernel = alpha[..., None, None] ** 2 * np.exp(-0.5 * (np.subtract.outer(X, X) / rho[..., None, None]) ** 2)
_factor = np.linalg.cholesky(_kernel + 1e-10 * np.eye(3))
ONE = "parameters {{ {} a; }} model {{ a ~ {}; }}"
COPY = {
    "arK-arK": Entry("parameters { vector[2] b; } model { b ~ std_normal(); }", {}, chains(b=RNG.normal(size=(*SHAPE, 2)))),
    "garch-garch11": Entry(ONE.format("real<lower=0>", "exponential(2)"), {}, chains(a=RNG.exponential(0.5, SHAPE))),
    "sblri-blr": Entry(ONE.format("real<lower=0, upper=1>", "beta(3, 5)"), {}, chains(a=RNG.beta(3, 5, SHAPE))),
    "nes2000-nes": Entry(ONE.format("real", "normal(0, 1)"), {}, chains(a=RNG.normal(0, 1.2, SHAPE))),
    "eight_schools-eight_schools_noncentered": Entry(
        "parameters { vector[2] theta_trans; real mu; real<lower=0> tau; } "
        "model { theta_trans ~ std_normal(); mu ~ normal(0, 5); tau ~ lognormal(0, 0.3); }",
        {}, chains(theta=mu[..., None] + tau[..., None] * z, mu=mu, tau=tau),
    ),
    "gp_pois_regr-gp_pois_regr": Entry(
        "parameters { real<lower=0> rho; real<lower=0> alpha; vector[3] f_tilde; } "
        "model { rho ~ gamma(25, 4); alpha ~ lognormal(0, 0.5); f_tilde ~ std_normal(); }",
        {"x": X.tolist()}, chains(rho=rho, alpha=alpha, f=(_factor @ f_tilde[..., None])[..., 0]),
    ),
    "mesquite-mesquite": Entry(ONE.format("real", "normal(0, 1)"), {}, []),
    "diamonds-diamonds": Entry(ONE.format("real", "normal(0, 1)"), {}, chains(other=mu)),
    "kidiq-kidscore_interaction": Entry("parameters { real a }", {}, chains(a=mu)),
}  # fmt: skip


def missing(*_: object) -> Path:
    raise DataMissingError("cannot be downloaded")


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(posteriordb.FOLDER_VARIABLE, str(write_posteriordb(tmp_path / "copy", [], COPY)))
    for module, values in SMALL.items():
        for name, value in values.items():
            monkeypatch.setattr(module, name, value)


def test_posteriors_are_judged_by_their_draws_which_are_tested_once(copy: None, tmp_path: Path) -> None:
    budget, said = {"scores_per_particle": 10}, list[str]()
    options: Any = {"particles": 100, "replicates": 1, "budget": budget, "workers": 0, "tracking": False}
    options |= {"out": tmp_path / "store", "warn": said.append}
    results = pb.run("posteriordb", algorithms=["nuts", "exact"], **options)
    judged = set(list(COPY)[:6])
    assert {c.spec.task for c in results.cells} == judged
    kinds = {"time series", "linear regression", "hierarchical models", "Gaussian processes"}
    assert {task_group(c.task) for c in results.cells} == kinds
    for cell in results.cells:
        assert cell.status == "ok"
        assert 0 < cell.values["sliced_w2"][0] < 10
    for line in (
        f"(11) are left out: not in {tmp_path}",
        "posteriordb:kidiq-kidscore_interaction is left out: kidiq-kidscore_interaction: kidscore_interaction.stan: Syntax error",
        "mesquite-mesquite is left out: its reference draws cannot be used",
        "diamonds-diamonds is left out: its reference draws cannot be used: the names of columns do not match, a missing",
        "nes2000-nes: not certified; its draws disagree with its program: Stein identity",
    ):
        assert line in "\n".join(said)
    assert sum("disagree" in line for line in said) == 1
    for name in judged:
        certificate = json.loads((tmp_path / f"parvibench-references/{name}.json").read_text())
        assert (certificate["grade"] in ("certified", "standard")) == (name != "nes2000-nes")
    said.clear()
    pb.run("posteriordb", tasks=["posteriordb:arK-arK"], algorithms=["exact"], **options)
    assert said == []


def test_parameters_are_computed_from_draws_of_effects(copy: None) -> None:
    for name, parameter, wanted in (
        ("eight_schools-eight_schools_noncentered", "theta_trans", z),
        ("gp_pois_regr-gp_pois_regr", "f_tilde", f_tilde),
    ):
        task = load_task(f"posteriordb:{name}")
        found = in_coordinates(task.given_draws(), task)
        place = [i for i, c in enumerate(task.coordinates) if c.startswith(parameter)]
        np.testing.assert_allclose(found.values[..., place], wanted, atol=1e-5)
        assert f"{parameter} computed from" in " ".join(found.read)


def test_the_suite_is_listed_and_shown_without_a_copy(
    call: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(posteriordb.FOLDER_VARIABLE, raising=False)
    monkeypatch.setattr(posteriordb, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(posteriordb, "fetch_file", missing)
    (row,) = [row for row in call("list", "suites", "--json").json if row["name"] == "posteriordb"]
    shown = call("show", "suite", "posteriordb", "--json").json
    for description in (row["description"], shown["description"]):
        assert "PARVIBENCH_POSTERIORDB=FOLDER, a clone of https://github.com/stan-dev/posteriordb" in description
    assert (row["tasks"], len(shown["tasks"])) == (47, 47)
    answer = call("run", "--suite", "posteriordb")
    assert (answer.code, answer.out) == (2, "")
    assert "set PARVIBENCH_POSTERIORDB to a clone" in answer.err
