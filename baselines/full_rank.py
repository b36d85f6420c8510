"""Full-rank Gaussian variational inference (ADVI's full-rank family; Pyro's AutoMultivariateNormal).

Kucukelbir, Tran, Ranganath, Gelman & Blei (2017), arXiv:1603.00788, Section 2.4. Samples x = m + L eps,
eps ~ N(0, I), L lower triangular with a positive diagonal, maximise the evidence bound
E log p(x) + sum_d log L_dd + const by Adam:

    d/dm = E s(x),   d/dL = lower triangle of E[ s(x) eps^T ],   d/dlog L_dd = L_dd E[ s_d eps_d ] + 1

A Gaussian target is matched exactly. D^2 parameters, of which the upper triangle stays at zero.

Departures: as in mean-field; the diagonal is positive as the exponential of its parameters.
"""

import math

import torch
from torch import Tensor

from parvibench.core.streams import Streams
from parvibench.core.task import Problem
from parvibench.nn.variational import Variational, VariationalSettings, VariationalState, begin


class FullRank(Variational[VariationalSettings]):
    """Gaussian variational inference, full covariance."""

    name = "full-rank"
    version = 2
    citation = "Kucukelbir, Tran, Ranganath, Gelman & Blei (2017), arXiv:1603.00788"

    def init(self, problem: Problem, settings: VariationalSettings, streams: Streams, horizon: int) -> VariationalState:
        """A narrow, uncorrelated normal at the first of the task's initial points."""
        m = problem.init()[:, 0]
        log_diagonal = torch.full_like(m, math.log(settings.init_scale)).diag_embed()
        return begin(torch.cat((m, log_diagonal.flatten(1)), 1), horizon)

    def push(self, settings: VariationalSettings, parameters: Tensor, noise: Tensor) -> Tensor:
        """m + L eps."""
        m, scale = location_and_scale(parameters, noise.shape[2])
        return m + noise @ scale.mT

    def gradient(self, problem: Problem, settings: VariationalSettings, parameters: Tensor, noise: Tensor) -> Tensor:
        """Gradient of the negative bound, (R, D + D^2), from noise (R, n, D)."""
        m, scale = location_and_scale(parameters, problem.dim)
        score = problem.score(m + noise @ scale.mT)
        grad = (score.mT @ noise).tril_().div_(-noise.shape[1])
        diagonal = grad.diagonal(dim1=1, dim2=2)
        diagonal.mul_(scale.diagonal(dim1=1, dim2=2)).sub_(1)
        return torch.cat((-score.mean(1), grad.flatten(1)), 1)


def location_and_scale(parameters: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """m (R, 1, D) and L (R, D, D) from the parameters (R, D + D^2)."""
    raw = parameters[:, dim:].view(-1, dim, dim)
    diagonal = raw.diagonal(dim1=1, dim2=2).exp()
    return parameters[:, None, :dim], raw.tril(-1) + diagonal.diag_embed()
