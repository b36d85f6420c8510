"""Saving a running chunk, and resuming it to the same bits."""

from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_leaves

from parvibench.core.errors import StoreError

from .account import Account
from .chunks import Chunk, ChunkResult, stamp
from .judging import Curve
from .recorder import Path
from .snapshot import pack, rebuilt, unpack
from .thompson import DecisionMaker


class Place(NamedTuple):
    """Place of a run: the state after iteration ``step``, and the budget shares still to be measured."""

    state: Any
    step: int
    pending: list[float]


class Standing(NamedTuple):
    """The parts of a run that change, besides its place."""

    account: Account
    path: Path
    decisions: DecisionMaker | None
    curve: Curve

    def packed(self, chunk: Chunk, place: Place) -> bytes:
        """All that the run needs to resume; ``NotWritableError`` where its state cannot be written."""
        account, path, decisions, curve = self
        return pack({
            "stamp": stamp(chunk.cell, chunk.replicates),
            "state": tree_leaves(place.state),
            "step": place.step,
            "pending": place.pending,
            **account.saved,
            "seconds": (account.clock.seconds, curve.seconds),
            "result": curve.result.plain(),
            "path": None if path.recorder is None else path.recorder.saved,
            "decided": None if decisions is None else decisions.saved,
            "mark": path.mark,
            "tally": (curve.tally.sums, curve.tally.steps),
        })  # fmt: skip

    def resume(self, chunk: Chunk, content: bytes, first: Any, horizon: int) -> Place | None:
        """The place of an earlier run of this chunk, the other parts restored; None for bytes of another.

        ``first`` has the types of the state.
        """
        account, path, decisions, curve = self
        try:
            saved = unpack(content, torch.device(chunk.cell.spec.device))
            if saved["stamp"] != stamp(chunk.cell, chunk.replicates):
                return None
            place = Place(rebuilt(saved["state"], first), saved["step"], saved["pending"])
        except (StoreError, KeyError, TypeError):
            return None
        seconds, curve.seconds = saved["seconds"]
        account.restore(saved, seconds)
        curve.tally.sums, curve.tally.steps = saved["tally"]
        curve.result = ChunkResult.from_plain(saved["result"])
        if decisions is not None:
            decisions.saved = saved["decided"]
        path.start(place.state, horizon)
        path.mark = saved["mark"]
        if path.recorder is not None:
            path.recorder.saved = saved["path"]
        return place
