"""The short version of the study of memory."""

from itertools import islice

import memory
import pytest


@pytest.mark.slow
@pytest.mark.parametrize("suite", memory.SUITES)
def test_no_default_cell_holds_two_gigabytes(suite: str) -> None:
    """Every seventh cell: all tasks and all methods come up."""
    cells = islice(memory.default_cells(suite, memory.SUITES[suite], seconds=0.5), 0, None, 7)
    peaks = [memory.peak_mib(cell) for cell in cells]
    if not peaks:
        pytest.skip(f"no data of {suite} here")
    assert max(peaks) < memory.LIMIT_MIB
