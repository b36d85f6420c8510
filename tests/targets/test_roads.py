"""One's own target and one's own samples, from an empty folder by the public commands; one test a road."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from command_line import Run
from own_files import PYRO, RING, write
from torch import Generator

import parvibench as pb
from parvibench.api.plan import select
from parvibench.api.run import Execution
from parvibench.core import registry
from parvibench.core.errors import InputError
from parvibench.core.result import Status
from parvibench.harness.suite.cells import expand
from parvibench.harness.workers import cluster
from parvibench.harness.workers.executors import Outcome
from parvibench.harness.workers.jobs import ChunkJob
from parvibench.metrics import own_floors
from parvibench.reference import build
from parvibench.reporting.text import marks

SHORT = ("--replicates", "1", "--particles", "20", "--budget", "scores_per_particle=10")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """References of few rows, sizes and sets."""
    for name, value in {"SIZES": (100,), "FEWEST": 300, "SETS_A_METRIC": 1, "CURVE": ()}.items():
        monkeypatch.setattr(own_floors, name, value)
    monkeypatch.setattr(build, "ROWS", 600)
    monkeypatch.setattr(build, "POOL", 3000)


def draw(n: int, seed: int) -> np.ndarray:
    """Exact draws of the task ``wide``."""
    return 3 + 2 * torch.randn(n, 2, generator=Generator().manual_seed(seed), dtype=torch.float64).numpy()


def test_a_density_of_one_s_own_runs_in_workers(call: Run, tmp_path: Path) -> None:
    """Shown, run, found in the store, and run anew when its source changes; the page has its row."""
    path = write(tmp_path, "mine.py", RING)
    assert call("show", "task", "mine.py:ring", "--json").json["dim"] == 2
    asked = ("run", "--task", "mine.py:ring", "--algorithm", "ula", *SHORT, "--workers", "1", "--json")
    first, again = call(*asked), call(*asked, "--dry-run")
    assert first.code == 0, first.err
    (cell,) = first.json["cells"]
    assert (cell["task"], cell["status"]) == ("ring", "ok")
    assert cell["score_evaluations"] <= 200
    assert 0 < cell["metrics"]["ksd"]["median"] < 100
    assert [row["state"] for row in again.json] == ["cached"]
    assert "ring" in (tmp_path / "parvibench-runs" / "report" / "index.html").read_text()
    path.write_text(RING.replace("-8 *", "-9 *"))
    registry._own.clear()
    del registry.sys.modules[registry._PLUGIN + path.as_posix().replace("/", "_").removesuffix(".py")]
    assert [row["state"] for row in call(*asked, "--dry-run").json] == ["to run"]


def test_tasks_of_files_and_names_select_together(call: Run, tmp_path: Path) -> None:
    write(tmp_path, "mine.py", RING)
    svgd = ("--algorithm", "svgd", "--set", "step_size=0.1", "--dry-run", "--json")
    rows = call("run", "--suite", "quick", "--task", "mine.py:ring", *svgd).json
    assert {row["task"] for row in rows} == {"ring"}
    rows = call("run", "--suite", "quick", "--task", "banana", "--task", "mine.py:ring", *svgd).json
    assert {row["task"] for row in rows} == {"banana", "ring"}


@pytest.mark.ci
def test_a_pyro_model_runs_under_samplers_of_every_kind(call: Run, tmp_path: Path) -> None:
    write(tmp_path, "models.py", PYRO)
    names = ("svgd", "mala", "ksivi", "nuts")
    methods = [word for name in names for word in ("--algorithm", name)]
    tasks = ("--task", "models.py:schools", "--task", "models.py:counted")
    found = call("run", *tasks, *methods, *SHORT, "--set", "svgd.step_size=0.01", "--workers", "0", "--json")
    assert found.code == 0, found.err
    assert [(c["task"], c["label"]) for c in found.json["cells"]] == [
        (t, n) for t in ("eight-schools", "glm") for n in names
    ]
    assert {c["status"] for c in found.json["cells"]} == {"ok"}
    assert all(c["metrics"]["ksd"]["median"] is not None for c in found.json["cells"])


@pytest.mark.ci
def test_a_reference_is_built_and_used_like_a_shipped_one(
    call: Run, tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By evaluate, run and the page, in another process than the one that wrote it, too; a page made elsewhere lacks it."""
    write(tmp_path, "mine.py", RING)
    np.save(tmp_path / "good.npy", draw(100, 1))
    refused = call("reference", "build", "mine.py:ring", "--chains", "4", "--warmup", "10", "--draws", "20")
    assert refused.code == 1
    assert re.search(r"R-hat: [\d.]+ of x\d, wanted below 1\.01", refused.err)
    assert "--draws" in refused.err
    built = call("reference", "build", "mine.py:wide", "--method", "exact")
    assert built.code == 0, built.err
    assert "wide: certified:" in built.err
    assert (tmp_path / "parvibench-references" / "wide.npz").is_file()
    document = call("evaluate", "--task", "mine.py:wide", "good.npy", "--json").json
    assert (document["verdict"], document["n_judged"]) == ("indistinguishable", 100)
    assert {"sliced_w2", "mmd2", "tail_error"} < set(document["judged_by"])
    ran = call("run", "--task", "mine.py:wide", "--algorithm", "ula", "--algorithm", "exact", *SHORT[:2], "--particles", "100",
               "--budget", "iterations=5", "--workers", "1")  # fmt: skip
    assert ran.code == 0, ran.err
    page = (tmp_path / "parvibench-runs" / "report" / "index.html").read_text()
    assert "over its floor" in page
    assert "a, b" in page  # the names of the coordinates
    assert call("reference", "verify", "mine.py:wide").code == 0
    assert "wide: complete" in call("reference", "floors", "mine.py:wide").err
    assert "No reference" not in page
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    told = call("report", "--out", str(tmp_path / "parvibench-runs"), "--to", "page")
    for text in (" ".join(told.out.split()), Path("page/index.html").read_text()):
        assert marks.lost_references(["wide"]) in text


@pytest.mark.ci
def test_draws_that_one_has_become_a_reference_without_certificate(call: Run, tmp_path: Path, small: None) -> None:
    write(tmp_path, "mine.py", RING)
    for chain in range(2):
        pd.DataFrame(draw(1000, chain), columns=["a", "b"]).to_csv(tmp_path / f"chain_{chain}.csv", index=False)
    made = call("reference", "build", "mine.py:wide", "--draws", "chain_0.csv", "chain_1.csv", "--columns", "a,b")
    assert made.code == 0, made.err
    assert "wide: not certified:" in made.err
    assert "bulk ESS" in made.err
    np.save(tmp_path / "good.npy", draw(100, 7))
    told = call("evaluate", "--task", "mine.py:wide", "good.npy")
    assert "the reference is not certified" in told.out
    wrong = call("reference", "build", "mine.py:wide", "--draws", "chain_0.csv", "--chains", "9")
    assert (wrong.code, "--chains applies to chains" in wrong.err) == (2, True)


@pytest.mark.ci
def test_stan_s_chains_are_judged_by_what_they_are_worth(call: Run, tmp_path: Path) -> None:
    """Four chains of a thousand: verdicts by every metric of the task. Chains that hardly move are worth less."""
    g = Generator().manual_seed(3)
    exact = pb.load_task("banana").exact(4000, g).reshape(4, 1000, 2)
    for kind, chains in (("good", exact), ("slow", exact[:, ::10].repeat_interleave(10, 1))):
        for i, chain in enumerate(chains.tolist()):
            rows = "".join(f"-1.0,{a!r},{b!r}\n" for a, b in chain)
            text = f"# stan_version_major = 2\nlp__,x.1,x.2\n# done\n{rows}# Elapsed\n"
            (tmp_path / f"{kind}_{i}.csv").write_text(text)
    banana = ("evaluate", "--task", "banana", "--variables", "x", "--json")
    good, slow = (call(*banana, *(f"{kind}_{i}.csv" for i in range(4))).json for kind in ("good", "slow"))
    assert (good["n"], good["n_judged"], good["verdict"]) == (4000, 2000, "indistinguishable")
    assert set(good["judged_by"]) == set(pb.load_task("banana").metrics) & set(
        pb.load_task("banana").reference().floors
    )
    assert good["chains"]["names"] == ["x[1]", "x[2]"]
    assert max(good["chains"]["rhat"]) < 1.02
    assert min(good["chains"]["ess_bulk"]) > 3000
    assert 250 < slow["chains"]["worth"] < 700
    assert slow["n_judged"] in (200, 500)
    assert slow["n_judged"] <= slow["chains"]["worth"]
    wrong = call("evaluate", "--task", "banana", "good_0.csv", "--columns", "y")
    assert wrong.err.count("no column 'y'; it has x[1], x[2]") == 1


def test_without_a_reference_ksd_judges_and_says_what_it_cannot_see(call: Run, tmp_path: Path) -> None:
    write(tmp_path, "mine.py", RING)
    np.save(tmp_path / "good.npy", draw(300, 1))
    np.save(tmp_path / "bad.npy", 1.3 * draw(300, 1))
    good, bad = (call("evaluate", "--task", "mine.py:wide", f"{kind}.npy", "--json").json for kind in ("good", "bad"))
    assert (good["verdict"], bad["verdict"]) == ("not applicable", "distinguishable")
    assert good["judged_by"] == bad["judged_by"] == ["ksd"]
    assert "cannot see wrong weights of separated modes" in good["reason"]
    assert "cannot see wrong weights" in call("evaluate", "--task", "mine.py:wide", "good.npy").out


@pytest.mark.ci
def test_samples_against_trusted_draws_without_a_task(call: Run, tmp_path: Path, small: None) -> None:
    for name, x in (("good", draw(200, 1)), ("bad", draw(200, 1) + 1), ("trusted", draw(4000, 2))):
        np.save(tmp_path / f"{name}.npy", x)
    for name, verdict in (("good", "indistinguishable"), ("bad", "distinguishable")):
        document = call("evaluate", "--reference", "trusted.npy", f"{name}.npy", "--json").json
        assert document["verdict"] == verdict
    told = call("evaluate", "good.npy")
    assert (told.code, "name a task (--task NAME), or give draws" in told.err) == (2, True)


@pytest.mark.ci
def test_samples_at_a_stated_cost_enter_the_leaderboard(call: Run, tmp_path: Path) -> None:
    """Beside the methods of the store's latest run, thinned to their number, and marked on the page."""
    assert call("run", "--task", "banana", "--algorithm", "ula", *SHORT, "--workers", "0", "--quiet").code == 0
    np.save(tmp_path / "mine.npy", pb.load_task("banana").exact(300, Generator().manual_seed(1)).numpy())
    answer = call("evaluate", "--task", "banana", "mine.npy", "--cost", "score_evaluations=5000")
    assert answer.code == 0, answer.err
    assert "mine (external), cost self-reported" in answer.out
    results = pb.load(tmp_path / "parvibench-runs")
    row = results.cells[-1]
    assert [c.label for c in results.cells] == ["ula", "mine (external)"]
    assert (row.kind, row.samples, row.score_evaluations) == ("external", 20, 5000)
    assert "self-reported" in row.flags[0]
    assert "seconds" not in row.values
    page = (tmp_path / "parvibench-runs" / "report" / "index.html").read_text()
    assert "mine (external)" in page
    assert "self-reported" in page
    for cost, told in (
        ("hours=3", "'hours' is not one"),
        ("seconds=3", "score_evaluations is missing"),
        ("score_evaluations=-1", "a positive number"),
    ):
        wrong = call("evaluate", "--task", "banana", "mine.npy", "--cost", cost)
        assert (wrong.code, told in wrong.err) == (2, True)


@pytest.mark.ci
def test_chains_at_a_stated_cost_are_diagnosed_as_chains(call: Run, tmp_path: Path, small: None) -> None:
    """Two files of one chain each; chains that disagree are told from chains that agree by the row's own R-hat."""
    exact = pb.load_task("banana").exact(800, Generator().manual_seed(1)).numpy()
    labels = []
    for name, shift in (("agree", 0.0), ("apart", 4.0)):
        np.save(tmp_path / f"{name}1.npy", exact[:400])
        np.save(tmp_path / f"{name}2.npy", exact[400:] + shift)
        told = call(
            "evaluate", "--task", "banana", f"{name}1.npy", f"{name}2.npy", "--cost", "score_evaluations=900",
            "--label", name,
        )  # fmt: skip
        assert told.code == 0, told.err
        labels.append(f"{name} (external)")
    rows = {cell.label: cell for cell in pb.load(tmp_path / "parvibench-runs").cells}
    assert list(rows) == labels
    rhat = {name: rows[name].values["rhat"][0] for name in labels}
    assert rhat[labels[0]] < 1.02
    assert rhat[labels[1]] > 1.5
    assert rows[labels[0]].values["ess_bulk"][0] > 400
    assert rows[labels[0]].values["ess_per_evaluation"][0] == pytest.approx(rows[labels[0]].values["ess_bulk"][0] / 900)


def test_a_density_is_checked(call: Run, tmp_path: Path) -> None:
    """The second one's exact draws are of another law."""
    write(tmp_path, "mine.py", RING)
    write(tmp_path, "wrong.py", RING.replace("3 + 2 *", "3.5 + 2 *"))
    assert call("check", "--task", "mine.py:wide", "--workers", "0", "--seed", "1").code == 0
    assert call("check", "--task", "wrong.py:wide", "--workers", "0", "--seed", "1").code == 1


NOISY = """
import itertools, random
import parvibench as pb
calls = itertools.count()
def density(x):
    return -x.square().sum(-1) / 2 + (random.random() if next(calls) > 20 else 0)
noisy = pb.task(density, 2, batched=True, name="noisy")
"""


def test_a_density_that_stops_being_a_function_fails_its_check_by_that_name(call: Run, tmp_path: Path) -> None:
    write(tmp_path, "noisy.py", NOISY)
    answer = call("check", "--task", "noisy.py:noisy", "--workers", "0", "--seed", "1")
    assert answer.code == 1
    first = next(line for line in answer.out.splitlines() if line.strip().startswith("- "))
    assert first.strip().startswith("- share of points whose density is the same when called again")
    assert "density on noisy" in answer.out


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("nowhere.py:ring", "no such file: nowhere.py"),
        ("mine.py", "name the object in it, too, as mine.py:OBJECT"),
        ("mine.py:rings", "there is no 'rings'; tasks there: ring, wide"),
        (
            "mine.py:function",
            "a function, not a task; write NAME = pb.task(function, dim=...), or of a Pyro model NAME = pb.from_pyro(function, data)",
        ),
        ("broken.py:x", "broken.py fails in line 2: ZeroDivisionError: division by zero"),
        ("misspelt.py:x", "SyntaxError"),
        ("nan.py:x", "is nan at the initial point"),
        ("no.such.module:x", "No module named 'no'"),
    ],
)
def test_a_place_without_a_task_is_told_in_a_line(place: str, told: str, call: Run, tmp_path: Path) -> None:
    write(tmp_path, "mine.py", RING)
    write(tmp_path, "broken.py", "x = 1\n1 / 0\n")
    write(tmp_path, "misspelt.py", "x = (\n")
    write(tmp_path, "nan.py", "import parvibench as pb\nx = pb.task(lambda x: x.log().sum(), 3, name='nan')\n")
    answer = call("show", "task", place)
    assert answer.code == 2
    assert told in answer.err
    assert len(answer.err.strip().splitlines()) == 1


def test_a_task_in_a_module_runs_in_workers_and_one_of_the_main_program_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "own_module.py", RING)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    import own_module

    assert registry.place_of(own_module.wide) == "own_module:wide"
    here = pb.task(lambda x: -x.square().sum(), 2, name="here")
    assert registry.place_of(here) == ""
    options = {"replicates": 1, "particles": 20, "budget": {"iterations": 3}, "tracking": False, "workers": 1}
    results = pb.run(tasks=[own_module.wide, here], algorithms=["ula"], out=tmp_path / "store", **options)
    assert [c.status for c in results.cells] == [Status.OK, Status.OK]


@pytest.mark.slow
def test_ray_gets_the_file_and_the_reference(
    call: Run, tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other side of the wire, without Ray: neither file is there, and the metrics need both."""
    path = write(tmp_path, "mine.py", RING)
    assert call("reference", "build", "mine.py:wide", "--method", "exact").code == 0
    monkeypatch.setattr(cluster, "_ray", lambda: SimpleNamespace())
    suite: Any = select(
        None, ["mine.py:wide"], ["ula"], Execution(replicates=1, particles=100, budget={"iterations": 3})
    )
    parcel = cluster.Cluster("local", 1, 60.0, None, 0.0)._parcel(ChunkJob(expand(suite)[0], 0))
    path.unlink()
    for file in (tmp_path / "parvibench-references").iterdir():
        file.unlink()
    *_, outcome = cluster.serve(parcel)
    assert isinstance(outcome, Outcome)
    assert outcome.status is Status.OK, outcome.reason
    assert outcome.result.values["sliced_w2"][0] > 0


def test_a_plug_in_that_cannot_be_found_is_not_ready(
    call: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write(tmp_path, "own_listed.py", RING)
    monkeypatch.syspath_prepend(tmp_path)
    found = registry.TaskRow("wide", "own_listed:wide"), registry.TaskRow("gone", "no.such.module:x")
    monkeypatch.setattr(registry, "tasks", lambda: {row.name: row for row in found})
    rows = {row["name"]: row for row in call("list", "tasks", "--json").json}
    assert (rows["wide"]["dim"], rows["wide"]["status"], rows["wide"]["reference"]) == (2, "ready", "exact draws")
    assert rows["gone"]["status"] == "not found"
    assert "No module named" in rows["gone"]["summary"]


def test_python_takes_frames_dictionaries_and_inference_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same numbers in every form give the same document."""
    monkeypatch.chdir(tmp_path)
    x = pb.load_task("banana").exact(400, Generator().manual_seed(4)).reshape(4, 100, 2)
    forms = {
        "array": x.numpy(),
        "tensor": x,
        "dictionary": {"a": x[..., 0], "b": x[..., 1].numpy()},
        "inference data": SimpleNamespace(posterior=SimpleNamespace(data_vars={n: SimpleNamespace(values=v) for n, v in (("a", x[..., 0].numpy()), ("b", x[..., 1].numpy()))})),
    }  # fmt: skip
    documents = {name: pb.evaluate(form, task="banana", metrics=["sliced_w2", "mmd2"]) for name, form in forms.items()}
    for document in documents.values():
        assert document["metrics"] == documents["array"]["metrics"]
    assert documents["dictionary"]["chains"]["names"] == ["a", "b"]
    flat = x.flatten(0, 1).numpy()
    frame = pd.DataFrame({"b": flat[:, 1], "a": flat[:, 0], "other": 1.0})
    chosen, plain = pb.evaluate(frame, task="banana", columns=["a", "b"]), pb.evaluate(flat, task="banana")
    for a, b in zip(chosen["metrics"], plain["metrics"], strict=True):
        assert (a["metric"], a["verdict"]) == (b["metric"], b["verdict"])
        assert a["value"] == pytest.approx(b["value"])
    with pytest.raises(InputError, match="no column 'c'; it has b, a, other"):
        pb.evaluate(frame, task="banana", columns=["a", "c"])
    with pytest.raises(InputError, match="variables of different lengths"):
        pb.evaluate({"a": np.zeros(100), "b": np.zeros(99)}, task="banana")
