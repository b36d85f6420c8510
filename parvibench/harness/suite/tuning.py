"""Step sizes chosen the same way for every algorithm: one log grid, one budget, disjoint replicates.

Tuning replicates have ids of their own, hence their own streams and data splits; on predictive tasks the
choice is by the score on rows that a tuning split held out, never by a benchmark split's test rows.
"""

from __future__ import annotations

import io
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq

from parvibench.core import registry
from parvibench.core.budget import Budget
from parvibench.core.errors import InputError
from parvibench.core.task import TUNING_REPLICATES
from parvibench.harness.store.results import Results, metric_values

from .cells import Cell, expand
from .suite import Suite, Tuned, TuneSpec


def tuning_cells(suite: Suite, device: str = "cpu", **given: Any) -> list[Cell]:
    """One cell per (task, algorithm with a step size, grid value); ``InputError`` without a ``tune`` section.

    ``given`` are settings and objects, as of ``expand``.
    """
    if suite.tune is None:
        raise InputError(
            f"suite {suite.name!r} has no 'tune' section; add for example: tune: {{step_size: [1.0e-4, 1.0]}}"
        )
    cells = []
    base = suite.model_copy(update={"tuned": None})
    for value in grid(suite.tune):
        for cell in expand(base, device=device, **given):
            if "step_size" in cell.settings and not cell.missing_needs():
                cells.append(_tuning_cell(cell, value, suite.tune))
    return cells


def grid(spec: TuneSpec) -> list[float]:
    """The log grid, rounded to three significant digits."""
    return [float(f"{v:.3g}") for v in np.geomspace(*spec.step_size, spec.points)]


def _tuning_cell(cell: Cell, value: float, spec: TuneSpec) -> Cell:
    varied = cell.varied(
        settings={**cell.settings, "step_size": value},
        budget=_share_of(cell.spec.budget, spec.share),
        replicates=tuple(range(TUNING_REPLICATES, TUNING_REPLICATES + spec.replicates)),
        chunk=min(cell.spec.chunk, spec.replicates),
    )
    return replace(varied, label=f"{cell.label} @ {value:g}", metrics=(cell.load()[0].primary,))


def _share_of(budget: Budget, share: float) -> Budget:
    return Budget(
        iterations=None if budget.iterations is None else max(1, int(budget.iterations * share)),
        score_evaluations=None if budget.score_evaluations is None else budget.score_evaluations * share,
        seconds=None if budget.seconds is None else budget.seconds * share,
    )


def choose(results: Results, suite: Suite) -> Tuned:
    """The grid value with the best median of each task's primary metric (diverged counts as worst)."""
    if suite.tune is None:
        raise InputError(f"suite {suite.name!r} has no 'tune' section")
    tried: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    spent: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for cell in results.cells:
        label, step = cell.label.rpartition(" @ ")[0], float(cell.settings["step_size"])
        metric = registry.load_task(cell.task).primary
        values = metric_values(metric, cell.values.get(metric, [None]))
        sign = -1.0 if registry.metrics()[metric].direction == "higher" else 1.0
        tried[cell.task, label].append((sign * float(np.median(values)), step))
        spent[cell.task][label] += cell.score_evaluations * cell.n_replicates
    steps: dict[str, dict[str, float]] = defaultdict(dict)
    at_edge = []
    ends = {grid(suite.tune)[0], grid(suite.tune)[-1]}
    for (task, label), pairs in tried.items():
        score, step = min(pairs)
        if not np.isfinite(score):
            step = min(s for _, s in pairs)
        steps[task][label] = step
        if step in ends:
            at_edge.append(f"{task}/{label}")
    return Tuned(
        step_size={t: dict(v) for t, v in steps.items()},
        at_edge=sorted(at_edge),
        score_evaluations={t: {k: round(v, 1) for k, v in d.items()} for t, d in spent.items()},
        grid=grid(suite.tune),
        replicates=suite.tune.replicates,
    )


def write_tuned(path: Path, tuned: Tuned, profile: str | None, *, keep: bool = False) -> None:
    """Store the choice in the suite file, keeping its comments; with ``keep`` also what it holds of other cells."""
    yaml = YAML(typ="rt", pure=True)
    yaml.width = 160
    tree: Any = yaml.load(path.read_text())
    place = tree if profile is None else tree["profiles"][profile]
    new = tuned.model_dump(mode="json")
    if keep and place.get("tuned"):
        new = _merged(place["tuned"], new)
    place["tuned"] = _laid_out(new)
    buffer = io.StringIO()
    yaml.dump(tree, buffer)
    aside = path.with_suffix(".new")
    aside.write_text(buffer.getvalue())
    aside.replace(path)


def _merged(old: Any, new: dict[str, Any]) -> dict[str, Any]:
    """Stored choices with new ones put over them; flags of cells that were tuned again are the new ones."""
    again = {f"{task}/{label}" for task, chosen in new["step_size"].items() for label in chosen}
    edges = [c for c in old.get("at_edge", ()) if c not in again]
    by_task = {
        key: {t: {**old.get(key, {}).get(t, {}), **new[key].get(t, {})} for t in {**old.get(key, {}), **new[key]}}
        for key in ("step_size", "score_evaluations")
    }
    return {**new, **by_task, "at_edge": sorted([*edges, *new["at_edge"]])}


def _laid_out(values: dict[str, Any]) -> CommentedMap:
    """One line a task: outer mappings in block style, the innermost and lists in flow style."""
    laid = CommentedMap()
    for key, value in values.items():
        if isinstance(value, dict):
            laid[key] = _laid_out(value)
            inner = any(isinstance(v, dict) for v in value.values())
            (laid[key].fa.set_block_style if inner else laid[key].fa.set_flow_style)()
        elif isinstance(value, list):
            laid[key] = CommentedSeq(value)
            laid[key].fa.set_flow_style()
        else:
            laid[key] = value
    return laid
