"""Validity and provenance of the numbers: equal conditions, step sizes, convergence, cost, versions and commands."""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from parvibench.core import registry
from parvibench.core.result import CellRecord, Status
from parvibench.reporting.facts import board as lb
from parvibench.reporting.facts.flat_rows import step_origin
from parvibench.reporting.facts.run import Facts
from parvibench.reporting.formatting import count
from parvibench.reporting.text import described, marks, validity

_MAX_TEXT = 4000


def step_sizes(facts: Facts) -> tuple[str, str]:
    """Where the step sizes come from and what tuning cost; and that some were not tuned, empty where all were."""
    edge = (facts.suite.get("tuned") or {}).get("at_edge", ())
    origins = [(c, origin) for c in facts.cells if (origin := step_origin(c, facts.suite))]
    tuned = [c for c, _ in origins if c.tuned]
    at_edge = sum(f"{c.task}/{c.label}" in edge for c in tuned)
    tags = [row.tags if (row := registry.tasks().get(c.task)) else () for c in tuned]
    costs = sum(lb.tuning_cost(c, facts.suite) or 0.0 for c in tuned)
    counts = Counter(origin for _, origin in origins)
    return validity.tuning(counts, tags, costs, at_edge), validity.untuned(len(origins) - counts["tuned"], len(origins))


def validity_checks(facts: Facts) -> dict[str, str]:
    """Titles of the checks with their results; those without one are left out."""
    board = facts.board
    judged = board[~board["anchor"].astype(bool) & (board["status"] == Status.OK) & (board["convergence"] != "")]
    states = {str(k): int(n) for k, n in judged["convergence"].value_counts(sort=False).items()}
    no_better = sum(marks.NO_BETTER in words for words in judged["marks"])
    ran = [c for c in facts.cells if c.status is Status.OK]
    hours = sum(c.seconds for c in ran) / 3600, sum(sum(c.overheads.values()) for c in ran) / 3600
    tuning = sum(lb.tuning_cost(c, facts.suite) or 0.0 for c in facts.cells)
    spent = sum(c.score_evaluations * c.n_replicates for c in ran)
    found = {
        "Equal conditions": equal_terms(facts),
        "Tuning": step_sizes(facts)[0],
        "Convergence": validity.converged(len(judged), states, no_better),
        "Cost": validity.cost(spent, hours if facts.timed else None, tuning),
    }
    return {question: answer for question, answer in found.items() if answer}


def equal_terms(facts: Facts) -> str:
    """What the methods of a task had in common, and which of them had what else."""
    tasks = [mine for cells in facts.by_task.values() if (mine := [c for c in cells if not lb.is_anchor(c)])]
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
    starts = {k: list(dict.fromkeys(c.label for c in cells if c.start == k)) for k in validity.STARTS}
    started = sum(bool(c.start) for c in cells)
    if any(starts.values()) or (started and started == sum(c.status is Status.OK for c in cells)):
        parts.append(validity.starts(starts))
    return " ".join(parts)


def _odd(tasks: list[list[CellRecord]], of: Callable[[CellRecord], object]) -> list[str]:
    """Methods with another value than most on some task."""
    odd: list[str] = []
    for mine in tasks:
        values = [repr(of(c)) for c in mine]
        usual, _ = Counter(sorted(values)).most_common(1)[0]  # of equally common ones the first in the alphabet
        odd += [c.label for c, v in zip(mine, values, strict=True) if v != usual]
    return list(dict.fromkeys(odd))


def protocol(facts: Facts) -> str:
    """Budget, points and replicates that the suite gives all methods; entries may have their own."""
    suite = facts.suite
    budget = {key: value for key, value in (suite.get("budget") or {}).items() if value is not None}
    limit = budget.get("scores_per_particle", 0) * (suite.get("particles") or 0)
    spent = [[c.spec.budget.score_evaluations for c in cells] for cells in facts.by_task.values()]
    usual = [Counter(values).most_common(1)[0][0] for values in spent] if set(budget) == {"scores_per_particle"} else []
    passes = [n for n in usual if n is not None and n < 0.999 * limit]
    names = {"particles": "particles or chains", "samples": "samples judged", "replicates": "replicates"}
    others = bool(facts.board["marks"].str.contains(marks.MORE, regex=False).any())
    return validity.protocol(budget, {what: suite.get(key) for key, what in names.items()}, passes, others=others)


def profile_in_words(facts: Facts) -> str:
    """The suite's profile; one that options of the command changed is not called by its name alone."""
    run = facts.run
    changed = run.provenance.get("changed") if run.profile else None
    return ", ".join([run.profile or "", *(_changed(what, run.suite.get(what)) for what in changed or ())])


def _changed(what: str, value: Any) -> str:
    """What an option changed, with its number where it is one: ``10 replicates``, ``other budget``."""
    return count(value, what.removesuffix("s")) if isinstance(value, int) and what.endswith("s") else f"other {what}"


def provenance(facts: Facts) -> list[tuple[str, str]]:
    """Pairs of names and short texts; empty ones are left out."""
    run = facts.run
    asked = json.loads(json.dumps({k: v for k, v in run.suite.items() if k != "tuned"}, default=str))
    values: dict[str, Any] = {
        "run": run.id,
        "started": run.started,
        "finished": run.finished or facts.unfinished,
        "profile": run.profile,
        **run.provenance,
        "command": without_folders(str(run.provenance.get("command", ""))),
        "suite": described.value(_given(asked)),
    }
    return [(name, text[:_MAX_TEXT]) for name, value in values.items() if (text := _in_words(value))]


def _given(value: Any) -> Any:
    """A document without its empty entries."""
    if isinstance(value, dict):
        return {k: _given(v) for k, v in value.items() if v not in ("", None, False, [], {})}
    return [_given(v) for v in value] if isinstance(value, list) else value


def without_folders(command: str) -> str:
    """A command line without the folders of its absolute paths: pages are copied elsewhere and must not leak local paths.

    >>> without_folders("parvibench run --suite=/home/me/own.yaml --out /tmp/a/store --task banana")
    'parvibench run --suite=own.yaml --out store --task banana'
    """
    return re.sub(r"(?<![^\s='\"])[~/]\S*/(?=[^\s/])", "", command)


def _in_words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {v}" for k, v in value.items() if v not in (None, ""))
    return "" if value is None else str(value)
