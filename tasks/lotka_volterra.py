"""Predators and prey: pelts of lynx and hare over 21 years.

``lotka-volterra`` (posteriordb hudson_lynx_hare-lotka_volterra):

    u' = (alpha - beta v) u,  v' = (-gamma + delta u) v,  counts ~ LogNormal(log u, sigma_1), LogNormal(log v, sigma_2)

from z_init at the first of the years 0, 1, ..., 20, with alpha, gamma ~ N(1, 0.5), beta, delta ~ N(0.05, 0.05), both
positive, z_init ~ LogNormal(log 10, 1), sigma ~ LogNormal(-1, 1). Howard (2009), Modeling basics; Carpenter (2018),
Stan case study. The posterior is close to Gaussian in the logarithms (condition number 350), but far from it cycles of
another length make modes of their own, 40 nats and more below: half of all ascents from Stan's start end there.

In p = log u and q = log v the equations are those of a Hamiltonian, p' = alpha - beta exp(q), q' = -gamma + delta exp(p):
solved by a splitting method of order 6 with ten stages (Blanes & Moan 2002, Journal of Computational and Applied
Mathematics 142, S10), whose steps are exact and invertible and keep populations positive, three steps a year. On the
posterior log densities are right to 1e-6. Stan's own program integrates u and v with tolerances of 1e-5 and 1e-3.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ._posterior import ModelTarget, Place, Variables, posterior
from ._transforms import POSITIVE, Layout, Parameter, layout

_STEPS = 3  # a year
# Blanes & Moan's coefficients: p moves by a_1, q by b_1, p by a_2, ..., the same backwards from the middle.
_A = (0.0502627644003922, 0.413514300428344, 0.0450798897943977, -0.188054853819569, 0.541960678450780)
_B = (0.148816447901042, -0.132385865767784, 0.067307604692185, 0.432666402578175)
_LAST_B = 0.5 - sum(_B)
_MIDDLE_A = 1 - 2 * sum(_A)
_KICKS = (*_A, _MIDDLE_A, *reversed(_A))
_DRIFTS = (*_B, _LAST_B, _LAST_B, *reversed(_B))


def _sub_steps(years: int) -> list[tuple[bool, float, bool]]:
    """Whether p moves (or q), for how long, and whether a year is over; moves of p that meet are one."""
    found: list[tuple[bool, float, bool]] = []
    for step in range(_STEPS * years):
        for stage, kick in enumerate(_KICKS):
            carried = found.pop()[1] if stage == 0 and found and not found[-1][2] else 0.0
            ends = stage == len(_DRIFTS) and (step + 1) % _STEPS == 0
            found.append((True, carried + kick / _STEPS, ends))
            if stage < len(_DRIFTS):
                found.append((False, _DRIFTS[stage] / _STEPS, False))
    return found


def paths(rates: Tensor, start: Tensor, years: int) -> Tensor:
    """Logarithms of both populations after 1, 2, ... years, (2, years, ...), from rates (4, ...) and start (2, ...)."""
    alpha, beta, gamma, delta = rates
    p, q = start
    found = []
    for moves_p, time, ends in _sub_steps(years):
        if moves_p:
            p = p + time * (alpha - beta * q.exp())
        else:
            q = q + time * (delta * p.exp() - gamma)
        if ends:
            found.append(torch.stack([p, q]))
    return torch.stack(found, 1)


class _Paths(torch.autograd.Function):
    """``paths`` with a derivative written by hand: the steps backwards, each with the exponential that it used."""

    @staticmethod
    def forward(ctx: Any, rates: Tensor, start: Tensor, years: int) -> Tensor:
        ctx.steps, ctx.rates = _sub_steps(years), rates
        alpha, beta, gamma, delta = rates
        p, q = start
        found, ctx.exponentials = [], []
        for moves_p, time, ends in ctx.steps:
            e = q.exp() if moves_p else p.exp()
            ctx.exponentials.append(e)
            if moves_p:
                p = torch.add(p, torch.addcmul(alpha, beta, e, value=-1), alpha=time)
            else:
                q = torch.add(q, torch.addcmul(gamma, delta, e, value=-1), alpha=-time)
            if ends:
                found += [p, q]
        return torch.stack(found).view(years, 2, *p.shape).transpose(0, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, weights: Tensor) -> tuple[Tensor, Tensor, None]:
        _, beta, _, delta = ctx.rates
        by_p, by_q = (torch.zeros_like(beta) for _ in range(2))
        by_alpha, by_beta, by_gamma, by_delta = (torch.zeros_like(beta) for _ in range(4))
        year = weights.shape[1]
        for (moves_p, time, ends), e in zip(reversed(ctx.steps), reversed(ctx.exponentials), strict=True):
            if ends:
                year -= 1
                by_p, by_q = by_p + weights[0, year], by_q + weights[1, year]
            moved = by_p if moves_p else by_q
            along = moved * e
            if moves_p:
                by_alpha.add_(moved, alpha=time)
                by_beta.sub_(along, alpha=time)
                by_q = torch.addcmul(by_q, along, beta, value=-time)
            else:
                by_gamma.sub_(moved, alpha=time)
                by_delta.add_(along, alpha=time)
                by_p = torch.addcmul(by_p, along, delta, value=time)
        return torch.stack([by_alpha, by_beta, by_gamma, by_delta]), torch.stack([by_p, by_q]), None


class PopulationsTarget(ModelTarget):
    """The unnormalised posterior of log rates, log initial populations and log errors."""

    def __init__(self, parameters: Layout, data: Variables, place: Place) -> None:
        logs = np.log(np.vstack([data["y_init"], data["y"]]).T)
        constants = [place(c) for c in (logs, (1, 0.05, 1, 0.05), (4, 400, 4, 400))]
        super().__init__(parameters, partial(_log_joint, paths), constants)
        self._by_hand = ModelTarget(parameters, partial(_log_joint, _Paths.apply), constants)

    def log_density_and_score(self, x: Tensor, batch: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Both at once, by the derivative that is written by hand where none of it is wanted."""
        if x.requires_grad and torch.is_grad_enabled():
            return super().log_density_and_score(x, batch)
        return self._by_hand.log_density_and_score(x, batch)

    def score(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Gradient: (R, N, D) -> (R, N, D)."""
        if x.requires_grad and torch.is_grad_enabled():
            return super().score(x, batch)
        return self.log_density_and_score(x)[1]


def _log_joint(
    solve: Callable[..., Tensor],
    counts: Tensor,
    centres: Tensor,
    precisions: Tensor,
    theta: Tensor,
    z_init: Tensor,
    sigma: Tensor,
) -> Tensor:
    """Log joint density, of logarithms of the counts, (2, 21), the first year first, and the prior of the rates."""
    start = z_init.log().movedim(-1, 0)
    years = counts.shape[1] - 1
    logs = torch.cat([start.unsqueeze(1), solve(theta.movedim(-1, 0), start, years)], 1)
    apart = (counts - logs.movedim((0, 1), (-2, -1))) / sigma.unsqueeze(-1)  # (R, N, 2, 21)
    likelihood = -0.5 * apart.square().sum((-2, -1)) - (years + 1) * sigma.log().sum(-1)
    prior = -0.5 * (precisions * (theta - centres) ** 2).sum(-1)
    # The densities of z_init and sigma less the logarithms that their Jacobians add again.
    spread = (z_init.log() - math.log(10)).square().sum(-1) + (sigma.log() + 1).square().sum(-1)
    return likelihood + prior - 0.5 * spread - z_init.log().sum(-1) - sigma.log().sum(-1)


LOTKA_VOLTERRA = posterior(
    "lotka-volterra",
    "populations of lynx and hare, a differential equation",
    "time series, differential equation, multimodal",
    "Howard (2009); Carpenter (2018), Stan case study; posteriordb hudson_lynx_hare-lotka_volterra",
    layout(Parameter("theta", 4, POSITIVE), Parameter("z_init", 2, POSITIVE), Parameter("sigma", 2, POSITIVE)),
    PopulationsTarget,
)
