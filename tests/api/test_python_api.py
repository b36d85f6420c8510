"""The commands as Python functions, and what they return."""

import json
import math
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from command_line import Run
from ruamel.yaml import YAML

import parvibench as pb
from parvibench.api.run import forecast
from parvibench.core.errors import InputError
from parvibench.harness.store.store import Store
from parvibench.reporting.figures.plots import write_pdf

OPTIONS: dict[str, Any] = {
    "replicates": 6,
    "budget": {"iterations": 30},
    "particles": 50,
    "workers": 0,
    "tracking": False,
}
HOSTILE = "<b>$x_1$ & 5%</b>"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> pb.Results:
    suite = {
        "name": "small", "tasks": ["banana", "multimodal"], "replicates": 6, "particles": 50, "budget": {"iterations": 30},
        "algorithms": [{"name": "svgd", "label": HOSTILE}, "mala", {"name": "ula", "label": "blows up", "settings": {"step_size": 1e9}}, "exact", "initial"],
    }  # fmt: skip
    file = tmp_path_factory.mktemp("api") / "small.yaml"
    file.write_text(json.dumps(suite))
    return pb.run(str(file), workers=0, tracking=False, out=file.parent / "store")


@pytest.mark.ci
def test_names_are_functions_whatever_was_imported_before() -> None:
    code = (
        "import parvibench as pb, parvibench.checks.rounds, parvibench.reporting.page.report_files as page\n"
        "from parvibench.reporting.facts import board\n"
        "assert all(callable(getattr(pb, n)) for n in pb.__all__ if n not in ('Budget',))\n"
        "assert page.write_report and parvibench.checks.rounds.check and board.table\n"
        "print('fine')"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout.strip() == "fine", found.stderr
    verbs = "pb.run, pb.load, pb.report, pb.compare, pb.tune, pb.check, pb.merge, pb.verify"
    light = f"import sys, parvibench as pb; dir(pb); assert 'torch' not in sys.modules; {verbs}; print({{'mlflow'}} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", light], capture_output=True, text=True)
    assert found.stdout.strip() == "set()", found.stderr


def test_the_leaderboard_is_what_the_terminal_shows(results: pb.Results, call: Run) -> None:
    board = results.leaderboard()
    shown = call("report", "--out", str(results.store.root), "--to", str(results.store.root / "page")).out
    for row in board.to_dict("records"):
        assert row["shown"] in shown
        if row["status"] == "ok":
            assert row["value"] == pytest.approx(row["floor_ratio"])
            assert row["value_low"] <= row["value"] <= row["value_high"]
            assert row["value"] / row["value_low"] == pytest.approx(row["median"] / row["low"])
            assert row["sliced_w2"] == row["median"]
    assert set(board["quantity"]) == {"sliced_w2 over its floor"}
    first = board[board["task"] == "banana"].iloc[0]
    assert first["rank"] == 1
    assert {"verdict", "equivalent", "seconds", "score_evaluations", "n_diverged"} <= set(board)


def test_results_are_short_to_read_and_escaped(results: pb.Results) -> None:
    text, *reasons = repr(results).splitlines()
    assert len(text) < 250
    failures = results.failures
    assert [r.strip() for r in reasons] == [
        f"{f.status}: {f.label} on {f.task}: {f.reason:.200}" for f in failures.itertuples()
    ]
    assert failures["status"].tolist() == ["diverged"] * 2
    assert "5 methods x 2 tasks" in text
    assert "2 diverged" in text
    page = results._repr_markdown_()
    assert HOSTILE not in page
    assert "&lt;b&gt;$x_1$ &amp; 5%&lt;/b&gt;" in page
    assert "<b>" not in page


@pytest.mark.ci
def test_figures_are_matplotlib_s(results: pb.Results, tmp_path: Path) -> None:
    names = results.figures()
    assert "performance-profile-iteration" in names
    (name,) = [n for n in names if n.startswith("curve-banana-sliced_w2-iteration")]
    figure = results.plot(name)[name]
    assert len(figure.axes[0].get_lines()) >= 2
    figure.savefig(tmp_path / "x.png")
    assert set(results.plot("curve-banana-*")) == {n for n in names if n.startswith("curve-banana-")}
    with pytest.raises(InputError, match=r"no figure fits 'curves'; there are .*performance-profile"):
        results.plot("curves")


@pytest.mark.slow
def test_figures_for_papers(results: pb.Results, call: Run, tmp_path: Path) -> None:
    """PDF of a drawing of axes and of a grid of pictures; the same bytes from another process's drawing."""
    out = ["--out", str(results.store.root), "--to", str(tmp_path)]
    axes, grid = "performance-profile-iteration", next(n for n in results.figures() if n.startswith("samples-banana"))
    files = [Path(line) for line in call("report", *out, "--figure", axes, "--format", "pdf").out.splitlines()]
    assert [f.suffix for f in files] == [".pdf", ".csv"]
    for name in (axes, grid):
        write_pdf(results.plot(name)[name], tmp_path / "again.pdf")
        assert (tmp_path / "again.pdf").read_bytes().startswith(b"%PDF-")
        assert name == grid or (tmp_path / "again.pdf").read_bytes() == files[0].read_bytes()
    assert len(results.plot(grid)[grid].axes) >= 4
    assert call("report", *out, "--format", "pdf").code == 2
    assert call("report", *out, "--format", "latex", "--figure", axes).code == 2


def test_the_leaderboard_in_latex(results: pb.Results, call: Run, tmp_path: Path) -> None:
    """Numbers, intervals and the bold best are the board's; nothing of a label is obeyed."""
    text = call("report", "--out", str(results.store.root), "--format", "latex").out.removesuffix("\n")
    written = call("report", "--out", str(results.store.root), "--format", "latex", "--to", str(tmp_path / "here")).out
    assert Path(written.strip()).read_text() == text
    assert text == pb.report(results, results.store.root / "other", format="latex").read_text()
    rows = [line for line in text.splitlines() if line.endswith(r" \\")]
    assert rows[0] == r"method & avg. rank & banana & multimodal \\"
    assert {line.count(" & ") for line in rows} == {3}
    assert any(
        line.startswith(r"\textless{}b\textgreater{}\$x\_1\$ \& 5\%\textless{}/b\textgreater{} & ") for line in rows
    )
    bold = re.findall(r"\\textbf\{(?:\$\\approx\$)?([\d.]*)[^}]*\}[^[]*\[([^,]*), ([^]]*)\]", text)
    board = results.leaderboard()
    best = board[board["best"]]
    assert sorted(float(v) for v, *_ in bold) == pytest.approx(sorted(best["value"]), rel=6e-3)
    assert sorted(float(low) for _, low, _ in bold) == pytest.approx(sorted(best["value_low"]), rel=6e-3)
    for begin, end in ((r"\begin{table}", r"\end{table}"), (r"\toprule", r"\bottomrule"), ("{", "}")):
        assert text.replace(r"\{", "").count(begin) == text.replace(r"\}", "").count(end)
    assert text.count(r"\textit{") == 2
    with pytest.raises(InputError, match="format 'doc': there are html, latex"):
        pb.report(results, format="doc")  # type: ignore[arg-type]


def test_stores_are_loaded_compared_and_reported(results: pb.Results, tmp_path: Path) -> None:
    again = pb.load(results.store.root, results.run.id)
    assert again.cells == results.cells
    frame = pb.compare(results.store.root, again)
    assert set(frame["verdict"]) <= {"not significantly different", "not comparable"}
    assert len(frame) == 10
    assert pb.report(results.store.root, tmp_path / "page").name == "index.html"
    with pytest.raises(InputError, match="nowhere"):
        pb.load(tmp_path / "nowhere")


TUNED = """\
name: mine  # a comment
tasks: [banana]
algorithms: [mala]
budget: {iterations: 20}
particles: 20
tune: {step_size: [1.0e-3, 1.0], points: 3}
tuned:
  step_size: {banana: {mala: 0.5}, multimodal: {mala: 0.25}}
  at_edge: [multimodal/mala]
"""


def test_named_tasks_and_methods_alone_are_run_wherever_they_are_from(call: Run, tmp_path: Path) -> None:
    assert call("new", "algorithm", "mine").code == 0
    for given in (["mine.py:Mine"], ["svgd"], ["mine.py:Mine", "svgd"]):
        rows = pb.api.run.forecast("quick", algorithms=given, tasks=["banana"], out=tmp_path / "s").cells
        assert [(r["task"], r["algorithm"]) for r in rows] == [("banana", a) for a in given]


@pytest.mark.ci
def test_step_sizes_of_one_s_own_sampler_are_tuned(call: Run, tmp_path: Path) -> None:
    """By the suite's protocol, into its file, beside those of the others; `run` then finds them."""
    assert call("new", "algorithm", "mine").code == 0
    (tmp_path / "mine.yaml").write_text(TUNED)
    answer = call("tune", "mine.yaml", "-a", "mine.py:Mine", "--workers", "0")
    assert answer.code == 0, answer.err
    step = float(re.search(r"--task banana --set mine.step_size=(\S+)", answer.out)[1])
    assert step in (0.001, 0.0316, 1.0)
    suite = (tmp_path / "mine.yaml").read_text()
    assert "# a comment" in suite
    assert "multimodal: {mala: 0.25}" in suite
    assert re.search(rf"banana: {{mala: 0.5, mine: {step:g}}}", suite)
    cells = call("run", "--suite", "mine.yaml", "-a", "mine.py:Mine", "-a", "mala", "--replicates", "1", "--workers", "0", "--json").json["cells"]  # fmt: skip
    assert [c["label"] for c in cells] == ["mine", "mala"]
    stored = Store("parvibench-runs").run().cells
    assert [c.spec.settings["step_size"] for c in stored] == [step, 0.5]
    # of a shipped suite nothing is written unless a file is named
    done = pb.tune("mine.yaml", algorithms=["mine.py:Mine"], workers=0, out=tmp_path / "tuning")
    assert done.file is None
    assert done.tuned.step_size == {"banana": {"mine": step}}
    with pytest.raises(InputError, match="nothing to tune"):
        pb.tune("mine.yaml", algorithms=["nuts"], workers=0, out=tmp_path / "tuning")


def test_tuning_prints_and_writes_all_that_it_chose_and_tried(call: Run, tmp_path: Path) -> None:
    """The values are medians of the stored runs; options that were chosen before give way, with their step."""
    options, file = ", options: {flow: {rule: [plain, adagrad]}}", tmp_path / "mine.yaml"
    text = TUNED.replace("[mala]", "[{name: svgd, label: flow}]")
    file.write_text(text.replace("points: 3", f"points: 3, replicates: 3{options}"))
    answer = call("tune", "mine.yaml", "--workers", "0")
    assert answer.code == 0, answer.err
    chosen = re.search(r"--task banana --set flow.step_size=(\S+) --set flow.rule=(plain|adagrad)", answer.out)
    assert YAML(typ="safe").load(file)["tuned"]["settings"] == {"banana": {"flow": {"rule": chosen[2]}}}
    measured: dict[tuple[str, float, int | None], float] = {}
    store = "parvibench-runs/tuning"
    for cell in (cell for run in Store(Path(store)).runs() for cell in pb.load(store, run).cells):
        at = (cell.spec.settings["rule"], cell.spec.settings["step_size"], cell.spec.budget.iterations)
        measured[at] = statistics.median(math.inf if v is None else v for v in cell.values["sliced_w2"])
    tried = re.findall(r"  (\S+) rule=(\w+): sliced_w2 ([^,\s]+)(?:, whole budget (\S+))?(  <)?\n", answer.out)
    assert len(tried) >= 6

    def number(text: str) -> float:
        return float(text.replace("∞", "inf"))

    for step, rule, value, whole, _ in tried:
        assert number(value) == pytest.approx(measured[rule, float(step), 5], rel=0.01)
        assert bool(whole) == ((rule, float(step), 20) in measured)
        assert not whole or number(whole) == pytest.approx(measured[rule, float(step), 20], rel=0.01)
    assert [(rule, step) for step, rule, *_, mark in tried if mark] == [(chosen[2], chosen[1])]
    best = min((at for at in measured if at[2] == 20), key=measured.__getitem__)
    assert best[:2] == (chosen[2], float(chosen[1]))
    file.write_text(file.read_text().replace(options, ""))
    assert call("tune", "mine.yaml", "-a", "flow", "--workers", "0").code == 0
    assert "rule:" not in file.read_text()


def test_a_sampler_is_checked_from_python() -> None:
    """A sampler that moves past the mean is found out; what it is given by, does not matter."""

    @pb.sampler
    def half(problem: Any, x0: Any, generator: Any) -> Any:
        while True:
            yield x0 * 0

    found = pb.check(half, iterations=2, seed=1)
    assert found.verdict == "wrong"
    assert {t.algorithm for t in found.red} == {"half"}
    with pytest.raises(InputError, match="nonsense"):
        pb.check("mala", nonsense=3)


def test_parts_are_merged_and_verified(tmp_path: Path) -> None:
    what = {**OPTIONS, "tasks": ["banana"], "algorithms": ["svgd", "ula"], "replicates": 2}
    parts = [pb.run(**what, part=(i, 2), out=tmp_path / str(i)) for i in (1, 2)]
    whole = pb.merge([p.store.root for p in parts], tmp_path / "whole")
    assert [c.label for c in whole.cells] == ["svgd", "ula"]
    assert whole.leaderboard().shape[0] == 2
    found = pb.verify(tmp_path / "whole", workers=0)
    assert [c.verdict for c in found.checks] == ["same bits"] * 4


def test_a_forecast_lists_the_cells_of_the_run(tmp_path: Path) -> None:
    """Those of its part alone; what the store holds costs nothing, unless it is to be run again."""
    what = {"tasks": ["banana"], "algorithms": ["svgd", "ula"], **OPTIONS, "out": tmp_path}
    tracking = what.pop("tracking")
    before = forecast(**what)
    assert [row["state"] for row in before.cells] == ["to run"] * 2
    assert before.seconds == pytest.approx(sum(row["predicted_seconds"] for row in before.cells))
    assert not list(tmp_path.iterdir())
    done = pb.run(**what, part=(2, 2), tracking=tracking)
    assert [row["key"] for row in forecast(**what, part=(2, 2)).cells] == [c.key for c in done.cells]
    assert [row["state"] for row in forecast(**what).cells] == ["to run", "cached"]
    assert forecast(**what, fresh=True).to_run == 2
    with pytest.raises(InputError, match="workers: Input should be greater than or equal to 0"):
        forecast(**{**what, "workers": -1})


def test_frames_are_frames(results: pb.Results) -> None:
    assert isinstance(results.leaderboard(), pd.DataFrame)
    assert isinstance(results.curves, pd.DataFrame)
