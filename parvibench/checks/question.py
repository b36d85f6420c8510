"""A question of a check: what is measured on fresh replicates, and the values expected of it.

Expectations come from known truth or from a baseline, the recorded past.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parvibench.harness.workers.executors import InProcess, Job, Notify
from parvibench.harness.workers.processes import Workers

Oracle = Literal["past", "truth"]
#: Direction in which a statistic improves; ``zero``: towards zero, ``same``: any change is a regression.
Better = Literal["lower", "higher", "zero", "same"]
#: Statistic -> one value per replicate: +inf where it diverged, NaN where there is nothing to judge.
Values = Mapping[str, list[float]]


@dataclass(frozen=True)
class Law:
    """The expected distribution of the values, as draws from it."""

    values: NDArray[np.float64]  #: (m,) independent draws
    better: Better = "same"  #: direction of improvement
    tolerance: float = 0.0  #: relative, for rounding, where all draws are the same

    def snapped(self, fresh: NDArray[np.float64]) -> NDArray[np.float64]:
        """Fresh values (n,); those within rounding of the one value of all draws are replaced by it."""
        if not self.tolerance:
            return fresh
        value = self.values[0]
        return np.where(np.isclose(fresh, value, rtol=self.tolerance, atol=self.tolerance), value, fresh)


@dataclass(frozen=True)
class Fixed:
    """A value that every replicate must have."""

    value: float  #: the value
    better: Better = "same"  #: direction of improvement
    tolerance: float = 0.0  #: relative, for rounding


@dataclass(frozen=True)
class Bound:
    """The bias allowed to an approximate method."""

    limit: float  #: of the absolute value of the mean


@dataclass(frozen=True)
class Share:
    """The share of points that may have a fault."""

    limit: float  #: of the mean over replicates


Expected = Law | Fixed | Bound | Share


class Question(ABC):
    """One question about a task and an algorithm; picklable, since it is measured in another process."""

    title: ClassVar[str] = "question"  #: of its kind, in a word
    hint: ClassVar[str] = ""  #: what usually causes a failure
    nothing: ClassVar[str] = "no statistic could be measured"  #: reason where there is nothing to judge
    oracle: Oracle = "truth"  #: where the expectations come from
    task: str  #: name shown
    algorithm: str  #: label shown

    @abstractmethod
    def measure(self, replicates: range, seed: int) -> Values:
        """Draw fresh replicates of these ids and measure them; the seed of all randomness is fresh in every stage."""

    @abstractmethod
    def expected(self) -> Mapping[str, Expected]:
        """Statistic -> what is expected of it, fixed before anything is measured; each is a test of its own."""

    @property
    def name(self) -> str:
        """Its kind and its target."""
        return f"{self.title} on {self.task}"

    @property
    def circumstances(self) -> str:
        """Length and settings of the runs, in words."""
        return ""

    def unit(self, statistic: str) -> tuple[float, float]:
        """Offset and factor that turn a statistic's values into the unit in which messages state it."""
        return 0.0, 1.0

    def converging(self, statistic: str, values: Mapping[str, Sequence[float]]) -> bool:
        """Whether the fresh values of a statistic that failed were still approaching what is expected."""
        return False


class Asked(NamedTuple):
    """Questions of a check, and what cannot be compared with a baseline."""

    questions: list[Question]  #: to be measured
    new: list[str]  #: cells that are not in the baseline
    incomparable: list[str]  #: cells whose settings, budget or version differ from the baseline's, and in what


@dataclass(frozen=True)
class Measurement(Job[dict[int, Values]]):
    """Questions measured one after another in one process: a job of an executor."""

    preload = ("parvibench.checks.questions",)  # the metrics of a baseline are imported by the workers that need them
    questions: Mapping[int, Question]  #: by number in the check
    replicates: range  #: ids of the fresh replicates
    seed: int  #: root seed

    def run(self, notify: Notify) -> dict[int, Values]:
        """Statistics of every question."""
        return {
            number: {name: list(values) for name, values in question.measure(self.replicates, self.seed).items()}
            for number, question in self.questions.items()
        }


def measure(work: Sequence[Measurement], workers: int, timeout: float) -> Iterator[tuple[int, Values | str]]:
    """Number of a question and its statistics, or the status and reason of a failed measurement, as they come.

    Questions whose process failed are measured again, each in a process of its own.
    ``workers`` is the number of processes, 0 for this one alone, and ``timeout`` the wall-clock limit of one, s.
    """
    executor = Workers(workers, timeout) if workers else InProcess()
    again: list[Measurement] = []
    for job, outcome in executor.run(work, lambda job, news: None):
        asked = work[job].questions
        if outcome.result is not None:
            yield from outcome.result.items()
        elif len(asked) > 1:
            again += [replace(work[job], questions={n: q}) for n, q in asked.items()]
        else:
            yield from ((number, f"{outcome.status}: {outcome.reason}") for number in asked)
    if again:
        yield from measure(again, workers, timeout)


def batches(numbered: Mapping[int, Question], size: int) -> list[dict[int, Question]]:
    """Questions in the order of their tasks, so that a process reads few tasks' data."""
    tasks = list(dict.fromkeys(q.task for q in numbered.values()))
    ordered = sorted(numbered, key=lambda n: tasks.index(numbered[n].task))
    return [{n: numbered[n] for n in ordered[i : i + size]} for i in range(0, len(ordered), size)]
