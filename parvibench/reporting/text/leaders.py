"""The methods among the best of a target or of several, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from parvibench.reporting.formatting import count, first, interval, join, name, named, number

#: Most methods that a sentence names.
_NAMED, _FEW = 6, 3
#: Unit of ratios to the floor.
FLOORS = "× floor"
NOBODY = "On {where}, no method has a finite result better than the initial distribution."
#: Start of a metric's name -> what a rank by it alone does not say.
BY_METRIC = {
    "ksd": " Ranked by KSD alone, which sees neither a missed mode nor wrong weights of separated modes.",
    "nll": " Ranked by predictions of test rows, which do not tell how near samples are to the posterior.",
}
#: What "among the best" means, once on a page.
RULE = (
    "Among the best of a task are the methods than which no other method with a finite result is significantly better: "
    "with a lower median, and by moderated t tests paired by replicate, Holm over all pairs of methods on all tasks of a kind of "
    "target, 5% for each kind. Where replicates were lost, the same family holds an exact test of every method's number of them: "
    "methods that lose significantly more than the others are not among the best, and rank behind these. "
    "Where replicates of these methods differ little (logarithms with standard deviations up to 0.5) and some pass for exact draws, "
    "those are left out that have over five times the medians of all that pass and are significantly worse than exact draws (exact "
    "rank tests against the floor, in the same family). Replicates that differ more can hide differences from such tests. Methods "
    "that have not converged take part and are marked."
)
#: What a table of recommended methods shows; first word of a warning -> the warning in a few words.
_EXPLAINED = (
    "Use: methods within 1.5 times the lowest error of all, or of exact draws (log likelihoods: 0.1 nats), in 95% of resampled "
    "replicates; cheapest first. × floor: error over that of as many exact draws, 1 is as good. Score evaluations: of a "
    "replicate until it comes so near, without the search for step sizes. Not settled: so near in some resamples only."
)
#: Replicates from which an interval of a median can cover it in 95% of runs.
ENOUGH = 6
_WEAK = "With {n}, resamples repeat few values: 95% of them is weak evidence here."
_IN_SHORT = {
    "transient": "transient: its chains have not mixed.", "still": "still improving: its error was still falling.",
    "lost": "lost: replicates that diverged.", "convergence": "convergence unknown: no R-hat of its chains.",
}  # fmt: skip
_TESTED = " ({tests}, Holm over {pairs}, 5%)"
_FAR = "than exact draws, with over five times the medians of the methods that pass for them"


@dataclass(frozen=True)
class Recommended:
    """A method that is near the best on most tasks of a kind of target."""

    label: str
    tasks: int  #: on so many of the tasks at least
    result: float  #: the largest on the so many tasks where it is lowest, as a leaderboard shows it
    cost: float  #: score evaluations until it is near, or in all, of the median replicate; geometric mean over tasks
    with_tuning: float  #: the same with the search for the step size, equal without one
    warnings: tuple[str, ...]  #: on some of the so many tasks where it comes nearest

    @property
    def tuned(self) -> str:
        """The cost with tuning; empty without any."""
        return f"{self.with_tuning:,.0f} with tuning" if self.with_tuning > 1.001 * self.cost else ""


@dataclass(frozen=True)
class Kind:
    """What to use for a kind of target."""

    where: str  #: kind of target, or empty for all tasks
    tasks: tuple[str, ...]
    unit: str  #: of the results; empty where tasks have several metrics
    methods: tuple[Recommended, ...]  #: empty where none is settled
    unsettled: tuple[str, ...]  #: methods that would be among these in some resamples, and are not in others
    dearer: bool  #: whether the second method needs more score evaluations than the first, in 95% of the resamples

    @property
    def on_every_task(self) -> bool:
        """Whether the methods are near on every task."""
        return bool(self.methods) and self.methods[0].tasks == len(self.tasks)


def caveat(unit: str) -> str:
    """What a rank by a metric alone does not say; empty of most metrics."""
    return "".join(said for start, said in BY_METRIC.items() if unit.startswith(start))


def on_task(
    where: str, best: Sequence[tuple[str, tuple[float, float, float], str]], unit: str, compared: int, beaten: int, beats: int,
    pairs: int,
) -> str:  # fmt: skip
    """Who is among the best of a task.

    ``best``: methods, values with their intervals, and warnings, lowest first; ``compared``: methods with a finite result;
    ``beaten``: those significantly worse than another; ``beats``: those that the first is significantly better than;
    ``pairs``: comparisons that share the level.
    """
    if not best:
        return NOBODY.format(where=name(where))
    lowest = result(best[0][1], unit)
    named = _named([(label, number(value[0]) if i else lowest, words) for i, (label, value, words) in enumerate(best)])
    far = compared - beaten - len(best)
    tests = "paired t tests, exact rank tests" if far else "paired t tests"
    tested = _TESTED.format(tests=tests, pairs=count(pairs, "comparison"))
    if compared == 1:
        return f"On {name(where)}, {named} is the only method with a finite result."
    if len(best) == 1:
        behind = f", {far} worse {_FAR}" if far else ""
        others = f"significantly better than {beats} of {compared - 1} others{behind}"
        return f"On {name(where)}, {named} is the best of {compared} methods: {others}{tested}."
    if len(best) == compared:
        return f"On {name(where)}, none of {compared} methods is significantly better than another{tested}: {named}."
    rest = compared - len(best)
    worse = [f"{n} {words}" for n, words in ((beaten, "than another method"), (far, _FAR)) if n]
    than = join(worse) if len(worse) > 1 else worse[0].partition(" ")[2]
    others = f"the other {rest} {'is' if rest == 1 else 'are each'} significantly worse{',' if len(worse) > 1 else ''} {than}"
    return f"On {name(where)}, {len(best)} of {compared} methods are among the best: {named}; {others}{tested}."


def recommended(kind: Kind) -> str:
    """What to use for a kind of target, how near it comes and at which cost; or that this is not settled."""
    over = f"On {name(kind.where)} ({tasks(kind)})" if kind.where else f"On all targets ({tasks(kind)})"
    if not kind.methods:
        between = f": {named(kind.unsettled, _FEW)} in some resamples only" if kind.unsettled else ""
        return f"{over}, no method is settled as near the best{between}."
    best, *others = kind.methods
    cost = f"{best.cost:,.0f} score evaluations{_bracketed(best.tuned)}"
    text = f"{over}, {warned(best)} {_near(best, kind)}, with {cost}"
    if others and kind.dearer:
        more = f"{number(others[0].cost / best.cost)} times as many{_bracketed(others[0].tuned)}"
        text += f"; {warned(others[0])} needs {more}"
    elif others:
        text += f"; {warned(others[0])} {_near(others[0], kind)}, and which needs fewer is not settled"
    return f"{text}.{caveat(kind.unit)}"


def tasks(kind: Kind) -> str:
    """The number of tasks of a kind, or the name of its only one."""
    return count(len(kind.tasks), "task") if len(kind.tasks) > 1 else name(kind.tasks[0])


def warned(method: Recommended) -> str:
    """A method with its warnings in brackets."""
    return _named([(method.label, "", ", ".join(method.warnings))])


def nearness(method: Recommended, kind: Kind) -> str:
    """The result of a method with its unit; without a number where those of several tasks cannot be compared."""
    if kind.unit == FLOORS:
        return f"{number(method.result)} {kind.unit}"
    return f"{kind.unit} {number(method.result)}" if len(kind.tasks) == 1 else ""


def on_how_many(method: Recommended, kind: Kind) -> str:
    """On how many of several tasks a method is near."""
    n = len(kind.tasks)
    return "" if n == 1 else "on every task" if method.tasks == n else f"on {method.tasks} of {n} tasks"


def explained(kinds: Sequence[Kind], replicates: int) -> str:
    """What the table of these recommendations shows, how weak few replicates are, and the warnings in it, each in a few words."""
    warnings = {w.partition(" ")[0]: w for kind in kinds for method in kind.methods for w in method.warnings}
    found = [f"{words[0].upper()}{words[1:]}" for word, words in _IN_SHORT.items() if word in warnings]
    weak = [_WEAK.format(n=count(replicates, "replicate"))] * (0 < replicates < ENOUGH)
    return " ".join([_EXPLAINED, *weak, *found])


def _near(method: Recommended, kind: Kind) -> str:
    result, where = nearness(method, kind), on_how_many(method, kind)
    if not result:
        return f"is near the best {kind.unit} {where}".replace("  ", " ")
    return f"comes to {result} or nearer {where}" if where else f"comes to {result}"


def _bracketed(text: str) -> str:
    return f" ({text})" if text else ""


def _named(methods: Sequence[tuple[str, str, str]]) -> str:
    """Methods with a value and warnings in brackets: ``a (0.6), b (0.7, transient) and 3 more``."""
    said = [(name(label), ", ".join(filter(None, more))) for label, *more in methods]
    return first([f"{label} ({more})" if more else label for label, more in said], _NAMED)


def result(value: tuple[float, float, float], unit: str) -> str:
    """A value with its unit and interval."""
    shown, ends = number(value[0]), interval(*value[1:])
    return f"{shown} {unit} [{ends}]" if unit == FLOORS else f"{unit} {shown} [{ends}]"
