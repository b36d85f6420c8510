"""Counting the modes that samples have found."""

from __future__ import annotations

import torch
from torch import Tensor

from parvibench.core.metric import Context, NotApplicable

#: Share of the samples a mode must hold to count as found.
SHARE = 0.02
#: Samples count for a mode within this many of its standard deviations.
RADIUS = 3.0


def modes_found(samples: Tensor, context: Context) -> Tensor:
    """Number of known modes that hold at least 2% of the samples.

    A sample belongs to mode k when k has the largest responsibility ``w_k N(x; m_k, s_k^2 I)`` and
    ``||x - m_k|| <= 3 s_k``. Fit for up to about ten dimensions: beyond, hardly any mass of a Gaussian
    lies within three standard deviations of its centre.

    Args:
        samples: (R, n, D), in units of x.
        context: the task must state its modes.

    Returns:
        (R,) counts as floats; higher is better. O(n K D).
    """
    modes = context.task.facts.modes
    if modes is None:
        raise NotApplicable("the task states no modes")
    means, sds, weights = (t.to(samples) for t in (modes.means, modes.sds, modes.weights))
    distances = torch.cdist(samples, means.expand(len(samples), -1, -1)) / sds  # (R, n, K), in mode sds
    log_weights = weights.log() - samples.shape[2] * sds.log()
    nearest = (log_weights - 0.5 * distances.square()).argmax(2, keepdim=True)
    within = distances.gather(2, nearest) <= RADIUS
    members = torch.zeros_like(distances).scatter(2, nearest, within.to(samples))
    return (members.mean(1) >= SHARE).sum(1).to(samples)
