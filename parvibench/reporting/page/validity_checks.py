"""Validity checks of a leaderboard, from its cells: equal conditions, tuning, convergence, significance, cost."""

from collections import Counter
from collections.abc import Callable

import pandas as pd

from parvibench.core.result import CellRecord, Status
from parvibench.harness.store.results import StoredRun
from parvibench.reporting.tables import leaderboard as lb
from parvibench.reporting.tables.winners import RULE
from parvibench.reporting.text import marks, validity

from .provenance import StepSizes

CONVERGED, COST = "Convergence", "Cost"


def validity_checks(results: StoredRun, board: pd.DataFrame, steps: StepSizes | None) -> dict[str, str]:
    """Titles of the checks with their results; those without one are left out."""
    found = {
        "Equal conditions": equal_terms(results),
        "Tuning": validity.tuning(steps.summary, len(steps.at_edge)) if steps else validity.tuning("", 0),
        CONVERGED: _converged(board),
        "Best methods": RULE,
        COST: _cost(results),
    }
    return {question: answer for question, answer in found.items() if answer}


def equal_terms(results: StoredRun) -> str:
    """What the methods of a task had in common, and which of them had what else."""
    tasks = [mine for cells in results.by_task.values() if (mine := [c for c in cells if not lb.is_anchor(c)])]
    if not tasks:
        return ""
    shared: dict[str, Callable[[CellRecord], object]] = {
        "budget": lambda c: c.spec.budget,
        "number of samples judged": lambda c: c.samples,
        "seeds and data splits": lambda c: (c.spec.seed, c.spec.replicates),
        "number of particles or chains": lambda c: c.particles,
    }
    parts = [validity.same(what, _odd(tasks, of)) for what, of in shared.items()]
    cells = [c for mine in tasks for c in mine]
    started = [c for c in cells if c.start]
    own = list(dict.fromkeys(c.label for c in started if c.start == "own"))
    kinds = ("prior", "warm", "pathfinder", "laplace")
    others = {k: list(dict.fromkeys(c.label for c in started if c.start == k)) for k in kinds}
    if own or any(others.values()) or (started and len(started) == len([c for c in cells if c.status is Status.OK])):
        parts.append(validity.starts(own, others))
    return " ".join(parts)


def _odd(tasks: list[list[CellRecord]], of: Callable[[CellRecord], object]) -> list[str]:
    """Methods with another value than most on some task."""
    odd: list[str] = []
    for mine in tasks:
        values = [repr(of(c)) for c in mine]
        counts = Counter(sorted(values))  # of equally common ones the first in the alphabet
        usual = max(counts, key=counts.__getitem__)
        odd += [c.label for c, v in zip(mine, values, strict=True) if v != usual]
    return list(dict.fromkeys(odd))


def protocol(results: StoredRun) -> str:
    """Budget, points and replicates that the suite gives all methods; entries may have their own."""
    suite = results.run.suite
    budget = {key: value for key, value in (suite.get("budget") or {}).items() if value is not None}
    whole = budget.get("scores_per_particle", 0) * (suite.get("particles") or 0)
    spent = [[c.spec.budget.score_evaluations for c in cells] for cells in results.by_task.values()]
    usual = [Counter(values).most_common(1)[0][0] for values in spent] if set(budget) == {"scores_per_particle"} else []
    passes = [n for n in usual if n is not None and n < 0.999 * whole]
    return validity.protocol(budget, suite.get("particles"), suite.get("samples"), suite.get("replicates"), passes)


def _converged(board: pd.DataFrame) -> str:
    judged = lb.judged(board)
    counts = judged["convergence"].value_counts(sort=False)
    no_better = int(judged["marks"].str.contains(marks.NO_BETTER, regex=False).sum()) if len(judged) else 0
    return validity.converged(len(judged), {str(k): int(n) for k, n in counts.items()}, no_better)


def _cost(results: StoredRun) -> str:
    ran = [c for c in results.cells if c.status is Status.OK]
    evaluations = sum(c.score_evaluations * c.n_replicates for c in ran)
    hours = sum(c.seconds for c in ran) / 3600, sum(sum(c.overheads.values()) for c in ran) / 3600
    tuning = sum(lb.tuning_cost(c, results.run.suite) or 0.0 for c in results.cells)
    return validity.cost(evaluations, hours if results.timed else None, tuning)
