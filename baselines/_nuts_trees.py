"""Trajectories of the No-U-Turn sampler for many chains, every chain at its own place in its own tree.

The doubling of Hoffman & Gelman (2014), Section 3.1, with the weights of Betancourt (2017), Appendix A.3, unrolled:
leaves come one by one. Momenta and their sums are those of the coordinates in which the mass is the identity.

The points of a subtree of 2^j leaves are numbered as they come. Leaf i ends the subtrees of 2^l leaves for which 2^l
divides i + 1, and each of these is checked for a U-turn. What a check needs of the leaves at which both halves of such a
subtree begin is in slots: leaf i in slot 1 + (number of ones in i's binary form), which no later leaf takes as
long as it is needed; slot 0 is the tree before the subtree, which the subtree's last leaf joins to it. So the two halves
of every subtree that a leaf ends begin at neighbouring slots.

A subtree turns where p . rho <= 0 at one of its ends, rho the sum of its momenta; or where this holds for its first half
with the first leaf of the second, or for its second half with the last leaf of the first (Stan's checks since 2.21).
Within a subtree a leaf is drawn by its weight exp(-H): the largest of log weight + Gumbel noise. The draw of a subtree
that does not turn takes the place of the tree's with probability min(1, ratio of their weights).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from parvibench.core.task import Problem

from ._chains import MAX_ENERGY_ERROR

#: In place of minus infinity, which a state must not contain.
_LOW = -1e30


class Numbers(NamedTuple):
    """Numbers of each tree, (M,) each."""

    direction: Tensor  # 1 or -1: of the subtree that grows
    step: Tensor  # leapfrog length
    leaf: Tensor  # number of the subtree's next leaf
    depth: Tensor  # doublings complete
    best: Tensor  # largest perturbed log weight of the subtree
    branch: Tensor  # log weight of the subtree
    weight: Tensor  # log weight of the tree before it, relative to the start
    accepted: Tensor  # sum over the leaves of min(1, exp(-energy error))
    leaves: Tensor  # their number
    energy: Tensor  # H at the start
    drawn_density: Tensor  # log density of the subtree's draw
    density: Tensor  # of the tree's draw
    waiting_density: Tensor  # of the waiting chain
    fresh: Tensor  # 1 where the next leaf is the first of a new tree
    acceptance: Tensor  # mean over the leaves of the last complete transition
    doublings: Tensor  # that it began
    diverged: Tensor  # 1 where it met an energy error beyond MAX_ENERGY_ERROR


class Trees(NamedTuple):
    """Where N rows of chains are, as a state holds them."""

    ends: Tensor  # (R, N, 6, D) position, score and momentum at the end that grows and at the other
    draws: Tensor  # (R, N, 6, D) position and score of the subtree's draw, of the tree's, and of the waiting chain
    total: Tensor  # (R, N, D) sum of all momenta
    slots: Tensor  # (R, N, S, 3, D) momentum, the one before it, and the sum of all before it
    table: Tensor  # (R, N, len(Numbers._fields))

    @classmethod
    def start(cls, x: Tensor, density: Tensor, score: Tensor, max_depth: int) -> Trees:
        """Before the first leaf, at x (R, N, D)."""
        slots = x.new_zeros((*x.shape[:2], max_depth + 1, 3, x.shape[2]))
        table = x.new_zeros((*x.shape[:2], len(Numbers._fields)))
        trees = cls(torch.stack((x, score) * 3, 2), torch.stack((x, score) * 3, 2), torch.zeros_like(x), slots, table)
        trees.numbers.density.copy_(density)
        return trees.anew(both=True)

    @property
    def numbers(self) -> Numbers:
        """Views of the table, (R, N) each."""
        return Numbers(*self.table.unbind(2))

    @property
    def x(self) -> Tensor:
        """The trees' draws, (R, N, D)."""
        return self.draws[:, :, 2]

    @property
    def score(self) -> Tensor:
        """Scores of the trees' draws, (R, N, D)."""
        return self.draws[:, :, 3]

    @property
    def waiting(self) -> Tensor:
        """Positions of the waiting chains, (R, N, D)."""
        return self.draws[:, :, 4]

    def anew(self, both: bool = False) -> Trees:
        """All trees cut off where they are; if ``both``, the waiting chains go on from there too."""
        draws, table = self.draws.clone(), self.table.clone()
        new = Trees(self.ends, draws, self.total, self.slots, table)
        numbers = new.numbers
        for field, value in ((numbers.fresh, 1.0), (numbers.leaf, 0.0), (numbers.best, _LOW), (numbers.branch, _LOW)):
            field.fill_(value)
        if both:
            draws[:, :, 4:] = draws[:, :, 2:4]
            numbers.waiting_density.copy_(numbers.density)
        return new

    def moved_to(self, place: Tensor) -> Trees:
        """All cut off; every row's draw is that of the row ``place`` (R, N) of its replicate."""
        new = self.anew()
        rows = place[..., None].expand(-1, -1, self.ends.shape[3])
        new.draws[:, :, 2] = self.draws[:, :, 2].gather(1, rows)
        new.draws[:, :, 3] = self.draws[:, :, 3].gather(1, rows)
        new.numbers.density.copy_(self.numbers.density.gather(1, place))
        return new


class Randomness(NamedTuple):
    """Random numbers of a block of K leapfrog steps of M rows."""

    #: (3, K, M) uniform, for each step: Gumbel noise of its leaf; whether the subtree that ends there joins the tree;
    #: the direction of the subtree after it, forwards from 0.5 on, as a tree's first step.
    uniform: Tensor
    momentum: Callable[[int], Tensor]  # number of a tree that a row begins in this block -> (M, D) standard normal


@lru_cache(maxsize=8)
def _leaf_tables(max_depth: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Counts of ones in the binary forms of the numbers below 2^(max_depth - 1), and of ones at their ends; int64."""
    numbers = range(2 ** (max_depth - 1))
    with torch.inference_mode(False):
        ones = torch.tensor([i.bit_count() for i in numbers], device=device)
        return ones, torch.tensor([(~i & (i + 1)).bit_length() - 1 for i in numbers], device=device)


def grow(
    trees: Trees, problem: Problem, scale: Tensor, steps: Tensor, random: Randomness, max_depth: int, takes_turns: bool
) -> tuple[Trees, Tensor]:
    """Every row takes K leapfrog steps; trees that end on the way are followed by new ones.

    The density is evaluated K times, at M = R N positions. ``scale``: (R, D) standard deviations or (R, D, D) Cholesky
    factors of the inverse mass; ``steps``: (R,) lengths of trees that begin; with ``takes_turns`` a row's next tree is
    the waiting chain's. Returns the trees after, and the sum of min(1, exp(-energy error)) over a row's steps, (R, N).
    """
    replicates, n, _, dim = trees.ends.shape
    width = replicates * n
    ends, draws = (a.flatten(0, 1).transpose(0, 1).clone(memory_format=torch.contiguous_format) for a in trees[:2])
    total, slots = trees.total.flatten(0, 1).clone(), trees.slots.clone()
    table = trees.table.flatten(0, 1).t().clone(memory_format=torch.contiguous_format)
    (direction, step, leaf_number, depth_number, best, branch, weight, accepted, leaves, energy, drawn_density,
     density, waiting_density, fresh_number, acceptance, doublings, diverged) = table.unbind(0)  # fmt: skip
    y, s, p = ends[:3].unbind(0)
    here, drawn, chosen = ends[:2], draws[:2], draws[2:4]

    rows = slots.view(-1, 3 * dim)
    windows = rows.as_strided((len(rows) - 1, 6 * dim), (3 * dim, 1))  # a slot and the next
    count = torch.arange(width * (max_depth + 1), device=y.device)
    row = count[:width]
    slot_0 = row * slots.shape[2]
    slot_1 = slot_0 + 1
    ones, trailing = _leaf_tables(max_depth, y.device)
    sizes = torch.pow(2, count[: max_depth + 1])
    leaf, depth, fresh, begun = leaf_number.long(), depth_number.long(), fresh_number > 0, torch.zeros_like(row)
    begin, steps = fresh.nonzero().squeeze(1), steps.repeat_interleave(n)
    signed = direction * step
    gained = torch.zeros_like(energy)

    gumbels = -(-random.uniform[0].clamp(min=torch.finfo(y.dtype).tiny).log()).log()
    ways = torch.where(random.uniform[2] < 0.5, -1.0, 1.0).to(y)
    for gumbel, join, way in zip(gumbels, random.uniform[1].log(), ways, strict=True):
        if len(begin):
            momentum = _momenta(random.momentum, begun.index_select(0, begin), begin)
            begun += fresh
            start = torch.cat((chosen.index_select(1, begin), momentum.unsqueeze(0)))
            ends.index_copy_(1, begin, torch.cat((start, start)))
            total.index_copy_(0, begin, momentum)
            first = torch.cat((momentum, momentum, torch.zeros_like(momentum)), 1)
            rows.index_copy_(0, slot_0.index_select(0, begin), first)
            energy.index_copy_(0, begin, momentum.square().sum(1).mul_(0.5).sub_(density.index_select(0, begin)))
            table[6:9].masked_fill_(fresh, 0.0)  # weight, accepted, leaves
            depth.masked_fill_(fresh, 0)
            torch.where(fresh, steps, step, out=step)
            direction.masked_fill_(fresh, 1.0)
            torch.mul(direction, step, out=signed)

        before = p.clone()
        value = _leapfrog(y, p, s, signed, scale, problem)

        log_weight = (p * p).sum(1).mul_(-0.5).add_(value).add_(energy).nan_to_num_(_LOW, _LOW, _LOW)
        probability = log_weight.clamp(max=0).exp_()
        accepted += probability
        gained += probability
        leaves += 1
        torch.logaddexp(branch, log_weight, out=branch)
        key = log_weight + gumbel
        better = key > best
        torch.maximum(best, key, out=best)
        taken = better.nonzero().squeeze(1)
        drawn.index_copy_(1, taken, here.index_select(1, taken))
        torch.where(better, value, drawn_density, out=drawn_density)
        slot = ones.index_select(0, leaf)
        rows.index_copy_(0, slot_1 + slot, torch.cat((p, before, total), 1))
        total += p

        # One line for each subtree that this leaf ends, the smallest first, the whole tree (slot 0) last.
        ends_at = trailing.index_select(0, leaf)
        leaf += 1
        last = leaf == sizes.index_select(0, depth)
        ends_at += last
        owner = torch.repeat_interleave(row, ends_at)
        place = slot.add_(ends_at.cumsum(0)).sub_(ends_at).index_select(0, owner).sub_(count[: len(owner)])
        window = windows.index_select(0, slot_0.index_select(0, owner).add_(place))
        turned = _turned(window, p.index_select(0, owner), total.index_select(0, owner)).nonzero().squeeze(1)
        lost = log_weight < -MAX_ENERGY_ERROR
        broken, closed = lost, None
        if len(turned):
            owner, inside = owner.index_select(0, turned), place.index_select(0, turned) > 0
            closed = torch.zeros_like(lost).index_fill_(0, owner, True)
            broken = lost.index_fill(0, owner[inside], True)

        over = last | broken
        joined = last & ~broken
        more = (joined & (join < branch - weight)).nonzero().squeeze(1)
        chosen.index_copy_(1, more, drawn.index_select(1, more))
        density.index_copy_(0, more, drawn_density.index_select(0, more))
        torch.where(joined, torch.logaddexp(weight, branch), weight, out=weight)
        depth += over
        leaf.masked_fill_(over, 0)
        table[4:6].masked_fill_(over, _LOW)  # best, branch
        goes_on = joined & (depth < max_depth)
        if closed is not None:
            goes_on &= ~closed

        flips = goes_on & (way != direction)
        crossed = flips.nonzero().squeeze(1)
        if len(crossed):
            held = ends.index_select(1, crossed)
            ends.index_copy_(1, crossed, torch.cat((held[3:], held[:3])))
            slots_0 = rows.index_select(0, slot_0.index_select(0, crossed))
            slots_0[:, :dim] = held[2]
            rows.index_copy_(0, slot_0.index_select(0, crossed), slots_0)
            torch.where(flips, way, direction, out=direction)
            torch.mul(direction, step, out=signed)

        fresh = over & ~goes_on
        begin = fresh.nonzero().squeeze(1)
        if len(begin):
            torch.where(fresh, accepted / leaves, acceptance, out=acceptance)
            torch.where(fresh, depth.to(doublings), doublings, out=doublings)
            torch.where(fresh, lost.to(diverged), diverged, out=diverged)
            if takes_turns:
                pair = draws[2:].index_select(1, begin)
                draws[2:].index_copy_(1, begin, torch.cat((pair[2:], pair[:2])))
                swapped = torch.where(fresh, waiting_density, density)
                torch.where(fresh, density, waiting_density, out=waiting_density)
                density.copy_(swapped)

    leaf_number.copy_(leaf)
    depth_number.copy_(depth)
    fresh_number.copy_(fresh)
    ends, draws = (a.transpose(0, 1).view(trees.ends.shape) for a in (ends, draws))
    moved = Trees(ends, draws, total.view(trees.total.shape), slots, table.t().view(trees.table.shape))
    return moved, gained.view(replicates, n)


def _leapfrog(y: Tensor, p: Tensor, s: Tensor, step: Tensor, scale: Tensor, problem: Problem) -> Tensor:
    """Move positions, momenta and scores (M, D) in place by lengths ``step`` (M,); the log densities there, (M,)."""
    together, dense = (len(scale), -1, y.shape[1]), scale.dim() == 3
    stride = step.unsqueeze(1) if dense else (step.view(len(scale), -1, 1) * scale.unsqueeze(1)).view(y.shape)

    def scaled(a: Tensor, factor: Tensor) -> Tensor:
        return (a.view(together) @ factor).view(y.shape) if dense else a

    p.addcmul_(scaled(s, scale), stride, value=0.5)
    y.addcmul_(scaled(p, scale.mT), stride)
    value, score = problem.log_density_and_score(y.view(together))
    s.copy_(score.reshape(y.shape))
    p.addcmul_(scaled(s, scale), stride, value=0.5)
    return value.reshape(-1)


def _turned(window: Tensor, end: Tensor, total: Tensor) -> Tensor:
    """Subtrees that turn, (P,) bool, by slots of first leaves (P, 6 D), momenta at the last and their sums (P, D)."""
    first, _, sum_first, middle, before_middle, sum_middle = window.view(len(window), 6, end.shape[1]).unbind(1)
    whole = total - sum_first
    front = sum_middle - sum_first + middle
    back = total - sum_middle + before_middle
    pairs = ((first, whole), (end, whole), (first, front), (middle, front), (before_middle, back), (end, back))
    return ~(torch.stack([(a * b).sum(1) for a, b in pairs]).amin(0) > 0)


def _momenta(draw: Callable[[int], Tensor], begun: Tensor, rows: Tensor) -> Tensor:
    """Momenta of trees that begin in these rows, (m, D), each of which has ``begun`` so many before in this block."""
    found = draw(0).index_select(0, rows)
    for number in range(1, int(begun.max()) + 1):
        at = (begun == number).nonzero().squeeze(1)
        if len(at):
            found.index_copy_(0, at, draw(number).index_select(0, rows.index_select(0, at)))
    return found
