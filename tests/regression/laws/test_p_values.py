"""Of the questions whose answer is a law: their p-values are uniform on the code as it is."""

import numpy as np
import pytest
from scipy import stats
from test_invariance import KERNELS, TRAJECTORIES, Invariance, Ranks
from test_langevin import LAWS
from test_metric_estimators import _CHEAP, Floors
from test_simulated_posteriors import RANKS
from test_streams_independent import Independence

from parvibench.checks.outcomes import decide
from parvibench.checks.question import Law, Question
from parvibench.checks.selection import select_questions

THRESHOLD = 1e-6


def questions() -> list[Question]:
    """All of this folder, and those of `parvibench check`."""
    of_kernels = [kind(*kernel) for kernel in KERNELS for kind in (Invariance, Ranks)]
    floors = [Floors("banana", _CHEAP), Floors("gmm2-20d", _CHEAP)]
    return [*select_questions().truths, *of_kernels, *TRAJECTORIES, *LAWS, *RANKS, *floors, Independence()]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_all_questions_are_green_and_their_p_values_uniform(seed: int) -> None:
    """A Kolmogorov test of about 800 p-values, not independent: rejected at 1e-4 only."""
    found = []
    for question in questions():
        expected = question.expected()
        for test in decide(question, question.measure(range(20), seed), THRESHOLD):
            assert test.verdict == "ok", (test.task, test.algorithm, test.metric, test.p_value)
            if isinstance(expected[test.metric], Law):
                found.append(test.p_value)
    assert len(found) > 500
    assert np.mean(np.array(found) < 0.01) < 0.03
    assert stats.kstest(found, "uniform", alternative="greater").pvalue > 1e-4
