"""Checks recomputed from a shipped reference: ``parvibench reference verify``.

This code defines every check; its description is made from the same numbers. z-values are compared with Bonferroni's limit
at 1%, over the coordinates of one check.
"""

import math
from dataclasses import dataclass
from importlib.resources.abc import Traversable

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from parvibench.core.errors import DataMissingError, InputError
from parvibench.core.reference import Floored, Predictions, Reference, load_predictions, load_reference
from parvibench.core.task import Task
from parvibench.metrics.chains import array_stats
from parvibench.metrics.common import median_distance
from parvibench.metrics.mmd import self_similarity

#: Family-wise level, also at which means, and standard deviations, of two runs may disagree by chance.
ALPHA = 0.01
#: Scores of one density agree to this, relative to their size, on any machine.
SCORE_TOLERANCE = 1e-6
#: Largest share of a single draw in the sum of squares of a z-value.
_FEW = 0.2


@dataclass(frozen=True)
class Check:
    """One check."""

    name: str  #: quantity checked
    passed: bool | None  #: outcome; None where the check could not be made
    found: str  #: the numbers, as text


def z_limit(count: int, draws: int | None = None) -> float:
    """99% limit of the largest |z| of ``count``; by Student's t where the number of draws is given."""
    share = ALPHA / (2 * count)
    return float(stats.norm.isf(share) if draws is None else stats.t.isf(share, draws - 1))


def largest_z(name: str, terms: Tensor) -> Check:
    """Check that terms, (m, D), or (T, C, D) of chains, average to zero in every coordinate; chains count by their ESS.

    Products and squares are skew. Hall's transformation, J. R. Statist. Soc. B 54:221-228 (1992), takes that out of z:
    without it three of four sets of 152 exact draws in 2048 dimensions fail the Stein identity, with it 1 of 150. Where
    one term makes up most of the sum of squares, as of scores in a funnel's neck, whose variance is infinite, the skewness is
    that term's and z stays as it is.
    """
    m: Tensor | int = len(terms)
    if terms.dim() == 3:
        ess = array_stats().ess(terms.numpy(), method="mean", chain_axis=1, draw_axis=0)
        m, terms = torch.from_numpy(np.nan_to_num(ess, nan=2.0)).clamp(2), terms.flatten(0, 1)
    centred, root = terms - terms.mean(0), m**0.5
    z = terms.mean(0) / terms.std(0) * root
    skew = (centred**3).mean(0) / centred.square().mean(0) ** 1.5 / root
    skew = torch.where(2 * centred.square().amax(0) > centred.square().sum(0), 0.0, skew)
    z = z + skew * z**2 / 3 + skew**2 * z**3 / 27 + skew / 6
    worst, bound = float(z.abs().max()), z_limit(terms.shape[1], int(torch.as_tensor(m).min()))
    return Check(name, worst <= bound, f"largest |z| {worst:.2f} of {terms.shape[1]}, limit {bound:.2f}")


def version_check(task: Task, reference: Floored) -> Check:
    """Check that the reference was built for the current version of the task."""
    made = reference.certificate["task_version"]
    return Check("task version", made == task.version, f"made for {made}, the task is at {task.version}")


def floors_check(reference: Floored) -> Check:
    """Check that stored values are sorted, at least 200 a floor, with recorded medians unless they were added later."""
    wrong, recorded = [], reference.certificate["floors"]
    added = reference.certificate.get("pool", {}).get("sizes", ())
    for metric, table in reference.floors.items():
        for n, values in table.items():
            summary = recorded.get(metric, {}).get(str(n))
            median = math.nan if summary is None else summary["q50"]
            close = (summary is None and n in added) or math.isclose(
                np.median(values), median, rel_tol=1e-2, abs_tol=1e-9
            )
            if not close or len(values) < 200 or np.isnan(values).any() or (np.diff(values) < 0).any():
                wrong.append(f"{metric} at {n}")
    count = sum(len(table) for table in reference.floors.values())
    text = f"wrong: {', '.join(wrong)}" if wrong else f"{count} of them"
    return Check("floors", not wrong and count > 0, text)


def density_check(scores: Tensor, recorded: Tensor | None) -> Check:
    """Compare scores, (n, D), with those recorded at the first draws."""
    if recorded is None:
        return Check("density", None, "no scores are recorded")
    gap = (scores[: len(recorded)] - recorded).norm(dim=1) / recorded.norm(dim=1).clamp(min=1e-12)
    worst = float(gap.max())
    text = f"scores at {len(recorded)} draws differ by {worst:.1e} at most"
    return Check("density", worst <= SCORE_TOLERANCE, text)


def stein_checks(draws: Tensor, scores: Tensor) -> list[Check]:
    """Check E[score_i] = 0 and E[(x_i - c_i) score_i] = -1 for every coordinate, c any centre; shapes of ``largest_z``."""
    centre = draws.reshape(-1, draws.shape[-1]).median(0).values
    return [
        largest_z("E[score] = 0", scores),
        largest_z("Stein identity E[(x - c) score] = -1", (draws - centre) * scores + 1),
    ]


def verify(task: Task, folder: Traversable | None = None) -> list[Check]:
    """Recompute all checks of a reference, or only the first, failed, for other files; ``InputError`` without a reference."""
    try:
        predictions = load_predictions(task.name, folder)
        reference = load_reference(task.name, folder)
    except InputError as error:
        return [Check("files", False, str(error).splitlines()[0])]
    if predictions is not None:
        return _of_predictions(task, predictions)
    if reference is None:
        raise InputError(f"{task.name} has no reference: there is nothing to verify")
    centred = reference.draws - reference.mean
    checks = [
        Check("files", True, f"{len(reference.draws)} draws, SHA-256 as recorded"),
        version_check(task, reference),
        largest_z("means", centred),
        _sds(centred.square() - reference.sd.square()),
        *_kernel(reference),
        floors_check(reference),
    ]
    try:
        target = task.target([0], "cpu", torch.float64)
    except DataMissingError as error:
        return [*checks, Check("density", None, f"data missing: {str(error).splitlines()[0]}")]
    scores = target.score(reference.draws[None])[0]
    return [*checks, density_check(scores, reference.scores), *stein_checks(reference.draws, scores)]


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
