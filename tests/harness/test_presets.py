"""Presets: valid, sourced, chosen by name, under explicit settings, resolved in the cell key."""

import json
import subprocess
import sys

import pytest

from parvibench.cli import describe
from parvibench.core import registry
from parvibench.core.errors import SettingsError, SuiteError
from parvibench.harness.suite.cells import Cell, expand
from parvibench.harness.suite.suite import parse_suite

PRESETS = [(name, preset) for name in registry.algorithms() for preset in registry.load_method(name).presets]
SUITE = """\
name: mine
tasks: [gmm5-2d]
algorithms: [{{name: sifg, settings: {settings}}}]
budget: {{iterations: 1}}
"""


def cell(settings: str, overrides: dict | None = None, tail: str = "") -> Cell:
    (only,) = expand(
        parse_suite((SUITE.format(settings=settings) + tail).encode(), "mine.yaml"), settings=overrides
    )
    return only


@pytest.mark.parametrize(("name", "preset"), PRESETS)
def test_presets_hold_valid_settings_with_their_source(name: str, preset: str) -> None:
    algorithm = registry.load_method(name)
    protocol = algorithm.protocol(preset)
    values = {key: value for key, value in algorithm.presets[preset].items() if key not in protocol}
    resolved = algorithm.make_settings({"preset": preset}).model_dump()
    assert {key: resolved[key] for key in values} == {key: value for key, (value, _) in values.items()}
    assert {source for _, source in values.values()} <= {"paper", "code", "ours"}


def test_a_preset_acts_only_where_it_is_named_and_explicit_settings_win() -> None:
    assert cell("{}").settings["sigma"] == 0.1
    assert cell("{preset: gmm5-2d}").settings["sigma"] == 0.12
    mixed = cell("{preset: gmm5-2d, sigma: 0.3}").settings
    assert (mixed["sigma"], mixed["step_size"]) == (0.3, 0.01)
    overridden = cell("{sigma: 0.3}", {"sifg": {"preset": "bnn-boston-sifg"}}).settings
    assert (overridden["sigma"], overridden["hidden"]) == (0.3, 300)


def test_the_key_holds_the_values_and_not_the_name() -> None:
    named = cell("{preset: gmm5-2d}")
    spelled = cell(json.dumps(dict(named.settings)))
    assert "preset" not in named.settings
    assert named.key == spelled.key != cell("{}").key


def test_a_preset_s_step_size_is_not_replaced_by_a_tuned_one() -> None:
    tuned = "tuned: {step_size: {gmm5-2d: {sifg: 0.5}}}\n"
    assert cell("{}", tail=tuned).settings["step_size"] == 0.5
    preset = cell("{preset: gmm5-2d}", tail=tuned)
    assert (preset.settings["step_size"], preset.tuned) == (0.01, False)


def test_unknown_presets_name_the_known_ones() -> None:
    with pytest.raises(
        SuiteError, match=r"mine.yaml:3: algorithms\[0\]: sifg.preset: no preset named 'gmm'. Known: gmm5-2d,"
    ):
        cell("{preset: gmm}")
    with pytest.raises(SettingsError, match="no preset named 3"):
        cell("{}", {"sifg": {"preset": 3}})
    with pytest.raises(SettingsError, match="Known: none"):
        registry.load_method("uld").make_settings({"preset": "toy"})


def test_the_command_line_refuses_unknown_presets_with_exit_code_2() -> None:
    command = ["run", "--task", "gmm5-2d", "--algorithm", "sifg", "--set", "sifg.preset=nowhere", "--dry-run"]
    entry = [sys.executable, "-c", "from parvibench.cli import main; main()"]
    done = subprocess.run([*entry, *command], capture_output=True, text=True)
    assert (done.returncode, "Known: gmm5-2d, gmm5-2d-code" in " ".join(done.stderr.split())) == (2, True)


def test_show_tells_every_value_and_its_source() -> None:
    presets = describe.algorithm("sifg")["presets"]
    assert "sigma=0.12 (paper)" in presets["gmm5-2d"]
    assert "sigma=0.1 (code)" in presets["gmm5-2d-code"]
    assert describe.algorithm("uld")["presets"] == "none"
