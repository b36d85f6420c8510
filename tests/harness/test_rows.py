"""Suites of rows: one run each, selected by name or published number, refused before anything runs, measured where they say."""

from pathlib import Path

import numpy as np
import pytest
from command_line import Run

from parvibench.api.plan import select
from parvibench.core.errors import InputError, SuiteError, UnknownNameError
from parvibench.harness.execution import Execution
from parvibench.harness.session import run_cells
from parvibench.harness.store.store import Store
from parvibench.harness.suite.cells import expand
from parvibench.harness.suite.suite import Suite, parse_suite
from parvibench.harness.workers.executors import InProcess

ROWS = """
name: mine
rows:
- {task: banana, algorithm: ula, label: chain, iterations: 60, particles: 1, samples: 40, burn_in: 20, checkpoints: 10,
   settings: {step_size: 0.05}, published: [{pointer: x/t/d/ULA-30/MMD, metric: mmd2_u, checkpoint: 50, samples: 30}]}
- {task: banana, algorithm: svgd, iterations: 8, checkpoints: [2, 4], particles: 20, replicates: 3}
- {task: gmm5-2d, algorithm: sifg, preset: gmm5-2d}
metrics: [sliced_w2]
replicates: 2
profiles:
  paper: {replicates: 2, hours: 0.01}
  fast: {replicates: 1, rows: [banana/*]}
"""


def parse(text: str = ROWS) -> Suite:
    return parse_suite(text.encode(), "mine.yaml")


def rows_of(suite: Suite) -> list[str]:
    return [r.title for r in suite.rows]


def test_a_row_is_a_cell_with_its_own_protocol() -> None:
    chain, svgd, sifg = expand(parse().with_profile("paper"))
    assert (chain.particles, chain.samples, chain.spec.burn_in) == (1, 40, 20)
    assert chain.spec.checkpoints == (10, 20, 30, 40, 50)
    assert set(chain.metrics) == {"sliced_w2", "mmd2_u"}
    assert (svgd.n_replicates, svgd.spec.checkpoints, svgd.metrics) == (3, (2, 4), ("sliced_w2",))
    assert (sifg.spec.budget.iterations, sifg.particles, sifg.settings["sigma"]) == (2000, 1000, 0.12)


def test_rows_are_chosen_by_name_by_number_and_by_profile() -> None:
    suite = parse()
    assert rows_of(select(suite, (), (), Execution(rows=("*/svgd",)))) == ["banana/svgd"]
    assert rows_of(select(suite, (), (), Execution(rows=("x/t/*",), profile="paper"))) == ["banana/chain"]
    assert rows_of(select(suite, (), (), Execution(profile="fast"))) == ["banana/chain", "banana/svgd"]
    assert rows_of(select(suite, ["banana"], ["ula"], Execution())) == ["banana/chain"]
    with pytest.raises(InputError, match="row \\*/hmc: no row of the suite fits"):
        select(suite, (), (), Execution(rows=("*/hmc",)))
    with pytest.raises(UnknownNameError, match="'mala'"):
        select(suite, (), ["mala"], Execution())
    with pytest.raises(InputError, match="--row selects rows of a suite"):
        select(None, ["banana"], ["svgd"], Execution(rows=("*",)))


def test_options_go_before_what_rows_say() -> None:
    chosen = select(parse(), ["banana"], ["svgd"], Execution.of(budget={"iterations": 5}, particles=10, replicates=1))
    (cell,) = expand(chosen)
    assert (cell.spec.budget.iterations, cell.particles, cell.n_replicates) == (5, 10, 1)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("metrics: [", "tasks: [banana]\nmetrics: [", "rows replace tasks and algorithms"),
        ("algorithm: svgd", "algorithm: svdg", r"mine.yaml:6: rows\[1\]: .*did you mean 'svgd'"),
        ("task: gmm5-2d", "task: gmm5", r"mine.yaml:7: rows\[2\]: no task named 'gmm5'"),
        ("metric: mmd2_u", "metric: mmd3", r"rows\[0\]: no metric named 'mmd3'"),
        ("x/t/d/ULA-30/MMD", "x/t/d", r"rows\[0\].published\[0\].pointer"),
        ("iterations: 8,", "iterations: 8, budget: {seconds: 1},", "give one of the two"),
        ("algorithm: svgd,", "algorithm: svgd, varies: banana/hmc,", "banana/svgd varies banana/hmc, which is no row"),
        ("algorithm: svgd,", "algorithm: svgd, label: chain,", "row given twice: banana/chain"),
        ("algorithm: svgd,", "algorithm: svgd, particels: 3,", "rows.*particels"),
    ],
)  # fmt: skip
def test_a_malformed_row_has_its_place(old: str, new: str, expected: str) -> None:
    with pytest.raises(SuiteError, match=expected):
        parse(ROWS.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("samples: 30", "samples: 35", "x/t/d/ULA-30/MMD is of 35 samples; chain has 30 there"),
        ("checkpoint: 50", "checkpoint: 80", "80 is beyond its 60 iterations"),
        ("iterations: 8, ", "", "svgd on banana has no budget"),
        ("iterations: 8,", "budget: {seconds: 1},", "checkpoints of svgd are iterations"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_runs(old: str, new: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        expand(parse(ROWS.replace(old, new)))


def test_a_single_sample_is_refused(call: Run, tmp_path: Path) -> None:
    """One particle, and nothing said of samples: a spread and a mean over draws mean nothing then."""
    given = ["run", "--task", "bnn-diabetes-sklearn", "--algorithm", "sgld", "--particles", "1", "--out", str(tmp_path)]
    refused = call(*given)
    assert refused.code == 2
    assert "sgld on bnn-diabetes-sklearn is judged by a single sample" in refused.err
    assert call(*given, "--samples", "10", "--dry-run").code == 0


def test_rows_are_measured_at_their_checkpoints_by_what_a_chain_has_by_then(tmp_path: Path) -> None:
    suite = parse().with_profile("fast")
    results = run_cells(expand(suite), Store(tmp_path), InProcess(), suite=suite.resolved())
    chain, svgd = results.cells
    assert sorted(set(results.curve(svgd)["iteration"])) == [2, 4, 8]
    curve = results.curve(chain)
    assert sorted(set(curve["iteration"])) == [10, 20, 30, 40, 50, 60]
    # Of the thirty states after the burn-in none is judged twice: the whole run's first thirty are the same.
    samples = results.samples(chain)
    assert samples is not None
    assert len(np.unique(samples[0], axis=0)) == 40
    short = parse(ROWS.replace("iterations: 60", "iterations: 50")).with_profile("fast").with_rows(["*/chain"])
    (again,) = run_cells(expand(short), Store(tmp_path / "b"), InProcess(), suite=short.resolved()).cells
    at = curve[(curve["iteration"] == 50) & (curve["metric"] == "mmd2_u")]["value"]
    assert again.values["mmd2_u"] == pytest.approx(list(at))


def test_the_command_lists_shows_and_foresees_rows(call: Run, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(ROWS)
    shown = call("show", "suite", str(path), "--json").json
    assert shown["published"] == {"banana/chain": ["x/t/d/ULA-30/MMD"]}
    assert set(shown["rows"]) == {"banana/chain", "banana/svgd", "gmm5-2d/sifg"}
    given = ("run", "--suite", str(path), "--row", "banana/*", "--dry-run", "--json", "--out", str(tmp_path / "out"))
    foreseen = call(*given).json
    assert [(r["task"], r["label"]) for r in foreseen] == [("banana", "chain"), ("banana", "svgd")]
    assert all(r["predicted_seconds"] > 0 for r in foreseen)
