"""What can be recomputed from a shipped reference, and the verdicts: ``parvibench reference verify``.

The code below is the definition of every check; its words are made from the same numbers. z-values are compared
with Bonferroni's limit at 1%, over the coordinates of one check.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib.resources.abc import Traversable

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from parvibench.core.errors import DataMissingError, InputError
from parvibench.core.reference import FINGERPRINT, Reference, load_reference
from parvibench.core.task import Task
from parvibench.metrics.mmd import self_similarity
from parvibench.metrics.pairwise import median_distance

ALPHA = 0.01
#: Scores of one density agree to this, relative to their size, on any machine.
SCORE_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        name: what was looked at.
        passed: the verdict; None where it could not be made.
        found: the numbers, in words.
    """

    name: str
    passed: bool | None
    found: str


def verify(task: Task, folder: Traversable | None = None) -> list[Check]:
    """Recompute all that can be of a task's reference.

    Args:
        task: one with a shipped reference.
        folder: where the files lie; default the package's.

    Returns:
        The checks; only the first, failed, when the files do not match.

    Raises:
        InputError: the task has no reference.
    """
    try:
        reference = load_reference(task.name, folder)
    except InputError as error:
        return [Check("files", False, str(error).splitlines()[0])]
    if reference is None:
        raise InputError(f"{task.name} has no reference: there is nothing to verify")
    checks = [
        _files(reference),
        _version(task, reference),
        *_moments(reference),
        *_kernel(reference),
        _floors(reference),
    ]
    try:
        target = task.target([0], "cpu", torch.float64)
    except DataMissingError as error:
        return [*checks, Check("density", None, f"data missing: {str(error).splitlines()[0]}")]
    scores = target.score(reference.draws[None])[0]
    return [*checks, _density(reference, scores), *_stein(reference, scores)]


def z_limit(count: int) -> float:
    """Largest |z| of ``count`` that chance explains at 99%."""
    return float(stats.norm.isf(ALPHA / (2 * count)))


def _files(reference: Reference) -> Check:
    return Check("files", True, f"{len(reference.draws)} draws, SHA-256 as recorded")


def _version(task: Task, reference: Reference) -> Check:
    made = reference.certificate["task_version"]
    return Check("task version", made == task.version, f"made for {made}, the task is at {task.version}")


def _moments(reference: Reference) -> list[Check]:
    """Means and sds of the stored draws against the recorded ones, in standard errors of the draws."""
    x, mean, sd = reference.draws, reference.mean, reference.sd
    if not bool((mean.isfinite() & sd.isfinite()).all()):
        return [Check("moments", None, "infinite")]
    centred = x - mean
    return [
        _largest_z("means", centred),
        _largest_z("standard deviations", centred.square() - sd.square()),
    ]


def _kernel(reference: Reference) -> list[Check]:
    h, own = reference.bandwidth, float(reference.certificate["self_similarity"])
    found_h, found_own = median_distance(reference.draws), self_similarity(reference.draws, h)
    return [
        Check("bandwidth", math.isclose(h, found_h, rel_tol=1e-6), f"{found_h:.6g}, recorded {h:.6g}"),
        Check(
            "kernel mean", math.isclose(own, found_own, abs_tol=1e-6), f"{found_own:.6g}, recorded {own:.6g}"
        ),
    ]


def _floors(reference: Reference) -> Check:
    """Stored values are sorted and numbers, at least 200, with the recorded medians."""
    wrong = []
    recorded = reference.certificate["floors"]
    for metric, table in reference.floors.items():
        for n, values in table.items():
            summary = recorded.get(metric, {}).get(str(n), {})
            close = math.isclose(
                float(np.median(values)), summary.get("q50", math.nan), rel_tol=1e-2, abs_tol=1e-9
            )
            if not close or len(values) < 200 or np.isnan(values).any() or (np.diff(values) < 0).any():
                wrong.append(f"{metric} at {n}")
    count = sum(len(table) for table in reference.floors.values())
    return Check(
        "floors", not wrong and count > 0, f"wrong: {', '.join(wrong)}" if wrong else f"{count} of them"
    )


def _density(reference: Reference, scores: Tensor) -> Check:
    """The score at the first 100 draws against the recorded one."""
    if reference.scores is None:
        return Check("density", None, "no scores are recorded")
    gap = (scores[:FINGERPRINT] - reference.scores).norm(dim=1) / reference.scores.norm(dim=1).clamp(
        min=1e-12
    )
    worst = float(gap.max())
    return Check(
        "density", worst <= SCORE_TOLERANCE, f"scores at {FINGERPRINT} draws differ by {worst:.1e} at most"
    )


def _stein(reference: Reference, scores: Tensor) -> list[Check]:
    """E[score_i] = 0 and E[(x_i - c_i) score_i] = -1 for every coordinate, c any centre."""
    centre = reference.draws.median(0).values
    return [
        _largest_z("E[score] = 0", scores),
        _largest_z("Stein identity E[(x - c) score] = -1", (reference.draws - centre) * scores + 1),
    ]


def _largest_z(name: str, terms: Tensor) -> Check:
    """Terms (m, D) that should average to zero in every coordinate."""
    z = terms.mean(0) / terms.std(0) * math.sqrt(len(terms))
    worst, bound = float(z.abs().max()), z_limit(terms.shape[1])
    return Check(name, worst <= bound, f"largest |z| {worst:.2f} of {terms.shape[1]}, limit {bound:.2f}")
