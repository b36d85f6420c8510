"""What is said of numbers that stay open: how many seeds would decide, and what a grid can reach."""

from types import SimpleNamespace
from typing import Any

import pytest
from papers.comparison import compare
from papers.kinds import SEEDS, Beside, Evidence, Kind, chains_needed, findings, seeds_needed
from papers.published import numbers
from papers.reach import GRIDS, Grid, lines_of
from papers.replicates import Ours
from scipy import stats

from parvibench.harness.suite.suite import load_suite

#: Tests of studies, which are no part of the product.
pytestmark = pytest.mark.ci

GRID = Grid("bnn-yacht-srld", "svgd", "bnn-liu-wang", (1e-3, 1e-2), "srld/table-1/Yacht/SVGD", "LL", 2, iterations=10)


def beside(ours: Ours, published: float = 1.0, tolerance: float = 0.1) -> Any:
    return SimpleNamespace(ours=ours, published=published, tolerance=tolerance)


def interval(mean: float, sd: float, n: int) -> Ours:
    half = stats.t.ppf(0.975, n - 1) * sd / n**0.5
    return Ours(mean, mean - half, mean + half, n)


@pytest.mark.parametrize(("mean", "sd"), [(1.05, 0.06), (1.15, 0.1), (0.98, 0.2), (1.2, 0.5)])
def test_the_seeds_that_are_named_decide_and_fewer_do_not(mean: float, sd: float) -> None:
    """At that mean and spread, by the rule of the audit itself: inside or outside of the tolerance as a whole."""

    def decided(n: int) -> bool:
        ours = interval(mean, sd, n)
        inside = ours.low > 0.9 and ours.high < 1.1
        return inside or ours.low > 1.1 or ours.high < 0.9

    said = seeds_needed(beside(interval(mean, sd, 3)))
    named = next(n for n in SEEDS if f"about {n} seeds" in said)
    assert decided(named)
    assert not any(decided(n) for n in SEEDS if n < named)


def test_a_mean_on_the_border_needs_more_than_anybody_has() -> None:
    assert seeds_needed(beside(interval(1.1001, 0.2, 3))).startswith("more than 400 seeds")
    assert not seeds_needed(beside(Ours(1.0, float("-inf"), float("inf"), 1)))


@pytest.mark.parametrize(("noise", "told"), [(0.03, "may decide"), (0.06, "no number of chains")])
def test_chains_cannot_take_away_the_noise_of_the_paper_s(noise: float, told: str) -> None:
    """``noise`` is the half width for endless chains; with two chains a split it is larger by the root of 1.5."""
    half = noise * 1.5**0.5
    assert told in chains_needed(
        beside(Ours(1.05, 1.05 - half, 1.05 + half, 40)), Ours(1.05, 1.05 - half, 1.05 + half, 40)
    )


@pytest.mark.parametrize(
    ("low", "high", "kind"),
    [(3.4, 9.0, Kind.WITHIN), (3.7, 9.0, Kind.OUT), (1.0, 2.9, Kind.OUT), (1.0, 3.1, Kind.WITHIN)],
)
def test_reach_of_a_number_without_a_row(low: float, high: float, kind: Kind) -> None:
    """SVGD on Boston in SRLD's Table 1: 3.300 with two standard deviations of 0.142."""
    pointer = f"{GRID.pointer}/RMSE".replace("Yacht", "Boston")
    found = compare(load_suite("srld-table-1"), {})
    judged = findings(found, Evidence(reach={pointer: Beside(Ours(low, low, high, 4))}))
    assert [f.kind for f in judged if f.pointer == pointer] == [kind]


def cells(*by_value: tuple[list[float | None], list[float | None]]) -> Any:
    return [SimpleNamespace(values={"rmse": rmse, "nll": nll}) for rmse, nll in by_value]


def test_a_grid_s_ends_are_those_of_its_means() -> None:
    rmse, likelihood = lines_of(GRID, cells(([3.0, 5.0], [2.0, 2.2]), ([1.0, 2.0], [3.0, 3.2])))
    assert (rmse["pointer"], rmse["mean"], rmse["low"], rmse["high"], rmse["n"]) == (
        f"{GRID.pointer}/RMSE",
        1.5,
        1.5,
        4.0,
        2,
    )
    assert (likelihood["mean"], likelihood["low"], likelihood["high"]) == pytest.approx((-2.1, -3.1, -2.1))
    assert "ours is the best, at 0.01 and 10 iterations, an end of the grid" in str(rmse["note"])


def test_what_diverged_is_left_out_and_told() -> None:
    rmse, _ = lines_of(GRID, cells(([3.0, 5.0], [2.0, 2.2]), ([1.0, None], [3.0, float("inf")])))
    assert (rmse["mean"], rmse["n"]) == (4.0, 1)
    assert str(rmse["note"]).endswith("; 1 diverged")
    assert lines_of(GRID, cells(([None, 1.0], [None, 1.0]), ([None, 1.0], [None, 1.0]))) == []


def test_a_grid_goes_on_where_its_end_is_best() -> None:
    low, high = ([3.0, 3.0], [1.0, 1.0]), ([1.0, 1.0], [1.0, 1.0])
    assert GRID.further(cells(low, high)).values == (1e-3, 1e-2, pytest.approx(1e-1))
    assert GRID.further(cells(high, low)).values == (pytest.approx(1e-4), 1e-3, 1e-2)
    assert GRID.further(cells(low, high)).points[-1] == (1e-2, 50)
    named = Grid(GRID.task, "sgld", GRID.preset, GRID.values, GRID.pointer, replicates=2, named=True)
    assert named.further(cells(low, high)) is named


def test_every_grid_is_held_against_published_numbers() -> None:
    asked = [f"{grid.pointer}/{metric}" for grid in GRIDS for metric in ("RMSE", grid.likelihood)]
    assert len(set(asked)) == len(asked)
    assert set(asked) <= set(numbers())
    assert all(grid.named or grid.values[-1] / grid.values[0] >= 99 for grid in GRIDS)
