"""The sequential check: measure every question, and measure more replicates where the answer is not clear.

After Gandy and Scott, "Unit testing for MCMC and other Monte Carlo methods" (2020), arXiv:2001.06465: a question is
settled as soon as one of its tests has failed or no p-value is small; the others get more replicates, up to a cap.
Every stage of every test spends an equal share of the family-wise false-alarm rate (Bonferroni): stages share the
draws of what is expected, so their p-values are not independent and no share can be handed on.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Literal

from parvibench.core.streams import derive_seed
from parvibench.harness.workers.interrupts import Interrupts

from .outcomes import RED, Test, decide, failed
from .question import Measurement, Question, Values, batches, measure
from .summaries import joined

#: Verdict of a whole check.
Overall = Literal["pass", "changed", "regression", "wrong", "not converged", "incomplete"]
Red = Callable[[Question, Test], None]

#: Questions measured by one process, at most, and their time limit, s.
_BATCH, _TIMEOUT_S = 8, 300.0
#: Parts for each worker, at least: the last ones end together.
_PARTS = 4


@dataclass(frozen=True)
class Plan:
    """Error rate and sample sizes of a check."""

    alpha: float = 1e-3  #: probability that a check of unchanged samplers fails, at most
    stages: tuple[int, ...] = (20, 60, 140)  #: fresh replicates of a question by the end of each stage
    doubt: float = 0.05  #: a question is settled when none of its p-values, times their number, is below this

    def threshold(self, tests: int) -> float:
        """The p-value at which one of that many tests fails."""
        return self.alpha / (max(1, tests) * len(self.stages))


@dataclass(frozen=True)
class Findings:
    """The outcome of a check."""

    tests: list[Test]  #: one per statistic, in the order of the questions; of the last stage measured
    threshold: float  #: p-value at which a test failed
    seed: int  #: of all fresh replicates
    new: list[str] = field(default_factory=list)  #: cells that are not in the baseline
    #: cells whose settings, budget or version differ from the baseline's, and in what
    incomparable: list[str] = field(default_factory=list)
    #: sampler -> options that repeat its questions on the command line
    options: Mapping[str, str] = field(default_factory=dict)
    baseline: str = ""  #: file of the baseline
    sees: Sequence[str] = ()  #: smallest losses that the comparison with it sees, in words
    unanswered: list[str] = field(default_factory=list)  #: questions without a clear answer when the check was stopped

    @property
    def red(self) -> list[Test]:
        """The tests that failed."""
        return [t for t in self.tests if t.verdict in RED]

    @property
    def verdict(self) -> Overall:
        """The gravest: a regression, what is wrong, what has not converged, a change; what is new fails nothing."""
        found = {t.verdict for t in self.red}
        if found & {"regression", "suspicious"}:
            return "regression"
        if found & {"wrong", "not converged"}:
            return "wrong" if "wrong" in found else "not converged"
        if found or self.incomparable:
            return "changed"
        return "incomplete" if self.unanswered else "pass"


def check(
    questions: Sequence[Question],
    *,
    seed: int,
    workers: int = 0,
    plan: Plan | None = None,
    fail_fast: bool = False,
    stoppable: bool = False,
    red: Red = lambda question, test: None,
    notify: Callable[[str, int, int], None] = lambda text, done, total: None,
) -> Findings:
    """Measure questions until every answer is clear or the cap is reached.

    ``workers`` is the number of processes, 0 for this one; ``fail_fast`` stops at the first question that fails, and
    ``stoppable`` lets Ctrl-C, SIGTERM and SIGHUP end the check with the answers so far. Called are ``red`` with a question as
    soon as it fails and its clearest failed test, ``notify`` with a question's name and the numbers of answered and of all
    questions of the stage.
    """
    plan = plan or Plan()
    answers = _Answers(questions, plan.threshold(sum(len(q.expected()) for q in questions)), plan.doubt)
    pending, done = list(range(len(questions))), 0
    try:
        with Interrupts() if stoppable else nullcontext():
            for stage, total in enumerate(plan.stages):
                root = derive_seed(seed, "check", stage)
                size = min(_BATCH, max(1, len(pending) // (_PARTS * workers))) if workers else 1
                asked = batches({i: questions[i] for i in pending}, size)
                work = [Measurement(batch, range(done, total), root) for batch in asked]
                for answered, (i, measured) in enumerate(measure(work, workers, _TIMEOUT_S), 1):
                    failures = answers.add(i, measured)
                    notify(f"{questions[i].task} {questions[i].algorithm}", answered, len(pending))
                    if failures:
                        red(questions[i], min(failures, key=lambda t: t.p_value))
                        if fail_fast:
                            return answers.findings(seed, stopped=True)
                pending, done = list(filter(answers.open, pending)), total
    except KeyboardInterrupt:
        if not stoppable:
            raise
        return answers.findings(seed, stopped=True)
    return answers.findings(seed)


@dataclass
class _Answers:
    """The values and tests of a check so far, by the number of the question."""

    questions: Sequence[Question]
    threshold: float
    doubt: float
    values: dict[int, dict[str, list[float]]] = field(default_factory=dict)
    tests: dict[int, list[Test]] = field(default_factory=dict)

    def add(self, i: int, measured: Values | str) -> list[Test]:
        """Judge a question by all its values, or by the reason of a failed measurement; the tests that fail."""
        if isinstance(measured, str):
            self.tests[i] = [failed(self.questions[i], measured)]
        else:
            self.values[i] = joined([self.values.get(i, {}), measured])
            self.tests[i] = decide(self.questions[i], self.values[i], self.threshold)
        return [t for t in self.tests[i] if t.verdict in RED]

    def open(self, i: int) -> bool:
        """Whether the answer is not clear yet."""
        tests, expected = self.tests.get(i), self.questions[i].expected()
        if tests is None:
            return True
        clear = any(t.verdict in RED for t in tests)
        return not clear and any(t.p_value * len(expected) < self.doubt for t in tests if t.metric in expected)

    def findings(self, seed: int, *, stopped: bool = False) -> Findings:
        """All tests, in the order of the questions; of a check that was stopped, the questions that it left open."""
        left = [q.name for i, q in enumerate(self.questions) if stopped and self.open(i)]
        return Findings([t for i in sorted(self.tests) for t in self.tests[i]], self.threshold, seed, unanswered=left)
