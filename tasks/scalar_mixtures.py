"""Mixtures of Gaussians on the line with unknown components.

- ``low-dim-gauss-mix`` (posteriordb low_dim_gauss_mix-low_dim_gauss_mix): 1,000 values, means in increasing order,
  mu, sigma ~ N(0, 2), share theta ~ Beta(5, 5). The order leaves one mode that counts, close to Gaussian (condition number
  48), with others 385 nats and more below.
- ``low-dim-gauss-mix-collapse`` (low_dim_gauss_mix_collapse-low_dim_gauss_mix_collapse): the same model without the
  order, on values whose components overlap (condition number 290 at a mode). Exchanging the components leaves the density as it is: every mode has a
  mirror image (mu, sigma and theta exchanged) with exactly half of the mass, which single chains never visit.
- ``normal-mixture-5`` (normal_5-normal_mixture_k): 1,701 values of five components, theta uniform on the simplex,
  mu ~ N(0, 10), sigma uniform on (0, 10). 120 orders of the components, and chains that merge two of them.
"""

import torch
from torch import Tensor

from ._posterior import Variables, by_model, log_add, posterior
from ._transforms import FREE, ORDERED, POSITIVE, SIMPLEX, Constraint, Layout, Parameter, between, layout

_SD = 2.0


def _values(data: Variables) -> tuple[object, ...]:
    return (data["y"],)


def _pair(y: Tensor, mu: Tensor, sigma: Tensor, theta: Tensor) -> Tensor:
    """Log joint density of two means, two scales and a share."""
    shares = torch.stack([theta, 1 - theta], -1).log()
    prior = 4 * shares.sum(-1) - 0.5 * ((mu / _SD).square() + (sigma / _SD).square()).sum(-1)
    z = (y - mu.unsqueeze(-1)) / sigma.unsqueeze(-1)
    terms = torch.add((shares - sigma.log()).unsqueeze(-1), z.square(), alpha=-0.5)
    return prior + log_add(terms[..., 0, :], terms[..., 1, :]).sum(-1)


def _many(y: Tensor, theta: Tensor, mu: Tensor, sigma: Tensor) -> Tensor:
    """Log joint density of means, scales and shares; the uniform priors are constants."""
    z = (y - mu.unsqueeze(-1)) / sigma.unsqueeze(-1)
    terms = torch.add((theta.log() - sigma.log()).unsqueeze(-1), z.square(), alpha=-0.5)
    return terms.logsumexp(-2).sum(-1) - 0.5 * (mu / 10).square().sum(-1)


def _two(order: Constraint) -> Layout:
    return layout(Parameter("mu", 2, order), Parameter("sigma", 2, POSITIVE), Parameter("theta", None, between(0, 1)))


LOW_DIM_GAUSS_MIX = posterior(
    "low-dim-gauss-mix",
    "a mixture of two Gaussians with ordered means",
    "mixture",
    "posteriordb low_dim_gauss_mix-low_dim_gauss_mix",
    _two(ORDERED),
    by_model(_values, _pair),
)

LOW_DIM_GAUSS_MIX_COLLAPSE = posterior(
    "low-dim-gauss-mix-collapse",
    "a mixture of two overlapping Gaussians whose labels may be exchanged",
    "mixture, multimodal",
    "posteriordb low_dim_gauss_mix_collapse-low_dim_gauss_mix_collapse",
    _two(FREE),
    by_model(_values, _pair),
)

NORMAL_MIXTURE_5 = posterior(
    "normal-mixture-5",
    "a mixture of five Gaussians whose labels may be exchanged",
    "mixture, multimodal",
    "posteriordb normal_5-normal_mixture_k",
    layout(Parameter("theta", 5, SIMPLEX), Parameter("mu", 5), Parameter("sigma", 5, between(0, 10))),
    by_model(_values, _many),
)
