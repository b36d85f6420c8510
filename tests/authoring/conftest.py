"""A module of samplers and a plug-in file, as users would write them."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

#: One sampler batched and as functions, each with its law in its settings.
MODULE = '''
import math
from typing import NamedTuple
import numpy as np
import torch
import parvibench as pb

class Settings(pb.AlgorithmSettings):
    step_size: float = 0.02

class State(NamedTuple):
    x: torch.Tensor

class Batched(pb.Algorithm[Settings, State]):
    name, kind = "batched", "chains"
    def init(self, problem, settings, streams, horizon):
        return State(problem.init())
    def step(self, problem, settings, state, streams):
        noise = streams.normal("noise", state.x.shape[1:])
        return State(state.x + settings.step_size * problem.score(state.x) + math.sqrt(2 * settings.step_size) * noise)

@pb.sampler
def langevin(problem, x0, generator, step_size: float = 0.02):
    """Unadjusted Langevin dynamics."""
    x = x0
    while True:
        x = x + step_size * problem.score(x) + math.sqrt(2 * step_size) * torch.randn(x.shape, generator=generator)
        yield x

@pb.sampler(name="np", kind="particles")
def climb(problem, x0, generator):
    x = x0.numpy()
    while True:
        x = x + 0.01 * problem.score(x)
        yield x
'''


#: A sampler and a density; a file beside it tells that its code ran.
PLUGIN = """
import pathlib
pathlib.Path(__file__).with_suffix(".ran").touch()
import parvibench as pb
from parvibench.core.algorithm import Algorithm, ParticleState, SteppedSettings

class KWFlow(Algorithm[SteppedSettings, ParticleState]):
    name = "kw-flow"
    kind = "particles"

    def init(self, problem, settings, streams, horizon):
        return ParticleState.start(problem)

    def step(self, problem, settings, state, streams):
        return ParticleState(state.x + 0.1 * problem.score(state.x))

bowl = pb.task(lambda x: -x.square().sum(), 2, name="bowl")
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module above, importable, and forgotten afterwards."""
    (tmp_path / "own_samplers_of_a_test.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    import own_samplers_of_a_test as module  # type: ignore[import-not-found]

    yield module
    del sys.modules[module.__name__]


@pytest.fixture
def plug_in() -> str:
    """Content of the file."""
    return PLUGIN
