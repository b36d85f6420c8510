"""L-BFGS on a log density, many paths at once, one evaluation a path and step.

Nocedal & Wright (2006), Algorithm 7.5, in the compact form of Byrd, Nocedal & Schnabel (1994): with the last J pairs
s = change of x, z = change of -score as columns of S and Z,

    H = diag(alpha) + [diag(alpha) Z, S] G [diag(alpha) Z, S]^T
    G = [[0, -R^-1], [-R^-T, R^-T (E + Z^T diag(alpha) Z) R^-1]],   R = triu(S^T Z),   E = diag(R)

estimates the inverse of the negative Hessian; H score is the direction, alpha there s.z / z.z of the newest pair. Another
alpha is stored with it, the diagonal of Gilbert & Lemarechal (1989), Eq. 4.9, in the form of Zhang, Carpenter, Gelman &
Vehtari (2022), JMLR 23(306), Algorithm 3, whose normal approximations are made of it. The step length is bracketed and bisected until it meets the weak Wolfe conditions (Lewis & Overton 2013).

Every path has a point to be evaluated next; ``advance`` takes its log density and score, and accepts it or proposes
another. So paths search at their own pace, nothing waits for the slowest, and the cost of a step is known in advance.
A pair is used if 0 < ||z||^2 < 1e12 s.z (the authors' check). A search that fails forgets the pairs; one that fails
without any ends the path, and so does a log density that changes by less than 10 units of rounding: in single precision
that may be many nats below the maximum of a badly scaled density.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from .masks import where

#: Wolfe conditions: share of the predicted rise, share of the slope that is left.
RISE, SLOPE = 1e-4, 0.9
#: Trials of one search.
MOST_TRIALS = 20
#: Largest ||z||^2 / s.z of a pair.
STIFFEST = 1e12
#: Change of the log density at which a path ends, in units of rounding; the authors' code: 1e2, after which two of 60 paths
#: end 20 nats below the mode of `earn-height`, in a narrow valley.
AT_REST = 10.0
#: Rise of the log density by a Newton step, in nats, from which a path has ended early.
EARLY = 0.01

_START, _SEARCH, _DONE = 0.0, 1.0, 2.0


class Paths(NamedTuple):
    """P paths of R replicates; all floating, so that a state can hold them."""

    x: Tensor  # (R, P, D) last accepted point
    log_density: Tensor  # (R, P) there
    score: Tensor  # (R, P, D) there
    direction: Tensor  # (R, P, D)
    t: Tensor  # (R, P) step length to be tried; 0 before the first evaluation and after the end
    low: Tensor  # (R, P) longest step known to be too short, or 0
    high: Tensor  # (R, P) shortest step known to be too long, or 0
    trials: Tensor  # (R, P) of this search
    accepted: Tensor  # (R, P) points accepted, the first included
    stage: Tensor  # (R, P) 0 before the first evaluation, 1 searching, 2 ended
    alpha: Tensor  # (R, P, D) of Gilbert & Lemarechal
    s: Tensor  # (R, P, J, D) pairs, the newest last, scaled to s.z = 1; zero where there is none
    z: Tensor  # (R, P, J, D)

    @property
    def trial(self) -> Tensor:
        """Points to evaluate next, (R, P, D)."""
        return self.x + self.t.unsqueeze(-1) * self.direction

    @property
    def done(self) -> Tensor:
        """Which paths have ended, (R, P) bool."""
        return self.stage == _DONE

    def stopped_early(self, longest: int) -> Tensor:
        """Which paths have ended below the top, or cannot know, (R, P) bool.

        By their length, with a slope left, or where a hundred steps too small to be seen would rise by ``EARLY``.
        """
        rise = torch.linalg.vecdot(self.score, self.direction) / 2
        unseen = 100 * at_rest(self.log_density)
        return self.done & ((self.accepted == 0) | (self.accepted > longest) | ~(torch.maximum(rise, unseen) <= EARLY))


def at_rest(log_density: Tensor) -> Tensor:
    """Largest change of a log density that is taken for rounding."""
    return AT_REST * torch.finfo(log_density.dtype).eps * log_density.abs().clamp(min=1)


def start(x: Tensor, history: int) -> Paths:
    """Paths whose first evaluation is at x, (R, P, D); J = ``history``."""
    zeros, pairs = torch.zeros_like(x[..., 0]), x.unsqueeze(2).expand(-1, -1, history, -1)
    none = torch.zeros_like(pairs)
    return Paths(
        x=x, log_density=zeros, score=torch.zeros_like(x), direction=torch.zeros_like(x), t=zeros.clone(),
        low=zeros, high=zeros.clone(), trials=zeros.clone(), accepted=zeros.clone(), stage=zeros + _START,
        alpha=torch.ones_like(x), s=none, z=none.clone(),
    )  # fmt: skip


def advance(paths: Paths, log_density: Tensor, score: Tensor, longest: int) -> tuple[Paths, Tensor]:
    """Accept the trial points or propose others, by their log densities (R, P) and scores (R, P, D), if finite.

    Returns the paths, which end after ``longest`` iterations, and which have accepted a point by a search, (R, P) bool.
    """
    first, done, trial = paths.stage == _START, paths.done, paths.trial
    if done.device.type == "cpu" and bool(done.all()):  # elsewhere asking would wait for the device
        return paths, torch.zeros_like(done)
    usable = log_density.isfinite() & score.isfinite().all(-1)
    slope = torch.linalg.vecdot(paths.score, paths.direction)
    high_enough = usable & (log_density >= paths.log_density + RISE * paths.t * slope)
    flat_enough = torch.linalg.vecdot(score, paths.direction) <= SLOPE * slope
    last = paths.trials + 1 >= MOST_TRIALS
    accept = ~first & ~done & high_enough & (flat_enough | last)
    failed = ~first & ~done & ~high_enough & last

    moved = accept | (first & usable)
    s, z, alpha = _with_pair(paths, trial - paths.x, paths.score - score, accept)
    forgotten = failed & (paths.s.square().sum((-1, -2)) > 0)
    s, z = (where(forgotten, torch.zeros_like(v), v) for v in (s, z))
    alpha = where(forgotten, torch.ones_like(alpha), alpha)

    x, at = where(moved, trial, paths.x), where(moved, score, paths.score)
    value = torch.where(moved, log_density, paths.log_density)
    accepted = paths.accepted + moved
    change = (value - paths.log_density).abs()
    resting = change <= torch.maximum(at_rest(value), at_rest(paths.log_density))
    ended = (accept & (resting | (accepted > longest))) | (failed & ~forgotten) | (first & ~usable)

    fresh = moved | forgotten
    direction = where(fresh, inverse_hessian(_scalar(z), s, z).times(at), paths.direction)
    # rounding may cost the estimate its sign: then along the score
    uphill = torch.linalg.vecdot(at, direction) > 0
    direction = where(uphill, direction, at)
    plain = z[..., -1, :].square().sum(-1) == 0  # the direction is the score, whose size is no length
    length = torch.where(plain, (1 / at.norm(dim=-1)).clamp(max=1), torch.ones_like(value))

    low = torch.where(high_enough & ~flat_enough, paths.t, paths.low)
    high = torch.where(high_enough, paths.high, paths.t)
    shorter = torch.where(high > 0, (low + high) / 2, 2 * paths.t)
    zeros = torch.zeros_like(value)
    t = torch.where(fresh, length, shorter)
    stage = torch.where(ended, _DONE, torch.full_like(value, _SEARCH))
    moved_on = Paths(
        x, value, at, direction, torch.where(ended, zeros, t),
        torch.where(fresh, zeros, low), torch.where(fresh, zeros, high), torch.where(fresh, zeros, paths.trials + 1),
        accepted, stage, alpha, s, z,
    )  # fmt: skip
    return where(done, paths, moved_on), accept


class InverseHessian(NamedTuple):
    """diag(alpha) + B G B^T."""

    alpha: Tensor  # (R, P, D)
    b: Tensor  # (R, P, D, 2 J)
    g: Tensor  # (R, P, 2 J, 2 J)

    def times(self, v: Tensor) -> Tensor:
        """The product H v, (R, P, D)."""
        inner = self.g @ (self.b.mT @ v.unsqueeze(-1))
        return self.alpha * v + (self.b @ inner).squeeze(-1)


def inverse_hessian(alpha: Tensor, s: Tensor, z: Tensor) -> InverseHessian:
    """The estimate from a diagonal (R, P, D) and pairs (R, P, J, D), zero where there is none."""
    r = (s @ z.mT).triu()
    e = r.diagonal(dim1=-2, dim2=-1)
    r = r + torch.where(e == 0, 1.0, torch.zeros_like(e)).diag_embed()
    eye = torch.eye(r.shape[-1], dtype=r.dtype, device=r.device).expand_as(r)
    inverse = torch.linalg.solve_triangular(r, eye, upper=True)
    az = alpha.unsqueeze(-2) * z
    corner = inverse.mT @ (e.diag_embed() + z @ az.mT) @ inverse
    g = torch.cat((torch.cat((torch.zeros_like(r), -inverse), -1), torch.cat((-inverse.mT, corner), -1)), -2)
    return InverseHessian(alpha, torch.cat((az, s), -2).mT, g)


def _with_pair(paths: Paths, s: Tensor, z: Tensor, accept: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Pairs and alpha with a new pair where it is accepted and sound."""
    product = torch.linalg.vecdot(s, z)
    sound = accept & (product > 0) & (z.square().sum(-1) < STIFFEST * product)
    scale = torch.where(sound, product, 1.0).rsqrt().unsqueeze(-1)
    s, z = (where(sound, scale * v, torch.zeros_like(v)) for v in (s, z))
    alpha = paths.alpha
    a = (alpha * z.square()).sum(-1, keepdim=True)
    share = (s / alpha).square() / (s.square() / alpha).sum(-1, keepdim=True)
    kept = a / alpha
    # by Cauchy-Schwarz what is taken off is no more than what is there, but for rounding
    now = 1 / ((kept - a * share).clamp(min=0) + z.square()).clamp(min=torch.finfo(a.dtype).eps * kept)
    s, z = (
        where(sound, torch.cat((old[..., 1:, :], new.unsqueeze(-2)), -2), old)
        for old, new in ((paths.s, s), (paths.z, z))
    )
    return s, z, where(sound, now, alpha)


def _scalar(z: Tensor) -> Tensor:
    """s.z / z.z of the newest pair, or 1, as a diagonal (R, P, D)."""
    square = z[..., -1, :].square().sum(-1, keepdim=True)
    return torch.where(square > 0, 1 / square, 1.0).expand(*square.shape[:2], z.shape[-1])
