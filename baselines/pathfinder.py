"""Pathfinder: normal approximations along a quasi-Newton path, resampled by importance.

Zhang, Carpenter, Gelman & Vehtari (2022), JMLR 23(306), Algorithms 1 to 4. From each of P initial points L-BFGS
climbs the log density. At every point x_l of the path its estimate of the inverse negative Hessian gives a normal

    q_l = N(x_l + H_l s(x_l), H_l),   H = diag(alpha) + B G B^T       (``parvibench.nn.lbfgs``)

and K draws estimate its evidence bound, mean of log p - log q_l. With the thin decomposition
Q R of diag(alpha)^(-1/2) B and L L^T = I + R G R^T, draws are

    x = mu + diag(alpha)^(1/2) (Q (L - I) Q^T u + u),   u ~ N(0, I),   log det H = sum log alpha + 2 sum log L_kk

The best normal of each path gives M draws, the first K of them those of its bound, as in the authors' code. All
P M draws together are resampled by Pareto-smoothed ratios p / q (Vehtari et al. 2024), with replacement. A single path
is not resampled (``resampling="none"``): any number of fresh draws of its normal, and of all paths' in turn.

A step evaluates one point a path searches at, and K draws: K + 1 log densities, one of them with its score. Once a
path has ended, all K + 1 are draws for its M, and a run ends when all paths have theirs: more would only replace the oldest.

Departures: L-BFGS is our own, with another line search than R's L-BFGS-B, and paths that fail are not begun again. A
rejected point of a line search costs K + 1 like the others. Paths climb in double precision where the density takes it,
and end after a change of 10 units of rounding, theirs after 100.
Traps: J pairs know J directions, and the diagonal guesses the others. With standard deviations from 0.01 to 100, those of
the draws are off by half in ten dimensions and by a factor of 70 in twenty; a ``pareto_k`` above 0.7 tells. Draws are
repeated, more so where normals fit badly; a bound of K = 5 draws is noisy, and the highest is taken. The ratios are of
each draw's own normal: where paths end in modes of one density, each gets weight by its mass, and a mode that several
paths end in gets it several times.
"""

import importlib
import math
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from parvibench.core.algorithm import Algorithm, AlgorithmSettings, Example, Problem, Streams
from parvibench.nn import lbfgs
from parvibench.nn.masks import where
from parvibench.nn.variational import log_normaliser

#: Draws from which weights are smoothed: fewer have no tail to fit.
FEWEST = 25
#: Pareto k above which a mean of ratios is not to be trusted (Vehtari et al. 2024).
LARGEST_K = 0.7


class Settings(AlgorithmSettings):
    """Settings of Pathfinder."""

    paths: int = Field(20, ge=1, description="P, paths; paper's I")
    elbo_draws: int = Field(5, ge=1, description="K, draws that estimate a bound; paper")
    draws: int = Field(100, ge=1, description="M, draws kept of each path's best normal; paper")
    history: int = Field(6, ge=1, description="J, pairs that L-BFGS remembers; paper")
    longest: int = Field(1000, ge=1, description="iterations of L-BFGS after which a path ends; paper")
    resampling: Literal["psis", "distinct", "none"] = Field(
        "psis",
        description="psis: Pareto-smoothed importance resampling of all paths' draws; distinct: without replacement, for "
        "starts; none: fresh draws (single path)",
    )


class Normals(NamedTuple):
    """A normal for each path, and its bound."""

    mean: Tensor  # (R, P, D)
    alpha: Tensor  # (R, P, D)
    q: Tensor  # (R, P, D, k), k = min(D, 2 J)
    factor: Tensor  # L, (R, P, k, k)
    elbo: Tensor  # (R, P)


class State(NamedTuple):
    """Paths, the best normal of each, and its draws, the newest first, with log p - log q in the last column."""

    paths: lbfgs.Paths
    best: Normals
    draws: Tensor  # (R, P, M, D + 1)
    kept: Tensor  # number of draws, (R, P), floating


class Info(NamedTuple):
    """Per-step diagnostics, (R,) each."""

    stopped_early: Tensor  # share of the paths that have ended below the top
    pareto_k: Tensor  # of the ratios p / q, median over the paths: above 0.7 most normals miss much of the density
    log_z: Tensor  # log of the mean ratio of all retained draws
    log_z_se: Tensor  # its standard error, by the spread of the ratios
    log_z_doubt: Tensor  # 1 where the Pareto k of all ratios together is above 0.7, else 0


class Pathfinder(Algorithm[Settings, State]):
    """Normal approximations along quasi-Newton paths, resampled by importance."""

    name = "pathfinder"
    version = 3
    kind = "generator"
    needs = frozenset({"full-batch", "score"})
    #: where a path ends depends on the last bits, and these on how many replicates are evaluated at once
    max_chunk = 1
    citation = "Zhang, Carpenter, Gelman & Vehtari (2022), JMLR 23(306)"
    example = Example(
        quick={"paths": 8, "elbo_draws": 2, "draws": 6},
        scores=3,
        settings={"paths": 5},
        steps=60,
        points=200,
        skewed=True,
    )

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> State:
        """Paths at the task's initial points; a unit normal about each until there is a better one."""
        x = problem.init(settings.paths).to(problem.finest)
        k = min(problem.dim, 2 * settings.history)
        q, factor = (torch.eye(rows, k, dtype=x.dtype, device=x.device) for rows in (problem.dim, k))
        worst = torch.full_like(x[..., 0], torch.finfo(x.dtype).min)
        batch = x.shape[:2]
        unit = Normals(x, torch.ones_like(x), q.repeat(*batch, 1, 1), factor.repeat(*batch, 1, 1), worst)
        draws = x.new_zeros(*batch, settings.draws, problem.dim + 1)
        return State(lbfgs.start(x, settings.history), unit, draws, torch.zeros_like(worst))

    def step(self, problem: Problem, settings: Settings, state: State, streams: Streams) -> tuple[State, Info]:
        """One evaluation of every path and K draws of its newest normal, or K + 1 draws of its best."""
        paths, best, draws, kept = state
        done, (r, p, dim), k = paths.done, paths.x.shape, settings.elbo_draws
        u = streams.normal("noise", (p, k + 1, dim)).to(paths.x)
        one, log_q = normal_draws(best, u[:, :, :1])
        log_p, score = problem.log_density_and_score(where(done, one.squeeze(2), paths.trial))
        one = _with_ratio(one, log_p.unsqueeze(2), log_q)
        paths, accepted = lbfgs.advance(paths, log_p, score, settings.longest)

        now = normal_at(paths)
        x, log_q = normal_draws(where(done, best, now), u[:, :, 1:])
        many = _with_ratio(x, problem.log_density(x.reshape(r, -1, dim)).view(r, p, k), log_q)
        now = now._replace(elbo=now.elbo + many[..., -1].mean(-1))

        better = accepted & (now.elbo > best.elbo)
        filled = torch.cat((many, one, draws), 2)[:, :, : settings.draws]
        draws = where(done | better, filled, draws)
        kept = torch.where(done, kept + k + 1, torch.where(better, torch.full_like(kept, k), kept))
        kept = kept.clamp(max=settings.draws)
        info = Info(
            paths.stopped_early(settings.longest).to(kept.dtype).mean(1),
            pareto_k(draws[..., -1], kept).median(1).values,
            *_log_normaliser(draws[..., -1], kept),
            (pareto_k(_there(draws[..., -1], kept), kept.sum(1)) > LARGEST_K).to(kept),
        )
        return State(paths, where(better, now, best), draws, kept), info

    def output(self, problem: Problem, settings: Settings, state: State, n: int, streams: Streams) -> Tensor:
        """Resampled draws, or fresh ones of all paths' normals in turn, (R, n, D)."""
        r, p, dim = state.best.mean.shape
        rows = -(-n // p)
        u = streams.normal("output", (rows * p, dim)).to(state.draws).view(r, rows, p, dim).transpose(1, 2)
        fresh = normal_draws(state.best, u)[0].transpose(1, 2).reshape(r, -1, dim)[:, :n]
        if settings.resampling == "none":
            return fresh.to(problem.dtype)
        distinct = settings.resampling == "distinct"
        place = streams.uniform("output", (p * settings.draws if distinct else n,)).double().cpu().numpy()
        found = []
        for i in range(r):
            chosen = resampled(state.draws[i, ..., -1], state.kept[i], place[i], distinct=distinct)
            drawn = state.draws[i, ..., :-1].reshape(-1, dim)
            found.append(fresh[i] if chosen is None else torch.cat((drawn[chosen.to(fresh.device)], fresh[i]))[:n])
        return torch.stack(found).to(problem.dtype)

    def ended(self, problem: Problem, settings: Settings, state: State) -> bool:
        """True once all paths have ended and have all their draws."""
        return bool(state.paths.done.all()) and bool((state.kept >= settings.draws).all())


def normal_at(paths: lbfgs.Paths) -> Normals:
    """The normal at every path's last point, its bound zero, or minus infinity where rounding leaves no normal."""
    estimate = lbfgs.inverse_hessian(paths.alpha, paths.s, paths.z)
    alpha, b, g = estimate
    q, r = torch.linalg.qr(b / alpha.sqrt().unsqueeze(-1))
    inner = r @ g @ r.mT
    eye = torch.eye(inner.shape[-1], dtype=inner.dtype, device=inner.device)
    factor, failed = torch.linalg.cholesky_ex(eye + (inner + inner.mT) / 2)
    sound = failed == 0
    elbo = torch.where(sound, 0.0, torch.full_like(paths.t, -math.inf))
    return Normals(paths.x + estimate.times(paths.score), alpha, q, where(sound, factor, eye.expand_as(factor)), elbo)


def normal_draws(normals: Normals, u: Tensor) -> tuple[Tensor, Tensor]:
    """Draws (R, P, n, D) and their log densities (R, P, n) from standard normal noise of the former's shape."""
    mean, alpha, q, factor, _ = normals
    inner = u @ q
    x = mean.unsqueeze(2) + alpha.sqrt().unsqueeze(2) * (u + (inner @ factor.mT - inner) @ q.mT)
    half_log_det = alpha.log().sum(-1) / 2 + factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    constant = u.shape[-1] / 2 * math.log(2 * math.pi)
    return x, -u.square().sum(-1) / 2 - half_log_det.unsqueeze(-1) - constant


def resampled(log_ratios: Tensor, kept: Tensor, place: NDArray[np.float64], *, distinct: bool = False) -> Tensor | None:
    """Rows of the draws of one replicate, (n,) into (P M), by Pareto-smoothed weights; None where there are no draws.

    ``log_ratios`` are (P, M), of which so many are ``kept``, (P,); ``place`` are n uniforms. With ``distinct``, without
    replacement: every draw there is, in the order of its exponential clock, of P M uniforms.
    """
    there = torch.arange(log_ratios.shape[1], device=kept.device) < kept.unsqueeze(-1)
    rows = there.flatten().nonzero().flatten().cpu()
    if len(rows) == 0:
        return None
    ratios = log_ratios.flatten().double().cpu()[rows].numpy()
    ratios -= ratios.max()
    smoothed = pareto_smoothed(ratios) if len(rows) >= FEWEST else ratios
    if distinct:
        return rows[np.argsort(np.log(-np.log1p(-place[: len(rows)])) - smoothed, kind="stable")]
    total = np.cumsum(np.exp(smoothed - smoothed.max()))
    return rows[np.searchsorted(total / total[-1], place, side="right").clip(max=len(rows) - 1)]


def pareto_smoothed(log_ratios: NDArray[np.float64]) -> NDArray[np.float64]:
    """Smoothed log weights, (n,); the log ratios themselves where those of the tail are all alike."""
    psis = importlib.import_module("arviz_stats.base").array_stats.psislw  # untyped
    try:
        with np.errstate(all="ignore"):  # alike but for rounding: the fit is not finite
            # minus the ratios, which are log likelihoods in leave-one-out cross-validation
            found = np.asarray(psis(-log_ratios)[0])
    except ValueError:
        return log_ratios
    return found if np.isfinite(found).all() else log_ratios


def pareto_k(log_ratios: Tensor, kept: Tensor) -> Tensor:
    """Shape of a generalised Pareto distribution fitted to the largest of (..., M) log ratios, (...); 1 with under 25.

    Zhang & Stephens (2009), Technometrics 51:316-325, with the prior of Vehtari et al. (2024); ``kept`` of M are there.
    """
    m, total = log_ratios.shape[-1], kept.unsqueeze(-1)
    there = torch.arange(m, device=kept.device) < total
    n = torch.minimum(total / 5, 3 * total.sqrt()).ceil()
    most = math.ceil(min(m / 5, 3 * math.sqrt(m)))
    ratios = torch.where(there, log_ratios, -torch.inf).topk(most + 1).values
    ratios = (ratios - ratios[..., :1]).exp()
    x = (ratios - ratios.gather(-1, n.long())).clamp(min=0)  # from the largest; beyond the tail zero
    points = 30 + math.isqrt(most)
    grid = 1 - (points / (torch.arange(points, dtype=x.dtype, device=x.device) + 0.5)).sqrt()
    b = grid / (3 * x.gather(-1, (n - (n / 4 + 0.5).floor()).long())) + 1 / x[..., :1]

    def shape(b: Tensor) -> Tensor:
        return (-b.unsqueeze(-1) * x.unsqueeze(-2)).log1p().sum(-1) / n

    k = shape(b)
    weights = (n * ((-b / k).log() - k - 1)).softmax(-1)
    found = (n * shape((weights * b).sum(-1, keepdim=True)) + 5) / (n + 10)
    return torch.where(total < FEWEST, 1.0, torch.where(x[..., :1] > 0, found, 0.0)).squeeze(-1)


def _log_normaliser(log_ratios: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
    """log Z and its standard error, (R,) each, from the ratios (R, P, M) of which so many are there, (R, P)."""
    log_w = _there(log_ratios, kept)
    return log_normaliser(log_w.logsumexp(1), (2 * log_w).logsumexp(1), kept.sum(1))


def _there(log_ratios: Tensor, kept: Tensor) -> Tensor:
    """The ratios of all paths, (R, P M), the largest first; minus infinity for draws that are not there."""
    there = torch.arange(log_ratios.shape[-1], device=kept.device) < kept.unsqueeze(-1)
    return torch.where(there, log_ratios, -math.inf).flatten(1).sort(1, descending=True).values


def _with_ratio(x: Tensor, log_p: Tensor, log_q: Tensor) -> Tensor:
    """Draws with log p - log q in a last column, a very small number where it is not finite."""
    ratio = log_p - log_q
    ratio = torch.where(ratio.isfinite(), ratio, torch.finfo(ratio.dtype).min / 1e6)
    return torch.cat((x, ratio.unsqueeze(-1)), -1)
