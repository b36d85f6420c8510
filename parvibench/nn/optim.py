"""Optimisers as functions of flat (R, P) parameters; elementwise, so replicates never meet."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .recording import as_tensor


class Moments(NamedTuple):
    """Running averages of the gradient; fields an optimiser does not use are (R, 0)."""

    first: Tensor  # (R, P) momentum
    second: Tensor  # (R, P) mean square
    steps: int

    @classmethod
    def start(cls, parameters: Tensor, second: bool = True) -> Moments:
        """Zeros, without the mean square by default."""
        zeros = torch.zeros_like(parameters)
        return cls(zeros, zeros if second else zeros[:, :0], 0)


class AdamState(NamedTuple):
    """Points that Adam moves, and its memory of them."""

    x: Tensor  # (R, N, D)
    moments: Moments  # of (R, N, D)

    @classmethod
    def start(cls, x: Tensor) -> AdamState:
        """The points x before the first step."""
        return cls(x, Moments.start(x))


def adam(
    parameters: Tensor,
    grad: Tensor,
    moments: Moments,
    learning_rate: float,
    betas: tuple[float, float] = (0.9, 0.999),
    epsilon: float = 1e-8,
    inplace: bool = False,
) -> tuple[Tensor, Moments]:
    """One descent step of Adam (Kingma & Ba 2015, Algorithm 1): new parameters (R, P) and moments.

    ``inplace`` overwrites parameters and moments; only those that an earlier step has returned.
    """
    steps = moments.steps + 1
    first, second = moments.first, moments.second
    if not inplace:
        given = parameters, first, second
        parameters, first, second = (t.clone(memory_format=torch.contiguous_format) for t in given)
    if parameters.device.type == "cpu":  # one pass over the memory instead of seven; the kernel ignores strides
        rate, count = as_tensor(learning_rate), as_tensor(steps).float()
        torch.ops.parvibench.adam_(parameters, grad.contiguous(), first, second, count, rate, *betas, epsilon)
    else:
        adam_(parameters, grad, Moments(first, second, steps), learning_rate, betas, epsilon)
    return parameters, Moments(first, second, steps)


def _fused(
    x: Tensor, grad: Tensor, first: Tensor, second: Tensor, steps: Tensor, rate: Tensor,
    beta1: float, beta2: float, epsilon: float,
) -> None:  # fmt: skip
    torch._fused_adam_(
        [x], [grad], [first], [second], [], [steps],
        lr=rate, beta1=beta1, beta2=beta2, weight_decay=0.0, eps=epsilon, amsgrad=False, maximize=False,
    )  # fmt: skip


#: PyTorch's fused kernel of one tensor: TorchScript loses operators that write to lists of tensors.
torch.library.define("parvibench::adam_", torch.library.infer_schema(_fused, mutates_args=("x", "first", "second")))
torch.library.impl("parvibench::adam_", "CPU", _fused)


def adam_(
    parameters: Tensor, grad: Tensor, moments: Moments, learning_rate: float, betas: tuple[float, float], epsilon: float
) -> None:
    """The same in place, operation by operation; ``moments.steps`` counts this step."""
    first, second, steps = moments
    first.lerp_(grad, 1 - betas[0])
    second.mul_(betas[1]).addcmul_(grad, grad, value=1 - betas[1])
    # No numbers as arguments: records follow operators.
    spread = second.sqrt() / (1 - betas[1] ** steps) ** 0.5 + epsilon
    parameters.addcdiv_(first * (-learning_rate / (1 - betas[0] ** steps)), spread)


def sgd_nesterov(
    parameters: Tensor, grad: Tensor, moments: Moments, learning_rate: float, momentum: float = 0.9
) -> tuple[Tensor, Moments]:
    """One descent step in PyTorch's form: v <- momentum v + g; parameters <- parameters - rate (g + momentum v)."""
    first = torch.add(grad, moments.first, alpha=momentum)
    direction = torch.add(grad, first, alpha=momentum)
    return (torch.sub(parameters, direction, alpha=learning_rate), Moments(first, moments.second, moments.steps + 1))


def step_decay(steps: int, factor: float, every: int) -> float:
    """Factor of the learning rate after ``steps`` steps: ``factor`` once more ``every`` steps (StepLR)."""
    return factor if factor == 1 else factor ** (steps // every)


def rms_normalised(velocity: Tensor, mean_square: Tensor, first: bool) -> tuple[Tensor, Tensor]:
    """The velocity over its running root mean square, as in the original code of SVGD, and the new H.

    H <- v^2 at the first step, then 0.9 H + 0.1 v^2; v / (1e-6 + sqrt(H)): a coordinate moves by about a step at most.
    """
    square = velocity.square()
    mean_square = square if first else torch.lerp(mean_square, square, 0.1)
    return velocity / (mean_square.sqrt() + 1e-6), mean_square
