"""One test per statistic of a question: p-value, effect and verdict."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from .evidence import Array, Shift, bound_p_value, law_p_values, shift, standard_error
from .question import Bound, Expected, Fixed, Law, Oracle, Question, Share
from .words import sentence, statistic_in_words

Verdict = Literal["ok", "changed", "regression", "suspicious", "wrong", "not converged"]
#: Verdicts that fail a check: better than known truth is suspicious; better than the baseline is a change to be confirmed;
#: what contradicts known truth is wrong, or has not run for long enough.
RED: tuple[Verdict, ...] = ("regression", "suspicious", "changed", "wrong", "not converged")


@dataclass(frozen=True)
class Test:
    """The outcome of one test."""

    task: str  #: name
    algorithm: str  #: label
    metric: str  #: the statistic
    oracle: Oracle  #: ``past``, the baseline, or ``truth``
    effect: float  #: distance of the fresh values from the expected ones, in the statistic's unit
    interval: tuple[float, float]  #: 95% interval of the effect
    p_value: float  #: of what was expected
    verdict: Verdict  #: what follows
    replicates: int  #: fresh ones drawn
    reason: str = ""  #: the outcome in words, where it is not ok
    circumstances: str = ""  #: length and settings of the runs, in words
    question: str = ""  #: its kind and its target
    cause: str = ""  #: what usually causes a failure


def decide(question: Question, values: Mapping[str, list[float]], threshold: float) -> list[Test]:
    """All tests of a question, given statistic -> fresh values; p-values up to the threshold are changes."""
    missing, tests = list[Test](), list[Test]()
    for name, expected in question.expected().items():
        given = np.asarray(values.get(name, []), dtype=np.float64)
        if not len(given):
            missing.append(failed(question, f"{statistic_in_words(name)}: no longer measured", name))
        x = given[~np.isnan(given)]
        if not len(x):
            continue
        x = expected.snapped(x) if isinstance(expected, Law) else x
        p, effect = _p_value(expected, x), _effect(expected, x)
        verdict: Verdict = "ok" if p > threshold else "changed" if _is_better(expected, x, effect) else "regression"
        if verdict == "regression" and question.oracle == "truth":
            verdict = "not converged" if question.converging(name, values) else "wrong"
        elif verdict == "changed" and question.oracle == "truth":
            verdict = "suspicious"  # no update makes it right
        reason = sentence(question, name, expected, x, effect) if verdict != "ok" else ""
        if verdict == "changed":
            reason += "; better than the baseline: accept with --update"
        tests.append(_test(question, name, verdict, reason, effect, p, len(x)))
    return missing + tests


def failed(question: Question, reason: str, metric: str = "status") -> Test:
    """The outcome where nothing was measured."""
    verdict: Verdict = "wrong" if question.oracle == "truth" else "regression"
    return _test(question, metric, verdict, reason, Shift(math.nan, math.nan, math.nan), 0.0, 0)


def _test(question: Question, metric: str, verdict: Verdict, reason: str, effect: Shift, p: float, count: int) -> Test:
    return Test(
        question.task, question.algorithm, metric, question.oracle, effect.effect, (effect.low, effect.high), p, verdict,
        count, reason, question.circumstances, question.name, question.hint * bool(count),
    )  # fmt: skip


def _p_value(expected: Expected, fresh: Array) -> float:
    if isinstance(expected, Law):
        return float(law_p_values(fresh[:, None], expected.values[:, None])[0])
    if isinstance(expected, Fixed):
        return float(np.isclose(fresh, expected.value, rtol=expected.tolerance, atol=expected.tolerance).all())
    return (
        bound_p_value(fresh, expected.limit) if isinstance(expected, Bound) else float(fresh.mean() <= expected.limit)
    )


def _effect(expected: Expected, fresh: Array) -> Shift:
    if isinstance(expected, Law):
        return shift(fresh, expected.values)
    with np.errstate(invalid="ignore"):  # +inf where +inf is expected
        centre = fresh.mean() - (expected.value if isinstance(expected, Fixed) else 0.0)
    half = 0.0
    if len(fresh) > 1 and np.isfinite(fresh).all():
        half = float(stats.t.isf(0.025, len(fresh) - 1) * standard_error(fresh))
    return Shift(float(centre), float(centre - half), float(centre + half))


def _is_better(expected: Expected, fresh: Array, effect: Shift) -> bool:
    """Whether a change is an improvement, which values beyond a bound never are."""
    if isinstance(expected, Bound | Share):
        return False
    if expected.better == "lower":
        return effect.high < 0 or (isinstance(expected, Fixed) and effect.effect < 0)
    if expected.better == "higher":
        return effect.low > 0 or (isinstance(expected, Fixed) and effect.effect > 0)
    if expected.better == "zero" and isinstance(expected, Law):
        # In the median and in the upper decile: the same centre with a wider spread is no improvement.
        now, then = (np.quantile(np.abs(v), (0.5, 0.9)) for v in (fresh, expected.values))
        return bool((now < then).all())
    return False
