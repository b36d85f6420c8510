"""The report of a synthetic store: same numbers as the Parquet files, nothing lost, nothing executed."""

import html
import html.parser
import io
import json
import math
import re
import shlex
from dataclasses import replace
from itertools import islice
from pathlib import Path

import jsonschema
import numpy as np
import pandas as pd
import pytest
import records
from made_stores import ANCHORS, EVIL, REPLICATES, make_curve, make_record, stored_curves, with_values, write_store
from rich.console import Console
from scipy import stats
from typer.testing import CliRunner

from parvibench.cli import app
from parvibench.core import registry
from parvibench.core.errors import InputError
from parvibench.core.result import Status
from parvibench.harness.store.store import RunRecord, Store
from parvibench.reporting import formatting
from parvibench.reporting.facts import board as leaderboard
from parvibench.reporting.facts import findings as averages
from parvibench.reporting.facts.courses import line
from parvibench.reporting.facts.run import Facts
from parvibench.reporting.figures import curves, density_scatter, figure
from parvibench.reporting.figures.figure import TaskCells
from parvibench.reporting.page import html_page as rendering
from parvibench.reporting.page import report, report_files
from parvibench.reporting.page.provenance import profile_in_words, step_sizes
from parvibench.reporting.page.report import Report
from parvibench.reporting.page.report_files import write_report
from parvibench.reporting.page.text_tables import print_leaderboard


@pytest.fixture(scope="module")
def html_page(out):
    return (out / "index.html").read_text()


class TableReader(html.parser.HTMLParser):
    """Rows of every table as lists of (text, sort value)."""

    def __init__(self):
        super().__init__()
        self.tables, self.inside = {}, False

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.inside = self.inside and tag not in ("tr", "td", "th")  # a cell's own end may go without saying
        if tag == "table":
            self.rows = self.tables.setdefault(attrs.get("id"), [])
        elif tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.inside = True
            self.rows[-1].append(["", attrs.get("data-v")])

    def handle_endtag(self, tag):
        if tag in ("td", "th", "tbody"):
            self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.rows[-1][-1][0] += data.strip()


def test_the_leaderboard_equals_an_independent_computation(results, out):
    curves = stored_curves(results.store)
    expected = {cell: last.groupby("metric")["value"].median() for cell, last in curves.items()}
    board = pd.read_csv(out / "leaderboard.csv")
    assert set(zip(board["task"], board["label"], strict=True)) == {(c.task, c.label) for c in results.cells}
    for _, row in board[board["status"] == "ok"].iterrows():
        medians = expected[row["task"], row["label"]]
        assert row["median"] == pytest.approx(medians[row["metric"]], rel=1e-6)
        assert row["metric"] == ("sliced_w2" if row["task"] == "banana" else "oddity")
        if row["task"] == "banana":
            assert row["floor_ratio"] == pytest.approx(medians["sliced_w2"] / 0.05, rel=1e-6)
            assert row["ksd"] == pytest.approx(medians["ksd"], rel=1e-6)
        else:
            assert math.isnan(row["floor_ratio"])


def test_ranks_put_failures_last_and_leave_anchors_out(results):
    board = leaderboard.table(results)
    ranks = board[board["task"] == "banana"].set_index("label")["rank"]
    assert ranks[["ula", EVIL]].tolist() == [1, 2]
    assert ranks[["half", "mala"]].tolist() == [3, 3]  # an infinite median and a crash
    assert ranks[["exact", "initial", "lapd"]].isna().all()


def test_average_ranks_share_ties(results):
    ranks = averages.average_ranks(leaderboard.table(results))
    assert ranks.loc["ula", "average_rank"] == 1
    assert ranks.loc["mala", "average_rank"] == 3.5
    assert ranks.loc["mala", "n_failed"] == 2
    assert list(ranks.index[-2:]) == ["exact", "initial"]


def test_the_page_shows_the_same_numbers(results, out, html_page):
    reader = TableReader()
    reader.feed(html_page)
    board = pd.read_csv(out / "leaderboard.csv")
    board = board[board["task"] == "banana"].set_index("label")
    (rows,) = (t for t in reader.tables.values() if t[0][3:] and t[0][3][0].startswith("sliced_w2"))
    shown = {row[0][0]: row for row in rows[1:]}
    assert set(shown) == set(board.index)
    for label in ("ula", EVIL, "exact"):
        for place, column in ((3, "median"), (4, "floor_ratio")):
            text, key = shown[label][place]
            sorted_by = float(key or text.split(" ")[0])  # the number shown, where the attribute has no value
            assert sorted_by == pytest.approx(board.loc[label, column], rel=1e-5 if key else 5e-3)
        assert shown[label][3][0].split(" ")[0] == formatting.number(board.loc[label, "median"])
    assert shown["half"][3][0].startswith("∞")
    assert shown["half"][2][0] == "4 of 7 diverged"


def test_cells_are_judged_against_exact_draws(results, out, html_page):
    """Floors are medians 0.5 / sqrt(n): a value of 0.05 at n = 100 has the equivalent n 100, twice that a quarter."""
    board = pd.read_csv(out / "leaderboard.csv")
    rows = board[board["task"] == "banana"].set_index("label")
    ok = rows[(rows["status"] == "ok") & (rows["median"] < 0.1)]  # the floor of 25 draws
    assert len(ok)
    expected = (0.5 / ok["median"].clip(lower=0.025)) ** 2  # at most 4 n
    np.testing.assert_allclose(ok["equivalent"], expected, rtol=0.01)
    assert (ok["equivalent_low"] <= ok["equivalent"]).all()
    assert (ok["equivalent"] <= ok["equivalent_high"]).all()
    floor = np.linspace(0.04, 0.06, 201)
    cells = {c.label: c for c in results.cells if c.task == "banana"}
    for label, row in ok.iterrows():
        values = np.array(cells[label].values["sliced_w2"])
        p = stats.mannwhitneyu(values, floor, alternative="greater", method="asymptotic").pvalue
        assert row["p_value"] == pytest.approx(min(1, 2 * p))  # Holm's, of two metrics
        assert row["verdict"] == ("distinguishable" if 2 * p <= 0.05 else "indistinguishable")
        assert row["verdict_basis"] == "n = 100, by ksd, sliced_w2"
    assert board.loc[board["task"] != "banana", "verdict"].isna().all()
    assert rows.loc["mala", ["verdict", "equivalent"]].isna().all()
    assert "<bdi>distinguishable" in html_page
    assert "equivalent n" in html_page


def test_nothing_is_fetched_and_nothing_is_executed(html_page):
    assert html_page.count("<script") == 2  # one of them data
    assert "&lt;script&gt;alert" in html_page
    assert not re.search(r"(src|href)=\"(?!data:|#|figures/)", html_page)
    assert not re.search(r"url\((?!#|data:)|@import|<link|<iframe|https?://(?!www\.w3\.org)", html_page)
    assert "Content-Security-Policy" in html_page


def test_failures_are_shown_with_their_reasons(results, out, html_page):
    markdown = (out / "leaderboard.md").read_text()
    for text in (html_page, markdown):
        assert "crashed" in text
        assert "unsupported" in text
        assert "bad &lt;script&gt;" in text
        assert "<script>alert" not in text
    assert "no &lt;path&gt;" in html_page  # why a metric is absent
    rows = pd.read_parquet(out / "results.parquet")
    assert rows.loc[rows["label"] == "mala", "status"].tolist() == ["crashed", "crashed"]


def test_machine_files_hold_every_value(results, out):
    def refuse(name):
        raise AssertionError(name)

    document = json.loads((out / "results.json").read_text(), parse_constant=refuse)
    schema = json.loads((out / "results.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(document, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document | {"cells": [{"task": "banana"}]}, schema)
    assert schema["$defs"]["cell"]["properties"]["status"]["enum"] == [str(s) for s in Status]
    assert len(document["cells"]) == len(results.cells)
    rows = pd.read_parquet(out / "results.parquet")
    half = rows[(rows["task"] == "banana") & (rows["label"] == "half") & (rows["metric"] == "ksd")]
    assert half["replicate"].tolist() == list(range(REPLICATES))
    assert half["value"].isna().sum() == 4


@pytest.mark.ci
def test_figures_are_the_same_every_time_and_lie_beside_their_data(results, out, html_page):
    drawings = Report.of(results).drawings()
    assert drawings == Report.of(results).drawings()
    assert drawings == [*report.drawings(results)]  # one by one, for a single figure
    named = next(d.name for d in drawings if d.name.startswith("curve-banana"))
    assert next(report.drawings(results, named)).name.startswith("curve-banana")  # its task is drawn first
    assert len({d.name for d in drawings}) == len(drawings)
    text = html.unescape(html_page)
    for d in drawings:
        assert all(p.alt for p in d.pictures)
        assert f'href="figures/{d.name}.csv"' in html_page
        assert all(f'aria-label="{p.alt}"' in text for p in d.pictures)
        assert len(pd.read_csv(out / "figures" / f"{d.name}.csv")) == len(d.data) > 0
    styles = figure.label_styles(results)
    (panels,) = density_scatter.particles(TaskCells(results, "banana", styles, [*styles]))
    assert len({p.ground for p in panels.pictures}) == 1  # in the page once, in every file
    assert html_page.count("<g id=ground-") == 1
    assert all(p.ground in p.content.decode().replace("#000000", "currentColor") for p in panels.pictures)
    assert [p.caption.split(" (")[0] for p in panels.pictures] == [EVIL, "ula", "half", "exact", "initial"]
    assert density_scatter.particles(TaskCells(results, "plug/in", styles, [*styles])) == []
    assert len(html_page) < 2_000_000


@pytest.mark.slow
def test_a_page_of_thirty_methods_and_ten_tasks_is_not_heavy(tmp_path):
    """4 MB with all its pictures, 2 MB without those that show a curve again over another budget: 2.4 and 1.9 MB when written."""
    generator, cells = np.random.default_rng(0), []
    methods = [name for name, row in registry.algorithms().items() if row.kind != "anchor"][:30]
    tasks = list(registry.tasks())[:10]
    metrics = ["sliced_w2", "w2", "mmd2", "ksd", "energy_distance", "mean_error", "sd_error", "ks_marginal", "ess_bulk", "rhat", "acceptance"]  # fmt: skip
    for task in tasks:
        for label in (*methods, *ANCHORS):
            curve = make_curve(generator, metrics, np.exp(generator.normal()), steps=7)
            kind = registry.algorithms()[label].kind
            samples = generator.normal(size=(REPLICATES, 100, registry.tasks()[task].dim)).astype(np.float32)
            record = make_record(f"{task}-{label}", task, label, kind=kind)
            cells.append((with_values(record, curve), curve, samples))
    whole = report_files.write_report(write_store(tmp_path, cells), tmp_path / "report").read_text()
    assert len(whole.encode()) < 4_000_000
    once = re.sub(r'<figure id="[^"]*" data-axis="(?!score_evaluations)[^"]*".*?</figure>', "", whole, flags=re.S)
    assert len(once.encode()) < 2_000_000


@pytest.mark.ci
def test_one_figure_is_drawn_again(results, tmp_path):
    image, data = report_files.write_figure(results, "curve-banana-sliced_w2-seconds", tmp_path)
    assert image.read_text().startswith("<svg")
    assert "currentColor" not in image.read_text()
    assert set(pd.read_csv(data)["label"]) == {EVIL, "ula", "half", "exact", "initial"}
    with pytest.raises(InputError, match="no such figure; there are"):
        report_files.write_figure(results, "nothing", tmp_path)


def test_a_report_of_one_task(results):
    assert {c.task for c in results.of_tasks(["banana"]).cells} == {"banana"}
    with pytest.raises(InputError, match=r"--task apple: not in run .* which has banana"):
        results.of_tasks(["apple"])


def test_what_a_reader_of_the_numbers_should_know_is_on_the_page(tmp_path):
    flag = "the machine's speed changed by 35% meanwhile: the seconds are doubtful"
    curve = make_curve(np.random.default_rng(0), ["sliced_w2"], 1.0)
    results = write_store(tmp_path, [(make_record("k", "banana", "ula", flags=[flag]), curve, None)])
    shown = report_files.write_report(results, tmp_path / "report").read_text()
    assert f'title="{flag}"><bdi>ok</bdi> <small>flagged</small>' in html.unescape(shown)


def test_medians_of_curves_count_stopped_replicates_as_worst(tmp_path):
    curve = make_curve(np.random.default_rng(0), ["sliced_w2"], 1.0)
    curve = curve[(curve["checkpoint"] < 2) | (curve["replicate"] >= 4)]
    record = make_record("k", "banana", "ula", n_diverged=4, diverged=dict.fromkeys(range(4), 50))
    results = write_store(tmp_path, [(record, curve, None)])
    found = line(results, results.cells[0], "sliced_w2")
    assert np.isfinite(found["median"]).tolist() == [True, True, False, False, False]


def test_decisions_are_drawn_against_the_contexts_whichever_budget_is_shown(tmp_path):
    curve = make_curve(np.random.default_rng(0), ["regret", "contexts"], 1.0, steps=3)
    made = curve["metric"] == "contexts"
    curve.loc[made, "value"] = 50.0 * 2 ** curve.loc[made, "checkpoint"]
    record = make_record("k", "bandit-wheel", "srld")
    results = write_store(tmp_path, [(record, curve, None)])
    shown = TaskCells(results, "bandit-wheel", figure.label_styles(results), ["srld"])
    first, *others = curves.anytime(shown, "regret")
    assert (first.name, first.axis) == ("curve-bandit-wheel-regret-contexts", "")
    assert first.data["contexts"].tolist() == [50, 100, 200]
    assert [d.axis for d in others] == ["score_evaluations", "iteration", "seconds"]


def test_contours_hold_the_probability_they_claim():
    from parvibench.core import registry

    x, y, mass = density_scatter._density("banana")
    draws = registry.load_task("banana").reference().draws.numpy()
    column = np.clip(np.searchsorted(x, draws[:, 0]), 0, len(x) - 1)
    row = np.clip(np.searchsorted(y, draws[:, 1]), 0, len(y) - 1)
    for level in density_scatter.CONTOURS:
        # 10,000 draws: 5 standard errors are at most 0.025; the grid adds about as much.
        assert np.mean(mass[row, column] <= level) == pytest.approx(level, abs=0.05)


def test_figures_of_several_metrics_over_their_floors_have_names_of_their_own(results, monkeypatch):
    """They are ids on the page and names of files."""
    rows = results.board[results.board["task"] == "banana"]
    other = rows.assign(task="other", metric="w2")
    scores = results.all.scores | {
        ("other", label): v for (task, label), v in results.all.scores.items() if task == "banana"
    }
    two = replace(results)
    vars(two)["all"] = replace(results.all, board=pd.concat([rows, other], ignore_index=True), scores=scores)
    monkeypatch.setattr(report, "performance_profiles", lambda *_: [])  # the second task has no curves
    over_tasks = list(islice((d for d in report.drawings(two) if d.name.startswith(("interq", "quality"))), 4))
    names = [d.name for d in over_tasks]
    assert len({*names}) == 4, names
    assert {"interquartile-mean", "interquartile-mean-w2"} < {*names}


def test_step_sizes_say_where_they_come_from(results):
    steps, _ = step_sizes(results)
    assert "1 tuned" in steps
    assert "tuning cost: 1,000,000 score evaluations" in steps
    assert "edge of the grid (marked |): 1." in steps


def test_the_commands_on_the_page_draw_its_figures(results, out, html_page, tmp_path, monkeypatch):
    """As a reader would paste one, beside the store."""
    code = r"<code>(parvibench report [^<]*curve-banana-sliced_w2-seconds)</code>"
    command = html.unescape(re.search(code, html_page)[1])
    monkeypatch.chdir(results.store.root.parent)
    done = CliRunner().invoke(app, [*shlex.split(command)[1:], "--to", str(tmp_path)])
    assert done.exit_code == 0, done.output
    image, data = done.output.split()
    assert Path(image).read_text().startswith("<svg")
    assert Path(data).read_bytes() == (out / "figures" / Path(data).name).read_bytes()


def printed(results, width):
    """The leaderboard as a terminal of this width shows it."""
    stream = io.StringIO()
    print_leaderboard(results, Console(file=stream, width=width))
    assert max(map(len, stream.getvalue().splitlines())) <= width
    return stream.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_the_terminal_table_fits(results, width):
    text = printed(results, width)
    for word in ("banana", "ula", "crashed", "unsupported", "over its floor", "exact"):
        assert word in text


def test_many_tasks_are_split_over_tables(tmp_path):
    names = [f"a-rather-long-task-name-{i}" for i in range(12)]
    cells = [(make_record(name, name, "ula", values={"m": [1.0]}), None, None) for name in names]
    assert printed(write_store(tmp_path, cells), 80).count("avg rank") == 3


def one(task="t", curve=None, samples=None, **changes):
    """A store's only cell."""
    return [(make_record("a", task, "ula", **{"values": {"m": [1.0]}} | changes), curve, samples)]


ODD_NAMES = ("_hidden", "$a^{", "\u202eright to left\x00", "多峰", "y" * 10_000, "")
ODD_STORES = {
    "failures only": one(status="crashed", reason="r" * 10_000, values={}),
    "one cell": one(),
    "empty curve": one(curve=make_curve(np.random.default_rng(0), ["m"], 1.0).iloc[:0].astype({"metric": "string"})),
    "nothing finite": one("banana", values={"sliced_w2": [None, None]}),
    "names": [
        (make_record(f"{i}", "x" * 10_000, "ula", label=name, values={"$m|_": [1.0, -1.0]}), None, None)
        for i, name in enumerate(ODD_NAMES)
    ],
    "one checkpoint": one(
        curve=records.make_curve([(0, 0, 1, 100.0, 0.1, "m", 1.0)]), samples=np.full((1, 5, 2), np.nan)
    ),
    "cost free": one(
        curve=records.make_curve([(0, 0, 0, 0.0, 0.0, "m", 0.0)]), samples=np.zeros((1, 5, 3)), values={"m": [0.0]}
    ),
}


@pytest.mark.parametrize("name", ODD_STORES)
def test_odd_stores_render(name, tmp_path):
    results = write_store(tmp_path, ODD_STORES[name])
    page = write_report(results, tmp_path / "report").read_text()
    assert page.count("<tr>") >= len(results.cells)
    print_leaderboard(results, Console(file=io.StringIO(), width=80))


def test_a_run_that_has_not_begun_renders(tmp_path):
    store = Store(tmp_path)
    missing = [records.asked(make_record("missing", "banana", "svgd"))]
    store.write_run(RunRecord(id="r", suite={"name": "s"}, cells=missing, started="2026-01-01T00:00:00"))
    assert "not finished: the run was stopped before this cell" in rendering.render(Report.of(Facts.load(store)))


NUMBERS = {
    0.0: "0", 9.9999: "10.0", 0.012345: "0.0123", 12345.6: "12300", 1.5e-7: "1.50e-7", -2.0: "-2.00", math.inf: "∞",
    math.nan: "–",
}  # fmt: skip


@pytest.mark.parametrize(("value", "text"), NUMBERS.items())
def test_numbers_have_three_digits(value, text):
    assert formatting.number(value) == text


def test_a_page_names_no_folder_of_the_machine_it_was_made_on(results, tmp_path):
    folder = str(results.store.root.parent)
    command = f"parvibench run --out {results.store.root} --seed 1"
    run = results.run.model_copy(update={"provenance": {"command": command}})
    write_report(replace(results, run=run), tmp_path / "page")
    for file in ("index.html", "results.json"):
        assert folder not in (tmp_path / "page" / file).read_text()
    assert f"parvibench run --out {results.store.root.name} --seed 1" in (tmp_path / "page" / "index.html").read_text()


def test_the_file_of_values_written_in_parts_is_the_whole_table(results, tmp_path, monkeypatch):
    monkeypatch.setattr("parvibench.reporting.facts.run._PART", 20)  # one cell at a time
    results.write_values(tmp_path / "parts.parquet")
    found = pd.read_parquet(tmp_path / "parts.parquet")
    pd.testing.assert_frame_equal(found, results.values())
    assert found.attrs["format"] == results.values().attrs["format"]


def test_a_changed_profile_says_its_numbers(results):
    suite = results.suite | {"replicates": 10}
    changed = {"suite": suite, "profile": "fast", "provenance": {"changed": ["replicates", "budget"]}}
    run = results.run.model_copy(update=changed)
    assert profile_in_words(replace(results, run=run)) == "fast, 10 replicates, other budget"
