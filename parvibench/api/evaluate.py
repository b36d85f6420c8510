"""``pb.evaluate``: samples in whatever form against a reference."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from parvibench.core import registry
from parvibench.core.errors import InputError, ShapeError
from parvibench.core.metric import Cost
from parvibench.core.task import Task
from parvibench.data.arrays import REAL, Choice, choose, join
from parvibench.data.samples import Draws, read_draws
from parvibench.harness.execution import DEFAULT_STORE
from parvibench.harness.external import costs_of, store_external
from parvibench.harness.store.store import Store
from parvibench.metrics.evaluate import chain_diagnostics, evaluate_samples

from .report import load, report

_INDEXED = re.compile(r"(.+?)\[(\d+(?:,\d+)*)\]")


def evaluate(
    samples: Any,
    task: str | Task | None = None,
    metrics: Sequence[str] | None = None,
    *,
    reference: Any = None,
    columns: Sequence[str] = (),
    variables: Sequence[str] = (),
    cost: Cost | None = None,
) -> dict[str, Any]:
    """Judge samples against the reference of a task, or against trusted reference draws.

    Args:
        samples: array, tensor or data frame, (n, d) or (chains, draws, d); an ArviZ InferenceData or DataTree; or a
            dictionary of arrays, (n, ...) or (chains, draws, ...) each. Values of a Pyro model's sites, by name, are
            mapped to the task's coordinates.
        task: name, place (``file.py:OBJECT``) or object; may be left out where ``reference`` is given.
        metrics: names to judge by; default the task's.
        reference: draws in one of the same forms, at least 1,000, in place of the task's reference.
        columns: names of the columns to take, in the order of the task's coordinates.
        variables: names of the variables to take.
        cost: of the samples, if known.

    Returns:
        ``task``, ``n``, ``verdict``, ``chains`` and ``metrics``: value, floor, ratio, p-value, equivalent sample size and
        verdict of each (see the README).

    Raises:
        ShapeError: anything but real numbers, wrong shape, fewer than two rows, or non-finite entries.
        InputError: neither a task nor a reference; unknown columns.
    """
    choice = Choice(columns, variables)
    found = registry.load_task(task) if isinstance(task, str) else task
    draws = draws_of(samples, choice)
    if found is None and reference is None:
        raise InputError(
            "no target to compare with: name a task (--task NAME), or give draws (--reference FILE, reference=)"
        )
    given = None if reference is None else draws_of(reference, choice)
    if found is None:
        from parvibench.reference.own import task_of_draws

        found = task_of_draws(draws.values.shape[-1])
    if not isinstance(task, str):
        registry.adopt(found)
    draws = in_coordinates(draws, found)
    against = None
    if given is not None:
        from parvibench.reference.own import reference_of_draws

        x = torch.tensor(draws.values)
        known = chain_diagnostics(x) if x.dim() == 3 else None
        n = x.numel() // x.shape[-1]
        n = n if known is None else min(n, int(known["worth"]))
        against = reference_of_draws(found, torch.tensor(in_coordinates(given, found).values), n)
    return evaluate_samples(found, torch.tensor(draws.values), cost, metrics, against, draws.names)


def draws_of(samples: Any, choice: Choice = Choice()) -> Draws:  # noqa: B008 - frozen
    """Samples of any of the forms of ``evaluate``, with names where they have any."""
    posterior = getattr(samples, "posterior", None)
    if isinstance(samples, Draws):
        return samples
    try:
        if posterior is not None:
            values, names = join({str(k): _real(v.values) for k, v in posterior.data_vars.items()}, in_chains=True)
        elif isinstance(samples, Mapping):
            values, names = join({str(k): _real(v) for k, v in samples.items()})
        else:
            values, names = _real(samples), [str(c) for c in getattr(samples, "columns", ())]
        if choice.any:
            kept = choose(names or [str(i + 1) for i in range(values.shape[-1])], choice)
            values, names = values[..., kept], [names[i] for i in kept] if names else []
    except ValueError as error:
        raise ShapeError(str(error)) from None
    return Draws(values, tuple(names))


def _real(values: Any) -> NDArray[np.float64]:
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().numpy()
    array = np.asarray(values)
    if array.dtype.kind not in REAL:
        raise ShapeError(f"samples hold {array.dtype}, not real numbers")
    return array.astype(np.float64)


def in_coordinates(draws: Draws, task: Task) -> Draws:
    """Draws named after the sites of a Pyro model as points of its task; others as they are."""
    sites = getattr(task, "sites", ())
    bases = {name.partition("[")[0] for name in draws.names}
    if not sites or not {site.name for site in sites} <= bases:
        return draws
    lead, flat = draws.values.shape[:-1], draws.values.reshape(-1, draws.values.shape[-1])
    values = {site.name: _value_of(site.name, site.shape, draws.names, flat) for site in sites}
    points = task.unconstrain(values).numpy()  # type: ignore[attr-defined]
    return Draws(points.reshape(*lead, -1), tuple(task.coordinates))  # type: ignore[attr-defined]


def _value_of(name: str, shape: tuple[int, ...], names: Sequence[str], flat: NDArray[Any]) -> NDArray[Any]:
    """Values (n, *shape) of a variable from its columns, wherever its indices count from."""
    columns = {_index(n): i for i, n in enumerate(names) if n.partition("[")[0] == name}
    lowest = [min(index[axis] for index in columns) for axis in range(len(shape))] if all(columns) else []
    value: Any = np.full((len(flat), *shape), np.nan)
    for index, column in columns.items():
        place = tuple(i - low for i, low in zip(index, lowest, strict=False))
        if len(place) != len(shape) or any(i >= length for i, length in zip(place, shape, strict=True)):
            raise ShapeError(f"{names[column]}: {name} of the model has the shape {shape}")
        value[(slice(None), *place)] = flat[:, column]
    if np.isnan(value).any() and not np.isnan(flat).any():
        raise ShapeError(f"{len(columns)} columns of {name}; its shape in the model is {shape}")
    return value


def _index(name: str) -> tuple[int, ...]:
    found = _INDEXED.fullmatch(name)
    return tuple(map(int, found[2].split(","))) if found else ()


class Evaluation(NamedTuple):
    """The outcome of ``evaluate_files``."""

    document: dict[str, Any]  #: as of ``evaluate``
    certified: bool  #: whether the task's reference is certified, or there is none
    cost: Cost | None
    label: str  #: name of the row
    report: Path | None  #: page with the row; None where nothing was stored


def evaluate_files(
    samples: Sequence[Path], task: str | None = None, metrics: Sequence[str] | None = None, *,
    reference: Sequence[Path] = (), columns: Sequence[str] = (), variables: Sequence[str] = (),
    cost: Mapping[str, float] | None = None, label: str | None = None, out: str | Path = DEFAULT_STORE,
    command: str = "",
) -> Evaluation:  # fmt: skip
    """``evaluate`` for files, several of which are one chain each.

    With a ``cost`` (``score_evaluations``, optionally ``seconds``) the samples also become a row named ``label`` of the
    latest run of the task in the store ``out``.

    Raises:
        InputError: as of ``evaluate``; a file that cannot be read; a cost without a task.
    """
    found = None if task is None else registry.load_task(task)
    spent = costs_of(cost) if cost else None
    if spent is not None and found is None:
        raise InputError("--cost stores a row of a task's leaderboard: name the task with --task")
    choice = Choice(columns, variables)
    draws = read_draws(samples, choice)
    named = any(path.suffix.lower() not in (".npy", ".pt") for path in reference)
    trusted = read_draws(reference, choice if named else Choice()) if reference else None
    document = evaluate(draws, found, metrics, reference=trusted, cost=spent)
    label = label or samples[0].stem
    page = None
    if spent is not None and found is not None:
        x = torch.tensor(in_coordinates(draws, found).values)
        store = Store(Path(out))
        run = store_external(store, found, x.reshape(-1, x.shape[-1]), f"{label} (external)", spent, command)
        page = report(load(out, run.id), store.root / "report")
    known = None if found is None else found.reference()
    return Evaluation(document, known is None or known.certified, spent, label, page)
