"""Where a mistake probably lies: the module that red tests share and green ones do not, of several the nearest."""

import math

from parvibench.checks.outcomes import Test as Outcome
from parvibench.checks.suspects import suspects


def outcome(task: str, algorithm: str, *, red: bool) -> Outcome:
    verdict = "wrong" if red else "ok"
    return Outcome(task, algorithm, "mean[0]", "truth", 0.0, (0.0, 0.0), 0.0 if red else math.nan, verdict, 20)


def first(*tests: Outcome) -> str:
    return suspects(tests)[0].module.removeprefix("parvibench.")


def test_a_methods_own_module_goes_before_what_it_imports() -> None:
    assert (
        first(outcome("gradients", "sivi-sm", red=True), outcome("gradients", "sivi", red=False)) == "baselines.sivi_sm"
    )
    assert first(outcome("gradients", "sivi-sm", red=True)) == "baselines.sivi_sm"


def test_what_several_red_methods_share_goes_before_each_of_them() -> None:
    shared = [outcome("gradients", name, red=True) for name in ("ksivi", "sivi", "uivi", "sivi-sm")]
    assert first(*shared, outcome("gradients", "svgd", red=False)) == "nn.semi_implicit"


def test_a_task_is_suspected_where_methods_agree_on_it_and_never_of_one_method_alone() -> None:
    """One method fails on one task of two: with others asked there that pass, or not asked, it is the method's."""
    own = [outcome("banana", "nuts", red=False), outcome("linear-regression", "nuts", red=True)]
    assert first(*own) == "baselines.nuts"
    others = [outcome("linear-regression", name, red=False) for name in ("mala", "hmc", "ula")]
    assert first(*own, *others) == "baselines.nuts"
    bad = [outcome("linear-regression", name, red=True) for name in ("mala", "hmc", "ula")]
    good = [outcome("banana", name, red=False) for name in ("mala", "hmc", "ula")]
    assert first(*own, *bad, *good) == "tasks.linear"


def test_red_tests_of_two_mistakes_are_two_groups() -> None:
    good = [outcome(task, "ula", red=False) for task in ("banana", "multimodal")]
    tests = [outcome("banana", "mala", red=True), outcome("multimodal", "svgd", red=True), *good]
    assert {s.module for s in suspects(tests)} == {"parvibench.baselines.mala", "parvibench.baselines.svgd"}
