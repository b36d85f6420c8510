"""The stored past of options: every value of every one is asked, a slip is seen, the order of draws is not."""

from dataclasses import replace
from functools import cache

from parvibench.baselines import _particle_flows
from parvibench.checks.past import baseline as past
from parvibench.checks.past.baseline import Baseline
from parvibench.checks.past.option_laws import variant_names
from parvibench.checks.questions import Question
from parvibench.checks.rounds import check
from parvibench.core.streams import Streams


@cache
def svgd_options() -> Baseline:
    return past.make([], [], ["svgd"], seed=3, workers=0, made={})


def of_svgd(baseline: Baseline) -> Question:
    (question,) = past.questions(baseline, [], [], ["svgd"]).questions
    return question


def test_options_are_asked_of_the_past_and_an_unchanged_method_passes() -> None:
    """Under every value of every option, statistic by statistic."""
    question = of_svgd(svgd_options())
    asked = {name.rpartition(": ")[0] for name in question.expected()}
    assert asked == variant_names("svgd")
    assert {"kernel=imq", "rule=adam", "acceleration=wnes"} <= asked
    result = check([question], seed=8)
    assert len(result.tests) > 100
    assert result.verdict == "pass"


def test_a_slip_in_an_option_that_is_off_by_default_is_a_regression(monkeypatch) -> None:
    """And the words name the option."""
    question = of_svgd(svgd_options())
    right = _particle_flows.adam
    monkeypatch.setattr(_particle_flows, "adam", lambda x, grad, memory, step: right(x, grad, memory, 1.1 * step))
    result = check([question], seed=8)
    assert result.verdict == "regression"
    assert {t.metric.rpartition(": ")[0] for t in result.red} == {"rule=adam", "rule=adam, others moved"}
    assert all(t.reason.startswith("with rule=adam") for t in result.red)


def test_another_order_of_draws_leaves_the_law_of_options(monkeypatch) -> None:
    """What moves every trace and no law."""
    baseline = past.make([], [], ["sgld"], seed=3, workers=0, made={})
    (question,) = past.questions(baseline, [], [], ["sgld"]).questions
    right = Streams.normal
    monkeypatch.setattr(Streams, "normal", lambda self, stream, *rest: -right(self, f"other {stream}", *rest))
    assert check([question], seed=8).verdict == "pass"


def test_options_that_came_and_went_are_said() -> None:
    stored = svgd_options()
    cell = stored.cells["options/svgd"]
    renamed = {k.replace("kernel=imq", "kernel=old"): v for k, v in cell["statistics"].items()}
    changed = replace(stored, cells={"options/svgd": {**cell, "statistics": renamed}})
    asked = past.questions(changed, [], [], ["svgd", "ula"])
    assert "options/svgd kernel=imq" in asked.new
    assert "options/ula" in asked.new
    assert "options/svgd kernel=old: there is no such option any more" in asked.incomparable
    assert not any("kernel=old" in name for name in asked.questions[0].expected())
    other = replace(stored, cells={"options/svgd": {**cell, "identity": {"algorithm_version": 99}}})
    assert past.questions(other, [], [], ["svgd"]).incomparable == [
        "options/svgd: algorithm_version changed since the baseline was made"
    ]


def test_options_have_a_file_beside_that_of_the_cells(tmp_path) -> None:
    """It is read with it, and goes where a new baseline has none."""
    stored, file = svgd_options(), tmp_path / "mine.json"
    stored.write(file)
    assert "options/" not in file.read_text()
    assert Baseline.load(file).cells == stored.cells
    replace(stored, cells={}).write(file)
    assert [p.name for p in tmp_path.iterdir()] == ["mine.json"]
    assert Baseline.load(file).cells == {}
