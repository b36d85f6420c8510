"""The ported bugs and planted errors: complete lists, and samplers that are right without their errors."""

import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from wild.common import with_bug
from wild.moments import moments_of
from wild.planted import planted, ports
from wild_bugs import ask, bugs

#: Tests of studies, which are no part of the product.
pytestmark = pytest.mark.ci


def test_twenty_bugs_count_and_each_has_a_sampler() -> None:
    listed = bugs()
    assert sum(b.counted for b in listed) == 20
    assert len({b.name for b in listed}) == len(listed)
    for bug in listed:
        assert bug.sampler().bug == bug.at.rpartition(":")[2]  # type: ignore[attr-defined]
        assert bug.sampler(right=True).bug == ""  # type: ignore[attr-defined]


def test_half_of_thirty_planted_errors_is_aside() -> None:
    assert Counter(group for _, group, _ in planted()) == {"shown": 15, "aside": 15}


@pytest.mark.slow
def test_without_their_errors_samplers_have_the_moments_of_a_gaussian() -> None:
    torch.set_num_threads(1)
    for sampler in [*{b.at.rpartition(":")[0]: b.sampler(right=True) for b in bugs()}.values(), *ports()]:
        plain = moments_of(with_bug(sampler, ""))
        assert abs(plain["mean"]) < 0.03, sampler.name
        assert abs(plain["variance"]) < 0.06, sampler.name


def test_a_wrong_noise_is_found_and_its_right_version_is_not() -> None:
    (edward,) = (b for b in bugs() if b.name == "edward-722")
    assert ask(edward.sampler())["found"]
    assert not ask(edward.sampler(right=True))["found"]
