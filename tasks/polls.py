"""Polls before an election: a logistic regression with five groups of effects.

``election88`` (posteriordb election88-election88_full): whether one of 11,566 persons prefers Bush in 1988, on race, sex
and the earlier vote of the state, with effects of age, education, both, state and region, each ~ N(0, sigma), sigma
uniform on (0, 100), coefficients ~ N(0, 100). 90 dimensions. Groups of four or five effects say little on their scale,
whose uniform prior reaches to 100: funnels with long necks and long mouths, and an intercept that trades with all
groups' means. Persons with equal features are one binomial count: some 2,000 instead of 11,566.
"""

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from ._posterior import Variables, by_formula, posterior
from ._transforms import Parameter, between, layout

_GROUPS = {"a": ("age", 4), "b": ("edu", 4), "c": ("age_edu", 16), "d": ("state", 51), "e": ("region_full", 5)}
_SIZES = [size for _, size in _GROUPS.values()]
_HIGHEST = 100.0
_FLAT = 1e-4  # precision of the coefficients' prior


def _persons(data: Variables) -> tuple[object, ...]:
    """Sizes of the groups; and of every kind of person the features, their number, and how many prefer Bush."""
    names = (*(name for name, _ in _GROUPS.values()), "black", "female", "v_prev_full")
    rows = np.column_stack([data[name] for name in names])
    kinds, kind = np.unique(rows, axis=0, return_inverse=True)
    one_hot = [kinds[:, [i]] == np.arange(1, size + 1) for i, size in enumerate(_SIZES)]
    black, female, before = kinds[:, -3:].T
    features = np.column_stack([np.ones_like(black), black, female, before, female * black])
    trials, counts = np.bincount(kind.ravel()), np.bincount(kind.ravel(), data["y"])
    return _SIZES, np.column_stack([*one_hot, features]), trials[:, None], counts[:, None]


def _density(x: Tensor, sizes: Tensor, design: Tensor, trials: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Log posterior of effects, coefficients and logit(sigma / 100), unnormalised, and score."""
    effects, beta, u = torch.split(x, [sum(_SIZES), 5, len(_SIZES)], -1)
    logits = design @ x[..., : -len(_SIZES)].mT  # (R, kinds, N)
    miss = counts - trials * logits.sigmoid()
    likelihood = (counts * logits + trials * logsigmoid(-logits)).sum(-2)
    share = u.sigmoid()
    precision = (_HIGHEST * share) ** -2
    pieces = torch.split(effects, _SIZES, -1)
    squares = precision * torch.stack([piece.square().sum(-1) for piece in pieces], -1)
    log_share, log_rest = logsigmoid(u), logsigmoid(-u)
    prior = ((1 - sizes) * log_share + log_rest - 0.5 * squares).sum(-1)
    pulls = [p * piece for p, piece in zip(torch.split(precision, 1, -1), pieces, strict=True)]
    by_u = (squares - sizes + 1) * (1 - share) - share
    by_linear = (design.mT @ miss).mT - torch.cat([*pulls, _FLAT * beta], -1)
    return likelihood + prior - 0.5 * _FLAT * beta.square().sum(-1), torch.cat([by_linear, by_u], -1)


ELECTION88 = posterior(
    "election88",
    "polls of 1988 with effects of age, education, state and region",
    "hierarchical, funnel, classification, correlated",
    "Gelman & Hill (2006), Section 14.1; posteriordb election88-election88_full",
    layout(
        *(Parameter(name, size) for name, (_, size) in _GROUPS.items()),
        Parameter("beta", 5),
        *(Parameter(f"sigma_{name}", None, between(0, _HIGHEST)) for name in _GROUPS),
    ),
    by_formula(_persons, _density),
)
