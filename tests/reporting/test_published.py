"""Published numbers and ours: all there, compared only with their own row, judged by one rule, causes demonstrated."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from command_line import Run

from parvibench.core.errors import InputError
from parvibench.core.result import CellRecord, Status
from parvibench.harness.store.store import Store
from parvibench.harness.suite.cells import Cell, expand
from parvibench.harness.suite.entries import Tuned
from parvibench.harness.suite.suite import Suite, load_suite, parse_suite
from parvibench.reporting.paper_comparison import Findings, Verdict, compare, judge, tolerance
from parvibench.reporting.paper_measured import Ours, combined, measure, read_changes, read_kept, records_of, write_kept
from parvibench.reporting.paper_tables import departures, effect_table, measured_table, paper_tables, summary_table
from parvibench.reporting.published import PAPERS, Number, numbers

BOSTON = "bnn-boston-sifg"
SVGD_RMSE, SVGD_NLL = (f"sifg/table-1/Boston/SVGD/{m}" for m in ("RMSE", "NLL"))


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


def ran(cell: Cell, values: dict[str, list[float]], **changes: object) -> CellRecord:
    """A result of a cell made by hand; ``changes`` are of its specification."""
    n = len(next(iter(values.values())))
    spec = cell.spec.model_copy(update={"replicates": tuple(range(n)), "chunk": 1, "seed": 7, **changes})
    return CellRecord(spec=spec, label=cell.label, kind="particles", status=Status.OK, iterations=100, values=values)


def found(root: object, suite: Suite, *records: CellRecord, curve: pd.DataFrame | None = None) -> Findings:
    store = Store(root)  # type: ignore[arg-type]
    for record in records:
        store.write_cell(record, curve, None)
    return compare(suite, measure(suite, records_of([store])))


def of_table_1(*patterns: str) -> tuple[Suite, list[Cell]]:
    suite = load_suite("sifg-table-1").with_rows(patterns)
    return suite, expand(suite)


def verdicts(findings: Findings) -> dict[str, Verdict]:
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
    summary = summary_table([findings])
    assert dict(zip([c.title for c in summary.columns], [e.text for e in summary.rows[0].entries], strict=True)) == {
        "suite": "sifg-table-1", "numbers": "2", "agree": "0", "differ, cause shown": "1", "differ, unexplained": "1",
        "inconclusive": "0", "cannot be compared": "0", "not run": "0", "explained of those judged": "1 of 2",
    }  # fmt: skip


def test_a_study_shows_a_cause_that_no_row_can(tmp_path) -> None:
    suite, (svgd,) = of_table_1(f"{BOSTON}/svgd")
    base = ran(svgd, {"rmse": [3.5, 3.51, 3.49], "nll": [2.9, 2.91, 2.89]})
    store = Store(tmp_path / "store")
    store.write_cell(base, None, None)
    columns = "pointer,mean,low,high,n,reason\n"
    (tmp_path / "causes.csv").write_text(
        f"{columns}{SVGD_RMSE},3.0,2.9,3.1,5,another language\n{SVGD_NLL},3.5,3,4,5,x\n"
    )
    findings = compare(suite, measure(suite, records_of([store])), read_changes(tmp_path))
    assert [c.cause for c in findings.comparisons] == ["another language", ""]
    first, second = (e.closes for e in findings.effects)
    assert first == pytest.approx(0.9, abs=0.01)
    assert second < 0
    for text in (f"{columns}{SVGD_RMSE},much,2,3,5,x\n", "pointer\n" + SVGD_RMSE, f"{columns}sifg/no/such,1,1,1,5,x\n"):
        (tmp_path / "causes.csv").write_text(text)
        with pytest.raises(InputError, match=r"causes\.csv: "):
            read_changes(tmp_path)


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


def test_the_audit_is_a_page_markdown_and_a_table(call: Run, tmp_path) -> None:
    suite, (cell,) = of_table_1(f"{BOSTON}/svgd")
    found(tmp_path / "store", suite, ran(cell, {"rmse": [2.94, 2.95, 2.943], "nll": [9.0, 9.1, 9.2]}))
    assert call("papers", str(tmp_path / "store"), "--to", str(tmp_path / "page")).code == 0
    table = pd.read_csv(tmp_path / "page" / "papers.csv")
    assert set(numbers()) == set(table["pointer"])
    judged = table[table["pointer"] == SVGD_RMSE].iloc[0]
    assert (judged["verdict"], judged["ours_n"]) == ("agrees", 3)
    page = (tmp_path / "page" / "index.html").read_text()
    assert "<script" not in page
    assert "2.944 ± 0.03" in page
    assert "suspicious" in page
    assert (
        "| Boston, SVGD, RMSE | bnn-boston-sifg/svgd | program | 2.944 ± 0.03 |"
        in (tmp_path / "page" / "papers.md").read_text()
    )
    assert call("report", "--index", str(tmp_path)).code == 0
    index = (tmp_path / "index.html").read_text()
    assert "2 were judged: 1 agree, 1 differ, 0 of these for a cause that was shown." in index
    assert 'href="page/index.html"' in index
    assert "Run <bdi>" not in index
    refused = call("papers", str(tmp_path / "nothing"))
    assert refused.code == 2
    assert "not a store" in refused.err


def test_an_audit_keeps_what_earlier_stores_gave(call: Run, tmp_path) -> None:
    """Stores add up, on several machines or one after another; more replicates go before fewer."""
    suite, (cell,) = of_table_1(f"{BOSTON}/svgd")
    page = str(tmp_path / "page")
    for name, values in {
        "first": {"rmse": [2.94, 2.95, 2.943], "nll": [9.0, 9.1, 9.2]},
        "fewer": {"rmse": [9.0, 9.0], "nll": [9.0, 9.1]},
    }.items():
        found(tmp_path / name, suite, ran(cell, values))
        assert call("papers", str(tmp_path / name), "--to", page).code == 0
    first = (tmp_path / "page" / "papers.csv").read_bytes()
    assert call("papers", "--to", page).code == 0  # from what is kept alone
    assert (tmp_path / "page" / "papers.csv").read_bytes() == first
    table = pd.read_csv(tmp_path / "page" / "papers.csv").set_index("pointer")
    assert (table.loc[SVGD_RMSE, "verdict"], table.loc[SVGD_RMSE, "ours_n"]) == ("agrees", 3)
    (tmp_path / "page" / "measured.csv").write_text("a,b\n1,2\n")
    refused = call("papers", "--to", page)
    assert refused.code == 2
    assert "not a table that `parvibench papers` wrote" in refused.err


def test_what_an_audit_keeps_is_read_as_it_was_written(tmp_path) -> None:
    """Infinite means, reasons and failures among it; a failed later run hides no number."""
    suite, (sgld, svgd) = of_table_1(f"{BOSTON}/sgld", f"{BOSTON}/svgd")
    store = Store(tmp_path / "store")
    store.write_cell(ran(svgd, {"rmse": [3.0, 3.1, None]}), None, None)  # type: ignore[list-item]
    failed = ran(sgld, {"rmse": [1.0]}).model_copy(
        update={"status": Status.CRASHED, "reason": 'of memory, and "more"', "values": {}}
    )
    store.write_cell(failed, None, None)
    known = measure(suite, records_of([store]))
    write_kept(tmp_path, known)
    assert read_kept(tmp_path) == known
    one, other = (next(m for m in known.values() if m.row == f"{BOSTON}/{name}") for name in ("svgd", "sgld"))
    assert one.numbers["rmse"] == Ours(math.inf, -math.inf, math.inf, 3, 1)
    assert "not measured" in str(one.numbers["nll"])
    assert other.failure.endswith('of memory, and "more"')
    later = {key: replace(m, failure="crashed", numbers={}) for key, m in known.items()}
    assert combined(known, later) == {k: m if m.row.endswith("svgd") else later[k] for k, m in known.items()}


def test_figures_have_no_table_of_numbers_but_one_of_what_was_measured(tmp_path) -> None:
    """A replicate without a finite value is not averaged, and not hidden."""
    suite = load_suite("srld-figure-2")
    assert paper_tables(Findings(suite, (), ())) == []
    store = Store(tmp_path)
    record = ran(expand(suite)[0], {"w1_marginal": [0.1, 0.2, 0.3], "sliced_w2": [0.1, 0.3, 1.0]})
    lost = record.model_copy(update={"values": {**record.values, "sliced_w2": [0.1, 0.3, None]}})
    store.write_cell(lost, None, None)
    table = measured_table(suite, measure(suite, records_of([store])))
    assert table is not None
    ((first, *entries),) = [row.entries for row in table.rows]
    assert first.text == "correlated-2d/srld"
    texts = {c.title: (e.text, e.note) for c, e in zip(table.columns[1:], entries, strict=True)}
    assert texts["w1_marginal"][0] == texts["sliced_w2"][0] == "0.200"
    assert texts["w1_marginal"][1].endswith("(3)")
    assert texts["sliced_w2"][1].endswith("(2 of 3 finite)")


def test_a_step_chosen_from_a_papers_list_is_said_with_its_cost() -> None:
    suite = load_suite("ksivi-table-1")
    tuned = Tuned(
        step_size={"bnn-boston-ksivi": {"sgld": 2e-5}}, score_evaluations={"bnn-boston-ksivi": {"sgld": 1234567.0}}
    )
    found = [t for t in departures(suite.model_copy(update={"tuned": tuned})) if "bnn-boston-ksivi/sgld" in t]
    assert found == [
        "bnn-boston-ksivi/sgld: step size 2e-05, of 1e-05, 2e-05, 2.5e-05, 5e-05 the best on a validation fifth of the "
        "training rows, for 1,234,567 score evaluations"
    ]
    guessed = [t for t in departures(suite.model_copy(update={"tuned": None})) if "unpublished and chosen" in t]
    assert "bnn-boston-ksivi/sgld" in guessed[0]
    assert "step_size" in guessed[0]


def test_departures_are_said_once_with_their_rows() -> None:
    found = departures(load_suite("lapd-rates"))
    assert len(found) == 2
    assert "lapd-mixture-2/ula-0.1, " in found[0]
    guessed = [t for t in departures(load_suite("srld-table-1")) if "unpublished and chosen by us: step_size" in t]
    assert len(guessed) == 1
    assert "bnn-energy-srld/srld" not in guessed[0]  # the one that is published
