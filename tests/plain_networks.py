"""The networks of ``parvibench.nn.mlp`` as modules of PyTorch, for programs that take gradients by autograd."""

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
