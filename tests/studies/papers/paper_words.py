"""Published numbers and ours: the rule, and the remarks on a number."""

import math
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from parvibench.reporting.formatting import interval

#: What the verdicts mean.
RULE = (
    "Fixed beforehand: a row agrees where the 95% interval of our mean lies within the tolerance of the published number "
    "(the largest of two published standard deviations, one printed unit and 2%), differs where it lies outside, and is "
    "inconclusive where it does both. A difference has a cause where changing that alone closes at least half of the gap. "
    "Times are compared as ratios of two rows of one machine. Numbers that contradict others of their paper are not judged."
)
NUMBER = "{0.dataset}, {0.algorithm}, {0.metric}"
NOT_MEASURED, NOTHING_THERE = "not measured", "{metric} was not measured there"
OTHER_HARDWARE = "the two were measured on different hardware"
NO_DENOMINATOR = "{pointer}, to which it is a ratio, has not been run"
CONTRADICTS = "the paper contradicts itself: {note}"
LOST = "{n} of {of} replicates diverged"
FAILURE = "{status}: {reason}"


def around(low: float, high: float, n: int) -> str:
    """The interval of a mean, where it is finite, and the number of replicates."""
    return f"{f'[{interval(low, high)}] ' if math.isfinite(low) else ''}({n})"


@cache
def words(part: str) -> Any:
    """A part of ``words.yaml``."""
    return yaml.safe_load(Path(__file__).with_name("words.yaml").read_text("utf-8"))[part]
