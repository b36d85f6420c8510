"""Parameters of tests, of which the default tests take a part."""

from collections.abc import Iterable
from typing import Any

import pytest


def every(n: int, values: Iterable[Any]) -> list[Any]:
    """Every n-th from the first on in the default tests, the others in those that ``.ci/run`` adds."""
    return [pytest.param(v, marks=[pytest.mark.ci] if i % n else []) for i, v in enumerate(values)]
