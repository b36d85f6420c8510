"""Two normals of different widths at one place: a first-order phase transition, on which annealing is confidently wrong.

``phase-transition-20d``: log p = log(0.1 N(x; 0, I) + 0.9 N(x; 0, 0.01 I)) in 20 dimensions. Along a path of inverse temperatures b
a normal of width w has a mass in proportion to w^(D (1 - b)) (Woodard, Schmidler & Huber 2009, Electron. J. Probab. 14:780-804):
the narrow one, with 0.9 of the mass at b = 1, has 1e-19 of the wide one's at b = 0, and overtakes it at b = 0.95, where no move
leads from one to the other. Methods that anneal find the wide one alone and state log Z = log 0.1 = -2.30 with a small error, whatever
their budget; a method that climbs (``pathfinder``, ``laplace``) finds the narrow one. Normalised: log Z = 0. Start N(0, I).
"""

from dataclasses import replace

import torch

from parvibench.core.task import DENSITY_METRICS, LOG_Z_METRICS

from .mixtures import Mixture, MixtureTask

_DIM, _SDS, _WEIGHTS = 20, (1.0, 0.1), (0.1, 0.9)


def _mixture() -> Mixture:
    unit = torch.eye(_DIM, dtype=torch.float64)
    weights = torch.tensor(_WEIGHTS, dtype=torch.float64)
    return Mixture(unit.new_zeros(2, _DIM), weights, torch.stack([s**2 * unit for s in _SDS]))


PHASE_TRANSITION_20D = MixtureTask(
    name="phase-transition-20d",
    summary="a narrow normal within a wide one: annealing never finds it",
    dim=_DIM,
    tags=frozenset({"exact", "phase transition"}),
    citation="Woodard, Schmidler & Huber (2009), Electron. J. Probab. 14:780-804",
    metrics=(*DENSITY_METRICS, *LOG_Z_METRICS),
    facts=replace(_mixture().facts(with_modes=False), log_z=0.0),
    mixture=_mixture(),
)
