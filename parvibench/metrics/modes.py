"""Number of modes found by the samples, and their proportions."""

import math

import torch
from scipy import stats
from torch import Tensor

from parvibench.core.metric import Context, NotApplicable, metric
from parvibench.core.task import Modes

#: Share of the samples a mode must hold to count as found, or this part of its weight where that is less.
SHARE, PART = 0.02, 0.1
#: Share of a Gaussian mode's mass that counts for it: the mass within three standard deviations in the plane.
MASS = 1 - math.exp(-4.5)


@metric("higher", "count", "modes", "modes holding at least 2% of the samples, or a tenth of their weight")
def modes_found(samples: Tensor, context: Context) -> Tensor:
    """Number of known modes that hold at least 2% of the samples, or a tenth of their weight where that is less.

    A sample belongs to mode k when k has the largest responsibility ``w_k N(x; m_k, s_k^2 I)`` and
    ``||x - m_k|| <= c s_k``, with c such that 98.9% of the Gaussian lie inside: c = 3 in the plane, 6.1 in 20
    dimensions.

    Args:
        samples: (R, n, D), in units of x.
        context: the task must state its modes.

    Returns:
        (R,) counts as floats; higher is better. O(n K D).

    >>> modes_found(gmm.facts.modes.means[None].double(), Context(gmm))
    tensor([5.], dtype=torch.float64)
    """
    modes = _modes(context)
    distances, logits = _membership(samples, modes)
    nearest = logits.argmax(2, keepdim=True)
    within = distances.gather(2, nearest) <= radius(samples.shape[2])
    members = torch.zeros_like(distances).scatter(2, nearest, within.to(samples))
    enough = (PART * modes.weights).clamp(max=SHARE).to(samples)
    return (members.mean(1) >= enough).sum(1).to(samples)


def radius(dim: int) -> float:
    """Distance from its centre, in sds, within which a Gaussian has the share MASS of its mass."""
    return math.sqrt(float(stats.chi2.ppf(MASS, dim)))


@metric("lower", "1", "modes", "total variation between the modes' weights and the samples' shares")
def mode_weight_tv(samples: Tensor, context: Context) -> Tensor:
    """Total variation between the modes' weights and the samples' shares of them.

    ``1/2 sum_k |mean_i r_k(x_i) - w_k|`` with the responsibilities ``r_k(x) ~ w_k N(x; m_k, s_k^2 I)``, which
    sum to one. For a mixture of just these Gaussians E r_k = w_k, also where they overlap.

    Args:
        samples: (R, n, D), in units of x.
        context: the task must state its modes.

    Returns:
        (R,), a probability in [0, 1]; lower is better, of order n^(-1/2) for exact draws. O(n K D).

    >>> mode_weight_tv(gmm.facts.modes.means[None].double(), Context(gmm))
    tensor([0.0014], dtype=torch.float64)
    """
    modes = _modes(context)
    shares = _membership(samples, modes)[1].softmax(2).mean(1)
    return (shares - modes.weights.to(samples)).abs().sum(1) / 2


def _modes(context: Context) -> Modes:
    if context.task.facts.modes is None:
        raise NotApplicable("the task states no modes")
    return context.task.facts.modes


def _membership(samples: Tensor, modes: Modes) -> tuple[Tensor, Tensor]:
    """Distances to the modes in their sds, and logarithms of the responsibilities up to a term of x: (R, n, K)."""
    means, sds, weights = (t.to(samples) for t in (modes.means, modes.sds, modes.weights))
    distances = torch.cdist(samples, means.expand(len(samples), -1, -1)) / sds
    log_weights = weights.log() - samples.shape[2] * sds.log()
    return distances, log_weights - 0.5 * distances.square()
