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

    def check(sampler: str | Algorithm, *, iterations: int = 500, seed: int | None = None, **settings: Any) -> None:
        """Fail the test when a sampler (the object, or ``module:Class``) is distinguishable from a correct one.

        ``iterations`` must be enough for a bent target of unit scale; the seed is drawn by default, and a failure
        prints it.
        """
        import secrets

        from .output import markdown
        from .rounds import check as run
        from .selection import outside_questions

        root = secrets.randbelow(2**31) if seed is None else seed
        result = run(outside_questions(sampler, settings, iterations), seed=root)
        if result.red:
            pytest.fail(markdown(result), pytrace=False)

    return check
