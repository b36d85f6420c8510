"""In pytest: one test for each question about a sampler.

@parvibench.checks.parametrize(MySampler)
def test_my_sampler(check):
    check()
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from parvibench.core.algorithm import Algorithm, Exact

    from .question import Question


def _ask(question: Question, level: float, seed: int) -> None:
    """Fail the test where the sampler is distinguishable from a right one; ``RuntimeError`` where it raised an error."""
    from .output import failure
    from .rounds import Plan, check

    findings = check([question], seed=seed, plan=Plan(alpha=level))
    if crashes := [t.reason for t in findings.red if t.metric == "status"]:
        raise RuntimeError(f"{question.algorithm}, {question.name}: {crashes[0]}")
    if findings.red:
        pytest.fail(failure(question, findings, level), pytrace=False)
    if not findings.tests:
        pytest.skip(f"{question.algorithm}, {question.name}: {question.nothing}")


def parametrize(
    sampler: str | Algorithm | type[Algorithm],
    *,
    xfail: Mapping[str, str] | None = None,
    exact: Exact | None = None,
    iterations: int = 500,
    allow_diverged: float = 0.0,
    alpha: float = 1e-3,
    seed: int = 1,
    **settings: Any,
) -> pytest.MarkDecorator:
    """Decorate a test of one argument, ``check``: it runs once for each question, as ``test_mine[moments on tilted]``.

    Args:
        sampler: an object or a class, a name, ``module:Class`` or ``file.py:Class``.
        xfail: known departures, question (with or without its target) -> reason; if it passes all the same, its test fails.
        exact: what the sampler claims of its kernel, in place of the class's ``exact``.
        iterations: enough for targets of scale 1/2.
        allow_diverged: share of the points that may be non-finite.
        alpha: probability that any test of a right sampler fails, at most; the questions share it equally.
        seed: of all replicates.
        settings: of the sampler.

    Raises:
        InputError: no such sampler, setting or question.
    """
    from parvibench.core import registry
    from parvibench.core.errors import UnknownNameError

    from .selection import outside_questions

    method = sampler if isinstance(sampler, str) else registry.as_method(sampler)
    questions = outside_questions(method, settings, iterations, allow_diverged, exact)  # type: ignore[arg-type]
    known = {name for q in questions for name in (q.name, q.title)}
    excused, level, found = dict(xfail or {}), alpha / len(questions), []
    if unknown := excused.keys() - known:
        raise UnknownNameError("question of the check", min(unknown), known)
    for q in questions:
        reasons = [excused[name] for name in (q.name, q.title) if name in excused]
        marks = [pytest.mark.xfail(reason=r, strict=True, raises=pytest.fail.Exception) for r in reasons[:1]]
        found.append(pytest.param(partial(_ask, q, level, seed), id=q.name, marks=marks))
    return pytest.mark.parametrize("check", found)
