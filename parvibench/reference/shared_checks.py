"""Checks shared by all kinds of reference.

z-values are compared with Bonferroni's limit at 1%, over the coordinates of one check.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from parvibench.core.reference import Floored
from parvibench.core.task import Task
from parvibench.metrics.chains import array_stats

ALPHA = 0.01
#: Scores of one density agree to this, relative to their size, on any machine.
SCORE_TOLERANCE = 1e-6


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
    without it three of four sets of 152 exact draws in 2048 dimensions fail the Stein identity, with it 1 of 150.
    """
    m: Tensor | int = len(terms)
    if terms.dim() == 3:
        ess = array_stats().ess(terms.numpy(), method="mean", chain_axis=1, draw_axis=0)
        m, terms = torch.from_numpy(np.nan_to_num(ess, nan=2.0)).clamp(2), terms.flatten(0, 1)
    centred, root = terms - terms.mean(0), m**0.5
    z = terms.mean(0) / terms.std(0) * root
    skew = (centred**3).mean(0) / centred.square().mean(0) ** 1.5 / root
    z = z + skew * z**2 / 3 + skew**2 * z**3 / 27 + skew / 6
    worst, bound = float(z.abs().max()), z_limit(terms.shape[1], int(torch.as_tensor(m).min()))
    return Check(name, worst <= bound, f"largest |z| {worst:.2f} of {terms.shape[1]}, limit {bound:.2f}")


def version_check(task: Task, reference: Floored) -> Check:
    """Check that the reference was built for the current version of the task."""
    made = reference.certificate["task_version"]
    return Check("task version", made == task.version, f"made for {made}, the task is at {task.version}")


def floors_check(reference: Floored) -> Check:
    """Check that stored values are sorted numbers, at least 200 per floor, with the recorded medians."""
    wrong = []
    recorded = reference.certificate["floors"]
    for metric, table in reference.floors.items():
        for n, values in table.items():
            summary = recorded.get(metric, {}).get(str(n), {})
            median = float(np.median(values))
            close = math.isclose(median, summary.get("q50", math.nan), rel_tol=1e-2, abs_tol=1e-9)
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
