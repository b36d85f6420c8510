"""Variational inference with affine coupling flows (RealNVP).

Dinh, Sohl-Dickstein & Bengio (2017), arXiv:1605.08803, Section 3; as a variational family Rezende & Mohamed (2015),
arXiv:1505.05770. Noise y_0 ~ N(0, I) passes through T couplings and a last elementwise flow. In a coupling one half u
of the coordinates stays and moves the other half v:

    v' = exp(a) v + b,   (b, r) = net(u),   a = c tanh(r / c),   x = m + sd y_T

so that log q(x) = log N(y_0) - sum_t sum_d a_t - sum_d log sd_d. The halves change places from coupling to coupling.
Adam maximises the evidence bound. Going back through a coupling with g = d/dv',

    d/db = g,   d/da = g exp(a) v - 1/n,   d/dr = (1 - (a/c)^2) d/da,   d/du += J_net^T (d/db, d/dr),   d/dv = g exp(a)

Departures: the paper's checkerboards, channels and batch norm are for images; its bound on the log scale, a tanh with a
learned factor, has the fixed factor c = 2 here. The last elementwise flow and its start are those of ``iaf``. With an
odd D the first half is the smaller; in one dimension there is nothing to couple and mean-field is what is left.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from parvibench.core.algorithm import Example, Problem, Streams
from parvibench.nn.mlp import MLP
from parvibench.nn.variational import AffineFlow, VariationalSettings, VariationalState, narrow

#: c, the largest log scale of a coupling.
LARGEST = 2.0


class Settings(VariationalSettings):
    """Settings of coupling flows."""

    flows: int = Field(6, ge=1, description="T, couplings; ours")
    hidden: int = Field(32, ge=1, description="units in each of the two hidden layers of a coupling's network; ours")


class Coupling(NamedTuple):
    """One coupling with its intermediate values."""

    first: bool  # whether the first half stays
    v: Tensor  # the half that is moved, before, (R, n, D_v)
    a: Tensor  # log scale, (R, n, D_v)
    values: list[Tensor]  # of the network's layers
    network: Tensor  # its parameters, (R, P_t)


class RealNVP(AffineFlow[Settings]):
    """Variational inference with affine coupling flows."""

    name = "realnvp"
    needs = frozenset({"score"})
    citation = "Dinh, Sohl-Dickstein & Bengio (2017), arXiv:1605.08803"
    example = Example(
        quick={"batch": 8, "hidden": 6, "flows": 3},
        settings={"step_size": 0.02, "hidden": 8, "flows": 2},
        steps=200,
        points=200,
        both_modes=False,
    )

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> VariationalState:
        """Couplings that start as the identity; location at the first of the task's initial points, narrow."""
        parts = []
        for t, net in enumerate(networks(settings, problem.dim)):
            uniform = streams.uniform("init", (net.n_parameters,), t)
            network, last = net.initialise(uniform), (net.sizes[-2] + 1) * net.sizes[-1]
            network[:, -last:] = 0
            parts.append(network)
        return narrow(problem, settings, horizon, *parts)

    def layers(self, settings: Settings, flat: Tensor, noise: Tensor) -> tuple[Tensor, Sequence[Coupling]]:
        """y_T (R, n, D) and the couplings in order."""
        nets, y, couplings = networks(settings, noise.shape[2]), noise, []
        rows = torch.split(flat, [net.n_parameters for net in nets], 1)
        for t, (net, network) in enumerate(zip(nets, rows, strict=True)):
            u, v = _split(y, t % 2 == 0)
            values = net.forward(network, u)
            b, raw = values[-1].chunk(2, 2)
            a = LARGEST * (raw / LARGEST).tanh()
            couplings.append(Coupling(t % 2 == 0, v, a, values, network))
            y = _join(u, a.exp() * v + b, t % 2 == 0)
        return y, couplings

    def back(self, settings: Settings, layers: Sequence[Coupling], grad: Tensor) -> list[Tensor]:
        """Gradients in the couplings' networks, the last one first."""
        grads = []
        for net, coupling in zip(reversed(networks(settings, grad.shape[2])), reversed(layers), strict=True):
            by_u, g = _split(grad, coupling.first)
            scaled = g * coupling.a.exp()
            by_raw = (scaled * coupling.v - 1 / grad.shape[1]) * (1 - (coupling.a / LARGEST).square())
            out = torch.cat((g, by_raw), 2)
            grads.append(net.backward(coupling.network, coupling.values, out))
            by_u = by_u + net.backward_input(coupling.network, coupling.values, out)
            grad = _join(by_u, scaled, coupling.first)
        return grads


def networks(settings: Settings, dim: int) -> list[MLP]:
    """Shape of each coupling's network; none in one dimension."""
    sizes = (dim // 2, dim - dim // 2)
    halves = [sizes if t % 2 == 0 else sizes[::-1] for t in range(settings.flows if dim > 1 else 0)]
    return [MLP((stays, settings.hidden, settings.hidden, 2 * moved), "tanh") for stays, moved in halves]


def _split(y: Tensor, first: bool) -> tuple[Tensor, Tensor]:
    """The half that stays and the half that is moved; the first half has D // 2 coordinates."""
    head, tail = torch.split(y, [y.shape[2] // 2, y.shape[2] - y.shape[2] // 2], 2)
    return (head, tail) if first else (tail, head)


def _join(stays: Tensor, moved: Tensor, first: bool) -> Tensor:
    return torch.cat((stays, moved) if first else (moved, stays), 2)
