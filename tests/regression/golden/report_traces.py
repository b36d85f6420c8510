"""Traces of what is made of a run: marks, rankings, winners, comparisons; of cells made by hand, no sampler runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, cast
from unittest import mock

import numpy as np
import pandas as pd

from parvibench.core.budget import Budget
from parvibench.core.reference import Reference
from parvibench.core.registry import load_task
from parvibench.core.result import CellRecord, CellSpec, Status
from parvibench.harness.marks import blown_up, convergence
from parvibench.harness.run.judging import SEQUENTIAL
from parvibench.harness.store.curve_grid import CurveGrid
from parvibench.harness.store.results import StoredRun
from parvibench.harness.store.store import CURVE_COLUMNS, RunCell, RunRecord, Store
from parvibench.reporting.facts import averages, curves
from parvibench.reporting.facts import board as leaderboard
from parvibench.reporting.facts import differences as run_differences
from parvibench.reporting.facts import findings as winners  # fmt: skip
from parvibench.reporting.facts import floors as floor_comparison
from parvibench.reporting.facts.run import Facts
from parvibench.reporting.tables import curve_tables, task_tables
from parvibench.reporting.tables.table import Table

from .metric_traces import everything
from .noise import normal_numbers
from .trace import Trace, Value, Values, plain, weighted

_REPLICATES = 6
#: Label -> algorithm, kind, size of its values on each task; the labels differ in what else they are. ``wide`` has svgd's.
_METHODS = {
    "ula": ("ula", "chains", 1.0),
    "svgd": ("svgd", "particles", 0.9),
    "wide": ("svgd", "particles", 0.9),
    "fit": ("mean-field", "generator", 1.6),
    "repelled": ("srld", "chains", 0.8),
    "ld": ("srld", "chains", 1.1),
    "lost": ("mala", "chains", 1.2),
    "broken": ("hmc", "chains", 1.0),
    "exact": ("exact", "anchor", 0.3),
    "initial": ("initial", "anchor", 1.9),
}
#: Task -> its primary metric.
_TASKS = {
    "banana": "sliced_w2", "correlated-2d": "sliced_w2", "bnn-diabetes-sklearn": "nll", "lapd-mixture-2": "kl_projected",
    "lapd-mixture-8": "kl_projected", "lapd-mixture-32": "kl_projected",
}  # fmt: skip


@dataclass(frozen=True)
class _Curves:
    """What results ask of their store."""

    curves: dict[str, pd.DataFrame]

    def curve_grid(self, key: str, _: CellRecord) -> CurveGrid:
        return CurveGrid.of_frame(self.curves.get(key, pd.DataFrame(columns=list(CURVE_COLUMNS))))


#: What chains are charged beside the others: at some checkpoint of theirs difference and ratio choose differently.
_DEARER = 1.5625


def _curve(key: int, metric: str, size: float, spread: float, checkpoints: int, charge: float) -> pd.DataFrame:
    """Values that fall towards their size, with what was spent; steps in a metric of their own."""
    noise = normal_numbers(key, checkpoints, _REPLICATES)
    rows = []
    for c in range(checkpoints):
        spent = (c, 4 * 3**c, charge * 3**c + key, 0.01 * 3**c)
        for r in range(_REPLICATES):
            value = size * (1 + math.exp(1.5 - 1.2 * c)) * math.exp(spread * noise[c, r])
            rows += [(r, *spent, metric, value), (r, *spent, SEQUENTIAL, 5.0 * 3**c + key % 7)]
    return pd.DataFrame(rows, columns=list(CURVE_COLUMNS))


def _cell(task: str, label: str, key: int, shift: float) -> tuple[CellRecord, pd.DataFrame]:
    algorithm, kind, size = _METHODS[label]
    metric, alone = _TASKS[task], kind in ("anchor", "chains")
    charge = 205.0 * (_DEARER if label in ("ula", "lost") else 1.0)
    size *= 1 + shift * normal_numbers(key, 1)[0]
    curve = _curve(key, metric, size, 0.1 + shift / 2, 2 if label == "fit" else 5, charge)
    last = curve[(curve["checkpoint"] == curve["checkpoint"].max()) & (curve["metric"] == metric)]
    values: dict[str, list[float | None]] = {metric: last["value"].tolist()}
    values |= {"mmd2": list(0.02 * np.exp(normal_numbers(key + 1, _REPLICATES)))}
    if kind == "chains":
        values |= {
            "rhat": list(1.01 + 0.02 * np.abs(normal_numbers(key + 2, _REPLICATES))),
            "ess_bulk": list((20.0 if label == "ld" else 40.0) * np.exp(0.3 * normal_numbers(key + 3, _REPLICATES))),
            "path_primary": list(0.5 * np.exp(normal_numbers(key + 4, _REPLICATES))),
            "path_equivalent_n": list(30 * np.exp(normal_numbers(key + 5, _REPLICATES))),
            "ess_per_evaluation": list(0.01 * np.exp(normal_numbers(key + 6, _REPLICATES))),
        }
    diverged = {2: 7, 4: 30} if label == "lost" else {}
    spec = CellSpec(
        task=task, task_version=load_task(task).version, algorithm=algorithm, algorithm_version=1, seed=3, chunk=_REPLICATES,
        settings={"step_size": 0.05, **({"alpha": 0.0 if label == "ld" else 2.0} if algorithm == "srld" else {})},
        budget=Budget(iterations=324), particles=1 if algorithm == "srld" else 40 if label == "wide" else 100, samples=100,
        burn_in=0.5 if kind == "chains" else 0.0, thinning=1, replicates=tuple(range(_REPLICATES)), device="cpu", dtype="float32",
    )  # fmt: skip
    record = CellRecord(
        spec=spec, label=label, kind=kind, status=Status.CRASHED if label == "broken" else Status.OK, iterations=324,
        reason="no memory" if label == "broken" else "", score_evaluations=0.0 if kind == "anchor" else 1e4 + key, seconds=0.3 + key / 1e4,
        values={} if label == "broken" else {m: [None if r in diverged else v for r, v in enumerate(x)] for m, x in values.items()},
        n_diverged=len(diverged), diverged=diverged, tuned=not alone, judged={"mmd2": values["mmd2"]}, start="task",
    )  # fmt: skip
    return record, curve


@cache
def _results(shift: float = 0.1, tasks: tuple[str, ...] = tuple(_TASKS), **changes: Any) -> StoredRun:
    """A run; ``shift`` moves the sizes and spreads of its values, ``changes`` are of all cells' specifications."""
    found, curves = [], {}
    for i, task in enumerate(tasks):
        for j, label in enumerate(_METHODS):
            if (label, i % 2) == ("wide", 1):  # not on every task
                continue
            record, curve = _cell(task, label, 1000 + 100 * i + 10 * (j - (label == "wide")), shift)
            record = record.model_copy(update={"spec": record.spec.model_copy(update=changes)})
            found.append(record)
            curves[record.key] = curve
    suite = {"name": "traced", "tuned": {"at_edge": ["banana/svgd"]}, "algorithms": [{"name": "svgd", "label": "wide"}]}
    cells = [RunCell(spec=c.spec, label=c.label) for c in found]
    run = RunRecord(id=f"run {shift}", suite=suite, cells=cells, provenance={"threads": shift}, started="2026-01-01")
    return StoredRun(cast("Store", _Curves(curves)), run, blown_up.counted(found, _TASKS.__getitem__))


def _frame(table: pd.DataFrame) -> Values:
    """A label for each column: texts as they are, numbers weighed, those that are not finite by a number of their own."""
    found: Values = {}
    for name, column in table.reset_index().items():
        if pd.api.types.is_numeric_dtype(column):
            finite = np.nan_to_num(column.to_numpy(dtype=float), nan=-7.7, posinf=77.7, neginf=-77.7)
            found[str(name)] = [weighted(finite)]
        else:
            found[str(name)] = ["|".join(map(str, column))]
    return found


def _table(table: Table | None) -> list[Value]:
    """The texts of a table, row by row, and the numbers that they are sorted by."""
    assert table is not None
    rows = ["|".join(f"{e.text} {e.note}".strip() for e in row.entries) for row in table.rows]
    keys = [[float(e.sort) for e in row.entries if e.sort] for row in table.rows]
    return [table.caption, *rows, *(weighted(np.nan_to_num(k, posinf=77.7, neginf=-77.7)) for k in keys)]


@cache
def _ranked() -> tuple[pd.DataFrame, winners.Scores]:
    """All rankings of the run, and the scores behind them."""
    board = leaderboard.table(_results())
    return board, leaderboard.scores(_results(), board)


def _board() -> Values:
    return _frame(_ranked()[0])


def _ranks() -> Values:
    board, scores = _ranked()
    found = _frame(averages.average_ranks(board)) | {"common": plain(averages.common_tasks(board))}
    found["scores"] = [weighted(np.nan_to_num(v, posinf=77.7)) for v in scores.values()]
    return found


def _winners() -> Values:
    findings = winners.View.of(_results(), _ranked()[0])
    found: Values = {
        w.where or "all tasks": plain([w.where, w.tasks, w.on, w.compared, w.sentence])
        for w in (*findings.tasks, *findings.groups, findings.whole)
    }
    tasks = [t for t, metric in _TASKS.items() if metric == "sliced_w2"]
    found |= {f"aggregates {k}": v for k, v in _frame(findings.means(tasks)).items()}
    return found


def _tables() -> Values:
    """Equal budgets, growth with the dimension, paths."""
    results = Facts.of(_results())
    of_banana = [c for c in results.cells if c.task == "banana"]
    found: Values = {
        f"equal {i}": _table(t)
        for i, t in enumerate(curve_tables.equal_budget_tables(results, "banana", "sliced_w2", "× floor"))
    }
    found["growth"] = _table(curve_tables.growth_table(results))
    reached = [curves.iterations_to(results.curve_grid(c), level) for c in results.cells[-9:] for level in (3.0, 1.5)]
    found["iterations"] = [weighted(np.nan_to_num(v, nan=-7.7, posinf=77.7)) for v in reached]
    found["exponent"] = plain(curves.exponent([2, 8, 32, 128], [10.0, 30.0, math.inf, 100.0]))
    found["paths"] = _table(task_tables.path_table(of_banana))
    return found


def _differences() -> Values:
    """Two runs of one seed, of two seeds, and of other numbers of particles."""
    first, found = _results(), dict[str, list[Value]]()
    for name, changes in (("paired", {}), ("unpaired", {"seed": 4}), ("particles", {"particles": 17})):
        second = _results(0.3, tuple(_TASKS)[:4], **changes)
        found |= {f"{name} {k}": v for k, v in _frame(run_differences.compare(first, second)).items()}
        found |= {f"{name} conditions {k}": v for k, v in _frame(run_differences.conditions(first, second)).items()}
    return found


def _marks() -> Values:
    """What is said of every cell beside its number."""
    results, found = _results(), dict[str, list[Value]]()
    for c in results.cells:
        metric = _TASKS[c.task]
        words = [
            convergence.convergence(results, c, metric),
            convergence.still_improving(results.curve_grid(c), metric),
        ]
        found[f"{c.task} {c.label}"] = plain([*words, convergence.transient(c), c.n_diverged, c.worst, str(c.status)])
    return found | _frame(results.summary.drop(columns="values"))


def report_traces() -> Iterator[Trace]:
    """All of them, by one reference for all tasks that are compared with their floor."""
    takes: dict[str, Callable[[], Values]] = {
        "board": _board, "ranks": _ranks, "winners": _winners, "tables": _tables, "differences": _differences,
        "marks": _marks,
    }  # fmt: skip
    for name, take in takes.items():
        yield Trace(f"report {name}", partial(_judged, take))


def _judged(take: Callable[[], Values]) -> Values:
    """With the floors of a fixed reference in place of those shipped."""

    def reference(task: str) -> Reference | None:
        return everything().reference() if _TASKS.get(task) == "sliced_w2" else None

    with mock.patch.object(floor_comparison, "load_floored", reference):
        return take()
