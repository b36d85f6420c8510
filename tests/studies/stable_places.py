"""How stable a place among the best is: replicates of published runs resampled, the tests run again.

    python tests/studies/stable_places.py reports/toy reports/posteriors --resamples 2000

Of every method and task: how often it is among the best when the replicates of each task are drawn again with replacement, the
same ones for all methods, since the tests are paired. The tests are those of the page, computed from ``results.parquet`` by
``sentences.py``, vectorised over pairs; methods far from exact draws stay in, since the file has no floors to test resamples
by. Printed are, of the places among the best on the page and of the others, the share of resamples in which each is kept:
mean, lowest, and how many are kept in fewer than half and in at least 95%.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import sentences
from numpy.typing import NDArray
from scipy import optimize, special, stats


def moderated(x: NDArray[np.float64], overlap: float) -> tuple[NDArray[np.float64], ...]:
    """Of all pairs of rows i < j: i, j, mean difference and p-value, as ``sentences.moderated_p``."""
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


def among_best(tasks: list[tuple[NDArray[np.float64], float]]) -> list[NDArray[np.bool_]]:
    """Of every task of a group, values (methods, replicates) and overlap: which methods no other is significantly better than."""
    found = [moderated(x, overlap) for x, overlap in tasks]
    p = np.concatenate([f[3] for f in found])
    order = np.argsort(p, kind="stable")
    holm = np.empty_like(p)
    holm[order] = np.maximum.accumulate(p[order] * (len(p) - np.arange(len(p))))
    best, at = [], 0
    for (x, _), (i, j, mean, own) in zip(tasks, found, strict=True):
        worse = holm[at : at + len(own)] <= 0.05
        at += len(own)
        mine = np.ones(len(x), bool)
        mine[np.where(mean < 0, j, i)[worse]] = False
        best.append(mine)
    return best


def groups(page: sentences.Sentences) -> list[list[tuple[str, list[str], NDArray[np.float64], float]]]:
    """Of every kind of target its tasks: name, methods, values signed so that lower is better, overlap."""
    board = page.board()
    found = []
    for _, rows in board.cells[board.cells["finite"]].groupby("group"):
        tasks = []
        for task, mine in rows.groupby("task"):
            sign = -1 if mine["direction"].iloc[0] == "higher" else 1
            lists = [board.values[task, label] for label in mine["label"]]
            x = sign * np.array([v[: min(map(len, lists))] for v in lists], dtype=float)
            tasks.append((str(task), list(mine["label"]), x, float(mine["overlap"].iloc[0])))
        found.append(tasks)
    return found


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
        names = [[(task, label) for label in labels] for task, labels, *_ in tasks]
        for place, mine in zip(names, among_best([(scaled(x), overlap) for *_, x, overlap in tasks]), strict=True):
            now |= dict(zip(place, map(bool, mine), strict=True))
        for _ in range(resamples):
            again = []
            for *_, x, overlap in tasks:
                drawn = generator.integers(0, x.shape[1], x.shape[1])
                while len(set(drawn.tolist())) == 1:  # one replicate alone has no variance
                    drawn = generator.integers(0, x.shape[1], x.shape[1])
                again.append((scaled(x[:, drawn]), overlap))
            for place, mine in zip(names, among_best(again), strict=True):
                for key, value in zip(place, mine, strict=True):
                    counts[key] = counts.get(key, 0.0) + value / resamples
    return counts, now


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
    options = parser.parse_args()
    for folder in options.folders:
        print("\n".join(report(folder, options.resamples)), flush=True)
