"""Tuning: the same procedure for all, rows and replicates of its own, a choice that lands in the suite file."""

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import records
from command_line import Run

import parvibench as pb
from parvibench.api.tune import tune_suite
from parvibench.core.errors import InputError, SuiteError
from parvibench.core.result import Status
from parvibench.core.task import TUNING_REPLICATES
from parvibench.harness.execution import Execution
from parvibench.harness.session import run_cells
from parvibench.harness.store.store import Store
from parvibench.harness.suite import tuned_values, tuning
from parvibench.harness.suite.cells import expand
from parvibench.harness.suite.suite import load_suite, parse_suite
from parvibench.harness.workers.executors import InProcess
from parvibench.suites import shipped

SUITE = """\
name: mine  # a comment that stays
tasks: [multimodal]
algorithms: [ula, svgd, exact]
replicates: 2
particles: 50
budget: {scores_per_particle: 120}
tune: {step_size: [1.0e-3, 10.0], points: 3}
profiles:
  short: {budget: {scores_per_particle: 60}}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "mine.yaml"
    file.write_text(SUITE)
    return file


def short(path: Path) -> Any:
    return load_suite(str(path)).with_profile("short")


def test_every_method_gets_the_same_grid_and_budget_on_replicates_of_their_own(path: Path) -> None:
    cells = tuning.Tuner(short(path)).first_cells()
    assert [c.label for c in cells] == [f"{a} @ {s}" for a in ("ula", "svgd") for s in ("0.001", "0.1", "10")]
    assert {c.spec.budget.score_evaluations for c in cells} == {60 * 50 / 4}
    assert {r for c in cells for r in c.spec.replicates} == {TUNING_REPLICATES + r for r in range(3)}


def test_units_of_steps_have_grids_of_their_own() -> None:
    """SVGD's plain rule moves x by a step in x^2, its Adam rule by one in x; a generator has a rate."""
    text = SUITE.replace("[1.0e-3, 10.0]", "{x^2: [1.0e-3, 10.0], x: [1.0e-2, 1.0], rate: [1.0e-4, 1.0e-2]}")
    methods = "svgd, {name: svgd, label: adam, settings: {rule: adam}}, mied, mean-field, hmc, lapd-decay"
    cells = tuning.Tuner(parse_suite(text.replace("ula, svgd", methods).encode(), "mine.yaml")).first_cells()
    ends = {c.label.partition(" @ ")[0]: c.settings["step_size"] for c in cells}
    assert ends == {"svgd": 10.0, "adam": 1.0, "mied": 1.0, "mean-field": 0.01, "hmc": 10.0, "lapd-decay": 10.0}


def test_a_unit_without_a_grid_is_named() -> None:
    text = SUITE.replace("[1.0e-3, 10.0]", "{x: [1.0e-2, 1.0]}")
    with pytest.raises(InputError, match=r"no grid for steps in x\^2"):
        tuning.Tuner(parse_suite(text.encode(), "mine.yaml"))


class Measuring:
    """Stands for a run: every cell's primary metric is a function of its settings, horizon and label."""

    def __init__(self, value: Any) -> None:
        self.value, self.rounds = value, []

    def __call__(self, cells: Any) -> Any:
        self.rounds.append([c.label for c in cells])
        found = []
        for c in cells:
            value = self.value(c)
            lost = value is None
            record = records.make_record(
                c.label, label=c.label, status="crashed" if lost else "ok", reason="boom" if lost else ""
            )
            values = {} if lost else {c.metrics[0]: [value] * 3}
            found.append(record.model_copy(update={"spec": c.spec, "values": values, "score_evaluations": 10.0}))
        return type("Found", (), {"cells": tuple(found)})


def distance(best: float) -> Any:
    """How far the step is from ``best``, in decades."""
    return lambda cell: abs(np.log10(cell.settings["step_size"] / best))


def test_a_grid_grows_until_the_best_value_lies_inside_it(path: Path) -> None:
    """0.001, 0.1, 10 and a best value at 3000: two times two values at a ratio of 100, four more of finalists."""
    for best, reached, edge in ((0.1, 10.0, False), (3000.0, 1000.0, False), (1e20, 1e17, True), (2e-7, 1e-7, False)):
        run = Measuring(distance(best))
        tuner = tuning.Tuner(short(path))
        tuned = tuner.tune(run)
        chosen = tuned.step_size["multimodal"]["ula"]
        tried = [float(label.split(" @ ")[1]) for part in run.rounds for label in part if label.startswith("ula")]
        assert chosen == min(set(tried), key=lambda s: abs(np.log10(s / best)))
        assert ("multimodal/ula" in tuned.at_edge) == edge
        assert max(tried) >= reached or best < 1
        assert len(set(tried)) <= 3 + tuning.EXTENSIONS * 2 + tuning.FURTHER


def test_the_best_two_run_for_the_whole_horizon_and_decide(path: Path) -> None:
    """A quarter of the horizon prefers 0.001, the whole one 0.1; 10 is never run that long."""
    short_sight = {0.001: 1.0, 0.1: 1.5, 10.0: 9.0}
    far_sight = {0.001: 3.0, 0.1: 2.0}
    whole = 60 * 50

    def value(cell: Any) -> float:
        step, spent = cell.settings["step_size"], cell.spec.budget.score_evaluations
        return far_sight[step] if spent == whole else short_sight.get(step, 5.0)

    run = Measuring(value)
    tuned = tuning.Tuner(short(path)).tune(run)
    assert tuned.step_size["multimodal"] == {"ula": 0.1, "svgd": 0.1}
    assert run.rounds[-1] == ["ula @ 0.001", "ula @ 0.1", "svgd @ 0.001", "svgd @ 0.1"]
    rounds = [label for part in run.rounds for label in part if label.startswith("ula")]
    assert tuned.score_evaluations["multimodal"]["ula"] == 10.0 * 3 * len(rounds)


@pytest.mark.parametrize(
    ("bearable", "further", "chosen"),
    [(0.01, 1, 0.01), (1e-3, 4, 1e-3), (10.0, 0, 1.0), (1e-4, 6, 1e-4), (0.0, 6, 1e-5)],
)
def test_steps_that_are_too_large_for_the_whole_horizon_give_way_to_smaller_ones(
    path: Path, bearable: float, further: int, chosen: float
) -> None:
    """A quarter prefers 1, then 0.1; over the whole horizon every step above ``bearable`` becomes the worse the larger it is.

    Below the grid (0.001) values are added, which run for the quarter, too, until the best is inside; the fourth is the last.
    """
    text = SUITE.replace("points: 3", "points: 5")
    whole = 60 * 50

    def value(cell: Any) -> float:
        step = cell.settings["step_size"]
        early = abs(np.log10(step / 0.5))
        later = 10 + 2 * np.log10(step) if step > bearable else -0.1
        return early + later * (cell.spec.budget.score_evaluations == whole)

    run = Measuring(value)
    tuned = tuning.Tuner(parse_suite(text.encode(), "mine.yaml").with_profile("short")).tune(run)
    assert tuned.step_size["multimodal"] == {"ula": chosen, "svgd": chosen}
    assert len(run.rounds) == 2 + further


def test_a_value_that_nobody_measured_is_never_stored(path: Path) -> None:
    tuner = tuning.Tuner(short(path))
    tuned = tuner.tune(Measuring(lambda c: None if c.label.startswith("svgd") else 1.0))
    assert list(tuned.step_size["multimodal"]) == ["ula"]
    assert tuner.left_out == {"multimodal/svgd": "crashed: boom"}


def test_options_are_chosen_with_the_step() -> None:
    text = SUITE.replace("points: 3}", "points: 3, options: {svgd: {rule: [plain, adagrad]}}}")
    suite = parse_suite(text.encode(), "mine.yaml")
    tuned = tuning.Tuner(suite).tune(
        Measuring(lambda c: abs(np.log10(c.settings["step_size"] / 0.1)) + (c.settings.get("rule") == "plain"))
    )
    assert tuned.settings == {"multimodal": {"svgd": {"rule": "adagrad"}}}
    used = {c.label: c for c in expand(suite.model_copy(update={"tuned": tuned}))}
    assert (used["svgd"].settings["rule"], used["svgd"].settings["step_size"], used["svgd"].tuned) == (
        "adagrad",
        0.1,
        True,
    )
    with pytest.raises(SuiteError, match=r"tune.options: no method is labelled svdg"):
        parse_suite(text.replace("{svgd: {rule", "{svdg: {rule").encode(), "mine.yaml")


def test_a_method_may_take_the_step_of_another(path: Path) -> None:
    text = SUITE.replace("ula, svgd", "ula, {name: sgld, step_from: ula, reason: the same chain}")
    suite = parse_suite(text.encode(), "mine.yaml")
    tuner = tuning.Tuner(suite)
    assert {c.label.partition(" @ ")[0] for c in tuner.first_cells()} == {"ula"}
    tuned = tuner.tune(Measuring(distance(0.1)))
    used = {c.label: c for c in expand(suite.model_copy(update={"tuned": tuned}))}
    assert (used["sgld"].settings["step_size"], used["sgld"].tuned) == (0.1, True)
    with pytest.raises(SuiteError, match="step_from: no method is labelled ola"):
        parse_suite(text.replace("step_from: ula", "step_from: ola").encode(), "mine.yaml")


def test_the_best_step_is_chosen_stored_and_used(path: Path, tmp_path: Path) -> None:
    """10 makes ULA leave the unit Gaussians for good, 0.001 does not leave the start."""
    suite, store = short(path), Store(tmp_path / "store")
    tuned = tuning.Tuner(suite).tune(lambda cells: run_cells(cells, store, InProcess(), suite=suite.resolved()))
    assert tuned.step_size["multimodal"]["ula"] == 0.1
    tuned_values.write_tuned(path, tuned, "short")
    assert "# a comment that stays" in path.read_text()
    used = {c.label: c for c in expand(short(path))}
    assert (used["ula"].settings["step_size"], used["ula"].tuned) == (0.1, True)
    assert not used["exact"].tuned
    untouched = {c.label: c for c in expand(load_suite(str(path)), settings={"ula": {"step_size": 0.5}})}
    assert (untouched["ula"].settings["step_size"], untouched["ula"].tuned) == (0.5, False)


@pytest.mark.parametrize("target", ["suites/mine.yaml", "../mine.yaml", "mine-2.yaml"])
def test_tuned_values_go_through_a_link(target: str, tmp_path: Path) -> None:
    link, file = tmp_path / "here" / "linked.yaml", tmp_path / "here" / target
    file.parent.mkdir(parents=True, exist_ok=True)
    link.parent.mkdir(exist_ok=True)
    file.write_text(SHARED)
    link.symlink_to(target)
    tuned_values.write_tuned(link, tuning.Tuned(step_size={"multimodal": {"ula": 0.2}}), "long")
    assert str(link.readlink()) == target
    assert load_suite(str(file)).tuned.step_size["multimodal"]["ula"] == 0.2
    assert [p.name for p in file.parent.iterdir() if p.name.startswith(".")] == []


def test_a_write_of_tuned_values_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(SHARED)

    def fails(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match="No space left"):
        tuned_values.write_tuned(file, tuning.Tuned(step_size={"multimodal": {"ula": 0.2}}), "long")
    assert file.read_text() == SHARED
    assert list(tmp_path.iterdir()) == [file]


def test_a_suite_without_a_grid_says_how_to_add_one(path: Path) -> None:
    path.write_text("\n".join(line for line in SUITE.splitlines() if not line.startswith("tune")))
    with pytest.raises(InputError, match="add for example: tune:"):
        tuning.Tuner(short(path))


def test_a_suite_with_a_grid_and_no_tuned_values_does_not_run(path: Path, tmp_path: Path) -> None:
    options = {"tracking": False, "workers": 0, "out": tmp_path / "store", "profile": "short"}
    with pytest.raises(InputError, match="`parvibench tune mine --profile short`"):
        pb.run(load_suite(str(path)), **options)
    given = {"ula": {"step_size": 0.1}, "svgd": {"step_size": 0.1}}
    assert not pb.run(load_suite(str(path)), settings=given, **options).failed
    results = pb.run(load_suite(str(path)), algorithms=["exact"], **{**options, "profile": None})
    assert not results.failed
    assert results.run.profile == "short"  # the default is named in the record


def test_a_forecast_refuses_what_the_run_refuses(path: Path, call: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the same words, which name the command with the profile that would run."""
    monkeypatch.chdir(path.parent)
    run = ("run", "--suite", "mine.yaml")
    refused = call(*run)
    assert refused.code == 2
    assert "`parvibench tune mine.yaml --profile short`" in " ".join(refused.err.split())
    assert call(*run, "--dry-run") == refused
    assert call(*run, "--dry-run", "--algorithm", "exact").code == 0
    told = call(*run, "--dry-run", "--tune")
    assert told.code == 0
    assert "plus the time of tuning" in " ".join((told.out + told.err).split())


def test_run_tunes_first_when_asked_and_its_cost_is_shown(path: Path, tmp_path: Path) -> None:
    from parvibench.reporting.page.provenance import step_sizes

    results = pb.run(
        load_suite(str(path)), profile="short", tune=True, tracking=False, workers=0, out=tmp_path / "store"
    )
    assert {c.label: c.tuned for c in results.cells} == {"ula": True, "svgd": True, "exact": False}
    costs = results.run.suite["tuned"]["score_evaluations"]["multimodal"]
    # Three values and the best two, three replicates each; a grid that grows costs more.
    assert all(cost >= 3 * (3 * 750 + 2 * 3000) * 0.9 for cost in costs.values())
    steps = step_sizes(results)
    assert steps is not None
    assert "tuned against the reference" in steps[0]
    assert f"{sum(costs.values()):,.0f} score evaluations" in steps[0]


def test_interrupted_tuning_stores_nothing(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> Any:
        return type("Found", (), {"cells": (records.make_record(status=Status.INTERRUPTED),)})

    monkeypatch.setattr("parvibench.api.tune.run_cells", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tune_suite(short(path), Execution(workers=0, out=tmp_path))


@pytest.mark.parametrize("name", list(shipped()))
def test_fixed_settings_of_shipped_suites_bear_their_reason(name: str) -> None:
    suite = load_suite(name)
    fixed = [a for a in suite.algorithms if a.chosen or a.particles or a.step_from]
    assert [a.display for a in fixed if not a.reason] == [] or name.startswith("ci")


HALF = SUITE.replace("tasks: [multimodal]", "tasks: [multimodal, banana]").replace(
    "profiles:", "tuned: {step_size: {multimodal: {ula: 0.1, svgd: 1.0}}, replicates: 3}\nprofiles:"
)


def test_a_task_without_tuned_values_is_refused_where_others_have_some(tmp_path: Path) -> None:
    suite = parse_suite(HALF.encode(), "mine.yaml")
    with pytest.raises(
        InputError, match="no tuned ones for ula, svgd on banana: `parvibench tune mine --profile short`"
    ):
        pb.run(suite, tracking=False, workers=0, out=tmp_path / "store")
    by_hand = {label: {"step_size": 0.1} for label in ("ula", "svgd")}
    assert tuned_values.untuned(suite, expand(suite, settings=by_hand), None, "mine") is None
    alone = tuned_values.of_tasks(suite, {"multimodal"})
    assert tuned_values.untuned(alone, expand(alone), None, "mine") is None


def test_a_method_without_a_tuned_value_on_a_tuned_task_runs_at_its_default() -> None:
    """A method that is added to a published suite is not refused; the report marks it."""
    suite = parse_suite(HALF.replace("ula, svgd, exact", "ula, svgd, sgld, exact").encode(), "mine.yaml")
    alone = tuned_values.of_tasks(suite, {"multimodal"})
    cells = expand(alone)
    assert tuned_values.untuned(alone, cells, None, "mine") is None
    assert [c.label for c in cells if c.untuned] == ["sgld"]


def test_run_with_tune_tunes_the_tasks_that_lack_values_and_no_others(tmp_path: Path) -> None:
    text = HALF.replace("scores_per_particle: 120", "scores_per_particle: 8").replace(
        "points: 3", "points: 3, replicates: 1"
    )
    suite = parse_suite(text.encode(), "mine.yaml")
    found = pb.run(suite, tracking=False, workers=0, out=tmp_path / "store", tune=True)
    tuned = Store(tmp_path / "store" / "tuning")
    assert {c.task for run in tuned.runs() for c in tuned.run(run).cells} == {"banana"}
    steps = {(c.task, c.label): c.settings["step_size"] for c in found.cells if c.label != "exact"}
    assert [steps["multimodal", label] for label in ("ula", "svgd")] == [0.1, 1.0]
    assert steps["banana", "ula"] in tuning.grid(suite.tune, "x^2")


SHARED = SUITE.replace(
    "profiles:\n  short: {budget: {scores_per_particle: 60}}\n",
    """\
tuned: {step_size: {multimodal: {ula: 0.1, svgd: 1.0}}}
profiles:
  short: {replicates: 2}
  long: {replicates: 4}
  own: {budget: {scores_per_particle: 60}, tuned: {step_size: {multimodal: {ula: 0.3}}}}
""",
)


def test_profiles_share_the_tuned_values_of_the_suite(tmp_path: Path) -> None:
    """Values tuned under a profile are stored where the profile reads them: its own place, else the suite's."""
    suite = parse_suite(SHARED.encode(), "mine.yaml").with_profile("long")
    assert {c.label: (c.settings["step_size"], c.tuned, len(c.spec.replicates)) for c in expand(suite)[:2]} == {
        "ula": (0.1, True, 4),
        "svgd": (1.0, True, 4),
    }
    file = tmp_path / "mine.yaml"
    file.write_text(SHARED)
    tuned_values.write_tuned(file, tuning.Tuned(step_size={"multimodal": {"ula": 0.2}}), "long")
    tuned_values.write_tuned(file, tuning.Tuned(step_size={"multimodal": {"ula": 0.4}}), "own")
    suite = load_suite(str(file))
    steps = {n: suite.with_profile(n).tuned.step_size["multimodal"]["ula"] for n in suite.profiles}
    assert steps == {"short": 0.2, "long": 0.2, "own": 0.4}


def test_the_file_for_tuned_values_is_checked_before_the_work(tmp_path: Path) -> None:
    """New, empty and linked files become copies of the suite; what cannot take the values is refused in one line."""
    source = "name: own\nprofiles:\n  fast: {}\n"
    (tmp_path / "empty.yaml").touch()
    (tmp_path / "link.yaml").symlink_to("elsewhere.yaml")
    for name in ("new.yaml", "empty.yaml", "link.yaml"):
        assert tuned_values.suite_text(tmp_path / name, source, "fast") == source
    own = tmp_path / "own.yaml"
    own.write_text(source.replace("own", "mine"))
    assert "mine" in tuned_values.suite_text(own, source, "fast")
    (tmp_path / "bare.yaml").write_text("name: bare")
    (tmp_path / "broken.yaml").write_text("a: [\n\t b")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    for name, reason in (
        ("bare.yaml", "no profile 'fast'"), ("broken.yaml", "not a suite file"), ("binary.yaml", "not a suite file"),
        (".", "not a file"), ("nowhere/new.yaml", "nowhere is not there"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=reason) as error:
            tuned_values.suite_text(tmp_path / name, source, "fast")
        assert "\n" not in str(error.value)
