"""Parameters of tests, of which the default tests take a part."""

from collections.abc import Iterable
from typing import Any

import pytest


def every(n: int, values: Iterable[Any]) -> list[Any]:
    """Every n-th from the first on in the default tests; the others in turn in those that ``.ci/run`` adds and in the slow ones."""
    turns = ([pytest.mark.slow], [pytest.mark.ci])
    return [pytest.param(v, marks=turns[(i - i // n) % 2] if i % n else []) for i, v in enumerate(values)]


def each(n: int, values: Iterable[Any], ids: Iterable[Any] | None = None) -> list[Any]:
    """Every n-th from the first on, the others in the slow tests."""
    pairs = enumerate(zip(values, ids, strict=True) if ids is not None else ((v, None) for v in values))
    return [pytest.param(v, marks=[pytest.mark.slow] if i % n else [], id=name) for i, (v, name) in pairs]
