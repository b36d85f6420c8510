"""What a sceptic asks of a leaderboard, answered from its cells: what was equal, tuned, finished, significant, and the cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pandas as pd

from parvibench.core.result import CellRecord, Status
from parvibench.harness.marks.convergence import UNFINISHED
from parvibench.harness.store.results import StoredRun

from . import leaderboard as lb
from . import provenance
from .formatting import name
from .winners import join

CONVERGED, LEADS, COST = "What has converged?", "Who leads, and is that significant?", "What did it cost?"
#: Most methods that a sentence names.
_NAMED = 6


def equal_terms(results: StoredRun) -> str:
    """What the methods of a task had in common, and which of them had what else; every sentence follows from the cells."""
    cells = [c for c in results.cells if not lb.is_anchor(c)]
    if not cells:
        return ""
    parts = [
        _shared("budget", cells, lambda c: c.spec.budget),
        _shared("number of samples judged", cells, lambda c: c.samples),
        _shared("seeds and data splits", cells, lambda c: (c.spec.seed, c.spec.replicates)),
        _shared("number of particles or chains", cells, lambda c: c.particles),
    ]
    started = [c for c in cells if c.start]
    own = list(dict.fromkeys(c.label for c in started if c.start == "own"))
    if own:
        parts.append(
            f"The task's initial points were those of all methods but {_names(own)}, which start at points of their own."
        )
    elif started and len(started) == len([c for c in cells if c.status is Status.OK]):
        parts.append("All methods started at the task's initial points (those of another number of chains are others).")
    return " ".join(parts)


def protocol(results: StoredRun) -> str:
    """Budget, points and replicates that the suite gives all methods, in words; entries may have their own."""
    suite = results.run.suite
    budget = {key: value for key, value in (suite.get("budget") or {}).items() if value is not None}
    parts = [f"{value:,g} {_BUDGETS.get(key, key)}" for key, value in budget.items()]
    for key, what in (("particles", "particles or chains"), ("samples", "samples judged")):
        parts += [f"{suite[key]:,} {what}"] if suite.get(key) else []
    parts += [f"{suite['replicates']:,} replicates"] if suite.get("replicates") else []
    return f"Each method has {join(parts)}." if budget else ""


_BUDGETS = {
    "iterations": "iterations",
    "score_evaluations": "score evaluations of a replicate",
    "scores_per_particle": "score evaluations a particle",
    "seconds": "seconds",
}


def _shared(what: str, cells: list[CellRecord], of: Callable[[CellRecord], object]) -> str:
    """Whether the methods of every task share a value."""
    odd: list[str] = []
    for task in dict.fromkeys(c.task for c in cells):
        mine = [c for c in cells if c.task == task]
        values = pd.Series([repr(of(c)) for c in mine])
        usual = values.mode().iloc[0]
        odd += [c.label for c, v in zip(mine, values, strict=True) if v != usual]
    if not odd:
        return f"All methods of a task had the same {what}."
    return f"The methods of a task had the same {what}, except {_names(dict.fromkeys(odd))}."


def _names(labels: Iterable[str]) -> str:
    found = [name(label) for label in labels]
    hidden = len(found) - _NAMED
    return join([*found[:_NAMED], f"{hidden} more"] if hidden > 0 else found)


def answers(results: StoredRun, board: pd.DataFrame, headline: str) -> list[tuple[str, str]]:
    """Five questions with their answers; those without one are left out."""
    steps = provenance.step_sizes(results)
    tuned = f"Step sizes: {steps.summary}." if steps else "No method has a step size."
    if steps and steps.at_edge:
        tuned += f" {len(steps.at_edge)} best values lie at the edge of what was tried (marked |)."
    pairs = [
        ("What was equal?", equal_terms(results)),
        ("What was tuned, and how?", tuned),
        (CONVERGED, _converged(board)),
        (LEADS, headline),
        (COST, _cost(results)),
    ]
    return [(question, answer) for question, answer in pairs if answer]


def _converged(board: pd.DataFrame) -> str:
    judged = board[~board["anchor"].astype(bool) & (board["status"] == Status.OK) & (board["convergence"] != "")]
    counts = judged["convergence"].value_counts(sort=False)
    if not len(judged):
        return ""
    said = ", ".join(f"{n} {word}" for word, n in counts.items())
    bad = int(judged["marks"].str.contains(lb.NO_BETTER, regex=False).sum())
    worse = f" {bad} {'is' if bad == 1 else 'are'} no better than the initial distribution." if bad else ""
    rule = (
        f" None of those {' or '.join(UNFINISHED)} is called the best of a task."
        if counts.index.isin(UNFINISHED).any()
        else ""
    )
    return f"Of {len(judged)} results: {said}.{worse}{rule}"


def _cost(results: StoredRun) -> str:
    ran = [c for c in results.cells if c.status is Status.OK]
    evaluations = sum(c.score_evaluations * c.n_replicates for c in ran)
    tuning = sum(
        v for d in (results.run.suite.get("tuned") or {}).get("score_evaluations", {}).values() for v in d.values()
    )
    parts = [f"{evaluations:,.0f} score evaluations"]
    if results.timed:
        steady = sum(c.seconds for c in ran) / 3600
        other = sum(sum(c.overheads.values()) for c in ran) / 3600
        parts.append(f"{steady:.2g} hours of steady compute on one process, {other:.2g} of metrics and warming up")
    if tuning:
        parts.append(f"and {tuning:,.0f} score evaluations of tuning before")
    return "; ".join(parts) + "."
