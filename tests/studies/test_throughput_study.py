"""The short version of the study of throughput."""

import os

import pytest
import throughput


@pytest.mark.slow
@pytest.mark.skipif(
    (os.cpu_count() or 1) < 2 or os.getloadavg()[0] > 0.5, reason="needs two cores with nothing else to do"
)
def test_a_second_worker_nearly_doubles_the_throughput() -> None:
    one, two = throughput.measure(share=0.1, rounds=3)
    assert one / two > 1.8
