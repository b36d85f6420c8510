"""The short version of the study: every hostile sampler, with tighter limits."""

import sys

import hostile
import pytest


@pytest.mark.skipif(sys.platform != "linux", reason="processes are told apart by /proc")
def test_hostile_samplers_get_their_status_and_harm_no_other() -> None:
    assert hostile.apart("--timeout", "10", "--memory", "1500") == 0
