"""Checks recomputed from a shipped reference: ``parvibench reference verify``.

This code and ``shared_checks`` define every check; its description is made from the same numbers.
"""

import math
from importlib.resources.abc import Traversable

import torch
from torch import Tensor

from parvibench.core.errors import DataMissingError, InputError
from parvibench.core.reference import Predictions, Reference, load_predictions, load_reference
from parvibench.core.task import Task
from parvibench.metrics.mmd import self_similarity
from parvibench.metrics.pairwise import median_distance

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
        return _of_predictions(task, predictions)
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
    rows = reference.in_units(reference.draws)
    again_h, again = median_distance(rows), self_similarity(rows, h)
    return [
        Check("bandwidth", math.isclose(h, again_h, rel_tol=1e-6), f"{again_h:.6g}, recorded {h:.6g}"),
        Check("kernel mean", math.isclose(own, again, abs_tol=1e-6), f"{again:.6g}, recorded {own:.6g}"),
    ]


def _of_predictions(task: Task, reference: Predictions) -> list[Check]:
    """Recompute every check of a task's certified predictions.

    Predictions of the stored draws are compared with the certified ones: means point by point, variances averaged over
    the points. The Stein identities hold on every split, so they are checked on all splits together.
    """
    splits, m, dim = reference.states.shape
    checks = [
        Check("files", True, f"{splits} splits of {m} draws, SHA-256 as recorded"),
        version_check(task, reference),
        floors_check(reference),
    ]
    try:
        target = task.target(range(splits), "cpu", torch.float64)
        predictive = task.predictive(range(splits), "cpu", torch.float64)
    except DataMissingError as error:
        return [*checks, Check("predictions", None, f"data missing: {str(error).splitlines()[0]}")]
    assert predictive is not None
    f = predictive.predict(reference.states)[0]
    z = ((f - reference.mean[:, None]) / reference.sd[:, None]).movedim(0, 1)  # (m, K, T)
    scores = target.score(reference.states)
    shown = reference.scores.shape[1]
    return [
        *checks,
        largest_z("predictive means", z.flatten(1)),
        # Averaged over the points: squares at single ones are too skewed for a z of so few draws.
        largest_z("predictive variances", z.square().mean(-1) - 1),
        density_check(scores[:, :shown].reshape(-1, dim), reference.scores.reshape(-1, dim)),
        *stein_checks(reference.states.reshape(-1, dim), scores.reshape(-1, dim)),
    ]
