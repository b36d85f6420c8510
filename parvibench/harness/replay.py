"""Blocks of steps recorded once as a CUDA graph and replayed, so that the host launches sixteen steps at a time.

Noise and mini-batches are drawn before each replay, onto the tape that the recorded steps read; they are the bits
that single steps would draw. A recording is used only if it repeats single steps bit for bit where they differ from
those it was made of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from parvibench.core.algorithm import Algorithm, AlgorithmSettings
from parvibench.core.budget import Meter
from parvibench.core.tape import Tape
from parvibench.core.task import Problem

#: Steps of a block.
LENGTH = 16


class Recording(Protocol):
    """Work that can be done again on the same memory."""

    def replay(self) -> None:
        """Do it again."""
        ...


#: Runs the work it is given and keeps it.
Recorder = Callable[[Callable[[], None]], Recording]


def recorder(device: torch.device) -> Recorder | None:
    """What records work on a device; None on a CPU, where there is nothing to gain."""
    return cuda_graph if device.type == "cuda" else None


def cuda_graph(work: Callable[[], None]) -> torch.cuda.CUDAGraph:
    """The work as a CUDA graph.

    Raises:
        RuntimeError: it waits for the device or copies from the host, which no graph can hold.
    """
    aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):  # libraries set themselves up at first use, outside of the capture
        work()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


class Replay:
    """A block of steps on a problem of its own, replayed from other states at other times.

    Args:
        problem: thrown away: its meter and streams become the recording's.
        algorithm: whose steps they are.
        settings: of the algorithm.
        state: to record from; past the first step, which may differ from all others.
        record: keeps the block.

    Attributes:
        cost: what a block spends.
    """

    def __init__(
        self,
        problem: Problem,
        algorithm: Algorithm,
        settings: AlgorithmSettings,
        state: Any,
        record: Recorder,
    ) -> None:
        self._problem, self._algorithm, self._settings = problem, algorithm, settings
        self._tape = problem.streams = Tape(problem.streams, LENGTH)
        self._given = type(state)(*(f.clone() if isinstance(f, Tensor) else f for f in state))
        self._recording = record(self._block)
        self.cost = problem.meter

    def _block(self) -> None:
        self._problem.meter = Meter()
        state, self._path = self._given, []
        for self._tape.step in range(LENGTH):
            state = self._algorithm.step(self._problem, self._settings, state, self._tape)
            self._path.append(state[0])
        self._left = state

    def charged_after(self, meter: Meter) -> float:
        """What ``meter`` would have charged after a block."""
        mine = self.cost
        return Meter(
            None,
            meter.scores + mine.scores,
            meter.hessian_vector_products + mine.hessian_vector_products,
            meter.log_densities + mine.log_densities,
        ).charged

    def run(self, state: Any, step: int, meter: Meter) -> tuple[Any, list[Tensor]]:
        """The state a block later, and the first field of the states on the way, good until the next run.

        Args:
            state: after ``step`` iterations.
            step: their number.
            meter: is charged.
        """
        mine = self.cost
        meter.charge(mine.scores, mine.hessian_vector_products, mine.log_densities)
        for held, field in zip(self._given, state, strict=True):
            if isinstance(held, Tensor):
                held.copy_(field)
        self._tape.wind(step)
        self._recording.replay()
        fields = [
            left.clone() if isinstance(left, Tensor) else field + (left - held)
            for held, field, left in zip(self._given, state, self._left, strict=True)
        ]
        return type(state)(*fields), self._path


def checked_replay(
    problem: Problem,
    algorithm: Algorithm,
    settings: AlgorithmSettings,
    state: Any,
    step: int,
    record: Recorder,
) -> Replay:
    """A recording that was seen to repeat single steps.

    Args:
        problem: thrown away, as the state.
        algorithm: whose steps they are.
        settings: of the algorithm.
        state: after ``step`` iterations, at least one.
        step: their number.
        record: keeps the block.

    Raises:
        RuntimeError: the steps cannot be recorded, or a replay differs from them.
        UnsupportedError: they draw what no tape can hold.
    """

    def block(state: Any, step: int) -> tuple[Any, Meter]:
        problem.meter = Meter()
        for problem.streams.step in range(step, step + LENGTH):
            state = algorithm.step(problem, settings, state, problem.streams)
        return state, problem.meter

    later, _ = block(state, step)
    expected, spent = block(later, step + LENGTH)
    replay = Replay(problem, algorithm, settings, state, record)
    meter = Meter()
    found, _ = replay.run(later, step + LENGTH, meter)
    if meter != spent or not _same(found, expected):
        raise RuntimeError("a replayed block of steps differs from single steps")
    return replay


def _same(a: Any, b: Any) -> bool:
    """Whether two states are equal bit for bit."""
    return all(
        torch.equal(x, y) if isinstance(x, Tensor) else bool(x == y) for x, y in zip(a, b, strict=True)
    )
