"""False-alarm rate and power of `parvibench check` against known truth and against a baseline, measured on clean runs with fresh seeds.

    python tests/studies/false_alarms.py runs STORE [--runs 20]    clean runs of all questions, and their baseline, in STORE
    python tests/studies/false_alarms.py report STORE TO           the page on the runs in STORE, written to TO

Five parts: how many of the real runs were red; 2,000 runs resampled from the pool of clean replicates; all of the pool
against each law of the baseline, which shows a law that was stored wrongly before it turns a run red; whether p-values
of clean replicates are uniform, by Kolmogorov's distance over all statistics against that of the same replicates with
baseline and fresh ones relabelled (cells share noise, so the p-values depend on each other); and the power against
shifts of every statistic.
"""

import argparse
import json
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from parvibench.checks.baseline import Baseline, make
from parvibench.checks.baseline import questions as baseline_questions
from parvibench.checks.evidence import bound_p_value, law_p_values
from parvibench.checks.question import Bound, Expected, Law, Question, Values
from parvibench.checks.rounds import Keep, Plan, check
from parvibench.checks.selection import select_questions
from parvibench.core.streams import derive_seed
from parvibench.harness.suite.cells import Cell, expand
from parvibench.harness.suite.suite import load_suite

Array = NDArray[np.float64]
RUNS, RESAMPLED, RELABELLED = 20, 2000, 200
SHIFTS = (0.5, 1.0, 1.5, 2.0)
#: Of the statistics, drawn at random, those that are shifted: p-values far below 1e-3 are costly.
SHIFTED = 0.1


def key(question: Question) -> str:
    kind = type(question).__name__
    return f"{question.oracle} {question.task} {question.algorithm} {kind} {question!r:.200}"


@cache
def cells() -> list[Cell]:
    """Cells of the suites ci and ci-networks whose requirements are met."""
    return [c for suite in ("ci", "ci-networks") for c in expand(load_suite(suite)) if not c.missing_needs()]


@cache
def baseline(store: Path) -> Baseline:
    """The baseline of all clean runs of a store, made at the first."""
    file = store / "baseline.json"
    if not file.is_file():
        make(cells(), seed=derive_seed("false alarms, baseline"), date="").write(file)
    return Baseline.load(file)


@cache
def all_questions(store: Path) -> list[Question]:
    """Questions about all built-in samplers against known truth, and about the cells against the baseline."""
    asked = baseline_questions(baseline(store), cells())
    assert not asked.new + asked.incomparable, asked
    return [*select_questions().truths, *asked.questions]


def real_runs(store: Path, numbers: range, workers: int) -> None:
    """Clean checks; every measured value is kept, and which tests were red. Runs that are there are not repeated."""
    store.mkdir(parents=True, exist_ok=True)
    questions = all_questions(store)
    for number in numbers:
        file = store / f"run-{number:02d}.json"
        if file.is_file():
            continue
        kept: dict[str, dict[str, list[float]]] = {}
        started = time.perf_counter()
        seed = derive_seed("false alarms", number)
        result = check(questions, seed=seed, workers=workers, keep=kept_by(kept))
        seconds = time.perf_counter() - started
        red = [f"{t.oracle} {t.task}/{t.algorithm} {t.metric} p={t.p_value:.1e}" for t in result.red]
        extended = sum(t.replicates > Plan().stages[0] for t in result.tests)
        document = {"seconds": seconds, "red": red, "tests": len(result.tests), "extended": extended}
        file.write_text(json.dumps({**document, "values": kept}))
        print(f"run {number}: {result.verdict}, {seconds:.0f} s, {red}", flush=True)


def kept_by(kept: dict[str, dict[str, list[float]]]) -> Keep:
    def keep(question: Question, values: Values) -> None:
        kept[key(question)] = {name: list(found) for name, found in values.items()}

    return keep


@dataclass
class Pool:
    """Clean replicates of a question and what is expected of them."""

    question: Question
    expected: dict[str, Expected]
    fresh: dict[str, Array]


def pools(store: Path) -> tuple[list[Pool], dict[int, dict[str, Any]]]:
    """The first stage of every run: equally many replicates of every question."""
    documents = {int(f.stem[4:]): json.loads(f.read_text()) for f in sorted(store.glob("run-*.json"))}
    first = Plan().stages[0]
    found = []
    for question in all_questions(store):
        expected = question.expected()
        rows = [d["values"][key(question)] for d in documents.values()]
        rows = [row for row in rows if set(expected) <= set(row)]  # a run without one of them was red
        fresh = {n: np.array([v for row in rows for v in row[n][:first]], dtype=float) for n in expected}
        found.append(Pool(question, expected, fresh))
    return found, documents


def p_values(pool: Pool, rows: NDArray[np.int64]) -> Array:
    """p-values of resampled stages: rows (runs, n) of the pool -> (runs, S)."""
    columns = []
    for name, e in pool.expected.items():
        x = pool.fresh[name]
        if isinstance(e, Law):
            law = np.broadcast_to(e.values[:, None], (len(e.values), len(rows)))
            columns.append(law_p_values(e.snapped(x)[rows].T, law))
        elif isinstance(e, Bound):
            columns.append(np.array([bound_p_value(x[r], e.limit) for r in rows]))
        else:  # fixed: the same in every replicate, or the real runs were red
            columns.append(np.ones(len(rows)))
    return np.column_stack(columns)


def red_runs(pool: Pool, threshold: float, rng: np.random.Generator, runs: int) -> NDArray[np.bool_]:
    """Which of the resampled runs find this question red."""
    plan = Plan()
    size = len(next(iter(pool.fresh.values())))
    red = np.zeros(runs, dtype=bool)
    open_ = np.arange(runs)
    if size <= 1:  # what no seed changes is asked once
        return red
    order = np.argsort(rng.random((runs, size)), axis=1)
    for total in plan.stages:
        if not len(open_):
            break
        p = p_values(pool, order[open_][:, : min(total, size)])
        red[open_] |= (p <= threshold).any(1)
        open_ = open_[(p.min(1) * p.shape[1] < plan.doubt) & ~red[open_]]
    return red


def past_laws(pool: Pool) -> dict[str, Law]:
    """The laws that a question of the past expects, by statistic."""
    return {n: e for n, e in pool.expected.items() if isinstance(e, Law) and pool.question.oracle == "past"}


def uniformity(found: Sequence[Pool], rng: np.random.Generator) -> list[dict[str, float]]:
    """Mann-Whitney p-values of baseline against all fresh replicates, over the statistics of the past with as many stored draws."""
    columns: dict[int, list[Array]] = {}
    for pool in found:
        for name, e in past_laws(pool).items():
            both = np.concatenate([e.values, pool.fresh[name]])
            if len(np.unique(both)) > 0.9 * len(both):  # a law without atoms
                columns.setdefault(len(e.values), []).append(both)
    return [_uniformity(np.column_stack(alike), sizes, rng) for sizes, alike in sorted(columns.items())]


def _uniformity(table: Array, sizes: int, rng: np.random.Generator) -> dict[str, float]:
    """Of a table of joint samples, (n, S), whose first ``sizes`` rows are the baseline's."""
    ranks = stats.rankdata(table, axis=0)

    def distance(rows: NDArray[np.int64]) -> tuple[float, Array]:
        m, n = len(rows), len(table) - len(rows)
        z = (ranks[rows].sum(0) - m * (m + n + 1) / 2) / np.sqrt(m * n * (m + n + 1) / 12)
        p = 2 * stats.norm.sf(np.abs(z))
        return float(stats.kstest(p, "uniform").statistic), p

    observed, p = distance(np.arange(sizes))
    others = [distance(rng.permutation(len(table))[:sizes])[0] for _ in range(RELABELLED)]
    share = (1 + sum(d >= observed for d in others)) / (1 + RELABELLED)
    small = float((p < 0.05).mean())
    return {
        "statistics": table.shape[1],
        "stored": sizes,
        "distance": observed,
        "p_value": share,
        "below_5_percent": small,
    }


def least_likely(found: Sequence[Pool]) -> tuple[int, float, str]:
    """Number of laws that have draws of their own, the least p-value of all clean replicates against one, and whose."""
    pairs = [(pool, name, law) for pool in found for name, law in past_laws(pool).items() if not law.tolerance]
    p = [float(law_p_values(pool.fresh[n][:, None], law.values[:, None])[0]) for pool, n, law in pairs]
    worst, name, _ = pairs[int(np.argmin(p))]
    return len(pairs), min(p), f"{worst.question.task}/{worst.question.algorithm} {name}"


def examined(task: tuple[int, Pool, float]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Of one question: which resampled runs are red, and which of its statistics' shifts are caught, (shifts, S)."""
    number, pool, threshold = task
    rng = np.random.default_rng([1, number])
    red = red_runs(pool, threshold, rng, RESAMPLED)
    caught = []
    spread = {n: float(e.values.std()) for n, e in past_laws(pool).items() if np.isfinite(e.values).all()}
    shifted = {n: past_laws(pool)[n] for n, sd in spread.items() if rng.random() < SHIFTED and sd > 0}
    for size in SHIFTS:
        for name, e in shifted.items():
            moved = Pool(pool.question, {name: e}, {name: pool.fresh[name] + size * spread[name]})
            caught.append(bool(red_runs(moved, threshold, rng, 1).any()))
    return red, np.array(caught, dtype=bool).reshape(len(SHIFTS), -1)


def report(store: Path, to: Path) -> None:
    found, documents = pools(store)
    tests = sum(len(p.expected) for p in found)
    threshold = Plan().threshold(tests)
    with ProcessPoolExecutor() as executor:  # a question at a time: some 20 minutes of a core in all
        tasks = [(number, pool, threshold) for number, pool in enumerate(found)]
        parts = list(executor.map(examined, tasks))
    red = np.any([part[0] for part in parts], axis=0)
    power = np.concatenate([part[1] for part in parts], axis=1).mean(1)
    uniform = uniformity(found, np.random.default_rng(1))
    laws, least, whose = least_likely(found)
    seconds = [d["seconds"] for d in documents.values()]
    replicates = max(len(v) for p in found for v in p.fresh.values())
    low, high = stats.binomtest(int(red.sum()), RESAMPLED).proportion_ci()
    lines = [
        "# False alarms and power of `parvibench check` against known truth and a baseline",
        "",
        "Made by `python tests/studies/false_alarms.py`.",
        "",
        "| | |",
        "|---|---|",
        f"| questions, tests | {len(found)}, {tests} |",
        f"| p-value at which a test fails | {threshold:.1e} |",
        f"| real runs with fresh seeds | {len(documents)}, red: {sum(bool(d['red']) for d in documents.values())} |",
        f"| seconds of a run, median (range) | {np.median(seconds):.0f} ({min(seconds):.0f} to {max(seconds):.0f}) |",
        f"| clean replicates per question | {replicates} |",
        f"| runs resampled from them | {RESAMPLED}, red: {int(red.sum())} (95%: {low:.1e} to {high:.1e}) |",
        f"| least of {laws} p-values of all of them against the baseline | {least:.1e} ({whose}) |",
        *(
            f"| uniformity of {u['statistics']} p-values, {u['stored']} draws in the baseline | distance "
            f"{u['distance']:.3f}, p = {u['p_value']:.2f}; {100 * u['below_5_percent']:.1f}% below 5% |"
            for u in uniform
        ),
        "",
        "Power: one statistic of one cell shifts by so many of its standard deviations between replicates; a tenth of them, drawn at random, in turn.",
        "",
        "| shift, sd | caught |",
        "|---|---|",
        *(f"| {size:g} | {100 * share:.0f}% |" for size, share in zip(SHIFTS, power, strict=True)),
        "",
        *(f"Red was run {number}: {'; '.join(d['red'])}." for number, d in documents.items() if d["red"]),
        "",
        f"Baseline: {', '.join(f'{k} {v}' for k, v in baseline(store).made.items())}.",
    ]
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text("\n".join(lines) + "\n")
    print(to.read_text())


def main() -> None:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("runs")
    run.add_argument("store", type=Path)
    run.add_argument("--runs", type=int, default=RUNS)
    run.add_argument("--first", type=int, default=0, help="number of the first; the number gives the seed")
    run.add_argument("--workers", type=int, default=2)
    tell = commands.add_parser("report")
    tell.add_argument("store", type=Path)
    tell.add_argument("to", type=Path)
    options = parser.parse_args()
    if options.command == "runs":
        numbers = range(options.first, options.first + options.runs)
        real_runs(options.store, numbers, options.workers)
    else:
        report(options.store, options.to)


if __name__ == "__main__":
    main()
