"""Distance between unmixing matrices, for independent component analysis."""

import torch
from torch import Tensor

from parvibench.core.errors import ShapeError
from parvibench.core.metric import Context, metric

from .needs import given


@metric("lower", "1", "unmixing", "Amari distance to the known unmixing matrix, mean over samples")
def amari(samples: Tensor, context: Context) -> Tensor:
    """Amari distance to the known unmixing matrix, mean over the samples.

    With W a sample as a (d, d) matrix, row-major, W0 the known one and ``P = W pinv(W0)``::

        [ sum_i (sum_j P_ij^2 / max_j P_ij^2 - 1) + sum_j (sum_i P_ij^2 / max_i P_ij^2 - 1) ] / (2 d)

    (Amari, Cichocki & Yang 1996, NIPS 8, with squared entries, as Zhang, Cheng & Zhang 2024, arXiv:2410.17935,
    compute it). Zero when W equals W0 up to the order and scale of its rows, d - 1 at most.

    (R,), dimensionless; lower is better. NaN where a row or column of P is zero. O(n d^3).

    Raises:
        ShapeError: the unmixing matrix is not (d, d).

    >>> amari(torch.eye(5, dtype=torch.float64).reshape(1, 1, 25), Context(ica))
    tensor([0.9597], dtype=torch.float64)
    """
    known = given(context.task.facts.unmixing, "the task states no unmixing matrix")
    d = known.shape[0]
    if known.shape != (d, d) or d * d != samples.shape[2]:
        raise ShapeError(
            f"an unmixing matrix of shape {tuple(known.shape)} does not fit samples {tuple(samples.shape)}"
        )
    p2 = (samples.reshape(*samples.shape[:2], d, d) @ torch.linalg.pinv(known.to(samples))).square()
    rows, columns = (p2.sum(axis) / p2.amax(axis) - 1 for axis in (3, 2))
    return ((rows + columns).sum(2) / (2 * d)).mean(1)
