"""Saving where a chunk is while it runs, and going on from there to the same bits."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch.utils._pytree import tree_leaves

from parvibench.core.errors import StoreError

from .checkpoints import Checkpoints
from .chunks import ChunkResult, stamp
from .clock import Clock
from .snapshot import pack, rebuilt, unpack


class Place(NamedTuple):
    """Where a run stands: the state after iteration ``step``, and the budget shares still to be measured."""

    state: Any
    step: int
    pending: list[float]


def packed(run: Checkpoints, place: Place) -> bytes:
    """All that the run needs to go on; ``NotWritableError`` where its state cannot be written."""
    meter = run.problem.meter
    return pack({
        "stamp": stamp(run.cell, run.replicates),
        "state": tree_leaves(place.state),
        "step": place.step,
        "pending": place.pending,
        "meter": (meter.scores, meter.hessian_vector_products, meter.log_densities),
        "calls": (meter.score_calls, meter.product_calls, meter.density_calls),
        "seconds": (run.clock.seconds, run.seconds),
        "memory": run.memory(),
        "result": run.result.plain(),
        "path": run.path.saved if run.path is not None else None,
        "decided": run.decider.saved if run.decider is not None else None,
        "mark": run.mark,
        "tally": (run.tally.sums, run.tally.steps),
    })  # fmt: skip


def resume(run: Checkpoints, content: bytes, first: Any, horizon: int) -> Place | None:
    """Put a run where an earlier one of this chunk was, or None for bytes of another; ``first`` has the state's types."""
    try:
        saved = unpack(content, run.device)
        if saved["stamp"] != stamp(run.cell, run.replicates):
            return None
        place = Place(rebuilt(saved["state"], first), saved["step"], saved["pending"])
    except (StoreError, KeyError, TypeError):
        return None
    meter = run.problem.meter
    meter.scores, meter.hessian_vector_products, meter.log_densities = saved["meter"]
    meter.score_calls, meter.product_calls, meter.density_calls = saved.get("calls", (0, 0, 0))
    seconds, run.seconds = saved["seconds"]
    run.clock = Clock(run.device, seconds)
    run.memory_before, run.mark = saved["memory"] or 0.0, saved["mark"]
    run.tally.sums, run.tally.steps = saved["tally"]
    run.result = ChunkResult.from_plain(saved["result"])
    if run.decider is not None:
        run.decider.saved = saved["decided"]
    if saved["path"] is not None:
        run.path = run.recorder(place.state.x, horizon)
        run.path.saved = saved["path"]
    return place
