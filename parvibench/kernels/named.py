"""The kernels of KSIVI (arXiv:2405.18997) by name."""

from typing import Literal

from torch import Tensor

from . import laplace, radial, riesz

Kernel = Literal["gaussian", "imq", "riesz", "laplace"]


def pull_back(
    kernel: Kernel, x: Tensor, y: Tensor, weights: Tensor, bandwidth: float | None, through_median: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The kernel matrix and the gradients of sum_ij w_ij k(x_i, y_j): as ``radial.pull_back``.

    ``through_median`` acts on the Gaussian kernel only, as in the authors' code.
    """
    match kernel:
        case "gaussian":
            return radial.pull_back(radial.gaussian, x, y, weights, bandwidth, through_median)
        case "imq":
            return radial.pull_back(radial.inverse_multiquadric, x, y, weights, bandwidth)
        case "riesz":
            return riesz.pull_back(x, y, weights, bandwidth)
        case "laplace":
            return laplace.pull_back(x, y, weights, bandwidth)
