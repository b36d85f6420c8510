"""Kernel matrices from their formulas and networks as PyTorch's modules, for programs that take gradients by autograd."""

import math
from collections.abc import Callable, Iterable
from itertools import pairwise

import torch
from torch import Tensor, nn

from parvibench.nn.mlp import MLP

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "tanh": nn.Tanh, "relu": nn.ReLU, "leaky-relu": lambda: nn.LeakyReLU(0.1),
}  # fmt: skip


def modules(shape: MLP, flat: Tensor) -> nn.Sequential:
    """The network of one replicate with its parameters (P,)."""
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(shape.sizes):
        linear = nn.Linear(n_in, n_out, dtype=flat.dtype)
        weight, bias, flat = flat.split([n_in * n_out, n_out, len(flat) - (n_in + 1) * n_out])
        linear.weight.data, linear.bias.data = weight.view(n_in, n_out).T.clone(), bias.clone()
        layers += [linear, ACTIVATIONS[shape.activation]()]
    return nn.Sequential(*layers[:-1])


def flattened(parameters: Iterable[Tensor]) -> Tensor:
    """Parameters of modules, or gradients in them, in our order: (P,)."""
    return torch.cat([(p.T if p.dim() == 2 else p).flatten() for p in parameters])


def kernel_matrix(kernel: str, x: Tensor, y: Tensor, bandwidth: float | str, fixed_median: bool = False) -> Tensor:
    """k(x_i, y_j) for points (n, D) and (m, D), with the (lower) median bandwidth or a given one.

    Only the Gaussian kernel's median lets gradients pass, and only by default.
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
