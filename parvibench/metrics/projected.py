"""Kullback-Leibler divergence from a mixture that differs from a Gaussian along one line only."""

import torch
from torch import Tensor

from parvibench.core.metric import Context, NotApplicable, metric

#: Order of the spacings on either side: more would smooth the tails away, fewer be noisy.
_ORDER = 5


@metric("lower", "nats", "modes", "KL(samples || target) along the line of the modes, and by the variance across it")
def kl_projected(samples: Tensor, context: Context) -> Tensor:
    """Divergence of samples from a mixture of equal isotropic Gaussians whose means lie on a line.

    Such a target is a product: the mixture along the line, N(0, s^2) across it. For samples whose coordinates across the
    line are independent normals of one variance (so are those of Langevin chains that start there), the divergence is

        KL(t || mixture) + (D - 1)/2 (v - 1 - log v),   v s^2 the mean square across the line.

    Along the line by spacings of U = F(t), F the mixture's distribution function (Vasicek 1976, JRSS B 38:54-59), less
    their mean under exact draws, which is known: spacings of order j of n uniforms have E log = psi(j) - psi(n + 1). So
    the first term has mean zero for exact draws of any number, and values below zero.

    Args:
        samples: (R, n, D), n >= 10, in units of x.
        context: needs a task with known modes of one spread, on a line.

    Returns:
        (R,) in nats; lower is better; +inf where samples coincide. O(n (D + log n)); standard error about 1/n of the
        second term, 1/sqrt(n) of the first at a divergence near 1, less near zero.

    >>> kl_projected(path.double().reshape(1, 200, 2), Context(load_task("lapd-mixture-2")))
    tensor([1.3974], dtype=torch.float64)
    """
    modes = context.task.facts.modes
    if modes is None:
        raise NotApplicable("the task has no known modes")
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
