"""Suites that name samplers, tasks and programs of their owner's, and when their code runs."""

import re
from pathlib import Path
from typing import Any

import pytest
from command_line import Run

from parvibench.api.plan import named_methods, select
from parvibench.core.errors import InputError
from parvibench.harness.execution import Execution
from parvibench.harness.suite.plugins import plugin_place


def test_a_suite_may_name_what_is_installed_and_no_file_by_itself(own: Any, tmp_path: Path) -> None:
    from parvibench.harness.suite.cells import expand
    from parvibench.harness.suite.suite import SuiteError, load_suite

    suite = tmp_path / "mine.yaml"
    text = "name: mine\ntasks: [banana]\nalgorithms: [svgd, {}]\nbudget: {{iterations: 3}}\n"
    suite.write_text(text.format("'own_samplers_of_a_test:Batched'"))
    assert [c.label for c in expand(load_suite(str(suite)))] == ["svgd", "batched"]
    for name, told in (
        (
            "'own_samplers_of_a_test.py:Batched'",
            r"mine.yaml:3: algorithms\[1\]: .*runs no code of its own.*--algorithm or --task.*--allow-plugins",
        ),
        ("'own_samplers_of_a_test:Nothing'", r"mine.yaml:3: algorithms\[1\]: cannot load"),
        ("'os:system'", r"mine.yaml:3: algorithms\[1\]: .* not a parvibench Algorithm"),
        ("{name: 'own_samplers_of_a_test:Batched', label: svgd}", "algorithm label given twice"),
        ("{name: svgd, lable: x}", r"algorithms\[1\].lable: unknown key. Known: label, preset"),
    ):
        suite.write_text(text.format(name))
        with pytest.raises(SuiteError, match=told):
            load_suite(str(suite))


@pytest.mark.parametrize(
    ("listed", "options", "cells"),
    [
        ("tasks: [banana]\nalgorithms: [svgd, 'kw.py:KWFlow']", ["--allow-plugins"], ["banana/svgd", "banana/kw-flow"]),
        ("tasks: [banana]\nalgorithms: [svgd, 'kw.py:KWFlow']", ["-a", "lab/kw.py:KWFlow"], ["banana/kw-flow"]),
        ("tasks: [banana]\nalgorithms: [svgd, 'kw.py:KWFlow']", ["-a", "./lab/kw.py:KWFlow"], ["banana/kw-flow"]),
        ("tasks: [banana]\nalgorithms: [{name: 'kw.py:KWFlow', label: flow}]", ["--allow-plugins"], ["banana/flow"]),
        ("tasks: [banana, 'kw.py:bowl']\nalgorithms: [ula]", ["--allow-plugins"], ["banana/ula", "bowl/ula"]),
        ("tasks: [banana, 'kw.py:bowl']\nalgorithms: [ula]", ["-t", "lab/kw.py:bowl"], ["bowl/ula"]),
        ("rows: [{task: 'kw.py:bowl', algorithm: 'kw.py:KWFlow'}]", ["--allow-plugins"], ["bowl/kw-flow"]),
        ("tasks: [banana]\nalgorithms: ['kw.py:KWFlow']\ntune: {step_size: [0.1, 1], options: {kw-flow: {step_size: [1]}}}",
         ["--allow-plugins", "--set", "kw-flow.step_size=1"], ["banana/kw-flow"]),
    ],
)  # fmt: skip
def test_a_suite_names_files_beside_it_where_the_command_allows_them(
    call: Run, plug_in: str, tmp_path: Path, listed: str, options: list[str], cells: list[str]
) -> None:
    lab = tmp_path / "lab"
    lab.mkdir()
    (lab / "kw.py").write_text(plug_in)
    (lab / "mine.yaml").write_text(f"name: mine\nbudget: {{iterations: 3}}\n{listed}\n")
    words = ["run", "--suite", "lab/mine.yaml", "--replicates", "1", "--dry-run", "--json"]
    refused = call(*words)
    assert refused.code == 2
    assert re.search("lab/mine.yaml:[0-9]+: .*a suite file is data and runs no code.*--allow-plugins", refused.err)
    assert not (lab / "kw.ran").exists()
    found = call(*words, *options)
    assert found.code == 0, found.err
    assert [f"{row['task']}/{row['label']}" for row in found.json] == cells


@pytest.mark.ci
def test_a_suite_names_no_file_elsewhere_and_runs_in_workers(call: Run, plug_in: str, tmp_path: Path) -> None:
    (tmp_path / "lab").mkdir()
    text = "name: mine\ntasks: [banana]\nbudget: {{iterations: 3}}\nalgorithms: ['{}']\n"
    for folder in (tmp_path, tmp_path / "lab"):
        (folder / "kw.py").write_text(plug_in)
    words = ["run", "--suite", "lab/mine.yaml", "--allow-plugins", "--replicates", "1", "--quiet"]
    for place, told in (
        ("../kw.py:KWFlow", "only files in its own folder"),
        (f"{tmp_path}/kw.py:KWFlow", "only files in its own folder"),
        ("no.py:KWFlow", "no such file beside the suite"),
        ("kw.py:Nothing", "there is no 'Nothing'"),
        ("not a module:Class", "neither installed code"),
    ):
        (tmp_path / "lab" / "mine.yaml").write_text(text.format(place))
        answer = call(*words)
        assert (answer.code, told in " ".join(answer.err.split())) == (2, True), answer.err
    assert not (tmp_path / "kw.ran").exists()
    (tmp_path / "lab" / "mine.yaml").write_text(text.format("kw.py:KWFlow"))
    assert call(*words, "--workers", "1").code == 0
    assert "&" in call("report", "--format", "latex").out


def test_algorithms_of_files_and_names_select_together(own: Any) -> None:
    def labels(*algorithms: Any) -> list[str]:
        return [a.display for a in select("quick", ["banana"], named_methods(algorithms)[0], Execution()).algorithms]

    place = "own_samplers_of_a_test:Batched"
    assert labels(place) == labels(own.Batched) == ["batched"]
    assert labels(place, "svgd") == ["batched", "svgd"]
    assert labels("svgd", "svgd") == ["svgd"]


def test_a_suite_names_stan_programs_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lab").mkdir()
    for file in ("lab/line.stan", "lab/line.json", "other.json"):
        (tmp_path / file).write_text("{}")
    lab, place = Path("lab"), "line.stan:line.json"
    assert (
        plugin_place(place, lab, "beside")
        == plugin_place(place, lab, [f"lab/{place}"])
        == "lab/line.stan:lab/line.json"
    )
    assert plugin_place("line.stan", lab, "beside") == "lab/line.stan"
    assert plugin_place("posteriordb:arK-arK", lab, ()) == "posteriordb:arK-arK"
    for name, allowed, told in (
        (place, (), "runs no code of its own"),
        ("line.stan:../other.json", "beside", "only files in its own folder"),
        ("line.stan:no.json", "beside", "no such file"),
    ):
        with pytest.raises(InputError, match=told):
            plugin_place(name, lab, allowed)
