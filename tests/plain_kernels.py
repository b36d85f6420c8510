"""Kernel matrices from their formulas, by broadcasting."""

import math

import torch
from torch import Tensor


def kernel_matrix(kernel: str, x: Tensor, y: Tensor, bandwidth: float | str, fixed_median: bool = False) -> Tensor:
    """k(x_i, y_j) for points (n, D) and (m, D), with the (lower) median bandwidth or a given one.

    Only the Gaussian kernel's median lets gradients pass, and only unless told otherwise.
    """
    apart = x[:, None, :] - y[None, :, :]
    if kernel == "riesz":
        spread = x.abs().sum(-1)[:, None] + y.abs().sum(-1)[None, :] - apart.abs().sum(-1)
    else:
        spread = apart.abs().sum(-1) if kernel == "laplace" else apart.square().sum(-1)
    middle = torch.median(spread)
    if kernel == "riesz" and middle < 1e-5 * spread.mean():
        middle = spread.mean()
    h = middle / math.log(len(x) + 1) if bandwidth == "median" else bandwidth
    if isinstance(h, Tensor) and (fixed_median or kernel != "gaussian"):
        h = h.detach()
    if kernel == "riesz":
        return spread / h
    return (1 + spread / h) ** -0.5 if kernel == "imq" else torch.exp(-spread / h)
