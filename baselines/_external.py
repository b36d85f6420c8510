"""External libraries: one replicate at a time, with seeds of their own generators."""

from parvibench.core.errors import ShapeError
from parvibench.core.streams import Streams, derive_seed
from parvibench.core.task import Problem


def require_one_replicate(problem: Problem, name: str) -> None:
    """Refuse a batch of replicates: ``ShapeError``."""
    if problem.replicates != 1:
        raise ShapeError(f"{name} takes one replicate at a time, got {problem.replicates}")


def seed_of(streams: Streams, *address: object) -> int:
    """A seed of 31 bits for draws of a library's own generator, by the replicate and an address."""
    return derive_seed(streams.seed, "algorithm", streams.replicates[0], *address) >> 32
