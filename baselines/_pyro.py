"""What Pyro's samplers share: random numbers by address, and a density whose gradient is the problem's score."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from parvibench.core.streams import Streams, derive_seed
from parvibench.core.task import Problem


class LogDensity(torch.autograd.Function):
    """Log densities (...,) of points (..., D) whose gradient is the problem's score, at the price of a score each."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, problem: Problem) -> Tensor:
        """Of one replicate; the score is stored for ``backward``."""
        log_density, score = problem.log_density_and_score(x.detach().reshape(1, -1, problem.dim))
        ctx.save_for_backward(score.view(x.shape))
        return log_density.view(x.shape[:-1])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        """The score, times the gradient that comes in."""
        (score,) = ctx.saved_tensors
        return grads[0].unsqueeze(-1) * score, None


@contextmanager
def seeded(streams: Streams, stream: str, name: str) -> Iterator[None]:
    """A fork of the global generators, seeded by the address of the current step and the sampler's name."""
    devices = [streams.device] if streams.device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(derive_seed(streams.seed, stream, name, streams.replicates[0], streams.step))
        yield
