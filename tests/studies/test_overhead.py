"""The short version of the study of overhead, with room for a busy machine."""

import overhead
import pytest


@pytest.mark.slow
def test_the_harness_costs_little() -> None:
    _, share, _ = overhead.measure("multimodal", "svgd", seconds=5.0, rounds=3)
    assert share < 0.05
