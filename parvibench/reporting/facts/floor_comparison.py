"""A cell's samples against exact draws: distinguishable or not, and their equivalent n."""

import math
from collections.abc import Callable
from functools import cache, lru_cache
from typing import NamedTuple

from parvibench.core.reference import Floor, Floored, load_floored, stamp_of
from parvibench.core.result import CellRecord, Status
from parvibench.harness.store.results import declared, metric_values
from parvibench.metrics.equivalent import equivalent_sample_size
from parvibench.metrics.floors import exact_p_value, floor_tests, judged_size

#: How a cell ends through no doing of its method.
_BY_THE_MACHINE = (Status.TIMEOUT, Status.OUT_OF_MEMORY, Status.INTERRUPTED)


class FloorComparison(NamedTuple):
    """A cell's samples compared with exact draws of the same size."""

    #: ``indistinguishable`` or ``distinguishable`` at 5%, all metrics with a floor combined by Holm, ``too few replicates``, or
    #: ``incomplete``, where the machine ended a run; empty without a verdict
    verdict: str = ""
    p_value: float = math.nan  #: the smallest adjusted p-value; NaN without such a metric
    p_exact: float = math.nan  #: by the primary metric alone, of the exact rank test; NaN where it has no floor
    verdict_basis: str = ""  #: number of samples and metrics that the verdict rests on, or why there is none
    equivalent: float = math.nan  #: equivalent n by the primary metric, replicates pooled; NaN where it is not defined
    #: lower end of its 95% interval; NaN also where the samples are states of one chain
    equivalent_low: float = math.nan
    equivalent_high: float = math.nan  #: upper end


def compare_with_floor(cell: CellRecord, primary: str) -> FloorComparison:
    """Compare one cell with its floors; every field is empty without a reference or without values.

    A failed replicate ranks worst in every test, and the cell then has no equivalent n. One without finite samples decides:
    exact draws have none.
    """
    reference = floored_of(cell.task)
    if reference is not None and cell.status in _BY_THE_MACHINE:
        return FloorComparison("incomplete", verdict_basis=cell.reason[:300])
    if reference is None or cell.status is not Status.OK or not cell.values:
        return FloorComparison()
    n = judged_size(cell.samples, reference) or cell.samples
    stored = cell.values if n == cell.samples else cell.judged
    values = {m: metric_values(m, v) for m, v in stored.items() if m in reference.floors}
    tests = floor_tests(values, n, reference, declared(cell.task)[1] or (*cell.values, *cell.absent))
    verdict, p = tests.verdict.replace("not applicable", ""), min(tests.adjusted.values(), default=math.nan)
    basis = [tests.reason, f"n = {n}, by {', '.join(tests.floors)}" if tests.floors else ""]
    if cell.n_lost:
        verdict, p = "distinguishable", 0.0
        basis[0] = f"{cell.n_lost} of {cell.n_replicates} replicates ended without finite samples"
    known = tests.floors.get(primary)
    p_exact = math.nan if known is None else exact_p_value(primary, values[primary], known)
    return FloorComparison(verdict, p, p_exact, "; ".join(filter(None, basis)), *_equivalent(cell, primary, reference))


def _equivalent(cell: CellRecord, primary: str, reference: Floored) -> tuple[float, float, float]:
    """Equivalent n by the primary metric with its interval, NaN where there is none."""
    size, interval = None, None
    if judged := metric_values(primary, cell.values.get(primary, [])):
        size, interval, _ = equivalent_sample_size(primary, judged, cell.samples, reference)
    if cell.kind == "chains" and cell.particles < cell.samples:
        interval = None  # that of independent draws would hold the number too rarely
    low, high = interval or (math.nan, math.nan)
    return math.nan if size is None else size, low, high


#: Needed for every cell.
_stamp = cache(stamp_of)


def look_again() -> None:
    """Forget the modification times of references, which are read once otherwise."""
    _stamp.cache_clear()


def floor_of(task: str, metric: str, n: int) -> Floor | None:
    """The floor of a metric at sample size n; None without one."""
    reference = floored_of(task)
    return None if reference is None else reference.floor(metric, n)


def floored_of(task: str) -> Floored | None:
    """The reference or the certified predictions of a task; None without one, or where it cannot be read."""
    try:
        return _once(load_floored, task, _stamp(task))
    except (ValueError, OSError):  # damaged, or a plug-in whose name is not a valid file name
        return None


@lru_cache(maxsize=256)  # more than a run has tasks; those that are shipped take 70 MB in all
def _once(load: Callable[[str], Floored | None], task: str, stamp: object) -> Floored | None:
    """Read once, until the reference is another."""
    return load(task)
