"""MEADS: generalised Hamiltonian Monte Carlo that tunes itself across folds of chains.

Hoffman & Sountsov (2022), Tuning-Free Generalized Hamiltonian Monte Carlo, AISTATS 2022, Algorithm 3. The chains are
dealt to K = 4 folds; update t moves all folds but number t mod K, each by what it learns from the fold before it, with
scales sigma (standard deviations), g = sigma * score and z = x / sigma of that fold:

    eps = min(1, 1/2 lambda(g)^(-1/2)),    gamma = max(lambda(z - mean z)^(-1/2), 1 / (t eps)),
    alpha = 1 - exp(-2 eps gamma),    delta = alpha / 2,    lambda(S) = sum_ij (S_i . S_j)^2 / (n sum_i |S_i|^2),

the last one an estimate of the largest eigenvalue of a second moment. A move of a chain is one leapfrog step,

    p <- sqrt(1 - alpha) p + sqrt(alpha) xi,   u <- (u + 1 + delta) mod 2 - 1,
    (x', p') = leapfrog of length eps sigma,   a = exp(H(x, p) - H(x', p')),
    |u| < a:  x, p, u <- x', p', u / a,        else:  p <- -p

(Neal, 2020, arXiv:2001.11950). A step is the K updates between two deals; chains that K does not divide rest in it.
Some fold never moves with what it teaches, so the chains' joint law stays exact and nothing has to be frozen. Ours:
fewer than eight chains make folds of two.
Trap: the steepest chains of a fold decide lambda(g), and with it everyone's eps. On `low-dim-gauss-mix` from
N(0, I), where log densities differ by 10^4 nats, no chain of 100 reaches the mass in 80,000 scores; from a Laplace fit
all are there at once.
"""

from typing import NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from parvibench.core.algorithm import Algorithm, AlgorithmSettings, Example, Problem, Streams
from parvibench.core.errors import UnsupportedError
from parvibench.nn.masks import where

from ._chains import Info, acceptance, divergent


class Settings(AlgorithmSettings):
    """Settings of MEADS."""

    folds: int = Field(4, ge=2, description="K; paper")
    step_multiplier: float = Field(0.5, gt=0, description="of lambda(g)^(-1/2); paper")
    damping_slowdown: float = Field(1.0, ge=0, description="c of the floor c / (t eps) of gamma; paper")


class State(NamedTuple):
    """Chains with what is known at their positions."""

    x: Tensor  # (R, N, D)
    log_density: Tensor  # (R, N)
    score: Tensor  # (R, N, D)
    p: Tensor  # (R, N, D) momentum
    u: Tensor  # (R, N) in [-1, 1): decides acceptance


class Tuning(NamedTuple):
    """Parameters that a fold gives to the next, (R, K, ...)."""

    step: Tensor  # (R, K, D) eps sigma
    alpha: Tensor  # (R, K)


class MEADS(Algorithm[Settings, State]):
    """Generalised Hamiltonian Monte Carlo tuned across folds of chains, adapts itself."""

    name = "meads"
    kind = "chains"
    exact = "adapted"
    needs = frozenset({"full-batch", "score"})
    citation = "Hoffman & Sountsov (2022), AISTATS 2022"
    example = Example(scores=3, first_scores=1, settings={}, steps=60, both_modes=False)

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> State:
        """Chains at the task's initial points; ``UnsupportedError`` with fewer than four."""
        x = problem.init()
        if x.shape[1] < 4:
            raise UnsupportedError(f"meads tunes one fold of chains by another: it needs 4 or more, not {x.shape[1]}")
        p = streams.normal("algorithm", x.shape[1:])
        u = 2 * streams.uniform("algorithm", x.shape[1:2]) - 1
        return State(x, *problem.log_density_and_score(x), p.clone(), u)

    def step(self, problem: Problem, settings: Settings, state: State, streams: Streams) -> tuple[State, Info]:
        """Deal the chains to folds, then K updates of K - 1 folds each."""
        _, N, D = state.x.shape
        K = min(settings.folds, state.x.shape[1] // 2)
        n = N // K
        dealt = streams.uniform("algorithm", (N,), index=1).argsort(1)[:, : K * n]
        folds = State(*(_split(_take(a, dealt), K) for a in state))
        noise = streams.normal("noise", (K, (K - 1) * n, D))
        changes = []
        for k in range(K):
            tuning = tune(settings, folds, streams.step * K + k + 1)
            own = Tuning(*(_without(a.roll(1, 1), k) for a in tuning))
            moved, change = _moved(problem, State(*(_without(a, k) for a in folds)), own, _split(noise[:, k], K - 1))
            pairs = zip(folds, moved, strict=True)
            folds = State(*(torch.cat((b[:, :k], a[:, k : k + 1], b[:, k:]), 1) for a, b in pairs))
            changes.append(change.flatten(1))
        change = torch.cat(changes, 1)
        info = Info(acceptance(change).mean(1), divergent(change).mean(1))
        return State(*(_put(a, dealt, b.flatten(1, 2)) for a, b in zip(state, folds, strict=True))), info


def tune(settings: Settings, folds: State, t: int) -> Tuning:
    """Parameters from each fold of n chains, (R, K, n, D), for update ``t``, counted from 1."""
    sigma = folds.x.std(2, correction=0)
    sigma = torch.where(sigma > 0, sigma, torch.ones_like(sigma))
    z = folds.x / sigma.unsqueeze(2)
    eps = (settings.step_multiplier * largest_eigenvalue(folds.score * sigma.unsqueeze(2)).rsqrt()).clamp(max=1)
    gamma = largest_eigenvalue(z - z.mean(2, keepdim=True)).rsqrt()
    alpha = 1 - (-2 * torch.maximum(eps * gamma, torch.zeros_like(eps) + settings.damping_slowdown / t)).exp()
    return Tuning(eps.unsqueeze(-1) * sigma, alpha)


def largest_eigenvalue(rows: Tensor) -> Tensor:
    """tr(M^2) / tr(M) of M = S^T S / n for rows S, (..., n, D) -> (...); 1 where they are all zero."""
    gram = rows @ rows.mT if rows.shape[-2] < rows.shape[-1] else rows.mT @ rows
    trace = rows.square().sum((-2, -1))
    value = gram.square().sum((-2, -1)) / (rows.shape[-2] * trace)
    return torch.where(trace > 0, value, torch.ones_like(value))


def _moved(problem: Problem, state: State, tuning: Tuning, noise: Tensor) -> tuple[State, Tensor]:
    """One generalised move of the chains (R, F, n, D), and the log of a."""
    step, alpha = tuning.step.unsqueeze(2), tuning.alpha[..., None]
    p = (1 - alpha).sqrt().unsqueeze(-1) * state.p + alpha.sqrt().unsqueeze(-1) * noise
    u = (state.u + 1 + alpha / 2) % 2 - 1
    half = p + 0.5 * step * state.score
    y = state.x + step * half
    log_density, score = (_split(a, y.shape[1]) for a in problem.log_density_and_score(y.flatten(1, 2)))
    q = half + 0.5 * step * score
    change = log_density - state.log_density + 0.5 * (p.square().sum(-1) - q.square().sum(-1))
    accept = u.abs().log() < change
    there = State(y, log_density, score, q, u * (-change).exp())
    return where(accept, there, state._replace(p=-p, u=u)), change


def _without(values: Tensor, fold: int) -> Tensor:
    """Values (R, K, ...) but for one fold: (R, K - 1, ...)."""
    return torch.cat((values[:, :fold], values[:, fold + 1 :]), 1)


def _split(values: Tensor, folds: int) -> Tensor:
    """Values (R, F n, ...) by fold: (R, F, n, ...)."""
    return values.reshape(len(values), folds, -1, *values.shape[2:])


def _take(values: Tensor, rows: Tensor) -> Tensor:
    """Chains ``rows``, (R, M), of values (R, N) or (R, N, D)."""
    wide = rows if values.dim() == 2 else rows[..., None].expand(-1, -1, values.shape[2])
    return values.gather(1, wide)


def _put(values: Tensor, rows: Tensor, new: Tensor) -> Tensor:
    """Values with the chains ``rows`` replaced."""
    return values.scatter(1, rows if values.dim() == 2 else rows[..., None].expand_as(new), new)
