"""The questions of known truth: which are asked of which sampler, and their parts."""

import inspect
import math
import pickle
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
import wrong_samplers

from parvibench.checks.question import Bound, Question
from parvibench.checks.questions import example_questions
from parvibench.checks.questions.calibration import Calibration
from parvibench.checks.questions.contract import Contract
from parvibench.checks.questions.of_sampler import Effort
from parvibench.checks.questions.tolerance import SinglePrecision, Tolerance
from parvibench.checks.selection import outside_questions, select_questions
from parvibench.checks.summaries import settings_of, uniform_ranks
from parvibench.core import registry
from parvibench.core.errors import InputError, UnknownNameError


def test_every_test_has_a_name_of_its_own_and_every_sampler_is_asked() -> None:
    questions = select_questions().truths
    names = Counter((q.task, q.algorithm, name) for q in questions for name in q.expected())
    assert max(names.values()) == 1
    samplers = {name for name, row in registry.algorithms().items() if row.kind != "anchor" and not row.library}
    samplers -= {"map", "deep-ensemble"}
    for kind in (Tolerance, Contract):
        assert {q.algorithm for q in questions if isinstance(q, kind)} == samplers
    assert all(q.oracle == "truth" for q in questions)


def _kinds(of: type[Question]) -> Iterator[type[Question]]:
    for kind in of.__subclasses__():
        yield from _kinds(kind)
        if kind.__module__.startswith("parvibench.checks.questions.") and not inspect.isabstract(kind):
            yield kind


def test_every_statistic_of_every_question_is_measured_of_some_sampler() -> None:
    """A renamed field of Info or State must not leave a question without a subject."""
    asked = {*select_questions(algorithms=["smc"], tasks=["tilted"]).truths}
    for sampler in ("metropolis", "ended-adaptation"):
        place = next(
            f"{c.__module__}:{c.__name__}" for c in vars(wrong_samplers).values() if getattr(c, "name", "") == sampler
        )
        asked |= {*outside_questions(place, {}, 400)}
    asked |= {*select_questions(algorithms=["ula"], tasks=["parvibench.tasks.banana:BANANA"]).truths}
    measured = {}
    for question in asked:
        values = question.measure(range(2), 1)
        if all(not math.isnan(v[0]) for v in (values[name] for name in question.expected())):
            measured[type(question)] = question
    assert set(_kinds(Question)) == measured.keys()


def test_built_in_samplers_are_asked_by_the_road_of_all_others() -> None:
    """The same kinds of questions, with the settings of the class unless others are given."""
    kinds = [
        {type(q) for q in select_questions(algorithms=[a]).truths} for a in ("mala", "parvibench.baselines.mala:MALA")
    ]
    # Examples state steps that suit a unit Gaussian: too long for the absolute limits of these two.
    assert kinds[0] == kinds[1] - {SinglePrecision, Calibration}
    (contract,) = (
        q for q in select_questions(algorithms=["mala"], settings={"mala": {"step_size": 0.07}}).truths
        if isinstance(q, Contract)
    )  # fmt: skip
    assert dict(contract.effort.settings) == {"step_size": 0.07}


def test_questions_travel_to_other_processes_and_stay_the_same() -> None:
    sent = [pickle.dumps(q) for q in select_questions().truths]
    assert sent == [pickle.dumps(q) for q in select_questions().truths]
    assert [pickle.loads(s) for s in sent] == select_questions().truths  # our own bytes


def test_targets_limit_the_questions() -> None:
    assert {q.task for q in select_questions(algorithms=["ula"], tasks=["tilted"]).truths} == {"tilted"}
    with pytest.raises(InputError, match="no question of known truth is about this task"):
        select_questions(algorithms=["ula"], tasks=["banana"])
    with pytest.raises(UnknownNameError, match="tiltd"):
        select_questions(algorithms=["ula"], tasks=["tiltd"])
    with pytest.raises(InputError, match="baseline"):
        select_questions(algorithms=["exact"])


def test_a_sampler_may_be_given_by_its_class() -> None:
    effort = Effort(settings_of(step_size=0.1), 100)
    question = Tolerance("biased-start-gaussian", "parvibench.baselines.ula:ULA", effort)
    named = Tolerance("biased-start-gaussian", "ula", effort)
    assert question.measure(range(3), 1) == named.measure(range(3), 1)


def test_uniform_ranks_have_their_moments() -> None:
    """Mean 0 with variance (L + 2) / (12 L n), five standard errors of 1000 draws."""
    L, n = 9, 50
    law = uniform_ranks(L, n, 2)["rank[1]"]
    sd = np.sqrt((L + 2) / (12 * L * n))
    assert abs(law.values.mean()) < 5 * sd / np.sqrt(1000)
    assert law.values.std() == pytest.approx(sd, rel=0.12)


def test_bounds_are_what_a_method_is_allowed() -> None:
    questions = example_questions("svgd", registry.load_algorithm("svgd").example)
    expected = next(q for q in questions if isinstance(q, Tolerance)).expected()
    moments = {f"{s}[{d}]" for s in ("mean", "variance") for d in range(2)}
    assert set(expected) == moments | {"correlation[0]", "diverged"}
    assert all(e.limit > 0 for e in expected.values() if isinstance(e, Bound))
