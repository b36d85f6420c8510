"""Planted copies are named, and exact draws get no remark."""

import own_references as study
import pytest


@pytest.mark.parametrize("seed", [0, 6])
def test_planted_copies_are_named_and_exact_draws_get_no_remark(seed: int) -> None:
    """A hundred sets of each."""
    assert study.copies(seed) == ([], [])
