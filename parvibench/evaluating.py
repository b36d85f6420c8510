"""``pb.evaluate``: samples in whatever form against a reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from parvibench.core import registry
from parvibench.core.errors import InputError
from parvibench.core.metric import Cost
from parvibench.core.task import Task
from parvibench.data.arrays import Choice
from parvibench.data.forms import against, draws_of
from parvibench.data.forms import in_coordinates as in_coordinates
from parvibench.metrics.evaluate import evaluate_samples


def evaluate(
    samples: Any,
    task: str | Task | None = None,
    metrics: Sequence[str] | None = None,
    *,
    reference: Any = None,
    columns: Sequence[str] = (),
    variables: Sequence[str] = (),
    axes: str = "",
    cost: Cost | None = None,
) -> dict[str, Any]:
    """Judge samples against the reference of a task, or against draws that one trusts.

    Args:
        samples: array, tensor or data frame, (n, d) or (chains, draws, d); an ArviZ InferenceData or DataTree; or a
            dictionary of arrays, (n, ...) or (chains, draws, ...) each. Values of a Pyro model's sites, by name, are
            mapped to the task's coordinates.
        task: name, place (``file.py:OBJECT``) or object; may be left out where ``reference`` is given.
        metrics: names to judge by; default the task's.
        reference: draws in one of the same forms, at least 400, in place of the task's reference.
        columns: names of the columns to take, in the order of the task's coordinates.
        variables: names of the variables to take.
        axes: names of the dimensions of arrays, as ``draw,chain,dim``, where they have none and two readings.
        cost: of the samples, if known.

    Returns:
        ``task``, ``n``, ``verdict``, ``chains``, ``read`` (how the samples were read) and ``metrics``: value, floor, ratio,
        p-value, equivalent sample size and verdict of each (see the README).

    Raises:
        ShapeError: anything but real numbers, wrong shape, fewer than two rows, or non-finite entries.
        InputError: neither a task nor a reference; unknown columns.
    """
    choice = Choice(columns, variables, axes)
    found = registry.load_task(task) if isinstance(task, str) else task
    draws = draws_of(samples, choice)
    given = None if reference is None else draws_of(reference, choice)
    if found is None:
        if given is None:
            raise InputError(
                "say what the samples should follow: a task (--task NAME), or draws (--reference FILE, reference=)"
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
    document = evaluate_samples(found, torch.tensor(draws.values), cost, metrics, None, draws.names)
    return document | {"read": "; ".join(draws.read)}
