"""The sequential driver and the verdicts, on questions whose answers are known."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from parvibench.checks import output
from parvibench.checks.outcomes import decide
from parvibench.checks.question import Better, Bound, Expected, Fixed, Law, Question
from parvibench.checks.rounds import Findings, Plan, check

LAW = np.random.default_rng(0).normal(size=120)


@dataclass
class Normal(Question):
    """Normal values with a given mean, expected around zero."""

    mean: float = 0.0
    better: Better = "lower"
    drawn: list[int] = field(default_factory=list)
    task: str = "made-up"
    algorithm: str = "normal"
    oracle = "past"

    def measure(self, replicates: range, seed: int) -> Mapping[str, list[float]]:
        self.drawn.append(len(replicates))
        rng = np.random.default_rng(seed)
        return {"x": (self.mean + rng.normal(size=len(replicates))).tolist()}

    def expected(self) -> Mapping[str, Expected]:
        return {"x": Law(LAW, self.better)}


class Broken(Normal):
    hint = "the bias of a sampler that ran"

    def measure(self, replicates: range, seed: int) -> Mapping[str, list[float]]:
        raise RuntimeError("no such thing")


def verdict(question: Question, seed: int = 1) -> str:
    return check([question], seed=seed).tests[0].verdict


def test_worse_better_and_unchanged() -> None:
    assert verdict(Normal(0.0)) == "ok"
    assert verdict(Normal(3.0)) == "regression"
    assert verdict(Normal(-3.0)) == "changed"
    assert verdict(Normal(3.0, "higher")) == "changed"
    assert verdict(Normal(-3.0, "same")) == "regression"
    # Expected around zero: wherever it goes it gets worse; closer to zero it gets better.
    assert verdict(Normal(3.0, "zero")) == "regression"


def test_clear_answers_take_one_stage_and_doubtful_ones_more() -> None:
    clear, doubtful, far = Normal(0.0), Normal(0.55), Normal(3.0)
    result = check([clear, doubtful, far], seed=4)
    assert (clear.drawn, far.drawn) == ([20], [20])
    assert doubtful.drawn == [20, 40, 80]
    assert [t.replicates for t in result.tests] == [20, 140, 20]


def test_false_alarms_stay_below_alpha() -> None:
    """300 clean checks at alpha = 5%: more than 27 red ones has probability 0.3%."""
    plan = Plan(alpha=0.05)
    red = sum(bool(check([Normal(0.0)], seed=s, plan=plan).red) for s in range(300))
    assert red <= 27


def test_a_question_that_fails_is_a_regression() -> None:
    result = check([Broken(), Normal(0.0)], seed=1)
    assert result.verdict == "regression"
    assert result.red[0].metric == "status"
    assert ("no such thing" in result.red[0].reason, result.red[0].cause) == (True, "")


def test_failing_fast_leaves_the_rest() -> None:
    later = Normal(0.0)
    assert check([Normal(3.0), later], seed=1, fail_fast=True).verdict == "regression"
    assert later.drawn == []
    assert check([Normal(3.0), later], seed=1, fail_fast=True).unanswered == ["question on made-up"]


class Stopped(Normal):
    def measure(self, replicates: range, seed: int) -> Mapping[str, list[float]]:
        raise KeyboardInterrupt


def test_a_stopped_check_reports_the_answers_so_far() -> None:
    """In the caller's process a question raises what Ctrl-C would."""
    red, first = [], Normal(3.0)
    result = check([first, Stopped()], seed=1, stoppable=True, red=lambda q, t: red.append(q))
    assert (result.verdict, len(result.unanswered), red) == ("regression", 1, [first])
    assert check([Normal(0.0), Stopped()], seed=1, stoppable=True).verdict == "incomplete"
    with pytest.raises(KeyboardInterrupt):
        check([Stopped()], seed=1)


def test_fixed_values_and_bounds() -> None:
    @dataclass
    class Mixed(Normal):
        def expected(self) -> Mapping[str, Expected]:
            return {"cost": Fixed(100.0, "lower"), "error": Bound(0.5), "gone": Law(LAW)}

    tests = {t.metric: t for t in decide(Mixed(), {"cost": [100.0, 110.0], "error": [0.1] * 9 + [0.2]}, 1e-6)}
    assert (tests["cost"].verdict, tests["cost"].effect) == ("regression", 5.0)
    assert tests["error"].verdict == "ok"
    assert tests["gone"].reason == "gone: no longer measured"
    cheaper = {t.metric: t for t in decide(Mixed(), {"cost": [90.0, 90.0], "error": [0.9] * 9 + [0.8]}, 1e-6)}
    assert (cheaper["cost"].verdict, cheaper["error"].verdict) == ("changed", "regression")


def test_documents_for_machines() -> None:
    result = check([Normal(0.0), Normal(3.0, algorithm="a<b|c")], seed=1)
    result = replace(result, new=["toy/mine"], incomparable=["toy/ula: settings changed"])
    document = json.loads(json.dumps(output.document(result), allow_nan=False))
    assert document["verdict"] == "regression"
    columns = {"task", "algorithm", "metric", "effect", "interval", "p_value", "verdict"}
    assert columns <= set(document["tests"][0])
    assert "a<b|c on made-up" in output.lines(result)[0]
    assert output.notes(result) == [
        "new: not in the baseline yet, add it with --update: toy/mine",
        "changed: toy/ula: settings changed; accept with --update",
    ]
    assert document["new"] == ["toy/mine"]


def test_a_changed_cell_is_no_pass_and_a_new_one_is() -> None:
    assert Findings([], 1e-6, 1, incomparable=["x"]).verdict == "changed"
    assert Findings([], 1e-6, 1, new=["x"]).verdict == "pass"
