"""Checks recomputed from a shipped reference: ``parvibench reference verify``.

This code and ``shared_checks`` define every check; its description is made from the same numbers.
"""

from __future__ import annotations

import math
from importlib.resources.abc import Traversable

import torch
from torch import Tensor

from parvibench.core.errors import DataMissingError, InputError
from parvibench.core.reference import Reference, load_predictions, load_reference
from parvibench.core.task import Task
from parvibench.metrics.mmd import self_similarity
from parvibench.metrics.pairwise import median_distance

from .predictive_checks import verify_predictions
from .shared_checks import Check, density_check, floors_check, largest_z, stein_checks, version_check

#: Largest share of a single draw in the sum of squares of a z-value.
_FEW = 0.2


def verify(task: Task, folder: Traversable | None = None) -> list[Check]:
    """Recompute every check of a task's reference; only the first, failed, when the files do not match.

    Raises:
        InputError: the task has no reference.
    """
    try:
        predictions = load_predictions(task.name, folder)
        reference = load_reference(task.name, folder)
    except InputError as error:
        return [Check("files", False, str(error).splitlines()[0])]
    if predictions is not None:
        return verify_predictions(task, predictions)
    if reference is None:
        raise InputError(f"{task.name} has no reference: there is nothing to verify")
    checks = [
        Check("files", True, f"{len(reference.draws)} draws, SHA-256 as recorded"),
        version_check(task, reference),
        *_moments(reference),
        *_kernel(reference),
        floors_check(reference),
    ]
    try:
        target = task.target([0], "cpu", torch.float64)
    except DataMissingError as error:
        return [*checks, Check("density", None, f"data missing: {str(error).splitlines()[0]}")]
    scores = target.score(reference.draws[None])[0]
    return [*checks, density_check(scores, reference.scores), *stein_checks(reference.draws, scores)]


def _moments(reference: Reference) -> list[Check]:
    """Means and sds of the stored draws against the recorded ones, in standard errors of the draws."""
    centred = reference.draws - reference.mean
    return [largest_z("means", centred), _sds(centred.square() - reference.sd.square())]


def _sds(terms: Tensor) -> Check:
    """Squared deviations less the variance, (m, D)."""
    if not bool(terms.isfinite().all()):
        return Check("standard deviations", None, "infinite")
    squares = terms.square()
    share = float((squares.amax(0) / squares.sum(0)).max())
    if share > _FEW:  # no normal limit, hence no z
        return Check("standard deviations", None, f"one draw of {len(terms)} makes {share:.0%} of the sum")
    return largest_z("standard deviations", terms)


def _kernel(reference: Reference) -> list[Check]:
    h, own = reference.bandwidth, float(reference.certificate["self_similarity"])
    again_h, again = median_distance(reference.draws), self_similarity(reference.draws, h)
    return [
        Check("bandwidth", math.isclose(h, again_h, rel_tol=1e-6), f"{again_h:.6g}, recorded {h:.6g}"),
        Check("kernel mean", math.isclose(own, again, abs_tol=1e-6), f"{again:.6g}, recorded {own:.6g}"),
    ]
