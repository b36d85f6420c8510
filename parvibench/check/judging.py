"""From values to verdicts: one test per statistic of a question."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from .evidence import Array, Shift, bound_p_value, law_p_values, shift
from .questions import Bound, Expected, Fixed, Law, Oracle, Question

Verdict = Literal["ok", "improved", "regression", "suspicious"]
#: Verdicts that turn a check red: better than exact draws is more likely a broken metric than a good sampler.
RED: tuple[Verdict, ...] = ("regression", "suspicious")


@dataclass(frozen=True)
class Test:
    """The outcome of one test.

    Attributes:
        task: name.
        algorithm: label.
        metric: the statistic.
        oracle: ``past`` or ``truth``.
        effect: how far the fresh values lie from the expected ones, in the statistic's unit.
        interval: 95% interval of the effect.
        p_value: of what was expected.
        verdict: what follows.
        replicates: fresh ones it took.
        reason: in words, where a number does not say it.
    """

    task: str
    algorithm: str
    metric: str
    oracle: Oracle
    effect: float
    interval: tuple[float, float]
    p_value: float
    verdict: Verdict
    replicates: int
    reason: str = ""


def judge(question: Question, values: Mapping[str, list[float]], threshold: float) -> list[Test]:
    """All tests of a question.

    Args:
        question: what was asked.
        values: statistic -> fresh values.
        threshold: p-value up to which a change is beyond doubt.
    """
    expected = question.expected()
    fresh = {name: np.asarray(values.get(name, []), dtype=np.float64) for name in expected}
    fresh = {n: e.snapped(fresh[n]) if isinstance(e := expected[n], Law) else fresh[n] for n in fresh}
    missing = [name for name, x in fresh.items() if not len(x)]
    p = _p_values({n: e for n, e in expected.items() if n not in missing}, fresh)
    tests = [_missing(question, name) for name in missing]
    for name, p_value in p.items():
        effect = _effect(expected[name], fresh[name])
        verdict = _verdict(expected[name], fresh[name], effect, p_value, threshold)
        tests.append(
            Test(
                question.task, question.algorithm, name, question.oracle,
                effect.effect, (effect.low, effect.high), p_value, verdict, len(fresh[name]),
                _lost(fresh[name]) if verdict in RED else "",
            )
        )  # fmt: skip
    return tests


def failed(question: Question, reason: str) -> Test:
    """The outcome of a question that could not be measured: a sampler that crashes has got worse."""
    nan = math.nan
    return Test(
        question.task, question.algorithm, "status", question.oracle, nan, (nan, nan), 0.0, "regression", 0, reason
    )  # fmt: skip


def gating(expected: Mapping[str, Expected]) -> list[str]:
    """The statistics that can turn a check red."""
    return [name for name, e in expected.items() if not isinstance(e, Law) or e.gates]


def _missing(question: Question, name: str) -> Test:
    nan, reason = math.nan, "no longer measured"
    return Test(
        question.task,
        question.algorithm,
        name,
        question.oracle,
        nan,
        (nan, nan),
        0.0,
        "regression",
        0,
        reason,
    )


def _p_values(expected: Mapping[str, Expected], fresh: Mapping[str, Array]) -> dict[str, float]:
    found: dict[str, float] = {}
    laws: dict[tuple[int, int], list[str]] = {}
    for name, e in expected.items():
        if isinstance(e, Fixed):
            agree = np.isclose(fresh[name], e.value, rtol=e.tolerance, atol=e.tolerance)
            found[name] = 1.0 if agree.all() else 0.0
        elif isinstance(e, Bound):
            found[name] = bound_p_value(fresh[name], e.limit)
        else:
            laws.setdefault((len(fresh[name]), len(e.values)), []).append(name)
    for names in laws.values():
        ours = np.column_stack([fresh[n] for n in names])
        theirs = np.column_stack([e.values for n in names if isinstance(e := expected[n], Law)])
        found |= dict(zip(names, law_p_values(ours, theirs).tolist(), strict=True))
    return {name: found[name] for name in expected}


def _lost(fresh: Array) -> str:
    """How many replicates diverged, in words, or nothing."""
    lost = int((~np.isfinite(fresh)).sum())
    return f"{lost} of {len(fresh)} replicates are not finite" if lost else ""


def _effect(expected: Expected, fresh: Array) -> Shift:
    if isinstance(expected, Law):
        return shift(fresh, expected.values)
    with np.errstate(invalid="ignore"):  # +inf where +inf is expected
        centre = fresh.mean() - (expected.value if isinstance(expected, Fixed) else 0.0)
    half = 0.0
    if len(fresh) > 1 and np.isfinite(fresh).all():
        half = float(stats.t.isf(0.025, len(fresh) - 1) * fresh.std(ddof=1) / math.sqrt(len(fresh)))
    return Shift(float(centre), float(centre - half), float(centre + half))


def _verdict(expected: Expected, fresh: Array, effect: Shift, p_value: float, threshold: float) -> Verdict:
    if p_value > threshold or (isinstance(expected, Law) and not expected.gates):
        return "ok"
    if isinstance(expected, Bound) or not _is_better(expected, fresh, effect):
        return "regression"
    if isinstance(expected, Law) and expected.exact is not None:
        beyond = law_p_values(fresh[:, None], expected.exact[:, None])[0]
        if beyond <= threshold and _is_better(
            Law(expected.exact, expected.better), fresh, shift(fresh, expected.exact)
        ):
            return "suspicious"
    return "improved"


def _is_better(expected: Law | Fixed, fresh: Array, effect: Shift) -> bool:
    """Whether a change that is beyond doubt is one for the better."""
    if expected.better == "lower":
        return effect.high < 0 or (isinstance(expected, Fixed) and effect.effect < 0)
    if expected.better == "higher":
        return effect.low > 0 or (isinstance(expected, Fixed) and effect.effect > 0)
    if expected.better == "zero" and isinstance(expected, Law):
        # In the middle and in the spread: a law that is centred alike but wider is no improvement.
        now, then = (np.quantile(np.abs(v), (0.5, 0.9)) for v in (fresh, expected.values))
        return bool((now < then).all())
    return False
