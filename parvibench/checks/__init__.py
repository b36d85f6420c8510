"""`parvibench check`: statistical tests of any sampler, against known truth and against a baseline of the user's own.

- ``questions/``: the questions of known truth, one file a kind, on the easy targets of ``targets.py``;
- ``baseline.py``: a file of recorded replicates, and the questions about it;
- ``selection.py``: the questions of a check; ``rounds.py``: measures them until every answer is clear;
- ``question.py``, ``evidence.py``, ``outcomes.py``: what a question is, its p-values, its verdicts;
- ``words.py``, ``output.py``: the outcome in words, as text and JSON; ``in_pytest.py``: ``parametrize``;
- ``summaries.py``: statistics and ranks that questions share.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    """``parametrize``, and pytest with it, when it is first used."""
    if name != "parametrize":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .in_pytest import parametrize

    return parametrize
