"""Presets: valid, sourced, chosen by name, under explicit settings, resolved in the cell key."""

import json

import pytest
from command_line import Run

from parvibench.api import describe
from parvibench.api.plan import select
from parvibench.core import registry
from parvibench.core.algorithm import PROTOCOL_KEYS
from parvibench.core.errors import SettingsError, SuiteError
from parvibench.harness.execution import Execution
from parvibench.harness.suite.cells import Cell, expand, task_of_preset
from parvibench.harness.suite.suite import parse_suite

PRESETS = [(name, preset) for name in registry.algorithms() for preset in registry.load_method(name).presets]
SUITE = """\
name: mine
tasks: [gmm5-2d]
algorithms: [{{name: sifg, settings: {settings}}}]
budget: {{iterations: 1}}
"""


def cell(settings: str, overrides: dict | None = None, tail: str = "") -> Cell:
    suite = parse_suite((SUITE.format(settings=settings) + tail).encode(), "mine.yaml")
    (only,) = expand(suite, settings=overrides)
    return only


@pytest.mark.parametrize(("name", "preset"), PRESETS)
def test_presets_hold_valid_settings_with_their_source(name: str, preset: str) -> None:
    algorithm = registry.load_method(name)
    protocol = algorithm.protocol(preset)
    values = {key: value for key, value in algorithm.presets[preset].items() if key not in protocol}
    resolved = algorithm.make_settings({"preset": preset}).model_dump()
    assert {key: resolved[key] for key in values} == {key: value for key, (value, _) in values.items()}
    assert {source for _, source in values.values()} <= {"paper", "code", "ours"}


@pytest.mark.parametrize("name", sorted({name for name, _ in PRESETS}))
def test_no_setting_has_the_name_of_a_protocol_key(name: str) -> None:
    """A preset's value of it would go to the protocol and not to the algorithm."""
    assert not set(registry.load_method(name).settings_type.model_fields) & set(PROTOCOL_KEYS)


@pytest.mark.parametrize("name", ["srld", "mied", "ksdd", "lapd", "lapd-decay", "mala", "hmc", "ula", "deep-ensemble"])
def test_presets_bear_the_exact_names_of_tasks(name: str) -> None:
    assert set(registry.load_method(name).presets) <= set(registry.tasks())


def test_what_a_preset_holds_of_the_protocol() -> None:
    srld = registry.load_method("srld")
    assert srld.protocol("correlated-2d") == {
        "particles": 1, "iterations": 2000, "burn_in": 100, "thinning": 1, "samples": 1900,
    }  # fmt: skip
    assert srld.expand_preset({"preset": "correlated-2d"}) == {
        "alpha": 10.0, "memory": 100, "step_size": 0.01, "spacing": 1,
    }  # fmt: skip
    assert srld.make_settings({"preset": "gaussian-100d"}).model_dump()["spacing"] == 100  # of the memory
    assert srld.protocol("gaussian-100d") == {"particles": 1, "thinning": 10}  # of the path
    assert registry.load_method("deep-ensemble").protocol("bnn-boston")["iterations"] == 40 * 5


def test_a_preset_acts_only_where_it_is_named_and_explicit_settings_win() -> None:
    assert cell("{}").settings["sigma"] == 0.1
    assert cell("{preset: gmm5-2d}").settings["sigma"] == 0.12
    mixed = cell("{preset: gmm5-2d, sigma: 0.3}").settings
    assert (mixed["sigma"], mixed["step_size"]) == (0.3, 0.01)
    overridden = cell("{sigma: 0.3}", {"sifg": {"preset": "bnn-boston-sifg"}}).settings
    assert (overridden["sigma"], overridden["hidden"]) == (0.3, 300)


def test_the_key_holds_the_values_and_not_the_name() -> None:
    named = cell("{preset: gmm5-2d}")
    protocol = ", particles: 1000, samples: 1000, budget: {iterations: 2000}"
    spelled = cell(json.dumps(dict(named.settings)) + protocol)
    assert "preset" not in named.settings
    assert named.key == spelled.key != cell("{}").key


def test_a_preset_carries_its_protocol_under_what_is_given_explicitly() -> None:
    def protocol(found: Cell) -> tuple[object, ...]:
        spec = found.spec
        return spec.budget.iterations, spec.budget.score_evaluations, spec.particles, spec.samples

    by_key = parse_suite(SUITE.format(settings="{}, preset: gmm5-2d").encode(), "mine.yaml")
    assert protocol(expand(by_key)[0]) == (2000, None, 1000, 1000)
    assert protocol(cell("{preset: gmm5-2d}")) == (2000, None, 1000, 1000)
    assert protocol(cell("{}", {"sifg": {"preset": "gmm5-2d"}})) == (2000, None, 1000, 1000)
    assert protocol(cell("{preset: gmm5-2d}, samples: 50")) == (2000, None, 1000, 50)
    given = Execution(budget={"score_evaluations": 600}, particles=30, samples=20)
    chosen = select(by_key, (), (), given)
    assert protocol(expand(chosen)[0]) == (None, 600, 30, 20)
    repeated = select(by_key, (), (), Execution(replicates=2))
    assert protocol(expand(repeated)[0]) == (2000, None, 1000, 1000)


def test_burn_in_and_thinning_are_those_of_the_entry_or_the_suite_and_of_chains_only() -> None:
    text = (
        "name: mine\ntasks: [banana, bandit-wheel]\nbudget: {iterations: 9}\nburn_in: 100\nthinning: 3\n"
        "algorithms: [sgld, {name: sgld, label: other, burn_in: 0.1}, svgd]\n"
    )
    cells = expand(parse_suite(text.encode(), "mine.yaml"))
    found = {(c.task, c.label): (c.spec.burn_in, c.spec.thinning) for c in cells}
    assert found["banana", "sgld"] == (100, 3)
    assert found["banana", "other"] == (0.1, 3)
    assert {found["banana", "svgd"], found["bandit-wheel", "sgld"]} == {(0, 1)}
    assert len({c.key for c in cells}) == 5  # one key for both on the bandit, which has a thinning of its own
    assert expand(parse_suite(SUITE.format(settings="{}").encode(), "mine.yaml"))[0].spec.burn_in == 0


@pytest.mark.parametrize(
    ("preset", "task"),
    [("gmm5-2d", "gmm5-2d"), ("gmm5-2d-code", "gmm5-2d"), ("bnn-boston-sifg", "bnn-boston-sifg"), ("bandits", ""),
     ("gmm5", "")],
)  # fmt: skip
def test_a_preset_is_named_after_its_task(preset: str, task: str) -> None:
    assert task_of_preset(preset) == task


def test_a_preset_of_another_task_is_told() -> None:
    assert cell("{preset: gmm5-2d-code}").notes == ()
    assert cell("{preset: gmm5-10d}").notes == ("preset gmm5-10d is that of gmm5-10d, not of gmm5-2d",)


def test_a_preset_s_step_size_is_not_replaced_by_a_tuned_one() -> None:
    tuned = "tuned: {step_size: {gmm5-2d: {sifg: 0.5}}}\n"
    assert cell("{}", tail=tuned).settings["step_size"] == 0.5
    preset = cell("{preset: gmm5-2d}", tail=tuned)
    assert (preset.settings["step_size"], preset.tuned) == (0.01, False)


def test_unknown_presets_name_the_known_ones() -> None:
    told = r"mine.yaml:3: algorithms\[0\]: sifg.preset: no preset named 'gmm'. Known: gmm5-2d,"
    with pytest.raises(SuiteError, match=told):
        cell("{preset: gmm}")
    with pytest.raises(SettingsError, match="no preset named 3"):
        cell("{}", {"sifg": {"preset": 3}})
    with pytest.raises(SettingsError, match="Known: none"):
        registry.load_method("uld").make_settings({"preset": "toy"})


def test_the_command_line_refuses_unknown_presets_with_exit_code_2(call: Run) -> None:
    answer = call("run", "--task", "gmm5-2d", "--algorithm", "sifg", "--set", "sifg.preset=nowhere", "--dry-run")
    assert (answer.code, "Known: gmm5-2d, gmm5-2d-code" in " ".join(answer.err.split())) == (2, True)


def test_show_tells_every_value_and_its_source() -> None:
    presets = describe.algorithm("sifg")["presets"]
    assert "sigma=0.12 (paper)" in presets["gmm5-2d"]
    assert "sigma=0.1 (code)" in presets["gmm5-2d-code"]
    assert describe.algorithm("uld")["presets"] == "none"
