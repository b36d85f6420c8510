"""A small network refitted by a few optimiser steps within every iteration of a sampler."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import Tensor

from parvibench.core.algorithm import SteppedSettings

from .mlp import MLP, Activation
from .optim import Moments, adam, sgd_nesterov, step_decay


class RefitSettings(SteppedSettings):
    """Settings of samplers whose velocity comes from a refitted network of D inputs and D outputs."""

    hidden: int = Field(32, ge=1, description="units in each of two hidden layers; 32 toys, 300 networks")
    activation: Activation = Field("tanh", description="tanh on toys, leaky-relu on networks; SIFG paper")
    inner_steps: int = Field(5, ge=1, description="N', optimiser steps per iteration; SIFG paper's toys")
    warmup_inner_steps: int = Field(10, ge=0, description="optimiser steps before iteration 0; SIFG code")
    net_optimiser: Literal["sgd-nesterov", "adam"] = Field(
        "sgd-nesterov", description="optimiser of f: toys sgd-nesterov with momentum 0.9, networks adam"
    )
    net_learning_rate: float = Field(
        1e-3, gt=0, description="of f's optimiser; SIFG paper 1e-3 toys, 1e-4 networks"
    )
    net_decay: float = Field(
        1.0, gt=0, le=1, description="learning rate factor every 1000 inner steps; SIFG code 0.9"
    )

    def network(self, dim: int) -> MLP:
        """Shape of f: R^dim -> R^dim."""
        return MLP((dim, self.hidden, self.hidden, dim), self.activation)

    def start(self, network: Tensor) -> Moments:
        """Memory of f's optimiser before its first step."""
        return Moments.start(network, second=self.net_optimiser == "adam")

    def descend(self, network: Tensor, grad: Tensor, moments: Moments) -> tuple[Tensor, Moments]:
        """One optimiser step of f: (R, P) parameters and gradient to new parameters and moments."""
        optimise = adam if self.net_optimiser == "adam" else sgd_nesterov
        rate = self.net_learning_rate * step_decay(moments.steps, self.net_decay, 1000)
        return optimise(network, grad, moments, rate)
