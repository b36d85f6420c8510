"""Normalising constants: of a sampler whose Info reports ``log_normaliser``, as weights of sequential Monte Carlo give it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args, get_type_hints

import torch

from parvibench.checks.question import Bound, Expected, Values
from parvibench.checks.summaries import as_values, per_replicate
from parvibench.checks.targets import STABLE
from parvibench.core.algorithm import Algorithm

from .of_sampler import OfSampler

#: Relative bias of the estimate that adaptive temperatures are allowed; without them it is unbiased.
_LIMIT = 0.05


@dataclass(frozen=True)
class Normaliser(OfSampler):
    """Whether the mean of the estimated normalising constant is the exact one: ``normaliser`` is its ratio, less 1."""

    title = "normaliser"
    hint = "weights that are not multiplied up, are averaged as logarithms, or survive a resampling"

    def measure(self, replicates: range, seed: int) -> Values:
        """One value per replicate, of the last step."""
        task, found = STABLE[self.task], list[float]()
        for ids in per_replicate(replicates, self.loaded.max_chunk):
            run = self.observe(self.problem(task, ids, seed))
            estimate = torch.as_tensor(run.info.log_normaliser).double().reshape(len(ids))
            found += as_values((estimate - task.log_normaliser).exp() - 1)
        return {"normaliser": found}

    def expected(self) -> Mapping[str, Expected]:
        """Next to none on average."""
        return {"normaliser": Bound(_LIMIT)}


def reports_normaliser(algorithm: Algorithm) -> bool:
    """Whether the Info in the annotation of the sampler's ``step`` has a field ``log_normaliser``."""
    try:
        returned = get_type_hints(type(algorithm).step).get("return")
    except Exception:  # names that only a type checker imports
        return False
    return any("log_normaliser" in getattr(part, "_fields", ()) for part in get_args(returned))
