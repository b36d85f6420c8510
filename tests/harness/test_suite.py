"""Suite files: what is wrong is reported by file, line and key path, and nothing else happens."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parvibench.api.plan import select
from parvibench.core.errors import InputError, SuiteError
from parvibench.harness.execution import Execution
from parvibench.harness.suite.cells import expand
from parvibench.harness.suite.suite import Suite, load_suite, parse_suite, stored_suite
from parvibench.suites import shipped

GOOD = """\
name: mine
tasks: [banana, {name: bnn-diabetes-sklearn, splits: 3}]
algorithms:
  - svgd
  - {name: sgld, label: sgld-slow, settings: {step_size: 1.0e-4}}
replicates: 4
budget: {score_evaluations: 2000}
particles: 10
"""


def parse(text: str):
    return parse_suite(text.encode(), "mine.yaml")


def test_a_good_suite_expands_to_its_cells() -> None:
    cells = expand(parse(GOOD))
    assert [(c.task, c.label, c.n_replicates) for c in cells] == [
        ("banana", "svgd", 4),
        ("banana", "sgld-slow", 4),
        ("bnn-diabetes-sklearn", "svgd", 3),
        ("bnn-diabetes-sklearn", "sgld-slow", 3),
    ]
    assert cells[1].settings["step_size"] == 1e-4
    assert {c.samples for c in cells} == {10}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("replicates: 4", "\treplicates: 4", r"mine.yaml:6: a tab before a key or a value: YAML is indented by spaces"),
        ("replicates: 4", "replicates: four", r"mine.yaml:6: replicates: .*integer.*'four'"),
        ("replicates: 4", "replicates: 0", r"mine.yaml:6: replicates: .*greater than 0"),
        ("replicates: 4", "replicate: 4", r"mine.yaml:6: replicate: unknown key"),
        ("splits: 3", "split: 3", r"mine.yaml:2: tasks\[1\].split: unknown key"),
        ("banana,", "bananna,", r"mine.yaml:2: tasks\[0\]: no task named 'bananna'; did you mean 'banana'"),
        ("  - svgd", "  - svdg", r"mine.yaml:4: algorithms\[0\]: no algorithm named 'svdg'; did you mean 'svgd'"),
        ("step_size: 1.0e-4", "stepsize: 1", r"mine.yaml:5: algorithms\[1\]: sgld.stepsize: no such setting. Known: .*step_size"),
        ("step_size: 1.0e-4", "step_size: -1", r"mine.yaml:5: algorithms\[1\]: sgld.step_size: .*greater than 0"),
        ("score_evaluations: 2000", "score_evaluations: -5", r"mine.yaml:7: budget.score_evaluations"),
        ("budget: {score_evaluations: 2000}", "budget: {}", r"mine.yaml:7: budget: give at least one of"),
        ("replicates: 4", "replicates: 4\nreplicates: 5", r"mine.yaml:7: found duplicate key"),
        ("label: sgld-slow", "label: svgd", r"algorithm label given twice: svgd"),
        ("name: mine", "name: !!python/object:os.system x", r"mine.yaml"),
        ("name: mine", "\tname: mine", r"mine.yaml:1: "),
        (GOOD, "- a\n- b\n", r"mine.yaml:1: a suite is a mapping"),
        (GOOD, "", r"mine.yaml:1: a suite is a mapping.*found nothing"),
        ("replicates: 4", "metrics: [sliced_w3]", r"mine.yaml:6: metrics\[0\]: no metric named 'sliced_w3'"),
    ],
)  # fmt: skip
def test_every_problem_has_its_place(old: str, new: str, expected: str) -> None:
    with pytest.raises(SuiteError, match=expected):
        parse(GOOD.replace(old, new))


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(SuiteError) as caught:
        parse(GOOD.replace("replicates: 4", "replicates: 0").replace("particles: 10", "partikles: 10"))
    assert len(str(caught.value).splitlines()) == 2


def test_binary_huge_and_bombs_are_refused() -> None:
    with pytest.raises(SuiteError, match="not a text file"):
        parse_suite(b"\xff\xfe\x00", "mine.yaml")
    with pytest.raises(SuiteError, match="at most"):
        parse_suite(b"#" * 1_000_001, "mine.yaml")
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
    with pytest.raises(SuiteError, match="too large"):
        parse("\n".join(lines))


@pytest.mark.parametrize("name", [n for n in shipped() if n != "posteriordb"])  # whose tasks are in a copy
def test_shipped_suites_expand(name: str) -> None:
    suite = load_suite(name)
    for profile in suite.profiles or [None]:
        cells = expand(suite.with_profile(profile))
        kept = {a.display for a in suite.algorithms}
        if profile:
            kept = (kept & set(suite.profiles[profile].only or kept)) - set(suite.profiles[profile].without or ())
        if suite.rows:
            assert len(cells) == len(suite.with_profile(profile).rows)
        else:
            assert len(cells) == len(suite.tasks) * len(kept)
        assert all(c.spec.budget.scores_per_particle is None for c in cells)


def test_a_profile_keeps_or_leaves_out_methods() -> None:
    text = "name: mine\ntasks: [banana]\nalgorithms: [svgd, ula, mala]\nbudget: {iterations: 2}\nprofiles:\n  a: {only: [svgd, ula]}\n  b: {without: [svgd]}\n"
    suite = parse(text)
    found = {p: [a.display for a in suite.with_profile(p).algorithms] for p in ("a", "b")}
    assert found == {"a": ["svgd", "ula"], "b": ["ula", "mala"]}
    assert suite.default_profile == "a"
    with pytest.raises(SuiteError, match=r"profiles\.b\.without: no method is labelled hmc"):
        parse(text.replace("without: [svgd]", "without: [svgd, hmc]"))
    with pytest.raises(SuiteError, match=r"profiles\.b\.tasks: no task is named funnel"):
        parse(text.replace("without: [svgd]", "tasks: [funnel]"))


def test_more_samples_than_particles_is_refused() -> None:
    with pytest.raises(InputError, match="svgd on banana: 50 samples, more than its 10 particles"):
        expand(parse(GOOD + "samples: 50\n"))


def test_srld_is_one_chain_whatever_the_suite_says() -> None:
    cells = expand(parse(GOOD.replace("  - svgd", "  - srld")))
    assert cells[0].particles == 1
    assert cells[0].spec.budget.score_evaluations == 2000
    assert cells[0].samples == 10


def test_one_chain_is_judged_by_as_many_samples_as_many() -> None:
    """N is a setting like any other: a chain of the same scores gives n samples from its path."""
    one, many = expand(parse(GOOD.replace("  - svgd", "  - {name: sgld, label: one, particles: 1}\n  - sgld")))[:2]
    assert (one.particles, many.particles) == (1, 10)
    assert one.samples == many.samples == 10
    assert one.spec.budget == many.spec.budget


def test_keys_name_results_and_nothing_else() -> None:
    """Order, labels and descriptions keep keys; settings, budget, seed and replicates change them."""
    base = {c.key for c in expand(parse(GOOD))}
    bnn = "{name: bnn-diabetes-sklearn, splits: 3}"
    swapped = GOOD.replace(f"[banana, {bnn}]", f"[{bnn}, banana]")
    relabelled = GOOD.replace("sgld-slow", "slow").replace("name: mine", "name: other\ndescription: hello")
    assert base == {c.key for c in expand(parse(swapped))} == {c.key for c in expand(parse(relabelled))}
    changed = [GOOD.replace("10\n", f"{new}\n") for new in ("11", "10\nseed: 1", "10\ndtype: float64")]
    changed.append(GOOD.replace("replicates: 4", "replicates: 5").replace("splits: 3", "splits: 4"))
    for text in changed:
        assert not base & {c.key for c in expand(parse(text))}


@pytest.mark.ci
@settings(max_examples=60, deadline=None)
@given(content=st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_refused_politely(content: bytes) -> None:
    with pytest.raises(SuiteError, match=r"^mine\.yaml"):
        parse_suite(content, "mine.yaml")


MATCHED = """
name: mine
tasks: [banana, gmm5-2d]
algorithms:
- {name: sifg, settings: {step_size: 0.02}}
- {name: l2-gf, settings: {step_size: 0.02, velocity_divisor: 1000.0}}
- {name: ada-sifg, settings: {particle_rule: rms}}
- initial
budget: {iterations: 1}
"""


def test_effective_steps_are_matched_on_demand() -> None:
    """L2-GF divides its velocity by 1000: matched, its step size is 1000 times SIFG's. Adaptive rules stay."""

    def steps(suite: Suite) -> list[float | None]:
        return [c.settings.get("step_size") for c in expand(suite) if c.task == "gmm5-2d"]

    plain = parse_suite(MATCHED.encode(), "mine.yaml")
    assert steps(plain)[:2] == [0.02, 0.02]
    matched = steps(plain.model_copy(update={"match": "effective-step"}))
    assert matched[:2] == pytest.approx([0.02, 20.0])
    assert matched[2:] == steps(plain)[2:]
    with pytest.raises(SuiteError, match="match"):
        parse_suite((MATCHED + "match: step\n").encode(), "mine.yaml")


def test_a_label_goes_before_a_name_that_two_methods_share() -> None:
    """``--algorithm srld`` of a suite with LD, which is SRLD too, selects SRLD."""
    suite = parse(GOOD.replace("  - svgd", "  - srld\n  - {name: srld, label: ld, settings: {alpha: 0.0}}"))
    for name in ("srld", "ld"):
        assert [a.display for a in select(suite, (), [name], Execution()).algorithms] == [name]


def test_suites_of_earlier_runs_are_read_with_keys_that_are_gone() -> None:
    """Run records of earlier versions have keys that say nothing of a cell."""
    suite = parse(GOOD + "tune: {step_size: [1.0e-3, 1.0]}\n")
    values = suite.resolved()
    values["algorithms"] = [{**a, "match_drift": False} for a in values["algorithms"]]
    values["tune"] |= {"choices": {}, "finalists": 2, "share": 0.25}
    assert stored_suite(values) == suite
