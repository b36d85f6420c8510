"""Samplers that misbehave in every way we could think of, and one that does not."""

import ctypes
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch

from parvibench.core import registry
from parvibench.core.algorithm import Algorithm, ParticleState, SteppedSettings
from parvibench.core.budget import Meter
from parvibench.core.errors import BudgetExhausted


class Good(Algorithm):
    """Gradient ascent with noise."""

    name = "good"
    kind = "particles"
    settings_type = SteppedSettings

    def __init_subclass__(cls):
        super().__init_subclass__()
        cls.name = cls.__name__.lower()

    def init(self, problem, settings, streams, horizon):
        return ParticleState.start(problem)

    def step(self, problem, settings, state, streams):
        if streams.step == 3 and problem.meter.limit is not None:
            self.misbehave(state.x)
        noise = streams.normal("noise", state.x.shape[1:])
        return ParticleState(state.x + 0.01 * problem.score(state.x) + 0.1 * noise)

    def output(self, problem, settings, state, n, streams):
        return state.x

    def misbehave(self, x):
        """At the fourth step of the real run."""


class Segfault(Good):
    def misbehave(self, x):
        ctypes.string_at(0)


class Leaves(Good):
    def misbehave(self, x):
        os._exit(0)


class HoldsTheGil(Good):
    """``PyDLL`` keeps the lock while C sleeps for ever."""

    def misbehave(self, x):
        ctypes.PyDLL(None).sleep(100_000)


class Hoards(Good):
    """40 GB, piece by piece, all of it touched."""

    def misbehave(self, x):
        pieces = [torch.ones(250_000_000) for _ in range(40)]
        time.sleep(len(pieces))


class TurnsNaN(Good):
    def step(self, problem, settings, state, streams):
        x = super().step(problem, settings, state, streams).x
        return ParticleState(torch.full_like(x, torch.nan) if streams.step >= 3 else x)


class Unspeakable(Exception):
    """Control characters, a lone surrogate, a megabyte."""

    def __str__(self):
        return "\x1b[2J\x00\udc80<script>" + "x" * 1_000_000


class Raises(Good):
    def misbehave(self, x):
        raise Unspeakable


class Untellable(Exception):
    """Fails again when its message is formatted."""

    def __str__(self):
        raise RuntimeError("no comment")


class RaisesTwice(Good):
    def misbehave(self, x):
        raise Untellable


class Exits(Good):
    def misbehave(self, x):
        sys.exit(0)


class Floods(Good):
    """200 MB on standard output and error."""

    def misbehave(self, x):
        for _ in range(100):
            os.write(1, b"flood " * 170_000)
            os.write(2, b"flood " * 170_000)
            time.sleep(0.01)


class Meddles(Good):
    """Leaves everything global changed behind it."""

    def misbehave(self, x):
        torch.manual_seed(1)
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002
        torch.set_default_dtype(torch.float64)
        torch.set_num_threads(7)
        torch.set_grad_enabled(True)
        os.environ["OMP_NUM_THREADS"] = "7"
        os.chdir("/")


class ForksAndStays(Good):
    """A child that never ends, one in a session of its own with its parent gone, and a program."""

    def misbehave(self, x):
        if os.fork() == 0:
            time.sleep(100_000)
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(100_000)
            os._exit(0)
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100_000)"])


class ForksAndDies(ForksAndStays):
    def misbehave(self, x):
        super().misbehave(x)
        os.kill(os.getpid(), 9)


class Ignores(Good):
    """Goes on when the budget is spent, with what it had."""

    def step(self, problem, settings, state, streams):
        try:
            return super().step(problem, settings, state, streams)
        except BudgetExhausted:
            return ParticleState(state.x + 1)


class Begs(Good):
    """Asks for one more score for ever."""

    def step(self, problem, settings, state, streams):
        while True:
            try:
                return super().step(problem, settings, state, streams)
            except Exception:
                continue


class Tampers(Good):
    def step(self, problem, settings, state, streams):
        problem.meter.limit = None
        problem.meter.scores = 0.0
        return super().step(problem, settings, state, streams)


class Refunds(Good):
    """Takes back half of what every score cost."""

    def step(self, problem, settings, state, streams):
        after = super().step(problem, settings, state, streams)
        problem.meter.scores -= 0.5 * state.x.shape[1]
        return after


class Replaces(Good):
    def step(self, problem, settings, state, streams):
        if streams.step == 3:
            problem.meter = Meter(problem.meter.limit)
        return super().step(problem, settings, state, streams)


class Silences(Good):
    """Lets no meter of this process book anything."""

    def step(self, problem, settings, state, streams):
        if streams.step == 3:
            type(problem.meter).charge = lambda self, **asked: None
        return super().step(problem, settings, state, streams)


class Unhooks(Good):
    def step(self, problem, settings, state, streams):
        if streams.step == 3:
            problem.meter.charge = lambda **asked: None
        return super().step(problem, settings, state, streams)


class ForksAndBothGoOn(Good):
    """Two processes tell the same story from here on."""

    def misbehave(self, x):
        os.fork()


class Knows(Good):
    """Gives exact draws as its own: nothing prevents that."""

    def misbehave(self, x):
        draws = registry.load_task("multimodal").exact(x.shape[1], torch.Generator().manual_seed(0))
        x.copy_(draws.expand_as(x))


class Overwrites(Good):
    """Spoils the finished cells of a store."""

    def misbehave(self, x):
        """Waits for both good cells, which the main process may still be writing."""
        store = Path(os.environ["PARVIBENCH_STUDY_STORE"])
        while len(records := sorted(store.glob("cells/[!.]*/cell.json"))) < 2:
            time.sleep(0.01)
        self.damage(*(r.parent for r in records))

    def damage(self, *cells):
        for file in sorted(f for folder in cells for f in folder.iterdir()):
            self.spoil(file)

    def spoil(self, file):
        file.write_bytes(b"spoilt" + file.read_bytes()[6:])


class Truncates(Overwrites):
    def spoil(self, file):
        file.write_bytes(file.read_bytes()[:-1])


class Appends(Overwrites):
    def spoil(self, file):
        file.write_bytes(file.read_bytes() + b"\0")


class FlipsBits(Overwrites):
    """In the samples alone."""

    def spoil(self, file):
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        if file.suffix == ".npz":
            file.write_bytes(content)


class Removes(Overwrites):
    """All files but the record."""

    def spoil(self, file):
        if file.name != "cell.json":
            file.unlink()


class Exchanges(Overwrites):
    """Exchanges the folders of two cells."""

    def damage(self, one, other):
        aside = one.with_name("aside")
        one.rename(aside)
        other.rename(one)
        aside.rename(other)
