"""How stable a place among the best is: replicates of published runs resampled, the tests run again; or the whole run.

    python tests/studies/stable_places.py reports/toy reports/posteriors --resamples 2000
    parvibench run --suite toy --profile standard --seed 1 --out again && parvibench report --out again --to again-page
    python tests/studies/stable_places.py reports/toy --rerun again-page

Of every method and task: how often it is among the best when the replicates of each task are drawn again with replacement, the
same ones for all methods, since the tests are paired. The tests are those of the page, computed from ``results.parquet`` by
``board_again.py``, vectorised over pairs, with the floors that the package ships; which methods pass for exact draws stays as the
page says, since that rests on several metrics. Printed are, of the places among the best on the page and of the others, the
share of resamples in which each is kept: mean, lowest, and how many are kept in fewer than half and in at least 95%. With
``--rerun`` each folder is compared with a run of the same cells from another seed: the places that both give, and those that
only one of them gives.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import board_again
import numpy as np
import pandas as pd
import sentences
from numpy.typing import NDArray
from scipy import optimize, special, stats

from parvibench.metrics.floors import rounded
from parvibench.reporting.facts.floor_comparison import floor_of

Values = NDArray[np.float64]
Flags = NDArray[np.bool_]


@cache
def rank_sum_tail(m: int, n: int) -> Values:
    """P(U >= u) for u = 0 to mn of the rank sum of m values among n of the same law, by its generating function."""
    counts = [1] + [0] * (m * n)
    for i in range(1, m + 1):
        for u in range(m * n, n + i - 1, -1):
            counts[u] -= counts[u - n - i]
        for u in range(i, m * n + 1):
            counts[u] += counts[u - i]
    total, tail, left = sum(counts), [], sum(counts)
    for count in counts:
        tail.append(left / total)
        left -= count
    return np.array(tail)


@dataclass(frozen=True)
class Task:
    """A task of a page: k methods with a finite result, their R replicates."""

    name: str
    labels: list[str]
    values: Values  #: (k, R), signed so that lower is better
    overlap: float
    passing: Flags  #: (k,), indistinguishable from exact draws on the page
    unit: float  #: median of the floor; NaN without one
    p_exact: Values  #: (k,), of being no worse than exact draws, on the page; NaN without a rank test
    below: NDArray[np.int64]  #: (k, R), how many of the floor's values are below each
    floor_size: int  #: how many it has; 0 where other numbers of samples were tested, whose values the file lacks

    def exact(self, drawn: NDArray[np.intp]) -> Values:
        """``p_exact`` of these replicates."""
        if not self.floor_size:
            return self.p_exact
        p = rank_sum_tail(len(drawn), self.floor_size)[self.below[:, drawn].sum(1)]
        return np.where(np.isnan(self.p_exact), np.nan, p)


def moderated(x: NDArray[np.float64], overlap: float) -> tuple[NDArray[np.float64], ...]:
    """Of all pairs of rows i < j: i, j, mean difference and p-value, as ``board_again.moderated_p``."""
    n = x.shape[1]
    i, j = np.triu_indices(len(x), 1)
    d = x[i] - x[j]
    mean, own = d.mean(1), d.var(1, ddof=1)
    logs = np.log(own[own > 1e-24 * (x**2).mean()])
    d0, s0 = 0.0, 0.0
    if len(logs) > 1:
        e = logs - special.digamma((n - 1) / 2) + np.log((n - 1) / 2)
        excess = e.var(ddof=1) - special.polygamma(1, (n - 1) / 2)
        d0, s0 = np.inf, float(np.exp(e.mean()))
        if excess > 1e-6:
            half = optimize.root_scalar(lambda v: special.polygamma(1, v) - excess, bracket=(1e-6, 2 / excess + 2)).root
            d0, s0 = 2 * half, float(np.exp(e.mean() + special.digamma(half) - np.log(half)))
    most = (len(x) - 1) * (n - 1)
    spread = np.full_like(own, s0) if np.isinf(d0) else (d0 * s0 + (n - 1) * own) / (d0 + n - 1)
    df = most if np.isinf(d0) else min(d0 + n - 1, most)
    error = np.sqrt(spread * (1 / n + overlap))
    with np.errstate(divide="ignore", invalid="ignore"):
        p = 2 * stats.t.sf(np.abs(mean) / error, df)
    p = np.where(mean == 0, 1.0, np.where(error == 0, 0.0, p))
    return i, j, mean, p


def among_best(tasks: list[Task], draws: list[NDArray[np.intp]]) -> list[Flags]:
    """Of every task of a group, with the replicates of each: which of its methods are among the best."""
    some = [task.values[:, drawn] for task, drawn in zip(tasks, draws, strict=True)]
    found = [moderated(scaled(x), task.overlap) for x, task in zip(some, tasks, strict=True)]
    exact = [task.exact(drawn) for task, drawn in zip(tasks, draws, strict=True)]
    losing = [np.array(board_again.loses_more(~np.isfinite(x))) for x in some]
    tested = [lost for lost, x in zip(losing, some, strict=True) if not np.isfinite(x).all()]
    p = np.concatenate([*(f[3] for f in found), *(e[~np.isnan(e)] for e in [*exact, *tested])])
    order = np.argsort(p, kind="stable")
    holm = np.empty_like(p)
    holm[order] = np.maximum.accumulate(p[order] * (len(p) - np.arange(len(p))))
    limit = p[holm <= 0.05].max(initial=-1.0)
    best = []
    for task, x, (i, j, mean, own), e, lost in zip(tasks, some, found, exact, losing, strict=True):
        unreliable, centre = lost <= limit, np.median(x, axis=1)
        better, worse = np.where(mean < 0, i, j), np.where(mean < 0, j, i)
        beats = (own <= limit) & (centre[better] < centre[worse]) & ~unreliable[better] & (x.shape[1] > 2)
        unbeaten = ~unreliable
        unbeaten[worse[beats]] = False
        ratio = centre / task.unit
        passing = ratio[unbeaten & task.passing]
        spreads = [
            np.log(row).std(ddof=1) if (x > 0).all() and np.isfinite(row).all() else np.inf for row in x[unbeaten]
        ]
        known = len(passing) > 0 and max(spreads) <= 0.5
        far = (e <= limit) & (ratio > 5 * passing.max(initial=0.0)) & known
        best.append(unbeaten & ~far)
    return best


def groups(page: sentences.Sentences) -> list[list[Task]]:
    """Of every kind of target its tasks."""
    board = page.board()
    found = []
    for _, rows in board.cells[board.cells["finite"]].groupby("group"):
        found.append([_task(str(task), mine, board.values) for task, mine in rows.groupby("task")])
    return found


def _task(name: str, rows: pd.DataFrame, values: dict[tuple[str, str], list[float]]) -> Task:
    sign = -1 if rows["direction"].iloc[0] == "higher" else 1
    lists = [values[name, label] for label in rows["label"]]
    x = sign * np.array([v[: min(map(len, lists))] for v in lists], dtype=float)
    x[np.isnan(x)] = np.inf
    floor = floor_of(name, str(rows["primary"].iloc[0]), int(rows["samples"].max()))
    known = np.empty(0) if floor is None else np.sort(sign * rounded(floor.values))
    passing, p = (rows["verdict"] == "indistinguishable").to_numpy(), rows["p_exact"].to_numpy(float)
    below, unit = np.searchsorted(known, rounded(x)), float(rows["floor"].iloc[0])
    task = Task(name, list(rows["label"]), x, float(rows["overlap"].iloc[0]), passing, unit, p, below, len(known))
    if not np.allclose(task.exact(np.arange(x.shape[1])), p, rtol=1e-6, equal_nan=True):
        raise SystemExit(f"{name}: its p-values against exact draws are not those of the page")
    return task


def scaled(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Failures as the worst finite value; logarithms where all values are positive."""
    finite = np.isfinite(x)
    x = np.where(finite, x, x[finite].max())
    return np.log(x) if (x > 0).all() else x


def kept(folder: Path, resamples: int) -> tuple[dict[tuple[str, str], float], dict[tuple[str, str], bool]]:
    """(task, method) -> share of resamples in which it is among the best, and whether it is on the page."""
    generator = np.random.default_rng(0)
    counts: dict[tuple[str, str], float] = {}
    now: dict[tuple[str, str], bool] = {}
    for tasks in groups(sentences.Sentences(folder / "results.parquet")):
        names = [[(task.name, label) for label in task.labels] for task in tasks]
        for place, mine in zip(names, among_best(tasks, [np.arange(t.values.shape[1]) for t in tasks]), strict=True):
            now |= dict(zip(place, map(bool, mine), strict=True))
        for _ in range(resamples):
            draws = [_drawn(task.values.shape[1], generator) for task in tasks]
            for place, mine in zip(names, among_best(tasks, draws), strict=True):
                for key, value in zip(place, mine, strict=True):
                    counts[key] = counts.get(key, 0.0) + value / resamples
    return counts, now


def _drawn(n: int, generator: np.random.Generator) -> NDArray[np.intp]:
    """Numbers of replicates with replacement; one alone has no variance."""
    drawn = generator.integers(0, n, n)
    while len(set(drawn.tolist())) == 1:
        drawn = generator.integers(0, n, n)
    return drawn


def rerun(folder: Path, again: Path) -> list[str]:
    """Places of a page that a run of the same cells from another seed gives, too."""
    pages = [sentences.Sentences(f / "results.parquet").board().cells for f in (folder, again)]
    first, second = ({(r["task"], r["label"]): bool(r["best"]) for _, r in c[c["finite"]].iterrows()} for c in pages)
    shared = [key for key in first if key in second]
    here, there = ({k for k in shared if places[k]} for places in (first, second))
    neither = len(shared) - len(here | there)
    lines = [
        f"{folder.name} and a run from another seed: {len(shared)} cells in both; of {len(here)} places among the best "
        f"{len(here & there)} are given again, {len(there - here)} are new, {neither} cells are in neither"
    ]
    for words, keys in (("lost", here - there), ("new", there - here)):
        for task in dict.fromkeys(task for task, _ in shared):
            labels = [label for t, label in shared if t == task and (t, label) in keys]
            lines += [f"  {words} on {task}: {', '.join(labels)}"] if labels else []
    return lines


def report(folder: Path, resamples: int) -> list[str]:
    """Lines on one page."""
    counts, now = kept(folder, resamples)
    lines = [f"{folder.name}: {resamples} resamples of replicates"]
    for words, wanted in (("among the best on the page", True), ("not among the best", False)):
        shares = np.array([counts[k] if wanted else 1 - counts[k] for k in now if now[k] == wanted])
        if len(shares):
            lines.append(
                f"  {words}: {len(shares)} places, kept in {shares.mean():.1%} on average, lowest {shares.min():.0%}; "
                f"{(shares >= 0.95).sum()} in at least 95%, {(shares < 0.5).sum()} in fewer than half"
            )
    cells = sentences.Sentences(folder / "results.parquet").board().cells
    first = [(str(r["task"]), str(r["label"])) for _, r in cells[cells["finite"] & (cells["rank"] == 1)].iterrows()]
    lines.append(
        f"  lowest medians: {', '.join(f'{label} on {task} {counts[task, label]:.0%}' for task, label in first)}"
    )
    for task in dict.fromkeys(t for t, _ in now):
        best = sorted((k for k in now if k[0] == task and now[k]), key=lambda k: -counts[k])
        lost = [f"{label} {counts[t, label]:.0%}" for t, label in best if counts[t, label] < 0.95]
        lines.append(
            f"  {task}: {len(best)} among the best, {len(best) - len(lost)} kept in 95%"
            + (f"; {', '.join(lost)}" if lost else "")
        )
    return lines


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--resamples", type=int, default=2000)
    parser.add_argument("--rerun", type=Path, help="page of a run of the same cells from another seed")
    options = parser.parse_args()
    for folder in options.folders:
        lines = rerun(folder, options.rerun) if options.rerun else report(folder, options.resamples)
        print("\n".join(lines), flush=True)
