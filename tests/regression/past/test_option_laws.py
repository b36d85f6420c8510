"""The recorded past of options: every value of every one is tested, a slip is seen, the order of draws is not."""

from dataclasses import replace
from functools import cache

import pytest
from option_laws import variant_names
from recorded import option_subject, past_of_options

from parvibench.baselines import _particle_flows
from parvibench.checks.baseline import Baseline, make
from parvibench.checks.question import Question
from parvibench.checks.rounds import check
from parvibench.core.streams import Streams


@cache
def recorded(algorithm: str) -> Baseline:
    return make([option_subject(algorithm)], seed=3, date="")


def question(algorithm: str) -> Question:
    (found,) = past_of_options(algorithm, recorded(algorithm)).questions
    return found


def test_an_unchanged_method_passes_under_every_value_of_every_option() -> None:
    """Statistic by statistic."""
    asked = {name.rpartition(": ")[0] for name in question("svgd").expected()}
    assert asked == variant_names("svgd")
    assert {"kernel=imq", "rule=adam", "acceleration=wnes"} <= asked
    result = check([question("svgd")], seed=8)
    assert len(result.tests) > 100
    assert result.verdict == "pass"


def test_a_slip_in_an_option_that_is_off_by_default_is_a_regression(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the words name the option."""
    asked = question("svgd")
    right = _particle_flows.adam
    monkeypatch.setattr(_particle_flows, "adam", lambda x, grad, memory, step: right(x, grad, memory, 1.1 * step))
    result = check([asked], seed=8)
    assert result.verdict == "regression"
    assert {t.metric.rpartition(": ")[0] for t in result.red} == {"rule=adam", "rule=adam, others moved"}
    assert all(t.reason.startswith("rule=adam") for t in result.red)


def test_another_order_of_draws_leaves_the_law_of_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """What moves every golden value and no law."""
    asked = question("sgld")
    right = Streams.normal
    monkeypatch.setattr(Streams, "normal", lambda self, stream, *rest: -right(self, f"other {stream}", *rest))
    assert check([asked], seed=8).verdict == "pass"


def test_options_that_came_and_went_are_named() -> None:
    cell = recorded("svgd").cells["options/svgd"]
    renamed = {k.replace("kernel=imq", "kernel=old"): v for k, v in cell["statistics"].items()}
    asked = past_of_options("svgd", replace(recorded("svgd"), cells={"options/svgd": {**cell, "statistics": renamed}}))
    assert "options/svgd kernel=imq" in asked.new
    assert "options/svgd kernel=old: there is no such option any more" in asked.incomparable
    assert not any("kernel=old" in name for name in asked.questions[0].expected())
    assert past_of_options("ula", recorded("svgd")).new == ["options/ula"]
    other = replace(recorded("svgd"), cells={"options/svgd": {**cell, "identity": {"algorithm_version": 99}}})
    assert past_of_options("svgd", other).incomparable == [
        "options/svgd: algorithm_version changed since the baseline was made"
    ]
