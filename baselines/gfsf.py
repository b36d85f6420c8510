"""Gradient flow with smoothed functions (GFSF).

Liu, Zhuo, Cheng, Zhang, Zhu & Carin (2019), arXiv:1807.01750, Section 3.3. The velocity of the Wasserstein gradient flow
is s - grad log q; that of q comes from integration by parts with test functions from the kernel's space,

    v = s + u,   (K + lambda I) u = r,   r_i = sum_j grad_{x_j} k(x_j, x_i) = (2/h) [ x_i sum_j k_ij - sum_j k_ij x_j ]

with K the matrix of k_ij = exp(-||x_i - x_j||^2 / h): SVGD's velocity is K v / n at lambda = 0. The authors' code has
lambda, 1e-2 on toys, as K has eigenvalues near zero.

Traps: the inverse makes the flow stiff. Steps that are long compared with lambda h keep the particles jumping and their law too
wide, the more so the closer they lie; a shorter step or a larger lambda cures it. Their code takes (K + lambda I)^{-1} from the first half of r alone and x_i from the second as if lambda were 0, which
depends on where the origin is. Here all of r is solved for, which does not.
"""

import torch
from pydantic import Field
from torch import Tensor

from parvibench.core.algorithm import Example

from ._particle_flows import SmoothedFlow, SmoothedSettings


class Settings(SmoothedSettings):
    """Settings of GFSF."""

    ridge: float = Field(0.01, gt=0, description="lambda, in units of k, whose largest value is 1; code, on its toys")


class GFSF(SmoothedFlow[Settings]):
    """Wasserstein gradient flow of the divergence, functions smoothed by a kernel."""

    name = "gfsf"
    example = Example(settings={"step_size": 0.1})

    def repulsion(self, settings: Settings, x: Tensor, k: Tensor) -> Tensor:
        """(K + lambda I)^{-1} [ x sum k - K x ]."""
        x = x - x.mean(1, keepdim=True)
        r = k.sum(-1, keepdim=True) * x - k @ x
        k.diagonal(dim1=1, dim2=2).add_(settings.ridge)
        return torch.linalg.solve_ex(k, r).result
