"""Variational inference with inverse autoregressive flows (IAF).

Kingma, Salimans, Jozefowicz, Chen, Sutskever & Welling (2016), arXiv:1606.04934. Noise y_0 ~ N(0, I) passes through T
affine flows and a last elementwise one,

    y_t = exp(a_t) y_{t-1} + b_t,   (b_t, a_t) = net_t(y_{t-1}),   x = m + sd y_T

where coordinate d of b_t and a_t depends on coordinates before d only, so that the Jacobian is triangular and log q(x)
= log N(y_0) - sum_t sum_d a_t - sum_d log sd_d; the order of the coordinates is turned round between flows. Adam
maximises the evidence bound. Going back through flow t with g = d/dy_t,

    d/db = g,   d/da = g exp(a) y_{t-1} - 1/n,   d/dy_{t-1} = g exp(a) + J_net^T (d/db, d/da)

The network's masks are Pyro's, and a flow equals Pyro's AffineAutoregressive: a is cut to [-5, 3] and the gradient
passes the cut.

Departures: the paper gates y by a sigmoid (its Eq. 14), which narrows only; the last elementwise flow is a guide's
usual location and scale, started at one draw of the task's initial distribution.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from pydantic import Field
from pyro.nn.auto_reg_nn import create_mask
from torch import Tensor

from parvibench.core.algorithm import Example, Problem, Streams
from parvibench.nn.mlp import MLP
from parvibench.nn.variational import AffineFlow, VariationalSettings, VariationalState, narrow


class Settings(VariationalSettings):
    """Settings of inverse autoregressive flows."""

    flows: int = Field(2, ge=1, description="T, autoregressive flows; ours")
    hidden: int = Field(32, ge=1, description="hidden units of each flow's network, at least D are used; ours")


class Flow(NamedTuple):
    """One flow with its intermediate values."""

    y: Tensor  # what went in, (R, n, D)
    a: Tensor  # log scale, (R, n, D)
    values: list[Tensor]  # of the network's layers
    network: Tensor  # its parameters, (R, P)


class IAF(AffineFlow[Settings]):
    """Variational inference with inverse autoregressive flows."""

    name = "iaf"
    version = 2
    citation = "Kingma, Salimans, Jozefowicz, Chen, Sutskever & Welling (2016), arXiv:1606.04934"
    example = Example(
        quick={"batch": 8, "hidden": 6}, settings={"step_size": 0.05, "hidden": 8, "flows": 1}, steps=150, points=200,
        both_modes=False,
    )  # fmt: skip

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> VariationalState:
        """Random flows; location at the first of the task's initial points, narrow."""
        net, mask = masked_network(problem.dim, settings.hidden, problem.device, problem.dtype)
        uniform = streams.uniform("init", (settings.flows, net.n_parameters))
        flows = [net.initialise(u) * mask for u in uniform.unbind(1)]
        return narrow(problem, settings, horizon, *flows)

    def layers(self, settings: Settings, flat: Tensor, noise: Tensor) -> tuple[Tensor, Sequence[Flow]]:
        """y_T (R, n, D) and the flows in order."""
        net, _ = masked_network(noise.shape[2], settings.hidden, noise.device, noise.dtype)
        y = noise
        flows: list[Flow] = []
        for network in flat.chunk(settings.flows, 1):
            if flows:
                y = y.flip(2)
            values = net.forward(network, y)
            b, a = values[-1].chunk(2, 2)
            a = a.clamp(-5, 3)
            flows.append(Flow(y, a, values, network))
            y = a.exp() * y + b
        return y, flows

    def back(self, settings: Settings, layers: Sequence[Flow], grad: Tensor) -> list[Tensor]:
        """Gradients in the flows' networks, the last one first."""
        net, mask = masked_network(grad.shape[2], settings.hidden, grad.device, grad.dtype)
        grads = []
        for flow in reversed(layers):
            scaled = grad * flow.a.exp()
            out = torch.cat((grad, scaled * flow.y - 1 / grad.shape[1]), 2)
            grads.append(net.backward(flow.network, flow.values, out).mul_(mask))
            grad = (scaled + net.backward_input(flow.network, flow.values, out)).flip(2)
        return grads


@lru_cache(maxsize=32)
def masked_network(dim: int, hidden: int, device: torch.device, dtype: torch.dtype) -> tuple[MLP, Tensor]:
    """Shape of a flow's network, and which of its flat parameters are there: (P,) of zeros and ones."""
    width = max(hidden, dim)
    with torch.inference_mode(False):
        order: Any = torch.arange(dim)
        masks, _ = create_mask(dim, 0, [width], order, 2)
        parts = [part for mask in masks for part in (mask.T.flatten(), torch.ones(len(mask)))]
        return MLP((dim, width, 2 * dim), "relu"), torch.cat(parts).to(device, dtype)
