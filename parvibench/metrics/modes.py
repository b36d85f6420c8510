"""What a task states: its modes, their proportions, the divergence along a line of them; and an unmixing matrix."""

import math

import torch
from scipy import special
from torch import Tensor

from parvibench.core.errors import ShapeError
from parvibench.core.metric import Context, NotApplicable, metric
from parvibench.core.task import Modes

from .common import given

#: Share of the samples a mode must hold to count as detected, or this part of its weight where that is less.
SHARE, PART = 0.02, 0.1
#: Share of a Gaussian mode's mass that counts for it: the mass within three standard deviations in the plane.
MASS = 1 - math.exp(-4.5)
#: Order of the spacings on either side: more would smooth the tails away, fewer be noisy.
_ORDER = 5


@metric("higher", "count", "modes", "modes holding at least 2% of the samples, or a tenth of their weight")
def modes_found(samples: Tensor, context: Context) -> Tensor:
    """Number of known modes that hold at least 2% of the samples, or a tenth of their weight where that is less.

    A sample belongs to mode k when k has the largest responsibility ``w_k N(x; m_k, s_k^2 I)`` and
    ``||x - m_k|| <= c s_k``, with c such that 98.9% of the Gaussian lie inside: c = 3 in the plane, 6.1 in 20
    dimensions.

    (R,) counts as floats; higher is better. O(n K D).

    >>> modes_found(gmm.facts.modes.means[None].double(), Context(gmm))
    tensor([5.], dtype=torch.float64)
    """
    modes = given(context.task.facts.modes, "the task states no modes")
    distances, logits = _membership(samples, modes)
    nearest = logits.argmax(2, keepdim=True)
    within = distances.gather(2, nearest) <= radius(samples.shape[2])
    members = torch.zeros_like(distances).scatter(2, nearest, within.to(samples))
    enough = (PART * modes.weights).clamp(max=SHARE).to(samples)
    return (members.mean(1) >= enough).sum(1).to(samples)


def radius(dim: int) -> float:
    """Distance from its centre, in sds, within which a Gaussian has the share MASS of its mass."""
    return math.sqrt(float(2 * special.gammaincinv(dim / 2, MASS)))


@metric("lower", "1", "modes", "total variation between the modes' weights and the samples' shares")
def mode_weight_tv(samples: Tensor, context: Context) -> Tensor:
    """Total variation between the modes' weights and the samples' shares of them.

    ``1/2 sum_k |mean_i r_k(x_i) - w_k|`` with the responsibilities ``r_k(x) ~ w_k N(x; m_k, s_k^2 I)``, which
    sum to one. For a mixture of just these Gaussians E r_k = w_k, also where they overlap.

    (R,), a probability in [0, 1]; lower is better, of order n^(-1/2) for exact draws. O(n K D).

    >>> mode_weight_tv(gmm.facts.modes.means[None].double(), Context(gmm))
    tensor([0.0014], dtype=torch.float64)
    """
    modes = given(context.task.facts.modes, "the task states no modes")
    shares = _membership(samples, modes)[1].softmax(2).mean(1)
    return (shares - modes.weights.to(samples)).abs().sum(1) / 2


def _membership(samples: Tensor, modes: Modes) -> tuple[Tensor, Tensor]:
    """Distances to the modes in their sds, and logarithms of the responsibilities up to a term of x: (R, n, K)."""
    means, sds, weights = (t.to(samples) for t in (modes.means, modes.sds, modes.weights))
    distances = torch.cdist(samples, means.expand(len(samples), -1, -1)) / sds
    log_weights = weights.log() - samples.shape[2] * sds.log()
    return distances, log_weights - 0.5 * distances.square()


@metric("lower", "nats", "modes", "KL(samples || target) along the line of the modes, and by the variance across it")
def kl_projected(samples: Tensor, context: Context) -> Tensor:
    """Divergence of samples from a mixture of equal isotropic Gaussians whose means lie on a line.

    Such a target is a product: the mixture along the line, N(0, s^2) across it. For samples whose coordinates across the
    line are independent normals of one variance (so are those of Langevin chains that start there), the divergence is

        KL(t || mixture) + (D - 1)/2 (v - 1 - log v),   v s^2 the mean square across the line.

    Along the line by spacings of U = F(t), F the mixture's distribution function (Vasicek 1976, JRSS B 38:54-59), less
    their mean under exact draws, which is known: spacings of order j of n uniforms have E log = psi(j) - psi(n + 1). So
    the first term has mean zero for exact draws of any number, and values below zero.

    (R,) in nats; lower is better; +inf where samples coincide. O(n (D + log n)); standard error about 1/n of the
    second term, 1/sqrt(n) of the first at a divergence near 1, less near zero. Needs n >= 10, and modes of one spread
    on a line.

    >>> kl_projected(path.double().reshape(1, 200, 2), Context(load_task("lapd-mixture-2")))
    tensor([1.3974], dtype=torch.float64)
    """
    modes = given(context.task.facts.modes, "the task has no known modes")
    n = samples.shape[1]
    if n < 10:
        raise NotApplicable(f"n = {n} samples have no spacings: at least 10")
    means, sd = modes.means.to(samples), float(modes.sds[0])
    if not torch.allclose(modes.sds, modes.sds[:1]):
        raise NotApplicable("the modes have different spreads")
    apart = means - means[:1]
    line = apart[apart.square().sum(1).argmax()]
    length = line.square().sum().sqrt().clamp(min=torch.finfo(samples.dtype).tiny)
    line = line / length
    along = apart @ line
    if float((apart - along[:, None] * line).abs().max()) > 1e-6 * float(length):
        raise NotApplicable("the modes do not lie on a line")
    centred = samples - means[:1]
    t = centred @ line
    u = (modes.weights.to(samples) * torch.special.ndtr((t[..., None] - along) / sd)).sum(-1)
    return _from_uniform(u) + _across(centred, t, sd)


def _from_uniform(u: Tensor) -> Tensor:
    """Divergence of the law of u (R, n) from the uniform one, with mean zero for uniform u: (R,)."""
    n = u.shape[1]
    ranks = torch.arange(n)
    low, high = (ranks - _ORDER).clamp(min=0), (ranks + _ORDER).clamp(max=n - 1)
    x = u.sort(dim=1).values
    expected = torch.special.digamma((high - low).to(u)) - torch.special.digamma(torch.tensor(n + 1.0, dtype=u.dtype))
    return (expected - (x[:, high] - x[:, low]).log()).mean(1)


def _across(centred: Tensor, t: Tensor, sd: float) -> Tensor:
    """Divergence of the coordinates across the line, (R,), from (R, n, D) and the coordinate along it (R, n)."""
    others = centred.shape[2] - 1
    if not others:
        return torch.zeros_like(t[:, 0])
    v = (centred.square().sum(-1) - t.square()).mean(1) / (others * sd**2)
    return others / 2 * (v - 1 - v.log())


@metric("lower", "1", "unmixing", "Amari distance to the known unmixing matrix, mean over samples")
def amari(samples: Tensor, context: Context) -> Tensor:
    """Amari distance to the known unmixing matrix, mean over the samples.

    With W a sample as a (d, d) matrix, row-major, W0 the known one and ``P = W pinv(W0)``::

        [ sum_i (sum_j P_ij^2 / max_j P_ij^2 - 1) + sum_j (sum_i P_ij^2 / max_i P_ij^2 - 1) ] / (2 d)

    (Amari, Cichocki & Yang 1996, NIPS 8, with squared entries, as Zhang, Cheng & Zhang 2024, arXiv:2410.17935,
    compute it). Zero when W equals W0 up to the order and scale of its rows, d - 1 at most.

    (R,), dimensionless; lower is better. NaN where a row or column of P is zero. O(n d^3).

    Raises:
        ShapeError: the unmixing matrix is not (d, d).

    >>> amari(torch.eye(5, dtype=torch.float64).reshape(1, 1, 25), Context(ica))
    tensor([0.9597], dtype=torch.float64)
    """
    known = given(context.task.facts.unmixing, "the task states no unmixing matrix")
    d = known.shape[0]
    if known.shape != (d, d) or d * d != samples.shape[2]:
        raise ShapeError(
            f"an unmixing matrix of shape {tuple(known.shape)} does not fit samples {tuple(samples.shape)}"
        )
    p2 = (samples.reshape(*samples.shape[:2], d, d) @ torch.linalg.pinv(known.to(samples))).square()
    rows, columns = (p2.sum(axis) / p2.amax(axis) - 1 for axis in (3, 2))
    return ((rows + columns).sum(2) / (2 * d)).mean(1)
