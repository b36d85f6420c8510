"""The short version of the study of kills."""

import sys

import kills
import pytest


@pytest.mark.skipif(sys.platform != "linux", reason="finds the workers below the fork server")
@pytest.mark.slow
def test_killed_again_and_again_the_store_is_that_of_an_undisturbed_run() -> None:
    assert kills.study(kills=4, tasks=1, iterations=300, longest=12.0, seed=1) == []
