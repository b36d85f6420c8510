"""Laplace approximation: a normal with the mode as mean and the inverse negative Hessian there as covariance.

Tierney & Kadane (1986), JASA 81:82-86; Bishop (2006), Section 4.4. L-BFGS (``parvibench.nn.lbfgs``) climbs from S of
the task's initial points; the highest end is the mode m. Columns of the precision are central differences of the
score,

    P e_i = - [ s(m + d_i e_i) - s(m - d_i e_i) ] / (2 d_i),   x = m + P^(-1/2) xi,   xi ~ N(0, I)

with d_i the share (100 eps)^(1/3) of the standard deviation of x_i given the others, eps that of the arithmetic, which is
double precision where the density takes it: in single precision searches end early on badly scaled densities.

A step scores S points: one of each search, then two of each of S / 2 columns; ceil(2 D / S) steps make a Hessian. Until
it is there, columns not yet measured are those of L-BFGS's diagonal. A run ends when all are measured, whatever its
budget: measured again at the d_i that follow, standard deviations change by 1e-8 at most.

Departure: the negative Hessian is not always positive definite (a search cut short, a density without a maximum).
Its eigenvalues are then raised to 1e-6 of the largest. Traps: one of several modes is all there is; where the density is
not normal about the mode, as at a boundary or in a funnel's neck, the covariance says little of its mass.
"""

from typing import NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from parvibench.core.algorithm import Algorithm, AlgorithmSettings, Example, Problem, Streams
from parvibench.nn import lbfgs
from parvibench.nn.masks import where

#: Least eigenvalue of a precision matrix, in units of its largest.
FLOOR = 1e-6


class Settings(AlgorithmSettings):
    """Settings of the Laplace approximation."""

    starts: int = Field(4, ge=2, multiple_of=2, description="S, searches; ours")
    history: int = Field(6, ge=1, description="pairs that L-BFGS remembers; ours")
    longest: int = Field(1000, ge=1, description="iterations of L-BFGS after which a search ends; ours")


class State(NamedTuple):
    """Searches, and the precision at the end of the highest."""

    paths: lbfgs.Paths
    precision: Tensor  # (R, D, D), column by column
    columns: Tensor  # how many have been measured, (R,), floating


class Info(NamedTuple):
    """Per-step diagnostics, (R,)."""

    stopped_early: Tensor  # 1 where the highest search has ended below the top


class Laplace(Algorithm[Settings, State]):
    """Normal approximation at a mode, which L-BFGS searches for."""

    name = "laplace"
    version = 3
    kind = "generator"
    needs = frozenset({"full-batch", "score"})
    #: where a path ends depends on the last bits, and these on how many replicates are evaluated at once
    max_chunk = 1
    citation = "Tierney & Kadane (1986), JASA 81:82-86"
    example = Example(quick={"starts": 8}, settings={}, steps=40, points=200, both_modes=False)

    def init(self, problem: Problem, settings: Settings, streams: Streams, horizon: int) -> State:
        """Searches at the task's initial points."""
        x = problem.init(settings.starts).to(problem.finest)
        precision = torch.ones_like(x[:, 0]).diag_embed()
        return State(lbfgs.start(x, settings.history), precision, torch.zeros_like(x[:, 0, 0]))

    def step(self, problem: Problem, settings: Settings, state: State, streams: Streams) -> tuple[State, Info]:
        """An evaluation of every search, or some columns of the precision."""
        paths, precision, columns = state
        mode, _ = highest(paths)
        settled = paths.done.all(1)
        half = settings.starts // 2
        index = columns.unsqueeze(1) + torch.arange(half, device=mode.device)
        index = index.remainder(problem.dim).nan_to_num(0).long()
        # of the diagonal, before anything is measured that of L-BFGS
        diagonal = precision.diagonal(dim1=1, dim2=2)
        sd = diagonal.gather(1, index).abs().clamp(min=torch.finfo(mode.dtype).tiny).rsqrt()
        d = (100 * torch.finfo(mode.dtype).eps) ** (1 / 3) * sd
        shift = torch.zeros_like(mode).unsqueeze(1).repeat(1, half, 1).scatter_(2, index.unsqueeze(2), d.unsqueeze(2))
        around = mode.unsqueeze(1) + torch.cat((shift, -shift), 1)
        at = where(settled, around, paths.trial)
        log_p, score = problem.log_density_and_score(at)

        moved, _ = lbfgs.advance(paths, log_p, score, settings.longest)
        ahead, behind = score.chunk(2, 1)
        found = ((behind - ahead) / (2 * d).unsqueeze(2)).mT  # (R, D, S / 2)
        measured = precision.scatter(2, index.unsqueeze(1).expand_as(found), found)
        arrived = moved.done.all(1) & ~settled
        fresh = (1 / highest(moved)[1]).diag_embed()
        precision = where(settled, measured, where(arrived, fresh, precision))
        early = moved.stopped_early(settings.longest).gather(1, summit(moved).unsqueeze(1)).squeeze(1)
        return State(moved, precision, torch.where(settled, columns + half, columns)), Info(early.to(mode.dtype))

    def output(self, problem: Problem, settings: Settings, state: State, n: int, streams: Streams) -> Tensor:
        """Fresh draws, (R, n, D)."""
        mode, _ = highest(state.paths)
        precision = (state.precision + state.precision.mT) / 2
        factor, failed = torch.linalg.cholesky_ex(precision)
        for r in failed.nonzero().flatten().tolist():
            factor[r] = raised(precision[r])
        noise = streams.normal("output", (n, problem.dim)).to(mode)
        x = mode.unsqueeze(1) + torch.linalg.solve_triangular(factor.mT, noise.mT, upper=True).mT
        return x.to(problem.dtype)

    def ended(self, problem: Problem, settings: Settings, state: State) -> bool:
        """True once all searches have ended and the precision is measured."""
        return bool(state.paths.done.all()) and bool((state.columns >= problem.dim).all())


def highest(paths: lbfgs.Paths) -> tuple[Tensor, Tensor]:
    """The last point of each replicate's highest search and its alpha, (R, D) each."""
    row = summit(paths).view(-1, 1, 1).expand(-1, 1, paths.x.shape[2])
    return paths.x.gather(1, row).squeeze(1), paths.alpha.gather(1, row).squeeze(1)


def summit(paths: lbfgs.Paths) -> Tensor:
    """Index of each replicate's highest search, (R,)."""
    return torch.where(paths.accepted > 0, paths.log_density, -torch.inf).argmax(1)


def raised(precision: Tensor) -> Tensor:
    """Cholesky factor of a symmetric matrix (D, D) whose small eigenvalues are raised; NaN of one that is not finite."""
    if not precision.isfinite().all():
        return torch.full_like(precision, torch.nan)
    values, vectors = torch.linalg.eigh(precision.double())
    values = values.clamp(min=FLOOR * values.abs().max())
    return torch.linalg.qr((vectors * values.sqrt()).mT).R.mT.to(precision)
