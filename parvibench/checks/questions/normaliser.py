"""Normalising constants: of a sampler whose Info reports ``log_z``, as weights of sequential Monte Carlo give it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from parvibench.checks.question import Bound, Expected, Values
from parvibench.checks.summaries import per_replicate
from parvibench.checks.targets import STABLE

from .of_sampler import OfSampler

#: Relative bias of the estimate that adaptive temperatures are allowed; without them it is unbiased.
_LIMIT = 0.02
#: Steps of the run that shows whether a sampler reports log Z, and of one with few temperatures.
_TRIAL, _SOON = 10, 20


@dataclass(frozen=True)
class Normaliser(OfSampler):
    """Whether the mean of the estimated normalising constant is the exact one: ``normaliser`` is its ratio, less 1.

    ``soon.``: after 20 steps, where weights count for more than moves, of samplers whose ``inverse_temperature`` is 1
    by then. Without ``log_z`` in the Info, or while it is not a number, there is nothing to judge.
    """

    title = "normaliser"
    hint = "weights that are not multiplied up, are averaged as logarithms, are forgotten, or survive a resampling"
    nothing = "its Info reports no `log_z` at temperature 1"

    def measure(self, replicates: range, seed: int) -> Values:
        """One value per replicate, of the last step."""
        none = torch.full((len(replicates),), torch.nan)
        found = {name: none.tolist() for name in self.expected()}
        if hasattr(self._last(_TRIAL, replicates[:1], seed), "log_z"):
            for name, steps in zip(found, (self.effort.steps, _SOON), strict=True):
                chunks = per_replicate(replicates, self.loaded.max_chunk)
                found[name] = [float(v) for ids in chunks for v in self._ratio(steps, ids, seed)]
        return found

    def expected(self) -> Mapping[str, Expected]:
        """Next to none on average."""
        return {"normaliser": Bound(_LIMIT), "soon.normaliser": Bound(_LIMIT)}

    def _last(self, steps: int, ids: Any, seed: int) -> Any:
        """Info of the last step of a run, or None."""
        run = replace(self, effort=replace(self.effort, steps=steps))
        return run.observe(run.problem(STABLE[self.task], ids, seed)).info

    def _ratio(self, steps: int, ids: tuple[int, ...], seed: int) -> Tensor:
        """Estimated over exact constant, less 1, (R,): infinite where log Z is, NaN where it is not known yet."""
        info, exact = self._last(steps, ids, seed), STABLE[self.task].facts.log_z
        assert exact is not None  # of both targets
        ratio = (torch.as_tensor(info.log_z).double().reshape(len(ids)) - exact).exp() - 1
        reached = getattr(info, "inverse_temperature", 1.0 if steps == self.effort.steps else 0.0)
        return torch.where(torch.as_tensor(reached).reshape(-1) >= 1, ratio, torch.nan)
