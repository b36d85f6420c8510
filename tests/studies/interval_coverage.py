"""How often the intervals of ``parvibench.statistics`` hold the truth: simulations with known answers."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from parvibench.core.reference import Floor
from parvibench.metrics.floors import ALPHA, exact_p_value, p_value
from parvibench.statistics import (
    all_pairs,
    interquartile_mean,
    median_interval,
    p_no_better,
    paired_difference,
    runtime_profile,
)  # fmt: skip

REPLICATES = (5, 10, 30)
TASKS = 5
FLOOR_SETS = 300
Draw = Callable[[np.random.Generator, int], NDArray[Any]]

#: Laws of a replicate's value: name -> (draw, median, mean).
LAWS: dict[str, tuple[Draw, float, float]] = {
    "normal": (lambda g, n: g.normal(size=n), 0.0, 0.0),
    "lognormal": (lambda g, n: g.lognormal(size=n), 1.0, math.exp(0.5)),
    "t3": (lambda g, n: g.standard_t(3, size=n), 0.0, 0.0),
}


def coverage_table(trials: int, seed: int = 0) -> pd.DataFrame:
    """Coverage of every interval, level of every test: the share claimed, that measured, its standard error."""
    rows = []
    for number, (what, law, count, claim, trial) in enumerate(_studies()):
        rng = np.random.default_rng([seed, number])
        found = float(np.mean([trial(rng) for _ in range(trials)]))
        error = math.sqrt(max(found * (1 - found), 1 / trials) / trials)
        rows.append((what, law, count, claim, found, error))
    return pd.DataFrame(rows, columns=["what", "law", "replicates", "claim", "found", "error"])


Study = tuple[str, str, int, float, Callable[[np.random.Generator], float]]


def _studies() -> Iterator[Study]:
    for law, (draw, median, mean) in LAWS.items():
        for n in REPLICATES:
            yield "median, order statistics", law, n, 0.95, partial(_median_trial, draw, n, median)
            method = "bootstrap" if n >= 30 else "Student"
            yield f"mean paired difference, {method}", law, n, 0.95, partial(_paired_trial, draw, n, mean)
    for n in REPLICATES:
        yield f"interquartile mean of {TASKS} tasks", "lognormal", n, 0.95, _iqm_trial(n)
        yield f"runtime profile of {TASKS} tasks", "lognormal, 20% never", n, 0.95, _profile_trial(n)
        yield "level: worse than exact draws, Mann-Whitney", "lognormal", n, ALPHA, partial(_floor_trial, n)
        yield (
            f"level: all pairs of 30 equal methods on {TASKS} tasks",
            "lognormal, unlike spreads",
            n,
            ALPHA,
            partial(_pairs_trial, n),
        )
    for n in (3, 5, 10):
        for spread, shift in ((0.2, 0.3), (0.5, 0.9), (1.0, 1.6), (1.5, 2.0)):
            law = f"lognormal, spread {spread:g}, {math.exp(shift):.2g} floors"
            what = f"level: one of 22 equal methods on {TASKS} tasks is far from those that pass for exact draws"
            yield what, law, n, ALPHA, partial(_far_trial, n, spread, shift)
    for methods, n, tasks in ((4, 20, 1), (4, 10, 3), (22, 5, 5), (22, 20, 3)):
        for rate in (0.0, 0.05, 0.15):
            law = f"lognormal, unlike spreads, {rate:.0%} lost"
            what = f"level: any of {methods} equal methods on {tasks} tasks is better or unreliable"
            yield what, law, n, ALPHA, partial(_lost_trial, methods, n, tasks, rate)
    for lost in (1, 3, 4, 9):
        for methods, tasks in ((4, 1), (22, 5)):
            what = f"power: the best of {methods} methods on {tasks} tasks, twice as good, is unreliable"
            yield (
                what,
                f"lognormal, {lost} of 20 lost",
                20,
                float(lost > 3),
                partial(_ahead_trial, methods, tasks, lost),
            )
    for n in (5, 20):
        yield "level: paired comparison of two runs", "normal, correlated 0.8", n, ALPHA, partial(_compare_trial, n)


def _median_trial(draw: Draw, n: int, truth: float, rng: np.random.Generator) -> float:
    _, low, high = median_interval(draw(rng, n).tolist())
    return float(low <= truth <= high)


def _paired_trial(draw: Draw, n: int, truth: float, rng: np.random.Generator) -> float:
    found = paired_difference(draw(rng, n), np.zeros(n))
    return float(found.low <= truth <= found.high)


def _task_values(rng: np.random.Generator, n: int) -> list[NDArray[Any]]:
    """Ratios to a floor on tasks of growing difficulty, (n,) each."""
    return [np.exp(0.4 * rng.normal(size=n) + 0.2 * task) for task in range(TASKS)]


def _iqm_trial(n: int) -> Callable[[np.random.Generator], float]:
    many = np.concatenate(_task_values(np.random.default_rng(1), 400_000))
    truth = float(stats.trim_mean(many, 0.25))

    def trial(rng: np.random.Generator) -> float:
        found = interquartile_mean(_task_values(rng, n), rng)
        return float(found.low <= truth <= found.high)

    return trial


def _profile_trial(n: int) -> Callable[[np.random.Generator], float]:
    budgets = np.geomspace(0.3, 30, 7)
    targets = np.array([1.0, 2.0, 4.0])
    each = stats.norm.cdf(np.log(budgets[:, None] / targets))
    truth = 0.8 * each.mean(1)

    def trial(rng: np.random.Generator) -> float:
        times = {}
        for task in range(TASKS):
            base = np.where(rng.random(n) < 0.2, math.inf, rng.lognormal(size=n))
            times[str(task)] = base[:, None] * targets
        found = runtime_profile(times, budgets, int(rng.integers(2**32)))
        return float(((found["low"] <= truth) & (truth <= found["high"])).mean())

    return trial


def _floor_trial(n: int, rng: np.random.Generator) -> float:
    floor = Floor(100, np.sort(rng.lognormal(size=FLOOR_SETS)))
    return float(p_value("sliced_w2", rng.lognormal(size=n), floor) <= ALPHA)


def _pairs_trial(n: int, rng: np.random.Generator) -> float:
    """Whether any of 30 equal methods with spreads of their own is called better than another."""
    spreads = [np.exp(rng.normal(size=(30, 1))) for _ in range(TASKS)]
    found = all_pairs([np.exp(0.2 * s * rng.normal(size=(30, n))) for s in spreads], [0.0] * TASKS)
    return float(any(better.any() for better in found.better))


def _lost_trial(methods: int, n: int, tasks: int, rate: float, rng: np.random.Generator) -> float:
    """Whether a difference of values or of reliability is reported between equal methods that lose replicates at one rate."""
    values = [np.exp(0.3 * np.exp(rng.normal(size=(methods, 1))) * rng.normal(size=(methods, n))) for _ in range(tasks)]
    lost = [np.where(rng.random(x.shape) < rate, math.inf, x) for x in values]
    found = all_pairs(lost, [0.0] * tasks)
    return float(any(b.any() for b in (*found.better, *found.unreliable)))


def _ahead_trial(methods: int, tasks: int, lost: int, rng: np.random.Generator) -> float:
    """Whether a method that is twice as good as the others, which lose nothing, is unreliable on the first task."""
    values = [np.exp(0.3 * rng.normal(size=(methods, 20))) for _ in range(tasks)]
    values[0][0] /= 2
    values[0][0, :lost] = math.inf
    return float(all_pairs(values, [0.0] * tasks).unreliable[0][0])


def _compare_trial(n: int, rng: np.random.Generator) -> float:
    """Whether two runs of equal methods on shared noise differ, as ``parvibench compare`` tests one cell."""
    shared = rng.normal(size=n)
    u, v = (0.8**0.5 * shared + 0.2**0.5 * rng.normal(size=n) for _ in range(2))
    return float(min(1.0, 2 * p_no_better(u, v), 2 * p_no_better(v, u)) <= ALPHA)


def _far_trial(n: int, spread: float, shift: float, rng: np.random.Generator) -> float:
    """Whether one of 22 equal methods, all worse than exact draws, is left out next to one that passes for them."""
    floor = Floor(100, np.sort(rng.lognormal(0, 0.2, size=200)))
    values = np.exp(shift + spread * rng.normal(size=(TASKS, 22, n)))
    p_exact = [[exact_p_value("sliced_w2", row, floor) for row in task] for task in values]
    found = all_pairs(list(values), [0.0] * TASKS, p_exact)
    left_out = 0
    for i, task in enumerate(values):
        passing = [p_value("sliced_w2", row, floor) > ALPHA for row in task]
        best = found.best(i, np.median(task, 1) / floor.median, passing)
        left_out += int((found.unbeaten(i) & ~best).sum())
    return float(left_out > 0)
