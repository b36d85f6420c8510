"""Whether the density of a task from outside is a function: it is called again at one point at every checkpoint."""

from __future__ import annotations

import torch
from torch import Tensor

from parvibench.core.target import Target, same_again

#: Flag of a run.
CHANGED = (
    "the density of one point changed between calls: it is no function of the point, and the samples follow no law"
)


class Repeated:
    """Calls density and score at the first sample of the first checkpoint, (R, 1, D), outside of meter and clock."""

    def __init__(self, target: Target, dtype: torch.dtype) -> None:
        self._target, self._dtype = target, dtype
        self._point: Tensor | None = None
        self._values: Tensor | None = None

    def changed(self, samples: Tensor) -> bool:
        """Whether the values differ from the first ones; the first time they are computed twice."""
        with torch.inference_mode(False), torch.no_grad():
            if self._point is None or self._values is None:
                self._point = samples[:, :1].clone().to(self._dtype)
                self._values = self._called(self._point)
            return not same_again(self._values, self._called(self._point), single=True)

    def _called(self, point: Tensor) -> Tensor:
        density, score = self._target.log_density_and_score(point.clone())
        return torch.cat([density[..., None], score], -1).detach().clone()
