"""The blob method (Blob; w-SGLD-B).

Chen, Zhang, Wang, Li & Chen (2018), arXiv:1805.11659, Section 3.2, after Carrillo, Craig & Patacchini (2019); in the
form of Liu, Zhuo, Cheng, Zhang, Zhu & Carin (2019), arXiv:1807.01750, Section 3.2. The entropy of q is replaced by that
of q smoothed by the kernel, E_q log(q * k), whose Wasserstein gradient is exact on particles:

    v(x_i) = s(x_i) - sum_j grad_{x_i} k_ij / sum_j k_ij - sum_j grad_{x_i} k_ij / sum_l k_jl

with k_ij = exp(-||x_i - x_j||^2 / h): GFSD's velocity and a term that is symmetric to it, so that the repulsions of
all pairs cancel and the flow descends (1/n) sum_i [ log (sum_j k_ij) - log p(x_i) ] where h is fixed. With
w_ij = k_ij / sum_l k_il,

    v(x_i) = s(x_i) + (2/h) [ x_i (1 + sum_j w_ji) - sum_j (w_ij + w_ji) x_j ]
"""

from torch import Tensor

from parvibench.core.algorithm import Example

from ._particle_flows import SmoothedFlow, SmoothedSettings


class Blob(SmoothedFlow[SmoothedSettings]):
    """Wasserstein gradient flow of a divergence whose entropy is smoothed by a kernel."""

    name = "blob"
    citation = "Chen, Zhang, Wang, Li & Chen (2018), arXiv:1805.11659"
    example = Example(settings={"step_size": 0.1})

    def repulsion(self, settings: SmoothedSettings, x: Tensor, k: Tensor) -> Tensor:
        """X_i (1 + sum_j w_ji) - sum_j (w_ij + w_ji) x_j."""
        w = k / k.sum(-1, keepdim=True)
        w = w.add_(w.mT.clone())
        # the rows of w alone sum to one
        return w.sum(-1, keepdim=True) * x - w @ x
