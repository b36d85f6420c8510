"""A cell's samples against exact draws: distinguishable or not, and their equivalent n."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple, TypeVar

from parvibench.core.reference import Floor, Floored, Reference, load_floored, load_reference
from parvibench.core.result import CellRecord, Status
from parvibench.harness.store.results import metric_values
from parvibench.metrics.equivalent import equivalent_sample_size
from parvibench.metrics.floors import floor_tests

T = TypeVar("T")


class FloorComparison(NamedTuple):
    """A cell's samples compared with exact draws of the same size."""

    #: ``indistinguishable`` or ``distinguishable`` at 5%, all metrics with a floor combined by Holm; empty without such
    #: a metric
    verdict: str = ""
    p_value: float = math.nan  #: the smallest adjusted p-value; NaN without such a metric
    equivalent: float = math.nan  #: equivalent n by the primary metric, replicates pooled; NaN where it is not defined
    low: float = math.nan  #: lower end of its 95% interval
    high: float = math.nan  #: upper end


def compare_with_floor(cell: CellRecord, primary: str) -> FloorComparison:
    """Compare one cell with its floors; every field is empty without a reference or without values.

    A failed replicate ranks worst in every test, and the cell then has no equivalent n.
    """
    reference = floored_of(cell.task)
    if reference is None or cell.status is not Status.OK or not cell.values:
        return FloorComparison()
    values = {m: metric_values(m, v) for m, v in cell.values.items() if m in reference.floors}
    tests = floor_tests(values, cell.samples, reference)
    size, interval = None, None
    if judged := metric_values(primary, cell.values.get(primary, [])):
        size, interval, _ = equivalent_sample_size(primary, judged, cell.samples, reference)
    return FloorComparison(
        tests.verdict if tests.floors else "",
        min(tests.adjusted.values(), default=math.nan),
        math.nan if size is None else size,
        *((math.nan, math.nan) if interval is None else interval),
    )


def floor_of(task: str, metric: str, n: int) -> Floor | None:
    """The floor of a metric at sample size n; None without one."""
    reference = floored_of(task)
    return None if reference is None else reference.floor(metric, n)


@cache
def reference_of(task: str) -> Reference | None:
    """The shipped reference of a task; None without one, or where it cannot be read."""
    return _readable(load_reference, task)


@cache
def floored_of(task: str) -> Floored | None:
    """The reference or the certified predictions of a task; None as for ``reference_of``."""
    return _readable(load_floored, task)


def _readable(load: Callable[[str], T | None], task: str) -> T | None:
    try:
        return load(task)
    except (ValueError, OSError):  # damaged, or a plug-in whose name is not a valid file name
        return None
