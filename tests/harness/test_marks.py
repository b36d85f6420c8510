"""Rules for replicates that blew up, chains on their way and runs that were too short, against plain arithmetic."""

import made_stores
import numpy as np
import pytest
import records
import torch
from scipy import stats

from parvibench.core import registry
from parvibench.core.metric import Context
from parvibench.core.result import Status
from parvibench.data.loaders import load
from parvibench.data.splits import split
from parvibench.harness.marks.blown_up import counted, rmse_limits
from parvibench.harness.marks.convergence import (
    ALPHA,
    MAX_RHAT,
    convergence,
    largest_rhat,
    still_improving,
    transient,
    undiagnosed,
)
from parvibench.harness.run.recorder import PathRecorder, kept_states
from parvibench.harness.store.cell_files import CurveGrid
from parvibench.metrics.chains import rhat


def cell(algorithm, values, **changes):
    kind = "anchor" if algorithm == "initial" else "particles"
    ids = tuple(range(len(values)))
    return records.make_record(
        algorithm, algorithm=algorithm, kind=kind, replicates=ids, values={"sliced_w2": values, "seconds": [1.0] * len(ids)}, iterations=40, **changes
    )  # fmt: skip


def after(*cells):
    return {c.label: c for c in counted(cells, lambda task: "sliced_w2")}


def test_a_replicate_beyond_five_times_the_start_counts_as_diverged():
    """A median of 1 at the start: 4.9 stays, 5.1 and 500 go, the cell goes on, and the worst is recorded."""
    found = after(
        cell("initial", [0.5, 1.0, 9.0]), cell("svgd", [0.2, 5.1, 4.9, 500.0, None], n_diverged=1, diverged={4: 7})
    )
    svgd = found["svgd"]
    assert svgd.values["sliced_w2"] == [0.2, None, 4.9, None, None]
    assert svgd.values["seconds"] == [1.0] * 5  # costs stand
    assert (svgd.n_diverged, svgd.diverged, svgd.status) == (3, {1: 40, 3: 40, 4: 7}, Status.OK)
    assert (svgd.worst, svgd.n_lost) == (500.0, 1)
    assert "2 of 5 replicates ended above 5 in sliced_w2, 5 times initial's" in svgd.reason
    assert found["initial"].values["sliced_w2"] == [0.5, 1.0, 9.0]


def test_a_cell_whose_replicates_all_blew_up_has_diverged():
    assert after(cell("initial", [1.0]), cell("svgd", [6.0, 7.0]))["svgd"].status is Status.DIVERGED


@pytest.mark.parametrize("start", [[-2.0, -2.0], [None, None]])
def test_a_start_without_a_positive_value_sets_no_limit(start):
    """Five times a log likelihood below zero would be a better one."""
    assert after(cell("initial", start), cell("svgd", [1e9]))["svgd"].values["sliced_w2"] == [1e9]


def test_the_limit_of_the_error_is_ten_times_that_of_the_training_mean():
    held_out = registry.load_task("bnn-diabetes-sklearn").predictive((0, 3), "cpu", torch.float64)
    table = load("sklearn-diabetes")
    for replicate, limit in zip((0, 3), rmse_limits(held_out), strict=True):
        rows = split(len(table.y), replicate)
        assert limit == pytest.approx(10 * np.sqrt(np.mean((table.y[rows.test] - table.y[rows.train].mean()) ** 2)))


@pytest.mark.parametrize(
    ("rhat", "ess", "expected"),
    [([1.01, 1.02, 1.2], [30.0] * 3, False), ([1.2, 1.3, 1.0], [30.0] * 3, True), ([1.0] * 3, [24.0, 24.0, 99.0], True),
     ([None, None, 1.0], [99.0] * 3, True), (None, None, None)],
)  # fmt: skip
def test_chains_are_transient_by_r_hat_or_by_the_ess_of_their_path(rhat, ess, expected):
    """n = 100: a quarter is 25; medians over replicates; no finite R-hat is no convergence."""
    values = {} if rhat is None else {"rhat": rhat, "ess_bulk": ess}
    assert transient(records.make_record(kind="chains", samples=100, values=values)) is expected


def grid(before, last, metric="sliced_w2", checkpoints=(0, 1, 2)):
    """Checkpoints of paired replicates."""
    rows = [
        (r, c, 10 * c, 1.0, 1.0, metric, v)
        for c, values in enumerate((before, before, last))
        for r, v in enumerate(values)
        if c in checkpoints
    ]
    return CurveGrid.of(records.make_curve(rows))


def test_still_improving_follows_the_paired_median_and_its_interval():
    rng = np.random.default_rng(0)
    for _ in range(200):
        before = rng.lognormal(0, 0.3, 8)
        last = before * (1 - rng.uniform(0, 0.2)) + rng.normal(0, rng.choice([0.01, 0.2]), 8)
        fall = np.sort(before - last)
        # The sign test's interval of a median of eight: smallest and largest, since P(Bin(8, 1/2) < 1) = 1/256 <= 2.5%.
        assert stats.binom.cdf(1, 8, 0.5) > 0.025
        expected = np.median(fall) > 0.05 * np.median(before) and fall[0] > 0
        assert still_improving(grid(before, last), "sliced_w2") == expected


def test_a_log_likelihood_must_fall_by_five_hundredths_of_a_nat():
    """Whatever the units of y: 2.00 to 1.96 is 2%, and -0.10 to -0.16 is 60%."""
    for shift in (2.0, 0.0, -4.0):
        assert not still_improving(grid([shift] * 8, [shift - 0.04] * 8, "nll"), "nll")
        assert still_improving(grid([shift] * 8, [shift - 0.06] * 8, "nll"), "nll")


def test_replicates_that_stopped_are_left_out_and_one_checkpoint_tells_nothing():
    lost = [1.0] * 7 + [np.inf]
    assert still_improving(grid([2.0] * 8, lost), "sliced_w2")
    assert still_improving(grid([2.0] * 8, [1.0] * 8, checkpoints=[2]), "sliced_w2") is None


def test_the_largest_r_hat_of_exact_chains_is_exceeded_as_often_as_it_says():
    """Of four chains of 16 draws and ten of 8 (nested), in two dimensions: 300 exact paths each, against 5% of chance; above 1.05
    are a third of the former and most of the latter."""
    generator, task = torch.Generator().manual_seed(7), registry.load_task("banana")
    for chains, draws in ((4, 16), (10, 8)):
        path = torch.randn(300, draws, chains, 2, generator=generator, dtype=torch.float64)
        found = rhat(path[:, 0], Context(task, None, path=path)).numpy()
        assert (found > MAX_RHAT).mean() > 0.3
        assert (found > largest_rhat(draws, chains, 2)).sum() <= stats.binom.ppf(0.999, 300, ALPHA)
        assert largest_rhat(1000, chains, 2) < MAX_RHAT


@pytest.mark.parametrize(("iterations", "word"), [(16, "unknown"), (200, "transient")])
def test_of_few_draws_r_hat_does_not_tell(tmp_path, iterations, word):
    """Ten chains of 8 draws after burn-in, or of 100, with an R-hat of 1.1."""
    values = {"sliced_w2": [0.5] * 3, "rhat": [1.1] * 3, "ess_bulk": [90.0] * 3}
    record = records.make_record(
        "few", kind="chains", particles=10, samples=80, burn_in=0.5, values=values, iterations=iterations
    )
    rows = [(r, c, iterations // (2 - c), 1.0, 1.0, "sliced_w2", 0.5) for c in range(2) for r in range(3)]
    curve = records.make_curve(rows)
    run = made_stores.write_store(tmp_path, [(record, curve, None)])
    (cell,) = run.cells
    assert convergence(run, cell, "sliced_w2") == word
    assert undiagnosed(run, cell) is (word == "unknown")


@pytest.mark.parametrize(("size", "iterations"), [((1, 2, 3), 9000), ((2, 50, 40), 700), ((1, 400, 9000), 50)])
def test_kept_states_are_those_of_the_recorder(size, iterations):
    spec = records.make_record(chunk=size[0], particles=size[1], burn_in=0.25, thinning=3).spec
    recorder = PathRecorder(torch.zeros(size), spec.burn_in, spec.thinning)
    for step in range(1, iterations + 1):
        recorder.add(step, torch.zeros(size))
    assert kept_states(spec, iterations, size[2]) == recorder.held
