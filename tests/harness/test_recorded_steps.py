"""A replayed step is the plain one, to the bit, and a step that cannot be replayed is left plain with its reason."""

from itertools import islice
from typing import Any, NamedTuple

import pytest
import torch
from ascent import Ascent
from sampler_toys import SAMPLERS
from torch import Tensor
from torch.utils._pytree import tree_leaves

from parvibench.core import registry
from parvibench.core.algorithm import Algorithm, ParticleState, take_steps
from parvibench.core.budget import Meter
from parvibench.core.errors import BudgetExhausted
from parvibench.core.streams import Streams
from parvibench.harness.run.chunks import Chunk
from parvibench.harness.run.compiling import RecordedStep
from parvibench.harness.run.loop import run_chunk
from parvibench.harness.run.stepping import step_mode
from parvibench.harness.suite.cells import expand
from parvibench.harness.suite.suite import Suite
from parvibench.nn.recording import Number, Trace

NUMPY, VALUES = "it leaves PyTorch for NumPy", "values decide which operations follow"
#: What stays plain on a CPU, and a part of the reason.
PLAIN = {
    **dict.fromkeys(("svgd", "blob", "gfsd", "gfsf", "spos"), NUMPY),
    **dict.fromkeys(("chees-hmc", "laplace", "pathfinder", "smc"), VALUES),
    "lapd-decay": "it depends on more than its numbers",
    "parallel-tempering": "aten::bitwise_or",
}
OURS = {name: registry.load_algorithm(name) for name in SAMPLERS}
RECORDED = [name for name, m in OURS.items() if not m.library and m.compiled_step() is None]


def walked(method: Algorithm[Any, Any], advance: Any, steps: int, task: str = "gmm5-2d") -> tuple[list[Any], Meter]:
    """The leaves of state and Info after every step, and the meter."""
    full = "full-batch" in method.needs
    problem = registry.load_task(task).problem((0, 1), 0, "cpu", particles=8, full_batch=full)
    settings = method.make_settings(dict(method.example.quick))
    with step_mode(method):
        state = method.init(problem, settings, problem.streams, steps)
        return [tree_leaves(s) for s in islice(take_steps(advance, problem, settings, state), steps)], problem.meter


def same(ours: list[Any], theirs: list[Any]) -> bool:
    pairs = list(zip(ours, theirs, strict=True))
    return all(torch.allclose(a, b, 0, 0, True) if isinstance(a, Tensor) else a == b for a, b in pairs)


@pytest.mark.parametrize("name", RECORDED)
def test_replays_are_the_plain_steps(name: str) -> None:
    """To the bit, with the same charges; the first three replays and the fourth are checks, the others count."""
    method = registry.load_algorithm(name)
    recorded = RecordedStep(method.step)
    ours, theirs = walked(method, recorded, 20), walked(method, method.step, 20)
    assert [same(a, b) for a, b in zip(ours[0], theirs[0], strict=True)] == [True] * 20
    assert ours[1] == theirs[1]
    assert PLAIN.get(name, "") in recorded.left_plain
    assert bool(recorded.left_plain) is (name in PLAIN)
    if name not in PLAIN:
        assert sum(record._replays for record in recorded._records) > 5


@pytest.mark.parametrize("name", ["sgld", "sifg", "map"])
def test_replays_follow_mini_batches(name: str) -> None:
    method = registry.load_algorithm(name)
    recorded = RecordedStep(method.step)
    ours, theirs = (walked(method, advance, 12, "bnn-diabetes-sklearn") for advance in (recorded, method.step))
    assert all(same(a, b) for a, b in zip(ours[0], theirs[0], strict=True))
    assert ours[1] == theirs[1]
    assert recorded.left_plain == ""


class Counts(NamedTuple):
    x: Tensor
    k: int


class ByNumbers(Ascent):
    """Its number enters tensors, decides a branch, and restarts."""

    name = "by-numbers"

    def init(self, problem, settings, streams, horizon):
        return Counts(problem.init(), 0)

    def step(self, problem, settings, state, streams):
        x, k = state
        x = x + problem.score(x) * (0.1 / (1 + k) ** 0.5) + streams.normal("noise", x.shape[1:], index=k % 2)
        if k >= 5:
            x = x * 0.9 ** (streams.step // 3)
        return Counts(x, 0 if k == 9 else k + 1)


class Hidden(Ascent):
    """Counts its steps where the harness does not look; the count matters from one of them on."""

    name, begins, count = "hidden", 0, 0

    def step(self, problem, settings, state, streams):
        self.count += 1
        return ParticleState(state.x + 0.1 * problem.score(state.x) * max(1, self.count - self.begins))


class Reads(Ascent):
    name = "reads"

    def step(self, problem, settings, state, streams):
        return ParticleState(state.x + problem.score(state.x) / (1 + problem.meter.charged))


class Draws(Ascent):
    name = "draws"

    def step(self, problem, settings, state, streams):
        (g, *_) = streams.generators("algorithm", streams.step)
        return ParticleState(state.x + problem.score(state.x) + torch.randn(1, generator=g))


def test_numbers_of_the_state_are_followed() -> None:
    """A record for each of the four cases: few and many steps, odd and even."""
    method = ByNumbers()
    recorded = RecordedStep(method.step)
    ours, theirs = walked(method, recorded, 60), walked(method, method.step, 60)
    assert all(same(a, b) for a, b in zip(ours[0], theirs[0], strict=True))
    assert recorded.left_plain == ""
    assert sum(r._replays > 0 for r in recorded._records) >= 4


def test_state_hidden_in_python_is_found_by_the_checks() -> None:
    """At once where it matters from the start: then all steps are plain ones."""
    hidden = Hidden()
    recorded = RecordedStep(hidden.step)
    walked(hidden, recorded, 9)
    assert "at step 1:" in recorded.left_plain
    late = Hidden()
    late.begins = 6  # the step counts while it is recorded, and at checks
    recorded = RecordedStep(late.step)
    walked(late, recorded, 40)
    assert "at step " in recorded.left_plain


@pytest.mark.parametrize(
    ("method", "reason"), [(Reads(), "`charged` of its meter"), (Draws(), "generators of its own")]
)
def test_what_a_replay_would_miss_is_not_recorded(method: Algorithm[Any, Any], reason: str) -> None:
    recorded = RecordedStep(method.step)
    ours, theirs = walked(method, recorded, 9), walked(method, method.step, 9)
    assert all(same(a, b) for a, b in zip(ours[0], theirs[0], strict=True))
    assert reason in recorded.left_plain


def test_a_budget_ends_before_the_replay() -> None:
    method = registry.load_algorithm("hmc")
    meters = []
    for advance in (RecordedStep(method.step), method.step):
        problem = registry.load_task("gmm5-2d").problem(1, 0, "cpu", particles=8, limit=300.0)
        settings = method.make_settings({"leapfrog_steps": 3})
        with step_mode(method), pytest.raises(BudgetExhausted):
            list(take_steps(advance, problem, settings, method.init(problem, settings, problem.streams, 9)))
        meters.append(problem.meter)
    assert meters[0] == meters[1]


def test_short_runs_and_short_steps_are_not_recorded() -> None:
    for name, horizon, reason in (("ksivi", 999, "from 1000 steps on"), ("ula", 5000, "from 80 operations on")):
        method = registry.load_algorithm(name)
        recorded = RecordedStep(method.step, horizon)
        walked(method, recorded, 4)
        assert reason in recorded.left_plain


def test_code_of_numbers_is_their_arithmetic() -> None:
    trace = Trace(Streams(0, (0,)))
    n = Number(trace, "n[0]", 7)
    made = [
        n + 1,
        2 - n,
        n * 0.5,
        3 / n,
        n // 2,
        n % 4,
        0.9**n,
        n**0.5,
        (1 - n) * (n - 0.25),
        max(n, 3),
        round(n / 2, 1),
    ]
    assert [eval(m.code, {"n": [7]}) for m in made[:-1]] == [m.value for m in made[:-1]]
    for at, holds in ((7, True), (8, False), (2, False)):
        assert eval(" and ".join(trace.conditions), {"n": [at]}) is holds


def test_a_run_with_compile_has_the_values_of_the_plain_one() -> None:
    """A key of the suite; the cell says what stayed plain."""
    suite = {
        "name": "recorded", "tasks": ["banana"], "algorithms": ["sivi-sm", "ula"], "replicates": 2, "particles": 8,
        "budget": {"iterations": 1040}, "metrics": ["mean_error"],
    }  # fmt: skip
    plain, recorded = (
        [run_chunk(c, c.chunks[0]) for c in expand(Suite.model_validate(suite | {"compile": c}))] for c in (False, True)
    )
    assert all((a.samples == b.samples).all() and a.values == b.values for a, b in zip(plain, recorded, strict=True))
    assert recorded[0].overheads["compile"] > 0
    assert not recorded[0].flags
    assert any("plain steps" in flag for flag in recorded[1].flags)


def test_data_that_grow_are_not_recorded() -> None:
    suite = {"name": "b", "tasks": ["bandit-wheel"], "algorithms": ["sgld"], "replicates": 1, "particles": 4,
             "contexts": 120, "budget": {"iterations": 30}}  # fmt: skip
    (cell,) = expand(Suite.model_validate(suite))
    chunk = Chunk.of(cell, cell.chunks[0])
    problem, recorded = chunk.problem(None), RecordedStep(chunk.method.step)
    with step_mode(chunk.method):
        state = chunk.method.init(problem, chunk.settings, problem.streams, 9)
        list(islice(take_steps(recorded, problem, chunk.settings, state), 3))
    assert "the data grow" in recorded.left_plain
