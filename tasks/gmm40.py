"""Forty Gaussians of equal weight, their centres uniform on a cube: who finds all of them?

- ``gmm40-2d``: Midgley et al. (2023), Flow annealed importance sampling bootstrap, ICLR, arXiv:2208.01893: centres
  uniform on (-40, 40)^2, drawn by PyTorch from seed 0 as in the authors' code, standard deviations
  softplus(1) = 1.3133. Two of the centres are closer than three standard deviations.
- ``gmm40-50d``: centres of our own; no published number applies to it. After Blessing et al. (2024), Beyond ELBOs, ICML,
  arXiv:2406.07423: centres uniform on (-40, 40)^50, unit variance. Theirs are JAX's of seed 0; these are PyTorch's, of the same law. Centres are 180 to 270 apart: no
  path of finite density leads from one to another.

Densities are normalised: log Z = 0. Start N(0, 40^2 I), as wide as the target, our choice: the papers start flows and
diffusions from Gaussians of a similar width. All modes get points near them in two dimensions, but not the right number.
"""

import math
from dataclasses import replace

import torch

from parvibench.core.exact import Normal
from parvibench.core.task import LEAN_METRICS, LOG_Z_METRICS

from .mixtures import Mixture, MixtureTask

_COMPONENTS = 40
_HALF_WIDTH = 40.0


def _task(dim: int, sd: float, citation: str) -> MixtureTask:
    numbers = torch.rand(_COMPONENTS, dim, generator=torch.Generator().manual_seed(0), dtype=torch.float32)
    weights = torch.full((_COMPONENTS,), 1 / _COMPONENTS, dtype=torch.float64)
    mixture = Mixture(_HALF_WIDTH * (2 * numbers.double() - 1), weights, variance=sd**2)
    counted = ("modes_found",) if dim == 2 else ()
    return MixtureTask(
        name=f"gmm40-{dim}d",
        summary=f"forty Gaussians far apart in {dim} dimensions",
        dim=dim,
        tags=frozenset({"exact", "multimodal", *(["2d"] if dim == 2 else [])}),
        citation=citation,
        metrics=(*LEAN_METRICS, *counted, "mode_weight_tv", *LOG_Z_METRICS),
        start=Normal(sd=_HALF_WIDTH),
        facts=replace(mixture.facts(with_modes=True), log_z=0.0),
        mixture=mixture,
    )


GMM40_2D = _task(2, math.log1p(math.e), "Midgley et al. (2023), arXiv:2208.01893")
GMM40_50D = _task(50, 1.0, "Blessing et al. (2024), arXiv:2406.07423")
