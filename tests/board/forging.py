"""Forgeries of a store, with valid seals, written to deceive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch

from parvibench.core import registry
from parvibench.core.result import CellRecord, Status
from parvibench.harness.store.store import RunCell, Store

#: Changes a record, its curve and its samples; the method of another cell comes as ``other``.
Forgery = Callable[[CellRecord, pd.DataFrame, np.ndarray, CellRecord], tuple[CellRecord, pd.DataFrame, np.ndarray]]


def forge(store: Store, label: str, forgery: Forgery, other: str = "svgd", task: str = "banana") -> None:
    """Write a cell again as a forgery has it, and the run with new digests."""
    run = store.run()
    keys = {(c.task, c.label): c.key for c in run.cells}
    key = keys[task, label]
    record = store.find(key)
    changed, curve, samples = forgery(record, store.curve(key), store.samples(key), store.find(keys[task, other]))
    store.write_cell(changed.model_copy(update={"files": {}, "sha256": ""}), curve, samples)
    seal(store)


def seal(store: Store) -> None:
    """Write the run again, with the digests of its cells as they are now."""
    run = store.run()
    run.cells = [RunCell(spec=c.spec, label=c.label) for c in run.cells]
    run.sha256 = ""
    store.write_run(run)


def move_elsewhere(store: Store) -> None:
    """Let all cells say that another machine made them."""
    for cell in store.run().cells:
        record = store.find(cell.key).model_copy(update={"hardware": "another machine", "files": {}, "sha256": ""})
        store.write_cell(record, store.curve(cell.key), store.samples(cell.key))
    seal(store)


def _updated(record: CellRecord, **update: Any) -> CellRecord:
    return record.model_copy(update=update)


def scaled(
    factor: float, *, metrics: tuple[str, ...] = (), curve: bool = True, first: int | None = None, final: bool = True
) -> Forgery:
    """Metrics times a factor: all or some, of all or the ``first`` replicates, also or only in the curve."""

    def forgery(record, rows, samples, other):
        names = metrics or tuple(m for m in record.values if m not in ("seconds", "score_evaluations", "peak_memory"))
        ids = record.spec.replicates[:first]
        values = {
            m: [
                v * factor if v is not None and m in names and r in ids else v
                for r, v in zip(record.spec.replicates, old, strict=True)
            ]
            for m, old in record.values.items()
        }
        rows = rows.copy()
        at = rows["metric"].isin(names) & rows["replicate"].isin(ids)
        if not final:
            at &= rows["checkpoint"] < rows["checkpoint"].max()
        if curve:
            rows.loc[at, "value"] *= factor
        return (_updated(record, values=values) if final else record), rows, samples

    return forgery


def cost(factor: float, column: str, *, curve: bool) -> Forgery:
    """Score evaluations or iterations times a factor."""
    field = {"iteration": "iterations", "score_evaluations": "score_evaluations"}[column]

    def forgery(record, rows, samples, other):
        rows, kind = rows.copy(), type(getattr(record, field))
        if curve:
            rows[column] = (rows[column] * factor).astype(rows[column].dtype)
            rows.loc[rows["metric"] == column, "value"] *= factor
        values = {m: [v * factor for v in old] if m == column else old for m, old in record.values.items()}
        return _updated(record, values=values, **{field: kind(getattr(record, field) * factor)}), rows, samples

    return forgery


def replaced(metric: str, value: float) -> Forgery:
    """A metric that has one value in all replicates."""

    def forgery(record, rows, samples, other):
        rows = rows.copy()
        rows.loc[rows["metric"] == metric, "value"] = value
        return _updated(record, values=record.values | {metric: [value] * record.n_replicates}), rows, samples

    return forgery


def remeasured(samples_of: Callable[[CellRecord, np.ndarray], np.ndarray]) -> Forgery:
    """Other samples, with all metrics of samples and the end of the curve made to fit."""

    def forgery(record, rows, samples, other):
        from parvibench.harness.run.judging import context_maker
        from parvibench.metrics.compute import compute_guarded

        new = samples_of(record, samples).astype(np.float32)
        task = registry.load_task(record.task)
        needs = ("reference", "target", "moments", "modes")
        names = [m for m in record.values if (row := registry.metrics().get(m)) and row.need in needs]
        values, _ = compute_guarded(
            names, torch.from_numpy(new.astype(np.float64)), context_maker(task, record.spec.replicates, names)()
        )
        made = {m: [float(x) for x in v] for m, v in values.items()}
        rows = rows.copy()
        last = rows["checkpoint"] == rows["checkpoint"].max()
        for metric, found in made.items():
            for r, value in zip(record.spec.replicates, found, strict=True):
                rows.loc[last & (rows["metric"] == metric) & (rows["replicate"] == r), "value"] = value
        return _updated(record, values=record.values | made), rows, new

    return forgery


def exact_draws(record: CellRecord, samples: np.ndarray) -> np.ndarray:
    """Independent draws of the target."""
    r, n, _ = samples.shape
    draws = registry.load_task(record.task).exact(r * n, torch.Generator().manual_seed(0))
    return draws.reshape(samples.shape).numpy()


def diverged(record, rows, samples, other):
    """A rival that is said to have diverged."""
    ids = record.spec.replicates
    values = {m: [None] * len(ids) for m in record.values}
    listed = dict.fromkeys(ids, 3)
    rows = rows.assign(value=np.nan)
    return _updated(record, status=Status.DIVERGED, values=values, diverged=listed, n_diverged=len(ids)), rows, samples


def swapped(record, rows, samples, other):
    """Another method's values under this one's name."""
    shared = {m: other.values.get(m, v) for m, v in record.values.items()}
    rows = rows.copy()
    last = rows["checkpoint"] == rows["checkpoint"].max()
    for metric, values in shared.items():
        for r, value in zip(record.spec.replicates, values, strict=True):
            rows.loc[last & (rows["metric"] == metric) & (rows["replicate"] == r), "value"] = value
    return _updated(record, values=shared), rows, samples


#: Kind -> forgery of the cell of ``ula`` on the banana.
FORGERIES: dict[str, Forgery] = {
    "one metric halved, record only": scaled(0.5, metrics=("sliced_w2",), curve=False),
    "one metric halved, curve too": scaled(0.5, metrics=("sliced_w2",)),
    "all metrics times 0.5": scaled(0.5),
    "all metrics times 0.7": scaled(0.7),
    "all metrics of one replicate times 0.5": scaled(0.5, first=1),
    "all metrics of half of the replicates times 0.5": scaled(0.5, first=5),
    "curve halved before its end": scaled(0.5, final=False),
    "exact draws, metrics to match": remeasured(exact_draws),
    "half exact draws, metrics to match": remeasured(
        lambda record, x: np.concatenate([x[:, ::2], exact_draws(record, x)[:, 1::2]], 1)
    ),
    "samples of one replicate for all": remeasured(lambda record, x: np.repeat(x[:1], len(x), 0)),
    "cost divided by ten, record only": cost(0.1, "score_evaluations", curve=False),
    "cost divided by ten, curve too": cost(0.1, "score_evaluations", curve=True),
    "iterations halved, record only": cost(0.5, "iteration", curve=False),
    "iterations halved, curve too": cost(0.5, "iteration", curve=True),
    "R-hat of 1.001": replaced("rhat", 1.001),
    "ESS times three": scaled(3.0, metrics=("ess_bulk",)),
    "acceptance of 0.8": replaced("acceptance", 0.8),
    "a rival set to diverged": diverged,
    "another method's values": swapped,
    "one value for all replicates": replaced("sliced_w2", 0.05),
}
