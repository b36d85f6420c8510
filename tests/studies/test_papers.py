"""The audit of the papers: pages, what is stored from one to the next, causes that studies show, departures."""

import math
import re
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from paper_cells import BOSTON, SVGD_NLL, SVGD_RMSE, of_table_1, ran
from papers.audit_tables import COUNTED, departures, measured_table, summary_table
from papers.command import main
from papers.comparison import SuiteComparison, compare
from papers.kinds import JUDGED, NO_NUMBER, Evidence, Kind, count, findings, read_evidence, read_study
from papers.measured import combined, measured_rows, read_kept, records_of, with_changes, write_kept
from papers.published import numbers
from papers.replicates import Ours, protocols
from papers.srld_rule import KEPT, _further, interval, lines_of

from parvibench.core.errors import InputError
from parvibench.core.result import CellRecord, Status
from parvibench.harness.store.store import Store
from parvibench.harness.suite.cells import expand
from parvibench.harness.suite.suite import Suite, load_suite
from parvibench.reporting.page.reports_index import write_index

#: Tests of studies, which are no part of the product.
pytestmark = pytest.mark.ci


def found(root: object, suite: Suite, *records: CellRecord, curve: pd.DataFrame | None = None) -> SuiteComparison:
    store = Store(root)  # type: ignore[arg-type]
    for record in records:
        store.write_cell(record, curve, None)
    return compare(suite, measured_rows(suite, records_of([store])))


def test_verdicts_are_counted_by_suite(tmp_path) -> None:
    suite, cells = of_table_1(f"{BOSTON}/svgd", f"{BOSTON}/svgd-1e-4")
    values = (
        {"rmse": [3.5, 3.51, 3.49], "nll": [2.9, 2.91, 2.89]},
        {"rmse": [3.0, 3.01, 2.99], "nll": [2.88, 2.89, 2.87]},
    )
    compared = found(tmp_path, suite, *(ran(cell, v) for cell, v in zip(cells, values, strict=True)))
    summary = summary_table({suite.name: findings(compared, Evidence())})
    assert dict(zip([c.title for c in summary.columns], [e.text for e in summary.rows[0].entries], strict=True)) == {
        "suite": "sifg-table-1", "numbers": "2", "judged": "2", **dict.fromkeys(COUNTED, "0"), "differ, cause shown": "1",
        "differ, unexplained": "1",
    }  # fmt: skip


SGLD_RMSE = "sifg/table-1/Boston/SGLD/RMSE"


@pytest.mark.parametrize(
    ("table", "line", "kind"),
    [
        ("rule", "2.94,2.92,2.96,40,", Kind.RULE_AGREES),
        ("rule", "2.94,2.6,3.2,40,", Kind.RULE_OPEN),
        ("rule", "2.5,2.4,2.6,40,", Kind.RULE_DIFFERS),
        ("program", "2.58,2.5,2.66,3,", Kind.PROGRAM_AGREES),
        ("program", "2.9,2.85,2.95,3,", Kind.PROGRAM_DIFFERS),
        ("reach", "2.6,2.4,3.1,4,", Kind.WITHIN),
        ("reach", "2.6,2.4,2.7,4,", Kind.OUT),
    ],
)
def test_what_a_verdict_rests_on_is_told_apart(tmp_path, table: str, line: str, kind: Kind) -> None:
    """The paper prints 2.917 and a tolerance of 0.08; ours is 2.58, under settings that it does not state."""
    suite, (cell,) = of_table_1(f"{BOSTON}/sgld")
    compared = found(tmp_path / "store", suite, ran(cell, {"rmse": [2.58, 2.581, 2.579], "nll": [2.4, 2.41, 2.39]}))
    (tmp_path / f"{table}.csv").write_text(f"pointer,mean,low,high,n,note\n{SGLD_RMSE},{line}why\n")
    first, second, *_ = findings(compared, read_evidence(tmp_path))
    assert (first.pointer, first.kind) == (SGLD_RMSE, kind)
    assert "why" in first.note
    assert second.kind is Kind.INCOMPARABLE
    assert "states no settings" in second.note
    assert count([first], *JUDGED) == (kind not in (Kind.RULE_OPEN, Kind.WITHIN, Kind.OUT))


def test_tables_of_studies_are_refused_where_they_are_not(tmp_path) -> None:
    for text in ("pointer\nsifg/no/such\n", "pointer,mean,low,high,n,note\nsifg/no/such,1,1,1,5,x\n"):
        (tmp_path / "rule.csv").write_text(text)
        with pytest.raises(InputError, match=r"rule\.csv: "):
            read_evidence(tmp_path)


def test_numbers_that_nobody_can_judge_keep_their_rows() -> None:
    """Whatever was run; every pattern is of some number, and none of two."""
    suite = load_suite("ksivi-table-8")
    compared = compare(suite, {})
    kinds = {f.pointer: f for f in findings(compared, Evidence())}
    assert len(kinds) == 48
    assert {f.kind for f in kinds.values()} == {Kind.NO_NUMBER}
    assert all(f.note for f in kinds.values())
    for pattern in NO_NUMBER:
        assert any(fnmatchcase(pointer, pattern) for pointer in numbers())
    suspicious = [n.pointer for n in numbers().values() if n.suspicious]
    assert all(any(fnmatchcase(pointer, pattern) for pattern in NO_NUMBER) for pointer in suspicious)


def test_intervals_given_the_splits_hold_the_noise_of_one_chain_a_split() -> None:
    """Splits that differ do not widen them; of 400 trials the other mean is within in 95%."""
    rng = np.random.default_rng(1)
    splits = 10 * rng.standard_normal((20, 1))
    within = 0
    for _ in range(400):
        _, low, high = interval(splits + 0.1 * rng.standard_normal((20, 2)))
        assert high - low < 0.2
        within += low <= (splits + 0.1 * rng.standard_normal((20, 1))).mean() <= high
    assert 363 <= within <= 395  # within four standard errors


def test_rates_that_all_diverge_are_followed_by_smaller_ones() -> None:
    def tried(**errors: float) -> dict[float, np.ndarray]:
        return {float(rate[1:]) / 10: np.full((3, 5, 2), error) for rate, error in errors.items()}

    assert _further(tried(r8=math.nan, r4=math.nan, r16=math.nan)) == (0.2, 0.1, 0.05, 0.025)
    assert _further(tried(r8=math.nan, r4=2.0, r2=3.0)) == ()
    assert _further(tried(r8=1.0, r4=2.0)) == (1.6, 3.2, 6.4, 12.8)


def test_a_diverged_chain_is_a_number_that_can_be_read() -> None:
    values = np.ones((20, 2, len(KEPT), 2))
    values[3, 1, -1] = math.nan
    lines = lines_of("Naval", {"LD": values, "SRLD": np.ones_like(values)}, {"LD": 0.1, "SRLD": 0.1})
    (ld,) = (line for line in lines if line["pointer"] == "srld/table-1/Naval/LD/RMSE")
    assert ld["mean"] == ld["low"] == math.inf
    assert "1 of 40 chains diverged" in ld["note"]
    assert all(line["mean"] == 1 for line in lines if "/SRLD" in line["pointer"])


def test_what_the_report_keeps_is_of_the_rows_as_they_are() -> None:
    """A setting that is new to all rows would leave an audit without a number: it would say that nothing was run."""
    kept = read_kept(Path(__file__).parents[2] / "reports" / "papers")
    suites = [load_suite(name) for name in ("sifg-table-1", "srld-table-1", "ksivi-table-3")]
    keys = [key for suite in suites for key in protocols(suite).values()]
    assert sum(key in kept for key in keys) >= 0.9 * len(keys)


def test_a_study_shows_a_cause_that_no_row_can(tmp_path) -> None:
    suite, (svgd,) = of_table_1(f"{BOSTON}/svgd")
    base = ran(svgd, {"rmse": [3.5, 3.51, 3.49], "nll": [2.9, 2.91, 2.89]})
    store = Store(tmp_path / "store")
    store.write_cell(base, None, None)
    columns = "pointer,mean,low,high,n,note\n"
    (tmp_path / "causes.csv").write_text(
        f"{columns}{SVGD_RMSE},3.0,2.9,3.1,5,another language\n{SVGD_NLL},3.5,3,4,5,x\n"
    )
    compared = with_changes(
        compare(suite, measured_rows(suite, records_of([store]))), read_study(tmp_path / "causes.csv")
    )
    assert [c.cause for c in compared.comparisons] == ["another language", ""]
    first, second = (e.closes for e in compared.effects)
    assert first == pytest.approx(0.9, abs=0.01)
    assert second < 0
    for text in (f"{columns}{SVGD_RMSE},much,2,3,5,x\n", "pointer\n" + SVGD_RMSE, f"{columns}sifg/no/such,1,1,1,5,x\n"):
        (tmp_path / "causes.csv").write_text(text)
        with pytest.raises(InputError, match=r"causes\.csv: "):
            read_study(tmp_path / "causes.csv")


def test_the_audit_is_a_page_markdown_and_a_table(tmp_path, capsys) -> None:
    suite, (cell,) = of_table_1(f"{BOSTON}/svgd")
    found(tmp_path / "store", suite, ran(cell, {"rmse": [2.94, 2.95, 2.943], "nll": [9.0, 9.1, 9.2]}))
    main([str(tmp_path / "store"), "--to", str(tmp_path / "page")])
    table = pd.read_csv(tmp_path / "page" / "papers.csv")
    assert set(numbers()) == set(table["pointer"])
    judged = table[table["pointer"] == SVGD_RMSE].iloc[0]
    assert (judged["verdict"], judged["ours_n"]) == ("agrees", 3)
    page = (tmp_path / "page" / "index.html").read_text()
    assert "<script" not in page
    links = set(re.findall(r'href="#([^"]+)"', page))
    assert links <= set(re.findall(r'id="([^"]+)"', page))  # every sentence leads to a row
    assert len(links) > 20
    assert "one of the two is a copy" in page
    assert "| Boston, SVGD RMSE | 2.944 ± 0.03 | 2.94 " in (tmp_path / "page" / "papers.md").read_text()
    index = write_index(tmp_path).read_text()
    assert "2 were judged. Against the paper&#39;s settings 1 agree and 1 differ, 0 of these for a cause" in index
    assert 'href="page/index.html"' in index
    assert "Run <bdi>" not in index
    with pytest.raises(SystemExit, match="2"):
        main([str(tmp_path / "nothing"), "--to", str(tmp_path / "page")])
    assert "not a store" in capsys.readouterr().err


def test_an_audit_keeps_what_earlier_stores_gave(tmp_path, capsys) -> None:
    """Stores add up, on several machines or one after another; more replicates go before fewer."""
    suite, (cell,) = of_table_1(f"{BOSTON}/svgd")
    page = str(tmp_path / "page")
    for name, values in {
        "first": {"rmse": [2.94, 2.95, 2.943], "nll": [9.0, 9.1, 9.2]},
        "fewer": {"rmse": [9.0, 9.0], "nll": [9.0, 9.1]},
    }.items():
        found(tmp_path / name, suite, ran(cell, values))
        main([str(tmp_path / name), "--to", page])
    first = (tmp_path / "page" / "papers.csv").read_bytes()
    main(["--to", page])  # from what is stored alone
    assert (tmp_path / "page" / "papers.csv").read_bytes() == first
    table = pd.read_csv(tmp_path / "page" / "papers.csv").set_index("pointer")
    assert (table.loc[SVGD_RMSE, "verdict"], table.loc[SVGD_RMSE, "ours_n"]) == ("agrees", 3)
    (tmp_path / "page" / "measured.csv").write_text("a,b\n1,2\n")
    with pytest.raises(SystemExit, match="2"):
        main(["--to", page])
    assert "not a table that the audit wrote" in capsys.readouterr().err


def test_what_an_audit_keeps_is_read_as_it_was_written(tmp_path) -> None:
    """Infinite means, reasons and failures among it; a failed later run hides no number."""
    suite, (sgld, svgd) = of_table_1(f"{BOSTON}/sgld", f"{BOSTON}/svgd")
    store = Store(tmp_path / "store")
    store.write_cell(ran(svgd, {"rmse": [3.0, 3.1, None]}), None, None)  # type: ignore[list-item]
    failed = ran(sgld, {"rmse": [1.0]}).model_copy(
        update={"status": Status.CRASHED, "reason": 'of memory, and "more"', "values": {}}
    )
    store.write_cell(failed, None, None)
    known = measured_rows(suite, records_of([store]))
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
    store = Store(tmp_path)
    record = ran(expand(suite)[0], {"w1_marginal": [0.1, 0.2, 0.3], "sliced_w2": [0.1, 0.3, 1.0]})
    lost = record.model_copy(update={"values": {**record.values, "sliced_w2": [0.1, 0.3, None]}})
    store.write_cell(lost, None, None)
    table = measured_table(suite, measured_rows(suite, records_of([store])))
    assert table is not None
    ((first, *entries),) = [row.entries for row in table.rows]
    assert first.text == "correlated-2d/srld"
    texts = {c.title: (e.text, e.note) for c, e in zip(table.columns[1:], entries, strict=True)}
    assert texts["w1_marginal"][0] == texts["sliced_w2"][0] == "0.200"
    assert texts["w1_marginal"][1].endswith("(3)")
    assert texts["sliced_w2"][1].endswith("(2 of 3 finite)")


def test_departures_are_said_once_with_their_rows() -> None:
    found = departures(load_suite("lapd-rates"))
    assert len(found) == 2
    assert "lapd-mixture-2/ula-0.1, " in found[0]
    guessed = [t for t in departures(load_suite("srld-table-1")) if "unpublished and chosen by us: step_size" in t]
    assert len(guessed) == 1
    assert "bnn-energy-srld/srld" not in guessed[0]  # the one that is published
