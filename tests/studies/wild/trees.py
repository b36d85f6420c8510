"""Ports of bugs in the no-U-turn sampler: blackjax PR 30, stan 2178, pymc 1763, TFP 542, walnuts 27; stan PR 2800.

All chains double their trajectories in lockstep. The leaves of a new subtree are numbered away from the old
trajectory, so that its aligned blocks of 2, 4, 8 ... leaves are the subtrees whose ends are compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

import parvibench as pb

from .common import Known, Port, Stepped, choose, eps, half_square

#: Most doublings; an energy error beyond so many nats ends a trajectory.
DOUBLINGS, DIVERGED = 6, 1000.0


class Ends(NamedTuple):
    """A trajectory: its two ends, with their momenta, and the sum of all momenta."""

    left: Known
    p_left: Tensor
    right: Known
    p_right: Tensor
    rho: Tensor


class Leaves(NamedTuple):
    """New leaves, numbered away from the old trajectory: (L, R, N, ...)."""

    x: Tensor
    log_density: Tensor
    score: Tensor
    p: Tensor


class NUTS(Port):
    """Multinomial no-U-turn sampler with the generalised criterion and checks across subtrees (Betancourt 2017).

    ``weight``: the weight of a new subtree is added only where its point is taken (blackjax PR 30).
    ``boundary``: a subtree begins at the leaf before its first one, and the sum of momenta of a right half has that of
    the left half in it (stan 2178).
    ``cumulative``: the sum of momenta of a subtree lacks its first leaf (TFP 542).
    ``always``: the point of a new subtree is always taken (walnuts 27).
    ``plain``: no checks across subtrees, which is slow on some targets and samples the right law (stan PR 2800).
    """

    name = "wild-nuts"
    exact = True
    positional = False

    def step(self, problem: pb.Problem, settings: Stepped, state: Known, streams: pb.Streams) -> Known:
        p = streams.normal("noise", state.x.shape[1:])
        energy = half_square(p) - state.log_density
        tree, weight = Ends(state, p, state, p, p), torch.zeros_like(energy)
        chosen, alive = state, torch.ones_like(energy, dtype=torch.bool)
        for depth in range(DOUBLINGS):
            uniform = streams.uniform("algorithm", (3, *energy.shape[1:]), index=depth)
            forward = (uniform[:, 0] < 0.5).unsqueeze(-1)
            near = choose(forward[..., 0], tree.right, tree.left)
            p_near = torch.where(forward, tree.p_right, tree.p_left)
            sign = torch.where(forward, 1.0, -1.0)
            leaves = self._leaves(problem, near, p_near, sign * eps(settings), 2**depth)
            logits = energy + leaves.log_density - half_square(leaves.p)
            logits = logits.nan_to_num(nan=-torch.inf)
            whole = (logits > -DIVERGED).all(0) & ~self._turns(leaves, near, p_near, sign)
            new_weight = logits.logsumexp(0)
            log_ratio = torch.zeros_like(weight) if self.bug == "always" else new_weight - weight
            take = alive & whole & (uniform[:, 1].log() < log_ratio)
            chosen = choose(take, _pick(leaves, logits, uniform[:, 2]), chosen)
            grown = alive & (take if self.bug == "weight" else whole)
            weight = torch.where(grown, torch.logaddexp(weight, new_weight), weight)
            bigger = self._joined(tree, leaves, forward)
            alive = alive & whole & ~self._turning(bigger)
            if self.bug != "plain":
                alive = alive & ~self._across(tree, leaves, p_near, forward)
            tree = bigger
            if not alive.any():
                break
        return chosen

    @staticmethod
    def _leaves(problem: pb.Problem, near: Known, p: Tensor, step: Tensor, count: int) -> Leaves:
        found = []
        x, _, score = near
        for _ in range(count):
            p = p + 0.5 * step * score
            x = x + step * p
            log_density, score = problem.log_density_and_score(x)
            p = p + 0.5 * step * score
            found.append(Leaves(x, log_density, score, p))
        return Leaves(*(torch.stack(t) for t in zip(*found, strict=True)))

    def _turns(self, leaves: Leaves, near: Known, p_near: Tensor, sign: Tensor) -> Tensor:
        """Whether any subtree of the new leaves turns."""
        turned = torch.zeros_like(leaves.log_density[0], dtype=torch.bool)
        for first, size in _blocks(len(leaves.p)):
            last = first + size - 1
            p, p_first = leaves.p, leaves.p[first]
            rho = p[first : last + 1].sum(0)
            if self.bug == "boundary":
                p_first = p_near if first == 0 else p[first - 1]
                if first % (2 * size):
                    rho = rho + p[first - size : first].sum(0)
            if self.bug == "cumulative":
                rho = rho - p[first]
            turned |= _against(rho, p_first, p[last])
            if size > 2 and self.bug != "plain":
                middle = first + size // 2
                turned |= _against(p[first:middle].sum(0) + p[middle], p[first], p[middle])
                turned |= _against(p[middle : last + 1].sum(0) + p[middle - 1], p[middle - 1], p[last])
        return turned

    def _joined(self, tree: Ends, leaves: Leaves, forward: Tensor) -> Ends:
        end = Known(leaves.x[-1], leaves.log_density[-1], leaves.score[-1])
        left, right = choose(~forward[..., 0], end, tree.left), choose(forward[..., 0], end, tree.right)
        p_left = torch.where(forward, tree.p_left, leaves.p[-1])
        p_right = torch.where(forward, leaves.p[-1], tree.p_right)
        return Ends(left, p_left, right, p_right, tree.rho + leaves.p.sum(0))

    def _turning(self, tree: Ends) -> Tensor:
        rho = tree.right.x - tree.left.x if self.positional else tree.rho
        return _against(rho, tree.p_left, tree.p_right)

    def _across(self, tree: Ends, leaves: Leaves, p_near: Tensor, forward: Tensor) -> Tensor:
        """The two checks that reach from one half into the other; a first doubling has none."""
        if len(leaves.p) == 1 or self.positional:
            return torch.zeros_like(leaves.log_density[0], dtype=torch.bool)
        p_far = torch.where(forward, tree.p_left, tree.p_right)
        old = _against(tree.rho + leaves.p[0], p_far, leaves.p[0])
        return old | _against(leaves.p.sum(0) + p_near, p_near, leaves.p[-1])


class PositionalNUTS(NUTS):
    """NUTS with Hoffman and Gelman's criterion, the vector between the ends against their momenta.

    ``outside``: that vector begins at the leaf before the subtree's first one (pymc 1763).
    """

    name = "wild-positional-nuts"
    positional = True

    def _turns(self, leaves: Leaves, near: Known, p_near: Tensor, sign: Tensor) -> Tensor:
        turned = torch.zeros_like(leaves.log_density[0], dtype=torch.bool)
        for first, size in _blocks(len(leaves.p)):
            last = first + size - 1
            x_first, p_first = leaves.x[first], leaves.p[first]
            if self.bug == "outside":
                x_first = near.x if first == 0 else leaves.x[first - 1]
                p_first = p_near if first == 0 else leaves.p[first - 1]
            turned |= _against(sign * (leaves.x[last] - x_first), p_first, leaves.p[last])
        return turned


def _blocks(count: int) -> Iterator[tuple[int, int]]:
    """First leaf and number of leaves of every subtree of a complete binary tree."""
    size = 2
    while size <= count:
        yield from ((first, size) for first in range(0, count, size))
        size *= 2


def _against(rho: Tensor, p_first: Tensor, p_last: Tensor) -> Tensor:
    """Whether the momentum at an end points against the way gone."""
    return ((rho * p_first).sum(-1) <= 0) | ((rho * p_last).sum(-1) <= 0)


def _pick(leaves: Leaves, logits: Tensor, uniform: Tensor) -> Known:
    """One leaf of each chain, with probabilities proportional to exp(logits)."""
    shares = logits.softmax(0).nan_to_num(0.0).cumsum(0)
    index = (shares < uniform * shares[-1]).sum(0).clamp(max=len(logits) - 1)
    at = lambda t: t.gather(0, index.view(1, *index.shape, *[1] * (t.dim() - 3)).expand(1, *t.shape[1:]))[0]  # noqa: E731
    return Known(at(leaves.x), at(leaves.log_density), at(leaves.score))
