"""Bandwidth of a Gaussian kernel by the heat equation (HE).

Liu, Zhuo, Cheng, Zhang, Zhu & Carin (2019), arXiv:1807.01750, Section 5. Particles that follow -grad log q~ should
change the smoothed density q~ as the heat equation does, by its Laplacian. With k = exp(-D / h) and kappa = 2 / h the
error of that at x_i is kappa^(d/2) kappa times

    l_i = kappa sum_j k_ij [ D_ij - (x_i - x_j) . (x_j - m_j) ] - d sum_j k_ij,   m_j = sum_l k_jl x_l / sum_l k_jl

and h minimises sum_i l_i^2, the authors' objective without its units (``bwSubType`` h of their code).
"""

import torch
from torch import Tensor

from .gram import exp_

#: Ratio of neighbouring bandwidths tried in a step; code.
RATIO = 1.1


def heat_error(x: Tensor, d: Tensor, h: Tensor) -> Tensor:
    """Sum of squared errors, no unit, of x (R, n, D) at squared distances d; h in x^2 and the sum are (R, 1, 1)."""
    k = exp_(d / -h)
    sums = k.sum(-1, keepdim=True)
    away = x - (k @ x) / sums
    inner = (x * (k @ away)).sum(-1) - (k @ (x * away).sum(-1, keepdim=True)).squeeze(-1)
    error = (2 / h).squeeze(-1) * ((k * d).sum(-1) - inner) - x.shape[2] * sums.squeeze(-1)
    return error.square().sum(-1).view(-1, 1, 1)


def heat_bandwidth(x: Tensor, d: Tensor, h: Tensor) -> Tensor:
    """The best of h / 1.1, h and 1.1 h, (R, 1, 1): a step of the authors' search; arguments as of ``heat_error``."""
    x = x - x.mean(1, keepdim=True)
    tried = torch.stack([h / RATIO, h, h * RATIO])
    errors = torch.stack([heat_error(x, d, h) for h in tried])
    return tried.gather(0, errors.argmin(0, keepdim=True)).squeeze(0)
