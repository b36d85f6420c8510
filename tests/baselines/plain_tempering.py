"""One point of tempering by plain numbers: the bent target, the base, and a move of MALA between them."""

import math

import torch
from sampler_toys import Bent
from torch import Tensor


def bent(x: Tensor) -> float:
    return Bent().log_density(x.view(1, 1, -1)).item()


def bent_score(x: Tensor) -> Tensor:
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(Bent().log_density(leaf.view(1, 1, -1)).sum(), leaf)[0]


def base(x: Tensor, sd: float) -> float:
    return torch.distributions.Normal(0.0, sd).log_prob(x).sum().item()


def plain_mala(x: Tensor, b: float, eta: float, sd: float, noise: Tensor, uniform: float) -> tuple[Tensor, float]:
    """One chain at one temperature, proposal densities written out."""

    def log_p(v: Tensor) -> float:
        return b * bent(v) + (1 - b) * base(v, sd)

    def drift(v: Tensor) -> Tensor:
        return v + eta * (b * bent_score(v) - (1 - b) / sd**2 * v)

    def log_q(to: Tensor, start: Tensor) -> float:
        return torch.distributions.Normal(drift(start), math.sqrt(2 * eta)).log_prob(to).sum().item()

    y = drift(x) + math.sqrt(2 * eta) * noise
    chance = min(1.0, math.exp(min(0.0, log_p(y) - log_p(x) + log_q(x, y) - log_q(y, x))))
    return (y if uniform < chance else x), chance
