"""Published numbers and ours: all there, compared only with their own row, judged by one rule, causes demonstrated."""

import math

import numpy as np
import pandas as pd
import pytest
from paper_cells import BOSTON, SVGD_NLL, SVGD_RMSE, of_table_1, ran
from papers.comparison import SuiteComparison, Verdict, compare, effect_table, judge, tolerance
from papers.published import PAPERS, Number, numbers
from papers.replicates import Ours, Ran, measure, protocol

from parvibench.core.result import CellRecord
from parvibench.harness.store.store import Store
from parvibench.harness.suite.cells import expand
from parvibench.harness.suite.suite import Suite, load_suite, parse_suite


def test_every_published_number_is_there_as_printed_and_the_contradictions_are_flagged() -> None:
    counts = {paper: sum(n.paper == paper for n in numbers().values()) for paper in PAPERS}
    assert counts == {"sifg": 60, "srld": 132, "ksivi": 159, "lapd": 0}
    everything = numbers().values()
    assert all(math.isfinite(n.value) for n in everything)
    flagged = [n for n in everything if n.suspicious]
    assert len(flagged) == 35
    assert all(n.note for n in flagged)
    naval = numbers()["srld/table-1/Naval/SVGD/RMSE"]
    assert (naval.value, naval.unit, naval.printed) == (0.006, pytest.approx(0.001), "0.006 ± 0")
    assert numbers()["ksivi/table-2/d=50/SIVI/train_seconds_per_10k_iters"].printed == "58.00"  # zeros are digits
    # Rows that are equal where they should not be, found again from the numbers.
    white, red = (numbers()[f"srld/table-1/{d}/SVGD/RMSE"] for d in ("WineWhite", "WineRed"))
    assert white.value == red.value
    assert white.suspicious
    first = [n.value for n in everything if n.pointer.startswith("ksivi/table-1/") and n.algorithm == "SGLD"]
    eighth = [n for n in everything if n.pointer.startswith("ksivi/table-8/") and n.algorithm == "KSIVI-ustat"]
    assert sorted(first) == sorted(n.value for n in eighth)
    assert all(n.suspicious for n in eighth)


def number(value: float, unit: float = 0.001, std: float = math.nan) -> Number:
    return Number("p/t/d/a/m", "p", "t", "d", "a", "m", value, unit, std, 10, False, "")


@pytest.mark.parametrize(
    ("printed", "allowed"),
    [(number(3.0, std=0.2), 0.4), (number(0.006), 0.001), (number(3.0, std=0.0), 0.06), (number(-2.5), 0.05)],
    ids=["two spreads", "one printed unit", "two percent", "of the size"],
)
def test_tolerances(printed: Number, allowed: float) -> None:
    assert tolerance(printed) == (printed.value, pytest.approx(allowed))


def test_the_tolerance_of_a_ratio() -> None:
    """58.00 / 56.67: two percent of the ratio; of coarse numbers the printed units of both."""
    assert tolerance(number(58.0, 0.01), number(56.67, 0.01)) == (
        pytest.approx(58 / 56.67),
        pytest.approx(0.0205, 1e-2),
    )
    assert tolerance(number(2.0, 0.1), number(1.0, 0.1))[1] == pytest.approx(2 * (0.05 + 0.1))


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([2.99, 3.0, 3.01], Verdict.AGREES),
        ([3.2, 3.21, 3.19], Verdict.DIFFERS),
        ([2.8, 2.81, 2.79], Verdict.DIFFERS),
        ([2.9, 3.1, 3.0], Verdict.INCONCLUSIVE),  # too wide an interval
        ([3.05, 3.07, 3.06], Verdict.INCONCLUSIVE),  # across the edge
        ([3.0], Verdict.INCONCLUSIVE),  # no interval
        ([3.0, 3.0, math.inf], Verdict.DIFFERS),
    ],
)
def test_verdicts(values: list[float], verdict: Verdict) -> None:
    assert judge(3.0, 0.06, Ours.of(values)) is verdict


def test_the_interval_covers_the_mean_as_often_as_it_says() -> None:
    generator = np.random.default_rng(0)
    hits = 0
    for _ in range(1500):
        ours = Ours.of(list(generator.normal(3, 0.7, 4)))
        hits += ours.low <= 3 <= ours.high
    assert hits / 1500 == pytest.approx(0.95, abs=0.028)  # five standard errors


def found(root: object, suite: Suite, *records: CellRecord, curve: pd.DataFrame | None = None) -> SuiteComparison:
    store = Store(root)  # type: ignore[arg-type]
    for record in records:
        store.write_cell(record, curve, None)
    return compare(suite, measure(suite, {protocol(r.spec): Ran(store, r) for r in records}))


def verdicts(findings: SuiteComparison) -> dict[str, Verdict]:
    return {c.number.pointer: c.verdict for c in findings.comparisons}


def test_a_number_stands_beside_its_own_row(tmp_path) -> None:
    """However many seeds, on whatever device, from whatever suite: the protocol decides."""
    suite, (cell,) = of_table_1(f"{BOSTON}/svgd")
    findings = found(tmp_path, suite, ran(cell, {"rmse": [2.94, 2.95, 2.943], "nll": [9.0, 9.1, 9.2]}))
    assert verdicts(findings) == {SVGD_RMSE: Verdict.AGREES, SVGD_NLL: Verdict.DIFFERS}
    rmse = findings.comparisons[0]
    assert rmse.ours is not None
    assert (rmse.published, rmse.ours.n) == (2.944, 3)
    assert rmse.gap == pytest.approx(np.mean([2.94, 2.95, 2.943]) - 2.944)


@pytest.mark.parametrize("changes", [{"particles": 20}, {"settings": {"step_size": 1.0}}, {"samples": 50}])
def test_another_protocol_is_not_compared(tmp_path, changes) -> None:
    suite, (cell,) = of_table_1(f"{BOSTON}/svgd")
    assert set(verdicts(found(tmp_path, suite, ran(cell, {"rmse": [2.9, 2.9]}, **changes))).values()) == {
        Verdict.NOT_RUN
    }


def test_contradictions_and_unpublished_settings_are_shown_and_not_judged(tmp_path) -> None:
    suite, cells = of_table_1("bnn-power-sifg/svgd", f"{BOSTON}/sgld")
    both = [ran(c, {"rmse": [4.9, 4.9, 4.9], "nll": [3.0, 3.0, 3.0]}) for c in cells]
    findings = found(tmp_path, suite, *both)
    assert set(verdicts(findings).values()) == {Verdict.INCOMPARABLE}
    assert {c.reason.partition(":")[0] for c in findings.comparisons} == {
        "the paper contradicts itself",
        "the paper states no settings of SGLD; these are its program's",
    }
    assert all(c.ours is not None for c in findings.comparisons)


def test_a_change_that_closes_half_of_a_gap_is_its_cause(tmp_path) -> None:
    suite, (svgd, slow) = of_table_1(f"{BOSTON}/svgd", f"{BOSTON}/svgd-1e-4")
    base = ran(svgd, {"rmse": [3.5, 3.51, 3.49], "nll": [2.9, 2.91, 2.89]})
    near = ran(slow, {"rmse": [3.0, 3.01, 2.99], "nll": [2.88, 2.89, 2.87]})
    findings = found(tmp_path, suite, base, near)
    rmse, nll = findings.comparisons
    assert (rmse.verdict, rmse.cause) == (Verdict.DIFFERS, "the other step size that stands in the program")
    assert (nll.verdict, nll.cause) == (Verdict.DIFFERS, "")
    assert [round(e.closes, 2) for e in findings.effects] == [0.9, pytest.approx(0.06, abs=0.03)]
    table = effect_table(findings)
    assert table is not None
    assert table.rows[0].entries[-1].text == "90%"


TIMES = """
name: times
rows:
- {task: diffusion-50, algorithm: ksivi, preset: diffusion-50, iterations: 100,
   published: [{pointer: ksivi/table-2/d=50/KSIVI/train_seconds_per_10k_iters, metric: seconds, unjudged: the unit}]}
- {task: diffusion-50, algorithm: sivi, preset: diffusion-50, iterations: 100,
   published: [{pointer: ksivi/table-2/d=50/SIVI/train_seconds_per_10k_iters, metric: seconds,
                over: ksivi/table-2/d=50/KSIVI/train_seconds_per_10k_iters}]}
"""


@pytest.mark.parametrize(("hardware", "verdict"), [("one", Verdict.AGREES), ("another", Verdict.INCOMPARABLE)])
def test_times_are_compared_as_ratios_on_one_machine(tmp_path, hardware: str, verdict: Verdict) -> None:
    suite = parse_suite(TIMES.encode(), "times.yaml")
    ksivi, sivi = expand(suite)
    records = [ran(ksivi, {"seconds": [1.0, 2.0, 3.0]}), ran(sivi, {"seconds": [1.02, 2.04, 3.06]})]
    records = [r.model_copy(update={"hardware": h}) for r, h in zip(records, ("one", hardware), strict=True)]
    unit, ratio = found(tmp_path, suite, *records).comparisons
    assert unit.verdict is Verdict.INCOMPARABLE
    assert ratio.verdict is verdict
    if verdict is Verdict.AGREES:
        assert ratio.published == pytest.approx(58 / 56.67)
        assert ratio.ours is not None
        assert ratio.ours.mean == pytest.approx(1.02)


def test_times_that_replicates_of_a_chunk_share_have_no_interval(tmp_path) -> None:
    """They say nothing of how times vary: no verdict."""
    suite = parse_suite(TIMES.encode(), "times.yaml")
    ksivi, sivi = expand(suite)
    records = [ran(ksivi, {"seconds": [1.0, 1.0, 1.0]}), ran(sivi, {"seconds": [1.02, 1.02, 1.02]})]
    unit, ratio = found(tmp_path, suite, *(r.model_copy(update={"hardware": "one"}) for r in records)).comparisons
    assert ratio.verdict is Verdict.INCONCLUSIVE
    assert ratio.ours is not None
    assert (ratio.ours.mean, ratio.ours.n, ratio.ours.high) == (pytest.approx(1.02), 1, math.inf)
    assert unit.ours is not None
    assert unit.ours.n == 1


def test_a_number_on_the_way_is_read_off_the_curve_in_the_papers_sign(tmp_path) -> None:
    suite = load_suite("srld-table-4").with_rows(["bnn-energy-srld/srld"])
    (cell,) = expand(suite)
    rows = [(r, 2, 42_000, 1.0, 1.0, "nll", 0.5 + 0.001 * r) for r in range(3)]
    columns = ["replicate", "checkpoint", "iteration", "score_evaluations", "seconds", "metric", "value"]
    record = ran(cell, {"nll": [0.4, 0.4, 0.4]})
    findings = found(tmp_path, suite, record, curve=pd.DataFrame(rows, columns=columns))
    by_size = {c.number.algorithm: c for c in findings.comparisons if c.row is not None}
    assert by_size["SRLD-20"].ours == Ours.of([-0.5, -0.501, -0.502])
    assert by_size["SRLD-100"].ours == Ours.of([-0.4] * 3)
    assert by_size["SRLD-40"].reason == "nll was not measured there"
