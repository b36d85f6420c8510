"""The methods among the best of a target or of several, and how sure that is."""

from collections.abc import Sequence

from parvibench.reporting.formatting import count, interval, join, name, number

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
_TESTED = " ({tests}, Holm over {pairs}, 5%)"
_FAR = "than exact draws, with over five times the medians of the methods that pass for them"


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
    first = result(best[0][1], unit)
    named = _named([(label, number(value[0]) if i else first, words) for i, (label, value, words) in enumerate(best)])
    far = compared - beaten - len(best)
    tests = "paired t tests, exact rank tests" if far else "paired t tests"
    tested = _TESTED.format(tests=tests, pairs=count(pairs, "comparison"))
    if compared == 1:
        return f"On {name(where)}, {named} is the only method with a finite result."
    if len(best) == 1:
        others = f"significantly better than {beats} of {compared - 1} others" + (
            f", {far} worse {_FAR}" if far else ""
        )
        return f"On {name(where)}, {named} is the best of {compared} methods: {others}{tested}."
    if len(best) == compared:
        return f"On {name(where)}, none of {compared} methods is significantly better than another{tested}: {named}."
    rest = compared - len(best)
    worse = [f"{n} {words}" for n, words in ((beaten, "than another method"), (far, _FAR)) if n]
    than = join(worse) if len(worse) > 1 else worse[0].partition(" ")[2]
    others = f"the other {rest} {'is' if rest == 1 else 'are each'} significantly worse{',' if len(worse) > 1 else ''} {than}"
    return f"On {name(where)}, {len(best)} of {compared} methods are among the best: {named}; {others}{tested}."


def on_tasks(where: str, n_tasks: int, counts: Sequence[tuple[str, int, str]], compared: int) -> str:
    """Who is among the best on every one of several tasks, or on most of them.

    ``where``: the kind of target, or empty for all tasks; ``counts``: methods, numbers of tasks on which each is among the
    best, and warnings, most first; ``compared``: methods with a finite result.
    """
    over = f"On {name(where)} ({count(n_tasks, 'task')}), " if where else f"Over all {n_tasks} tasks, "
    if not counts:
        return f"{over}no method has a finite result better than the initial distribution."
    every = [(label, "", words) for label, n, words in counts if n == n_tasks]
    if len(every) == 1:
        return f"{over}{_named(every)} is the only one of {count(compared, 'method')} that is among the best on every task."
    if every:
        return f"{over}{len(every)} of {compared} methods are among the best on every task: {_named(every)}."
    least = counts[:_FEW][-1][1]  # those that tie with the last of the first few are counted
    most = _named([(label, str(n), words) for label, n, words in counts if n >= least], _FEW)
    return f"{over}none of {count(compared, 'method')} is among the best on every task; most often are {most}."


def _named(methods: Sequence[tuple[str, str, str]], most: int = _NAMED) -> str:
    """Methods with a value and warnings in brackets: ``a (0.6), b (0.7, transient) and 3 more``."""
    shown = []
    for label, value, words in methods[:most]:
        said = ", ".join(filter(None, [value, words]))
        shown.append(f"{name(label)} ({said})" if said else name(label))
    return join([*shown, *([f"{len(methods) - most} more"] if len(methods) > most else [])])


def result(value: tuple[float, float, float], unit: str) -> str:
    """A value with its unit and interval."""
    shown, ends = number(value[0]), interval(*value[1:])
    return f"{shown} {unit} [{ends}]" if unit == FLOORS else f"{unit} {shown} [{ends}]"
