"""Verdicts against the shipped floors: ``python tests/studies/verdicts.py [--out DIR] [--workers W]``.

How often exact draws of four tasks are called distinguishable at n = 100, 1000 and 2000, and how often draws are whose
tails are missing, whose modes are merged or weighted 55:45, or one of whose coordinates is stuck. Writes
``verdicts.csv`` and ``verdicts.md`` into ``reports/calibration``; a quarter of an hour on two cores.
"""

import argparse
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from markdown_tables import table
from scipy import stats
from torch import Generator, Tensor

from parvibench.core.metric import Context
from parvibench.core.registry import load_task
from parvibench.core.streams import derive_seed
from parvibench.core.task import Task
from parvibench.metrics.compute import compute
from parvibench.metrics.floors import ALPHA, floor_tests, verdict_metrics

REPORT = Path(__file__).parents[2] / "reports" / "calibration"
TASKS = ("banana", "student-t", "multimodal", "gmm2-20d")
SIZES = (100, 1000, 2000)
N = 1000
FALSE_ALARM_TRIALS, POWER_TRIALS = 400, 50
#: Sets after which the table is written.
PART = 50
VERDICT, EXACT = "verdict", "exact"
COLUMNS = ["task", "n", "alteration", "metric", "trials", "found"]

#: (task, n, generator) -> n draws with something wrong.
Alter = Callable[[Task, int, Generator], Tensor]


def exact(task: Task, n: int, g: Generator) -> Tensor:
    """Draws with nothing wrong."""
    return task.exact(n, g)


def without_far_points(task: Task, n: int, g: Generator) -> Tensor:
    """Draws given that every |x_d| < 5."""
    x = task.exact(2 * n, g)
    return x[x.abs().amax(1) < 5][:n]


def without_improbable_points(task: Task, n: int, g: Generator) -> Tensor:
    """Draws given a density above its 1% quantile."""
    target = task.target([0], "cpu", torch.float64)
    limit = target.log_density(task.exact(100_000, Generator().manual_seed(1))[None]).quantile(0.01)
    x = task.exact(2 * n, g)
    return x[target.log_density(x[None])[0] > limit][:n]


def weighted(task: Task, n: int, g: Generator) -> Tensor:
    """Draws of two modes, 55% of them nearest the first."""
    assert task.facts.modes is not None
    x = task.exact(3 * n, g)
    first = torch.cdist(x, task.facts.modes.means.to(x)).argmin(1) == 0
    count = int(np.random.default_rng(int(torch.randint(2**31, (), generator=g))).binomial(n, 0.55))
    return torch.cat([x[first][:count], x[~first][: n - count]])


def merged(task: Task, n: int, g: Generator) -> Tensor:
    """Draws whose two nearest modes are replaced by one Gaussian of their mean and covariance."""
    assert task.facts.modes is not None
    means = task.facts.modes.means.double()
    apart = torch.cdist(means, means) + torch.diag(torch.full((len(means),), torch.inf))
    pair = torch.tensor(divmod(int(apart.argmin()), len(means)))
    x = task.exact(n, g)
    chosen = (torch.cdist(x, means).argmin(1)[:, None] == pair).any(1)
    known = task.exact(100_000, Generator().manual_seed(1))
    known = known[(torch.cdist(known, means).argmin(1)[:, None] == pair).any(1)]
    z = torch.randn(n, task.dim, generator=g, dtype=torch.float64)
    x[chosen] = (known.mean(0) + z @ torch.linalg.cholesky(torch.cov(known.T)).T)[chosen]
    return x


def stuck(task: Task, n: int, g: Generator) -> Tensor:
    """Draws whose eighth coordinate never moves from an exact draw's."""
    x = task.exact(n, g)
    x[:, 7] = x[0, 7]
    return x


@dataclass(frozen=True)
class Case:
    """One alteration of one task at one size."""

    task: str
    n: int
    name: str
    alter: Alter
    trials: int


CASES = (
    Case("student-t", N, "cut beyond 5", without_far_points, POWER_TRIALS),
    Case("banana", N, "without the least probable 1%", without_improbable_points, POWER_TRIALS),
    Case("multimodal", N, "two modes merged", merged, POWER_TRIALS),
    Case("multimodal", N, "weights 55:45", weighted, 2 * POWER_TRIALS),
    Case("gmm2-20d", N, "weights 55:45", weighted, 2 * POWER_TRIALS),
    Case("gmm2-20d", N, "one coordinate stuck", stuck, POWER_TRIALS),
    *(Case(task, n, EXACT, exact, FALSE_ALARM_TRIALS) for n in SIZES for task in TASKS),
)


def run_part(case: Case, first: int) -> pd.DataFrame:
    """How often each metric alone, and the verdict, calls PART sets distinguishable, from number ``first`` on."""
    torch.set_num_threads(1)
    task = load_task(case.task)
    context = Context(task, task.reference(), task.target([0], "cpu", torch.float64))
    g = Generator().manual_seed(derive_seed("verdicts", case.task, case.n, case.name, first))
    found: Counter[str] = Counter()
    trials = min(PART, case.trials - first)
    for _ in range(trials):
        x = case.alter(task, case.n, g)
        assert len(x) == case.n
        values = {m: v.numpy() for m, v in compute(verdict_metrics(task), x[None], context)[0].items()}
        tests = floor_tests(values, case.n, context.reference, task.metrics)
        found.update({m: int(p <= ALPHA) for m, p in tests.p_values.items()})
        found[VERDICT] += tests.verdict == "distinguishable"
        assert tests.verdict in ("distinguishable", "indistinguishable"), tests.reason
    rows = [(case.task, case.n, case.name, metric, trials, count) for metric, count in found.items()]
    return pd.DataFrame(rows, columns=COLUMNS)


def limit(trials: int) -> int:
    """Most false alarms that chance explains at the 99.9% level."""
    return int(stats.binom.ppf(0.999, trials, ALPHA))


def page(table: pd.DataFrame) -> str:
    """The tables in Markdown."""
    shares = table.assign(share=(100 * table["found"] / table["trials"]).map("{:.3g}".format))
    false = shares[shares["alteration"] == EXACT]
    wide = false.assign(case=[f"{t}, {n:,}" for t, n in zip(false["task"], false["n"], strict=True)])
    altered = shares[shares["alteration"] != EXACT]
    cases = [f"{t}: {a}" for t, a in zip(altered["task"], altered["alteration"], strict=True)]
    above = false[false["found"] > false["trials"].map(limit)]
    named = ", ".join(f"{r['metric']} ({r['task']}, n = {r['n']:,}: {r['found']})" for _, r in above.iterrows())
    worst = false[false["metric"] == VERDICT].sort_values("found").iloc[-1]
    lines = [
        "# Verdicts of shipped tasks",
        "",
        "Made by `python tests/studies/verdicts.py`, against the shipped references and floors; all metrics of the tasks'",
        "verdicts.",
        "",
        "## False alarms",
        "",
        f"Percent of {false['trials'].min()} sets or more of exact draws called distinguishable at {100 * ALPHA:g}%, by task and n. Chance",
        f"explains up to {limit(FALSE_ALARM_TRIALS)} of {FALSE_ALARM_TRIALS} sets (99.9%). The verdict's most: {worst['found']} of {worst['trials']}, {worst['task']} at "
        f"n = {worst['n']:,}. Single metrics above the limit: {named or 'none'}.",
        "",
        *_markdown(wide, "case"),
        "",
        f"## Power at n = {N:,}",
        "",
        "Percent of altered sets called distinguishable: by each metric alone at 5%, and by the verdict.",
        "",
        *_markdown(altered.assign(case=cases), "case"),
    ]
    return "\n".join(lines) + "\n"


def _markdown(rows: pd.DataFrame, column: str) -> list[str]:
    order = [*(m for m in dict.fromkeys(rows["metric"]) if m != VERDICT), VERDICT]
    wide = rows.pivot(index="metric", columns=column, values="share")
    wide = wide.reindex(index=order, columns=list(dict.fromkeys(rows[column]))).fillna("–")
    return table(["metric", *wide.columns], wide.reset_index().to_numpy().tolist())


def main() -> None:
    """Run what the table lacks, and write table and page after each part."""
    parser = argparse.ArgumentParser(description="Measure the verdicts of shipped tasks.")
    parser.add_argument("--out", type=Path, default=REPORT)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    file = options.out / "verdicts.csv"
    table = pd.read_csv(file) if file.exists() else pd.DataFrame(columns=COLUMNS)
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        parts = [(case, first) for case in CASES for first in range(_tried(table, case), case.trials, PART)]
        for rows in pool.map(run_part, *zip(*parts, strict=True)) if parts else ():
            table = pd.concat([table, rows], ignore_index=True) if len(table) else rows
            table = table.groupby(COLUMNS[:4], sort=False, as_index=False)[COLUMNS[4:]].sum()
            table.to_csv(file, index=False)
            (options.out / "verdicts.md").write_text(page(table))


def _tried(table: pd.DataFrame, case: Case) -> int:
    """Sets of a case that the table counts."""
    rows = table[(table["task"] == case.task) & (table["n"] == case.n) & (table["alteration"] == case.name)]
    return int(rows["trials"].max()) if len(rows) else 0


if __name__ == "__main__":
    main()
