"""Checks recomputed from certified predictions."""

from __future__ import annotations

import torch

from parvibench.core.errors import DataMissingError
from parvibench.core.reference import Predictions
from parvibench.core.task import Task

from .shared_checks import Check, density_check, floors_check, largest_z, stein_checks, version_check


def verify_predictions(task: Task, reference: Predictions) -> list[Check]:
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
