"""A chunk of replicates and its result, as an object and as bytes.

The bytes hold tensors, numbers and text; they are written by ``torch.save`` and read without running any code. Strides
and the offset into 64-byte aligned storage are preserved: products of matrices depend on them in their last bits.
"""

import hashlib
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from parvibench.core.algorithm import AlgorithmSettings, Anchor
from parvibench.core.errors import StoreError
from parvibench.core.task import Problem, Task
from parvibench.harness.store.environment import hardware
from parvibench.harness.store.store import Trajectories
from parvibench.harness.suite.cells import Cell
from parvibench.targets.starts import FITS, begin_at_fits

METRICS_VERSION = 5  #: Raised when a metric's values change for the same samples.
_PLAIN = (bool, int, float, str, type(None))


class Chunk(NamedTuple):
    """Replicates of a cell that run together, with the cell's task, method and settings loaded."""

    cell: Cell
    replicates: tuple[int, ...]
    task: Task
    method: Any  #: algorithm or anchor
    settings: AlgorithmSettings

    @classmethod
    def of(cls, cell: Cell, replicates: Sequence[int]) -> Self:
        """The chunk of these replicates; errors as of loading the cell."""
        task, method = cell.load()
        return cls(cell, tuple(replicates), task, method, method.make_settings(dict(cell.settings)))

    def problem(self, limit: float | None) -> Problem:
        """A new problem with a limit of score evaluations."""
        spec = self.cell.spec
        start = self.task.begins if spec.start == "task" else spec.start
        made = self.task.problem(
            self.replicates, spec.seed, spec.device, getattr(torch, spec.dtype), particles=spec.particles, limit=limit,
            full_batch="full-batch" in self.method.needs, start="task" if start in FITS else start,
        )  # fmt: skip
        if start in FITS and not isinstance(self.method, Anchor):
            begin_at_fits(self.task, made, start)
        return made


@dataclass
class ChunkResult:
    """The result of a chunk, in replicate order."""

    #: rows of the long curve table (see ``store.CURVE_COLUMNS``)
    curve: list[tuple[Any, ...]] = field(default_factory=list)
    samples: NDArray[np.float32] | None = None  #: of the last checkpoint, (r, n, D)
    #: iterations of the checkpoints, and places (k, D) of the particles followed there, where any are
    visited: list[int] = field(default_factory=list)
    places: list[NDArray[np.float32]] = field(default_factory=list)
    #: metric -> value per replicate at the last checkpoint
    values: dict[str, list[float]] = field(default_factory=dict)
    #: the same of evenly thinned samples, where their number has no floors
    judged: dict[str, list[float]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)  #: metric -> why it does not apply
    diverged: dict[int, int] = field(default_factory=dict)  #: replicate id -> iteration
    iterations: int = 0
    score_evaluations: float = 0.0
    seconds: float = 0.0  #: steady compute time of the chunk
    effective_step: float | None = None
    start: str = ""  #: where it began: the specification's start, ``own``, or empty
    overheads: dict[str, float] = field(default_factory=dict)  #: ``warmup``, ``metrics`` and ``compile`` seconds
    drift: float = 0.0  #: relative change of a reference kernel's time from before the run to after it
    flags: list[str] = field(default_factory=list)  #: warnings for readers of the numbers
    process: dict[str, str] = field(default_factory=dict)  #: threads and allocator of the process that ran it
    #: checkpoints whose metrics another process computes, see ``judging``
    unmeasured: list[dict[str, Any]] = field(default_factory=list)

    def flag(self, text: str) -> None:
        """Add a flag once."""
        if text not in self.flags:
            self.flags.append(text)

    def note_diverged(self, replicates: Sequence[int], finite: Tensor, step: int) -> None:
        """Record the replicates that are not ``finite``, (R,), unless they are recorded already."""
        for replicate, sound in zip(replicates, finite.tolist(), strict=True):
            if not sound:
                self.diverged.setdefault(replicate, step)

    def plain(self) -> dict[str, Any]:
        """Text and tensors: what ``pack`` takes."""
        apart = {
            "samples": None if self.samples is None else torch.tensor(self.samples),  # read-only, where Ray sent it
            "unmeasured": self.unmeasured,
            "places": [torch.tensor(p) for p in self.places],
        }
        return {**apart, "text": json.dumps({k: v for k, v in vars(self).items() if k not in apart})}

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Self:
        """The inverse of ``plain``."""
        values = json.loads(plain["text"])
        values["curve"] = [tuple(row) for row in values["curve"]]
        values["diverged"] = {int(r): step for r, step in values["diverged"].items()}
        samples = plain["samples"]
        return cls(
            samples=None if samples is None else samples.numpy(),
            unmeasured=plain["unmeasured"],
            places=[p.numpy() for p in plain["places"]],
            **values,
        )

    @property
    def trajectories(self) -> Trajectories | None:
        """Where the particles followed went, or None without any."""
        return Trajectories(np.array(self.visited), np.stack(self.places)) if self.places else None


class NotWritableError(TypeError):
    """A value that a snapshot cannot hold."""


def pack(value: Any) -> bytes:
    """The bytes of nested tuples, lists and dicts of tensors, numbers, text and None; ``NotWritableError`` for more."""
    for leaf in tree_leaves(value):
        if not (isinstance(leaf, Tensor) and not leaf.requires_grad) and type(leaf) not in _PLAIN:
            raise NotWritableError(f"a {type(leaf).__name__} cannot be saved")
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def unpack(content: bytes, device: torch.device | str = "cpu") -> Any:
    """The value behind the bytes, its tensors on ``device``; ``StoreError`` where they are damaged or hold more."""
    try:
        return torch.load(io.BytesIO(content), map_location=device, weights_only=True)
    except Exception as error:  # whatever damaged bytes make of the reader
        raise StoreError(f"a snapshot that cannot be read: {type(error).__name__}: {error}") from None


def rebuilt(leaves: list[Any], like: Any) -> Any:
    """The state that ``tree_leaves`` took apart, with the types of another one; ``StoreError`` if it does not fit."""
    held, spec = tree_flatten(like)
    if len(held) != len(leaves):
        raise StoreError(f"a snapshot of {len(leaves)} values for a state of {len(held)}")
    return tree_unflatten(leaves, spec)


def metrics_key(cell: Cell) -> str:
    """Names the measurement: metrics, their version and the reference."""
    reference = cell.load()[0].floored()
    sha = reference.certificate.get("sha256", "") if reference else ""
    return hashlib.sha256(repr((METRICS_VERSION, cell.metrics, sha)).encode()).hexdigest()[:16]


def stamp(cell: Cell, replicates: tuple[int, ...]) -> str:
    """Identity of saved bytes: chunk, metrics, PyTorch and hardware must agree for a run to resume from them."""
    parts = (cell.key, metrics_key(cell), replicates, torch.__version__, hardware(cell.spec.device))
    return json.dumps([str(p) for p in parts])


def pack_result(cell: Cell, replicates: tuple[int, ...], result: ChunkResult) -> bytes:
    """A finished chunk as bytes."""
    return pack({"stamp": stamp(cell, replicates), "result": result.plain()})


def unpack_result(cell: Cell, replicates: tuple[int, ...], content: bytes) -> ChunkResult | None:
    """The finished chunk behind the bytes, or None when they are damaged or of another run."""
    try:
        found = unpack(content)
        if found["stamp"] != stamp(cell, replicates):
            return None
        return ChunkResult.from_plain(found["result"])
    except (StoreError, KeyError, TypeError, ValueError):
        return None
