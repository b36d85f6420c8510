"""The Laplace kernel in the l1 norm, k(x, y) = exp(-||x - y||_1 / h).

As in the code of KSIVI (arXiv:2405.18997): h = median(||x - y||_1) / log(n + 1), held fixed.
"""

import torch
from torch import Tensor

from .gram import lower_median_bandwidth


def pull_back(x: Tensor, y: Tensor, weights: Tensor, bandwidth: float | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """The kernel matrix and the gradients of sum_ij w_ij k(x_i, y_j): as ``radial.pull_back``."""
    with torch.enable_grad():  # the l1 distance's own derivative needs no (n, m, d) array
        x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
        distance = torch.cdist(x, y, p=1.0)
        h = lower_median_bandwidth(distance.detach()) if bandwidth is None else bandwidth
        k = torch.exp(-distance.detach() / h)
        grad_x, grad_y = torch.autograd.grad(distance, (x, y), grad_outputs=-weights * k / h)
    return k, grad_x, grad_y
