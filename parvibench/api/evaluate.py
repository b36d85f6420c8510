"""``pb.evaluate``: samples in whatever form against a reference."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from parvibench.core import registry
from parvibench.core.errors import InputError
from parvibench.core.metric import Cost
from parvibench.core.task import Task
from parvibench.data.draws.arrays import Choice
from parvibench.data.draws.forms import against, draws_of
from parvibench.data.draws.forms import in_coordinates as in_coordinates
from parvibench.data.samples import read_draws
from parvibench.harness.execution import DEFAULT_STORE
from parvibench.harness.store.files import output_place
from parvibench.metrics.evaluate import evaluate_samples
from parvibench.metrics.floors import Notify, silent


def evaluate(
    samples: Any,
    task: str | Task | None = None,
    metrics: Sequence[str] | None = None,
    *,
    reference: Any = None,
    columns: Sequence[str] = (),
    variables: Sequence[str] = (),
    axes: str = "",
    weights: str = "",
    cost: Cost | None = None,
    notify: Notify = silent,
) -> dict[str, Any]:
    """Judge samples against the reference of a task, or against trusted reference draws.

    Args:
        samples: array, tensor or data frame, (n, d) or (chains, draws, d); an ArviZ InferenceData or DataTree; or a
            dictionary of arrays, (n, ...) or (chains, draws, ...) each; a fit of NumPyro, Pyro or CmdStanPy, states of
            BlackJAX; the path of a file; or a list of these, a chain each. Values of a Pyro model's sites, by name, are
            mapped to the task's coordinates.
        task: name, place (``file.py:OBJECT``) or object; may be left out where ``reference`` is given.
        metrics: names to judge by; default the task's.
        reference: draws in one of the same forms, at least 400, in place of the task's reference.
        columns: names of the columns to take, in the order of the task's coordinates.
        variables: names of the variables to take.
        axes: names of the dimensions of arrays, as ``draw,chain,dim``, where there are two readings.
        weights: name of a column of weights, or of their logarithms: rows are retained with probability w / max w.
        cost: of the samples, if known.
        notify: called with the progress of noise floors that a user-built reference lacks.

    Returns:
        ``task``, ``n``, ``verdict``, ``chains``, ``read`` (how the samples were read) and ``metrics``: value, floor, ratio,
        p-value, equivalent sample size and verdict of each (see the README).

    Raises:
        ShapeError: anything but real numbers, wrong shape, fewer than two rows, or non-finite entries.
        InputError: neither a task nor a reference; unknown columns.
    """
    choice = Choice(columns, variables, axes)
    found = registry.load_task(task) if isinstance(task, str) else task
    draws = draws_of(samples, replace(choice, weights=weights))
    given = None if reference is None else draws_of(reference, choice)
    if found is None:
        if given is None:
            raise InputError(
                "no target to compare with: name a task (--task NAME), or give draws (--reference FILE, reference=)"
            )
        draws = against(draws, given)
    else:
        if not isinstance(task, str):
            registry.adopt(found)
        draws = in_coordinates(draws, found)
        given = None if given is None else in_coordinates(given, found, "the reference")
    if given is not None:
        from parvibench.reference.given import evaluate_against

        return evaluate_against(draws, given, metrics, cost, found)
    assert found is not None  # or there was nothing to compare with
    document = evaluate_samples(found, torch.tensor(draws.values), cost, metrics, None, draws.names, notify)
    return document | {"read": "; ".join(filter(None, [*draws.read, document["read"]]))}


class Evaluation(NamedTuple):
    """The outcome of ``evaluate_files``."""

    document: dict[str, Any]  #: as of ``evaluate``
    doubt: str  #: what the task's reference lacks of a certificate
    report: Path | None  #: page with the row; None where nothing was stored


def evaluate_files(
    samples: Sequence[Path], task: str | None = None, metrics: Sequence[str] | None = None, *,
    reference: Sequence[Path] = (), columns: Sequence[str] = (), variables: Sequence[str] = (),
    axes: str = "", weights: str = "", cost: Mapping[str, float] | None = None, label: str | None = None, out: str | Path = DEFAULT_STORE,
    command: str = "", notify: Notify = silent,
) -> Evaluation:  # fmt: skip
    """``evaluate`` for files, several of which are one chain each.

    With a ``cost`` (``score_evaluations``, optionally ``seconds``) the samples also become a row named ``label`` of the
    latest run of the task in the store ``out``.

    Raises:
        InputError: as of ``evaluate``; a file that cannot be read; a cost without a task.
    """
    found = None if task is None else registry.load_task(task)
    spent = None
    if cost:
        from parvibench.harness.external import costs_of, store_external

        if found is None:
            raise InputError("--cost stores a row of a task's leaderboard: name the task with --task")
        spent = costs_of(cost)
        output_place(Path(out) / "report", folder=True)
    choice = Choice(columns, variables, axes)
    draws = read_draws(samples, replace(choice, weights=weights))
    named = any(path.suffix.lower() not in (".npy", ".pt") for path in reference)
    trusted = read_draws(reference, choice if named else Choice(axes=axes)) if reference else None
    document = evaluate(draws, found, metrics, reference=trusted, cost=spent, notify=notify)
    page = None
    if spent is not None and found is not None:
        from parvibench.harness.store.store import Store

        from .report import load, report

        x = torch.tensor(in_coordinates(draws, found).values)
        store = Store(Path(out))
        run = store_external(store, found, x, f"{label or samples[0].stem} (external)", spent, command)
        page = report(load(out, run.id), store.root / "report")
    known = None if found is None else found.reference()
    doubt = ""
    if known is not None and known.grade != "certified":
        grade = "of the grade standard" if known.grade == "standard" else known.grade
        doubt = f"the reference is {grade}: it failed {'; '.join(known.failed_gates)}"
    return Evaluation(document, doubt, page)
