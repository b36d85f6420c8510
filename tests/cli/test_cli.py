"""The command line as a user meets it: documents, messages and exit codes."""

import contextlib
import importlib.util
import io
import json
import os
import random
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import typer.main
from command_line import Run
from few import every
from records import make_record
from rich.console import Console

from parvibench.cli import app
from parvibench.cli.progress import Display, progress
from parvibench.core import registry
from parvibench.core.result import Status
from parvibench.harness.store.store import Store

ROOT = Path(__file__).parents[2]
TINY = ["--replicates", "2", "--budget", "iterations=8", "--workers", "0", "--quiet"]


@pytest.mark.parametrize(
    ("what", "rows"),
    [("tasks", registry.tasks()), ("algorithms", registry.algorithms()), ("metrics", registry.metrics())],
)
def test_lists_are_complete(call: Run, what: str, rows: dict[str, object]) -> None:
    answer = call("list", what, "--json")
    assert answer.code == 0
    assert [r["name"] for r in answer.json] == list(rows)
    shown = call("list", what).out
    assert [name for name in rows if name not in shown] == []


def test_suites_are_listed(call: Run) -> None:
    names = {r["name"] for r in call("list", "suites", "--json").json}
    assert {"quick", "toy", "uci"} <= names


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run"], "nothing to run"),
        (["run", "--suite", "qick"], "did you mean 'quick'"),
        (["run", "--task", "bananna", "--algorithm", "svgd"], "did you mean 'banana'"),
        (["run", "--suite", "quick", "--algorithm", "svdg"], "did you mean 'svgd'"),
        (["run", "--suite", "quick", "--replicates", "0"], "replicates: Input should be greater than 0"),
        (["run", "--suite", "quick", "--budget", "score_evaluations=-1"], "budget.score_evaluations"),
        (["run", "--suite", "quick", "--budget", "steps=9"], "budget.steps"),
        (["run", "--suite", "quick", "--budget", "seconds"], "expected KEY=VALUE"),
        (["run", "--suite", "quick", "--particles", "0"], "particles: Input should be greater than 0"),
        (["run", "--suite", "quick", "--set", "svgd=3"], "expected ALGORITHM.SETTING=VALUE"),
        (["run", "--suite", "quick", "--set", "svgd.step_size=-3"], "svgd.step_size: Input should be greater than 0"),
        (["run", "--suite", "quick", "--set", "svgd.stepsize=3"], "no such setting. Known: step_size"),
        (["run", "--suite", "quick", "--workers", "-1"], "workers: Input should be greater than or equal to 0"),
        (["run", "--suite", "quick", "--timeout", "0"], "timeout: Input should be greater than 0"),
        (["run", "--suite", "quick", "--device", "tpu"], "device: Input should be 'auto', 'cpu' or 'cuda'"),
        (["run", "--suite", "quick", "--retry", "all"], "'all' is not one of 'failed'"),
        (["run", "--suite", "quick", "--profile", "fast"], "no profile of suite 'quick' named 'fast'"),
        (["run", "--suite", "quick", "--shard", "3/2"], "--shard takes I/K"),
        (["run", "--suite", "quick", "--match", "steps"], "match"),
        (["merge", "nowhere"], "no runs here"),
        (["compare", "neither-this", "nor-that", "--out", "store"], "neither-this: no folder of that name, and no run of that id in the store store"),
        (["reference", "verify", "bananna"], "did you mean 'banana'"),
        (["run", "--no-such-option"], "No such option"),
        (["run", "--suite", "missing.yaml"], "missing.yaml: no such file"),
        (["show", "task", "bananna"], "did you mean 'banana'"),
        (["show", "planet", "x"], "Invalid value"),
        (["evaluate", "--task", "banana", "nothing.npy"], "nothing.npy: no such file"),
        (["evaluate", "--task", "bananna", "nothing.npy"], "did you mean 'banana'"),
        (["report", "--out", "nowhere"], "no runs here"),
        (["data", "fetch", "yatch"], "did you mean 'yacht'"),
    ],
)  # fmt: skip
def test_wrong_usage_is_told_and_exits_2(call: Run, tmp_path: Path, arguments: list[str], told: str) -> None:
    answer = call(*arguments)
    assert answer.code == 2
    assert told in answer.err
    assert "Traceback" not in answer.err
    assert not list(tmp_path.rglob("*.json"))


def test_an_override_that_every_entry_gets_is_refused_once(call: Run) -> None:
    assert (
        call("run", "--task", "banana", "-a", "svgd", "-a", "ula", "--budget", "steps=9").err.count("unknown key") == 1
    )


def test_an_interrupted_run_prints_a_line_and_its_report_each_reason_once(call: Run, tmp_path: Path) -> None:
    (tmp_path / "stops.py").write_text(
        "import parvibench as pb\n\n\n@pb.sampler\ndef stops(problem, x0, generator):\n    yield x0\n    raise KeyboardInterrupt\n"
    )
    named = ("--task", "banana", "--task", "multimodal", "-a", "stops.py:stops", "--out", "store")
    answer = call("run", *named, *TINY[:-1])  # in this process, where it is Ctrl-C
    assert (answer.code, answer.out) == (1, "finished: 0 of 2 cells; report: store/report/index.html\n")
    assert " ".join(call("report", "--out", "store").out.split()).count("the same command resumes") == 1


def test_cuda_is_refused_without_a_device(call: Run) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("a CUDA device is here")
    answer = call("run", "--suite", "quick", "--device", "cuda")
    assert (answer.code, "no CUDA device" in answer.err) == (2, True)


def test_the_run_document(call: Run, tmp_path: Path) -> None:
    answer = call("run", "--task", "banana", "--algorithm", "svgd", "--algorithm", "exact", *TINY, "--json")
    assert answer.code == 0
    document = answer.json
    assert set(document) == {"run_id", "out", "report", "cells", "without_reference"}
    assert Path(document["report"]).is_file()
    svgd, exact = document["cells"]
    assert set(svgd) == {
        "task", "algorithm", "label", "status", "reason", "replicates", "n_diverged", "worst", "start", "tuned", "iterations", "seconds", "score_evaluations", "metrics",
    }  # fmt: skip
    assert (svgd["task"], svgd["algorithm"], svgd["status"], svgd["replicates"]) == ("banana", "svgd", "ok", 2)
    assert svgd["score_evaluations"] == 8 * 100
    assert exact["score_evaluations"] == 0
    metric = svgd["metrics"]["sliced_w2"]
    assert set(metric) == {"median", "low", "high", "values"}
    assert metric["low"] <= metric["median"] <= metric["high"]
    assert len(metric["values"]) == 2
    assert exact["metrics"]["sliced_w2"]["median"] < metric["median"]


def test_failures_exit_1_and_diverged_values_are_null(call: Run) -> None:
    answer = call(
        "run", "--task", "banana", "--algorithm", "ula", "--set", "ula.step_size=1e9", *TINY, "--json",
    )  # fmt: skip
    assert answer.code == 1
    cell = answer.json["cells"][0]
    assert (cell["status"], cell["n_diverged"]) == ("diverged", 2)
    assert cell["metrics"]["sliced_w2"] == {"median": None, "low": None, "high": None, "values": [None, None]}


@pytest.mark.ci
def test_a_preset_of_another_task_runs_with_a_note(call: Run) -> None:
    """The command line goes before the preset's protocol; the note is in the record too."""
    command = ["run", "--task", "banana", "--algorithm", "sifg", "--set", "sifg.preset=gmm5-2d", *TINY]
    answer = call(*command, "--particles", "20", "--samples", "10", "--json")
    told = "preset gmm5-2d is that of gmm5-2d, not of banana"
    assert told in answer.err
    (cell,) = Store("parvibench-runs").run().cells
    assert (cell.spec.particles, cell.spec.samples, cell.spec.budget.iterations) == (20, 10, 8)
    assert told in Store("parvibench-runs").find(cell.key).flags


def test_unsupported_pairs_are_rows_but_no_failure(call: Run) -> None:
    answer = call("run", "--task", "bnn-diabetes-sklearn", "--algorithm", "exact", *TINY, "--json")
    assert answer.code == 0
    cell = answer.json["cells"][0]
    assert (cell["status"], cell["metrics"]) == ("unsupported", {})
    assert "offers no exact" in cell["reason"]


def test_a_run_can_be_reported_again_and_seen_beforehand(call: Run) -> None:
    arguments = ["run", "--task", "banana", "--algorithm", "svgd", *TINY]
    before = call(*arguments, "--dry-run", "--json").json
    assert [r["state"] for r in before] == ["to run"]
    first = call(*arguments, "--json").json
    assert [r["state"] for r in call(*arguments, "--dry-run", "--json").json] == ["cached"]
    again = call("report", "--json")
    assert again.code == 0
    assert again.json["cells"] == first["cells"]
    assert "banana" in call("report").out


def test_a_suite_file_runs(call: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "name: mine\ntasks: [banana]\nalgorithms: [{name: sgld, label: slow, settings: {step_size: 1.0e-4}}]\n"
        "replicates: 2\nbudget: {score_evaluations: 500}\nparticles: 50\n"
    )
    answer = call("run", "--suite", "mine.yaml", "--workers", "0", "--json")
    assert answer.code == 0
    assert answer.json["cells"][0]["label"] == "slow"
    assert answer.json["cells"][0]["score_evaluations"] == 500


EVALUATION = {
    "metric", "value", "n_judged", "judged", "floor", "ratio", "p_value", "p_adjusted", "equivalent_sample_size", "equivalent_sample_size_interval", "verdict", "reason",
}  # fmt: skip


@pytest.mark.parametrize("ending", ["npy", "npz", "csv", "parquet"])
def test_samples_of_any_format_are_evaluated(call: Run, tmp_path: Path, ending: str) -> None:
    torch = pytest.importorskip("torch")
    x = registry.load_task("banana").exact(500, torch.Generator().manual_seed(5)).numpy()
    path = tmp_path / f"x.{ending}"
    if ending == "npy":
        np.save(path, x)
    elif ending == "npz":
        np.savez(path, samples=x)
    elif ending == "csv":
        pd.DataFrame(x, columns=["a", "b"]).to_csv(path, index=False)
    else:
        pd.DataFrame(x, columns=["a", "b"]).to_parquet(path)
    answer = call("evaluate", "--task", "banana", str(path), "--json")
    assert answer.code == 0
    document = answer.json
    assert set(document) == {"task", "n", "n_judged", "verdict", "judged_by", "reason", "chains", "read", "metrics"}
    assert document["n_judged"] == 500
    assert {"mmd2", "sliced_w2", "kl_knn", "tail_error"} <= set(document["judged_by"])
    assert (document["task"], document["n"], document["verdict"]) == ("banana", 500, "indistinguishable")
    for row in document["metrics"]:
        assert set(row) == EVALUATION


@pytest.mark.ci
def test_shifted_samples_are_found_out(call: Run, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    x = registry.load_task("banana").exact(1000, torch.Generator().manual_seed(6)).numpy() + 0.5
    np.save(tmp_path / "x.npy", x)
    answer = call("evaluate", "--task", "banana", "x.npy", "--json")
    assert (answer.code, answer.json["verdict"]) == (0, "distinguishable")
    table = call("evaluate", "--task", "banana", "x.npy", "--cost", "score_evaluations=1000").out
    assert "distinguishable" in table


@pytest.mark.parametrize(
    ("array", "told"),
    [
        (np.zeros((10, 3)), "(n, 2)"),
        (np.zeros(10), "(n, 2)"),
        (np.full((10, 2), np.nan), "NaN"),
        (np.zeros((1, 2)), "n >= 2"),
    ],
)
def test_bad_samples_are_told(call: Run, tmp_path: Path, array: np.ndarray, told: str) -> None:
    np.save(tmp_path / "x.npy", array)
    answer = call("evaluate", "--task", "banana", "x.npy")
    assert answer.code == 2
    assert told in answer.err


def test_pickles_are_not_opened(call: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    answer = call("evaluate", "--task", "banana", "x.npy")
    assert (answer.code, "cannot be read as .npy numbers" in answer.err) == (2, True)


def test_shows(call: Run, tmp_path: Path) -> None:
    assert "Table 4" in call("show", "task", "banana").out
    certificate = call("show", "task", "blr-breast-cancer", "--figure", str(tmp_path / "corner.png")).out
    assert "correlations: 961 numbers from -0." in certificate
    about = call("show", "metric", "w2sq_window_5", "--json").json
    assert "half_width" in about["about"]
    assert about["power"] == "not studied"
    facts = call("show", "algorithm", "svgd", "--json").json
    assert facts["kind"] == "particles"


@pytest.mark.slow
def test_the_ui_serves_the_mirror_on_loopback(call: Run, tmp_path: Path) -> None:
    """MLflow's server starts on the store's database and knows the run; only this machine can reach it."""
    call("run", "--task", "banana", "--algorithm", "exact", *TINY)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", "from parvibench.cli import main; main()", "ui", "--port", str(port)]
    server = subprocess.Popen(command, cwd=tmp_path, start_new_session=True)
    try:
        url = f"http://127.0.0.1:{port}/ajax-api/2.0/mlflow/experiments/search?max_results=5"
        for _ in range(120):
            with contextlib.suppress(OSError):
                found = json.loads(urllib.request.urlopen(url, timeout=5).read())
                break
            time.sleep(0.5)
        assert any("parvibench" in e["name"].lower() for e in found["experiments"])
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(30)


#: Extra -> modules that it brings.
MODULES = {
    "ray": ["ray"], "jax": ["jax", "blackjax", "numpyro"], "blackjax": ["jax", "blackjax"], "numpyro": ["jax", "numpyro"],
    "emcee": ["emcee"], "dynesty": ["dynesty"], "pymc": ["jax", "pymc"], "stan": ["bridgestan", "stanli"], "arviz": ["h5py", "zarr"],
}  # fmt: skip


def test_doctor_and_version(call: Run) -> None:
    checks = call("doctor", "--json")
    assert checks.code == 0
    assert all(c["ok"] for c in checks.json if c["required"])
    extras = {c["what"].removeprefix("extra "): c for c in checks.json if c["what"].startswith("extra ")}
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras.keys() == declared.keys() - {"dev", "docs"}
    for extra, check in extras.items():
        there = [importlib.util.find_spec(name) is not None for name in MODULES[extra]]
        assert check["ok"] == all(there), check
    said = call("doctor").out  # brackets are no markup
    assert said.count("'.[") == sum(not check["ok"] for check in extras.values())
    assert call("--version").out.startswith("parvibench ")


def test_help_has_examples_and_is_quick_to_import() -> None:
    command = [sys.executable, "-m", "parvibench", "run", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert shown.returncode == 0
    assert "parvibench run --suite quick" in shown.stdout


def test_every_command_has_examples_whose_options_exist() -> None:
    seen = []

    def look(words: list[str], command: Any) -> None:
        for name, sub in getattr(command, "commands", {}).items():
            look([*words, name], sub)
        if not hasattr(command, "commands"):
            lines = [
                x.split(" parvibench ")[-1].removeprefix("parvibench ")
                for x in re.findall(r"`([^`]*)`", command.epilog or "")
                if "parvibench " in x
            ]
            known = {o for p in command.params for o in (*p.opts, *p.secondary_opts)}
            assert lines, words
            for line in lines:
                given = shlex.split(line)
                assert given[: len(words)] == words
                assert {w for w in given if w.startswith("-")} <= known, line
            seen.append(words)

    look([], typer.main.get_command(app))
    assert len(seen) > 15


def test_a_task_s_reference_is_drawn(call: Run, tmp_path: Path) -> None:
    picture = tmp_path / "deep" / "banana.png"
    answer = call("show", "task", "banana", "--figure", str(picture))
    assert answer.code == 0
    assert str(picture) in answer.err.replace("\n", "")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "must end in .png or .svg" in call("show", "task", "banana", "--figure", "x.doc").err
    refused = call("show", "task", "bnn-yacht", "--figure", str(picture))
    assert (refused.code, "no reference samples to draw" in refused.err) == (2, True)


def test_every_round_of_tuning_counts_its_own_cells(tmp_path: Path) -> None:
    """A display serves all rounds: five cells, then the two beyond the end of a grid."""
    shown = io.StringIO()
    display = Display(Console(file=shown, width=200))
    for cells in (5, 2):
        display.started(SimpleNamespace(id="made-tuning"), cells, 0)  # type: ignore[arg-type]
        for i in range(cells):
            record = make_record(str(i))
            display.finished(SimpleNamespace(key=record.key, task="banana", label="ula"), record, tmp_path, False)  # type: ignore[arg-type]
        display.ended(SimpleNamespace(id="made-tuning"))  # type: ignore[arg-type]
    assert [line.strip() for line in shown.getvalue().splitlines()] == [
        "run made-tuning: 5 cells", "5/5 cells", "run made-tuning: 2 cells", "2/2 cells",
    ]  # fmt: skip


def lines_of(statuses: dict[int, Status], tmp_path: Path, *, terminal: bool) -> list[str]:
    """The lines of a run of 2,000 cells of these statuses; every second one is flagged."""
    shown = io.StringIO()
    display = Display(Console(file=shown, width=200, force_terminal=terminal, color_system=None))
    display.started(SimpleNamespace(id="long"), 2000, 0)  # type: ignore[arg-type]
    for i in range(2000):
        status, flags = statuses.get(i, Status.OK), ["a clock in doubt"] if i % 2 else []
        record = make_record("one", status=status, reason="" if status == "ok" else f"cell {i}", flags=flags)
        display.finished(SimpleNamespace(key=record.key, task="banana", label="ula"), record, tmp_path, False)  # type: ignore[arg-type]
    display.ended(SimpleNamespace(id="long"))  # type: ignore[arg-type]
    return re.findall(r"run long.*|\w+: banana x ula.*|\d+ cells more failed.*", shown.getvalue())  # without the bar


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize(
    ("statuses", "failures", "others"),
    [
        (dict.fromkeys((7, 9, 11), Status.UNSUPPORTED) | dict.fromkeys((20, 30), Status.DIVERGED), [20, 30], 0),
        ({}, [], 0),
        (dict.fromkeys(range(0, 2000, 2), Status.CRASHED), range(0, 40, 2), 980),
    ],
)
def test_a_run_of_thousands_of_cells_prints_few_lines(
    statuses: dict[int, Status], failures: Sequence[int], others: int, tmp_path: Path, terminal: bool
) -> None:
    """The first failures one by one, the rest of them as a number."""
    assert [line.strip() for line in lines_of(statuses, tmp_path, terminal=terminal)] == [
        "run long: 2000 cells",
        *(f"{statuses[i]}: banana x ula: cell {i}" for i in failures),
        *([f"{others} cells more failed; `parvibench report` lists them"] if others else []),
    ]


def test_progress_without_a_terminal_is_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = io.StringIO()
    monkeypatch.setattr("parvibench.cli.progress._PLAIN_EVERY_S", 0.0)
    with progress(Console(file=seen)) as show:
        show("banana/ula", 3, 40)
        show("caught", 4, 0)
    assert seen.getvalue() == "  3/40 banana/ula\n  4 caught\n"


@pytest.mark.parametrize("kind", every(["task"], ["task", "algorithm", "metric"]))
def test_a_misspelt_name_is_answered_by_the_three_nearest(call: Run, kind: str) -> None:
    """Letters changed, left out or doubled: the name meant is among three at most, and no list of all follows."""
    names = [row["name"] for row in call("list", f"{kind}s", "--json").json]
    for meant in random.Random(1).sample(names, 5):
        for wrong in {meant + "x", meant[:-1], meant[0] + meant} - set(names):
            answer = call("show", kind, wrong).err
            told = [name for name in names if repr(name) in answer]
            assert meant in told, (meant, answer)
            assert len(told) <= 3, answer
            assert f"parvibench list {kind}s" in answer
            assert "Known:" not in answer
