"""Gradient flow with smoothed density (GFSD).

Liu, Zhuo, Cheng, Zhang, Zhu & Carin (2019), arXiv:1807.01750, Section 3.3. The particles follow the Wasserstein
gradient flow of KL(q || p), whose velocity is s - grad log q, with q smoothed by the kernel:

    v(x_i) = s(x_i) - sum_j grad_{x_i} k_ij / sum_j k_ij,   k_ij = exp(-||x_i - x_j||^2 / h)

that is s(x_i) + (2/h) (x_i - m_i), with m_i the mean of all particles weighted by k_ij. The bandwidth is the median's,
or that of the heat equation (``parvibench.kernels.heat``).

Trap: a particle whose kernel reaches no other has v = s and falls to a mode; particles pair or cluster where h is
much below their distances, as the paper shows of GFSD and Blob with the median. In the limit the smoothed density
equals the target at the particles, so that these alone are too narrow: on N(0, 1) their variance is near 1 - h/2.
"""

from torch import Tensor

from parvibench.core.algorithm import Example

from ._particle_flows import SmoothedFlow, SmoothedSettings


class GFSD(SmoothedFlow[SmoothedSettings]):
    """Wasserstein gradient flow of the divergence, density smoothed by a kernel."""

    name = "gfsd"
    example = Example(settings={"step_size": 0.1}, both_modes=False)

    def repulsion(self, settings: SmoothedSettings, x: Tensor, k: Tensor) -> Tensor:
        """The difference x - m."""
        return x - (k @ x) / k.sum(-1, keepdim=True)
