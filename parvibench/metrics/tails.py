"""Error of the tails: how many samples lie as far out, or where the density is as low, as few of the reference."""

from functools import lru_cache

import torch
from torch import Tensor

from parvibench.core.metric import Context, metric
from parvibench.core.target import Target

from .common import given

#: The largest share of the target that counts as a tail.
TAIL = 0.05
#: Weight of samples too many in a tail relative to samples too few.
EXCESS = 0.5
#: Rows whose density is computed at once.
_BLOCK = 500


@metric("lower", "nats", "target", "largest relative entropy of the share of samples in a tail", when="last")
def tail_error(samples: Tensor, context: Context) -> Tensor:
    """Largest error of the mass in the tails, relative to what belongs there.

    A tail is where a function exceeds its quantile of level 1 - p over the reference, p <= 5%. There are two: the largest
    distance of a coordinate from its median in units of its spread, and minus the log density. The share q of samples in
    a tail is compared with p by the relative entropy ``q log(q / p) + (1 - q) log((1 - q) / (1 - p))``; n times it is a
    log likelihood ratio. The largest over all p and both functions is reported, where q > p at half its value: the
    statistic of Berk & Jones (1979), Z. Wahrscheinlichkeitstheorie 47:47-59, in the tails, and twice as attentive to
    tails that are missing, which no other metric sees.

    (R,) in nats; lower is better, about 2 / n for exact draws, and p or more, whatever n, when a tail that should
    hold p is empty. O(n (D + log(n m))) and n densities, once O(m D) and m densities for the reference. Needs a
    reference, too.

    >>> tail_error(x, context)
    tensor([0.0513], dtype=torch.float64)
    """
    target = given(context.target, "the density is not available")
    densities = target.log_density(samples).to(samples)
    values = []
    for r, x in enumerate(samples):
        centre, spread, ordered = _reference_tails(context.reference_rows(r), target)
        outward = _outward(x, densities[r], centre, spread)
        # The share of the reference that is as far out, counting the sample itself.
        beyond = ordered.shape[1] - torch.searchsorted(ordered, outward)
        values.append(_largest_gap((1 + beyond).double() / (ordered.shape[1] + 1)))
    return torch.stack(values).to(samples)


def _outward(x: Tensor, densities: Tensor, centre: Tensor, spread: Tensor) -> Tensor:
    """The functions whose large values are tails, (2, n), of samples (n, D) and their log densities (n,)."""
    distance = ((x - centre) / spread).abs().amax(1)
    return torch.stack([distance, torch.where(densities.isnan(), torch.inf, -densities)])


def _largest_gap(p: Tensor) -> Tensor:
    """Largest relative entropy of the law of the samples' tail probabilities, (2, n), to the uniform one below TAIL."""
    n = p.shape[1]
    p = p.sort(1).values
    rank = torch.arange(n, dtype=p.dtype)
    # Between two samples the share is constant and p rises: the gap is largest at a sample, or just before the next.
    few = _relative_entropy((rank / n).expand_as(p), p.clamp(max=TAIL)).where(rank / n < p.clamp(max=TAIL), 0.0)
    many = _relative_entropy(((rank + 1) / n).expand_as(p), p).where((p <= TAIL) & ((rank + 1) / n > p), 0.0)
    return torch.maximum(few.amax(), EXCESS * many.amax())


def _relative_entropy(q: Tensor, p: Tensor) -> Tensor:
    """Of Bernoulli(q) to Bernoulli(p), nats."""
    return torch.xlogy(q, q / p) + torch.xlogy(1 - q, (1 - q) / (1 - p))


@lru_cache(maxsize=4)  # the keys are the identities of tensor and target
def _reference_tails(rows: Tensor, target: Target) -> tuple[Tensor, Tensor, Tensor]:
    """Median and spread of every coordinate, (D,) each, and the functions at the reference, (2, m) ascending."""
    low, centre, high = rows.quantile(torch.tensor([0.16, 0.5, 0.84], dtype=rows.dtype), dim=0)
    spread = (high - low).clamp(min=torch.finfo(rows.dtype).tiny)
    densities = torch.cat([target.log_density(block[None])[0] for block in torch.split(rows, _BLOCK)])
    return centre, spread, _outward(rows, densities.to(rows), centre, spread).sort(1).values
