"""Samplers started at exact draws: tests that points are independent and that all of them move."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from parvibench.checks.question import Bound, Expected, Share, Values
from parvibench.checks.summaries import generator_of, per_replicate
from parvibench.checks.targets import moments, task_named

from .of_sampler import OfSampler

#: Pairwise correlations of steps that are taken for chance, and share of chains that may stand still all the time.
_CORRELATION, _STUCK = 0.005, 0.02
#: Distance of the centre of all positions from the exact mean, sd.
_CENTRE = 0.02
#: Share of equal points of an output that resamples, and n var(mean) / var of dependent points.
_TIES, _SPREAD = 0.3, 5.0


@dataclass(frozen=True)
class AtEquilibrium(OfSampler):
    """Dependence between points and replicates on a symmetric target, all started at exact draws of their own.

    - ``dependence[chains]``: mean correlation of the steps of two chains; for chains alone.
    - ``dependence[replicates]``: the same of a replicate and the next, chain by chain.
    - ``stuck``: share of points that never moved; for chains alone.
    - ``ties``: share of the output's points that equal another one.
    - ``centre``: mean of all positions less the exact one, in sd: 0 by symmetry, whatever the discretisation.
    - ``spread``: n times the squared error of the mean over the variance, 1 for independent points; not for generators.
    """

    title = "independence"
    hint = "noise that chains or replicates share, copies, or chains that are not updated"

    def measure(self, replicates: range, seed: int) -> Values:
        """One value per replicate."""
        task = task_named(self.task)
        found, paths = [], []
        for ids in per_replicate(replicates, self.loaded.max_chunk):
            start = torch.stack([task.exact(self.points, generator_of(self.task, "rest", seed, r)) for r in ids])
            run = self.observe(self.problem(task, ids, seed, start))
            found.append(run.outputs[self.effort.steps])
            paths.append(torch.stack([start, *run.path]))
        x, path = torch.cat(found), torch.cat(paths, 1)
        exact = moments(self.task)
        error = torch.where(x.isfinite(), (x - exact.mean) / exact.sd, torch.nan).nanmean(1)
        counts = [np.unique(points.numpy(), axis=0, return_counts=True)[1] for points in x]
        ties = torch.tensor([float(times[times > 1].sum() / x.shape[1]) for times in counts])
        values = {"ties": ties, "spread": x.shape[1] * error.square().mean(1)}
        if self._has_chains:
            moves = path.diff(dim=0)
            # Of a lost chain, what is finite: a tolerance counts it.
            steps = moves.nan_to_num(0.0, 0.0, 0.0)  # (T, R, N, D)
            centre = ((path - exact.mean) / exact.sd).nanmean((0, 2))
            values |= {f"centre[{d}]": column for d, column in enumerate(centre.T)}
            own, following = steps.square().sum((0, 2, 3)), steps.roll(1, 1)
            pairs = (own * (steps.shape[2] - 1)).clamp(min=1e-300)
            values["dependence[chains]"] = (steps.sum(2).square().sum((0, 2)) - own) / pairs
            sizes = (own * following.square().sum((0, 2, 3))).sqrt().clamp(min=1e-300)
            values["dependence[replicates]"] = (steps * following).sum((0, 2, 3)) / sizes
            values["stuck"] = (moves == 0).all(-1).all(0).double().mean(1)
        return {name: values[name].tolist() for name in self.expected()}

    def expected(self) -> Mapping[str, Expected]:
        """What independent points give, within limits."""
        found: dict[str, Expected] = {"ties": Share(_TIES)}
        if self.loaded.kind != "generator":  # which does not start at these points
            found["spread"] = Bound(_SPREAD)
        if self._has_chains:
            found |= {"dependence[chains]": Bound(_CORRELATION), "dependence[replicates]": Bound(4 * _CORRELATION)}
            found |= {"stuck": Share(_STUCK)}
            found |= {f"centre[{d}]": Bound(_CENTRE) for d in range(task_named(self.task).dim)}
        return found

    @property
    def _has_chains(self) -> bool:
        return self.loaded.kind == "chains" and self.points > 1
