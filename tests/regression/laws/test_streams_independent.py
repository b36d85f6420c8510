"""The random streams: draws are independent across steps, blocks, replicates, streams and indices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from asking import assert_right
from torch import Tensor

from parvibench.checks.question import Expected, Fixed, Question, Values
from parvibench.checks.summaries import SETS, as_values, generator_of, laws
from parvibench.core.streams import Streams

_SIZE = 200
#: The next step, and the step at the same place of another block.
_NEXT, _FAR = 1, 1024
_ROWS, _BATCH = 40, 8


@dataclass(frozen=True)
class Independence(Question):
    """Whether draws at different addresses are independent and have their law."""

    task: str = "draws"  #: label
    algorithm: str = "streams"  #: label

    def measure(self, replicates: range, seed: int) -> Values:
        """Moments of one draw, and its correlations with draws at other addresses."""
        found: dict[str, list[float]] = {}
        for law in ("normal", "uniform"):
            streams = Streams(seed, replicates, "cpu", torch.float64)
            draw = getattr(streams, law)
            first = draw("noise", (_SIZE,))
            others = {
                "replicate": first.roll(1, 0),
                "stream": draw("algorithm", (_SIZE,)),
                "index": draw("noise", (_SIZE,), 1),
            }
            for name, step in (("step", _NEXT), ("block", _FAR)):
                streams.step = step
                others[name] = draw("noise", (_SIZE,))
            found |= _statistics(law, first, others)
        return found | _batch_statistics(Streams(seed, replicates))

    def expected(self) -> Mapping[str, Expected]:
        """The same of draws by another generator."""
        return _law()


@cache
def _law() -> Mapping[str, Expected]:
    g = generator_of("streams")
    found: dict[str, list[float]] = {}
    for law, draw in (("normal", torch.randn), ("uniform", torch.rand)):
        first, *rest = (draw(SETS, _SIZE, generator=g, dtype=torch.float64) for _ in range(6))
        others = dict(zip(("replicate", "stream", "index", "step", "block"), rest, strict=True))
        found |= _statistics(law, first, others)
    shared = np.random.default_rng(1).hypergeometric(_BATCH, _ROWS - _BATCH, _BATCH, (2, SETS))
    found |= dict(zip(("batch.shared[epoch]", "batch.shared[replicate]"), shared.tolist(), strict=True))
    return laws(found) | {"batch.rows[epoch]": Fixed(_ROWS)}


def _statistics(law: str, x: Tensor, others: Mapping[str, Tensor]) -> dict[str, list[float]]:
    """Mean, variance and fourth moment, and correlations: (R, n) each -> one value a replicate."""
    centred = x - x.mean(1, keepdim=True)
    found = {"mean": x.mean(1), "variance": centred.square().mean(1), "fourth": centred.pow(4).mean(1)}
    for name, other in others.items():
        found[f"corr[{name}]"] = torch.cosine_similarity(centred, other - other.mean(1, keepdim=True))
    return {f"{law}.{name}": as_values(value) for name, value in found.items()}


def _batch_statistics(streams: Streams) -> dict[str, list[float]]:
    """Different rows in an epoch, and rows that a mini-batch shares with another epoch's and another replicate's."""
    per_epoch = _ROWS // _BATCH
    batches = []
    for streams.step in range(per_epoch + 1):
        batches.append(torch.nn.functional.one_hot(streams.batch(_ROWS, _BATCH), _ROWS).sum(1))
    first, *_, later = batches
    return {
        "batch.rows[epoch]": (torch.stack(batches[:per_epoch]).sum(0) > 0).sum(1).tolist(),
        "batch.shared[epoch]": (first * later).sum(1).tolist(),
        "batch.shared[replicate]": (first * first.roll(1, 0)).sum(1).tolist(),
    }


def test_draws_at_different_addresses_are_independent() -> None:
    assert_right(Independence())
