"""The pytest plug-in: a fixture that fails a test when a sampler is wrong.

def test_mine(parvibench_check):
    parvibench_check(MySampler())
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from parvibench.core.algorithm import Algorithm


@pytest.fixture(name="parvibench_check")
def _parvibench_check() -> Callable[..., None]:
    """A function that compares a sampler with known truth."""

    def check(
        sampler: str | Algorithm, *, iterations: int = 500, seed: int = 1, allow_diverged: float = 0.0, **settings: Any
    ) -> None:
        """Fail the test when a sampler (the object, or ``module:Class``) is distinguishable from a correct one.

        ``iterations`` must be enough for targets of scale 1/2; ``allow_diverged`` is the share of points there that may
        be non-finite.
        """
        from .output import lines
        from .rounds import check as run
        from .selection import outside_questions

        findings = run(outside_questions(sampler, settings, iterations, allow_diverged), seed=seed)
        if findings.red:
            pytest.fail("\n".join([f"{findings.verdict} (seed {seed})", "", *lines(findings)]), pytrace=False)

    return check
