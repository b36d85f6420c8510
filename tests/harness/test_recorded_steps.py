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
from parvibench.core.algorithm import ParticleState, take_steps
from parvibench.core.errors import BudgetExhausted, UnsupportedError
from parvibench.harness.run import compiling
from parvibench.harness.run.chunks import Chunk
from parvibench.harness.run.compiling import RecordedStep
from parvibench.harness.run.loop import run_chunk
from parvibench.harness.run.stepping import step_mode
from parvibench.harness.suite.cells import expand
from parvibench.harness.suite.suite import Suite

VALUES = "values decide which operations follow"
#: What stays plain on a CPU, and a part of the reason.
PLAIN = {
    **dict.fromkeys(("svgd", "blob", "gfsd", "gfsf", "spos"), ".numpy()"),
    **dict.fromkeys(("chees-hmc", "laplace", "pathfinder", "smc"), VALUES),
    "lapd-decay": "again and again",
    "parallel-tempering": "'Tensor' and 'Number'",
}
OURS = {name: registry.load_algorithm(name) for name in SAMPLERS}


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replays stay in use, slow or not."""
    monkeypatch.setattr(compiling, "_PAYS", float("inf"))


def walked(method: Any, advance: Any, steps: int, task: str = "gmm5-2d", limit: float | None = None) -> list[Any]:
    """The leaves of the state after every step, and the meter, after steps or where a budget ends."""
    full = "full-batch" in method.needs
    problem = registry.load_task(task).problem((0, 1), 0, "cpu", particles=8, full_batch=full, limit=limit)
    settings = method.make_settings(dict(method.example.quick))
    states: list[Any] = []
    with step_mode(method):
        state = method.init(problem, settings, problem.streams, steps)
        try:
            states.extend(tree_leaves(s) for s, _ in islice(take_steps(advance, problem, settings, state), steps))
        except BudgetExhausted:
            assert limit
    return [*states, [problem.meter]]


def compared(method: Any, steps: int, *given: Any) -> RecordedStep:
    """A recorded step after these steps, all of which had the bits and charges of the plain ones."""
    recorded = RecordedStep(method.step)
    for ours, theirs in zip(
        walked(method, recorded, steps, *given), walked(method, method.step, steps, *given), strict=True
    ):
        for a, b in zip(ours, theirs, strict=True):
            assert torch.equal(a.nan_to_num(), b.nan_to_num()) if isinstance(a, Tensor) else a == b
    return recorded


@pytest.mark.parametrize("name", [n for n, m in OURS.items() if not m.library and m.compiled_step() is None])
def test_replays_are_the_plain_steps(name: str) -> None:
    """The first four replays of a record are checks, the others count."""
    recorded = compared(OURS[name], 20)
    assert PLAIN.get(name, "") in recorded.left_plain
    assert bool(recorded.left_plain) is (name in PLAIN)
    assert name in PLAIN or max(record.replays for record in recorded._records) > 5


@pytest.mark.parametrize("name", ["sgld", "sifg", "map"])
def test_replays_follow_mini_batches(name: str) -> None:
    assert compared(OURS[name], 12, "bnn-diabetes-sklearn").left_plain == ""


def test_a_budget_ends_before_the_replay() -> None:
    assert compared(OURS["hmc"], 99, "gmm5-2d", 900.0)._records[0].replays > 5


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
    """Counts its calls where the harness does not look; the count matters from one of them on."""

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
    recorded = compared(ByNumbers(), 60)
    assert recorded.left_plain == ""
    assert sum(record.replays > 0 for record in recorded._records) >= 4


@pytest.mark.parametrize(("method", "reason"), [(Reads(), "'charged'"), (Draws(), "generators of its own")])
def test_what_a_replay_would_miss_is_not_recorded(method: Any, reason: str) -> None:
    assert reason in compared(method, 9).left_plain


def test_state_hidden_in_python_is_found_by_the_checks() -> None:
    """Where it matters from the start all steps are plain; later than the first checks the run ends."""
    hidden = Hidden()
    recorded = RecordedStep(hidden.step)
    walked(hidden, recorded, 9)
    assert "at step 1:" in recorded.left_plain
    hidden.begins = hidden.count + 8
    with pytest.raises(UnsupportedError, match="leave --compile out"):
        walked(hidden, RecordedStep(hidden.step), 40)


def test_steps_whose_replays_are_not_faster_are_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_PAYS", 0.0)
    assert compared(OURS["ula"], 30).left_plain == "replays are not faster"


def cell_of(**keys: Any) -> Chunk:
    suite = {"name": "recorded", "replicates": 2, "particles": 8, "budget": {"iterations": 40}, **keys}
    (cell,) = expand(Suite.model_validate(suite))
    return Chunk.of(cell, cell.chunks[0])


@pytest.mark.parametrize(("method", "flagged"), [("sivi-sm", False), ("svgd", True)])
def test_a_run_with_compile_has_the_values_of_the_plain_one(method: str, flagged: bool) -> None:
    """A key of the suite; the cell says what stayed plain."""
    plain, recorded = (
        run_chunk(chunk.cell, chunk.replicates)
        for chunk in (
            cell_of(tasks=["banana"], algorithms=[method], metrics=["mean_error"], compile=c) for c in (False, True)
        )
    )
    assert (plain.samples == recorded.samples).all()
    assert plain.values == recorded.values
    assert recorded.overheads["compile"] > 0
    assert any("plain steps" in flag for flag in recorded.flags) is flagged


def test_data_that_grow_are_not_recorded() -> None:
    chunk = cell_of(tasks=["bandit-wheel"], algorithms=["sgld"], replicates=1, contexts=120)
    problem, recorded = chunk.problem(None), RecordedStep(chunk.method.step)
    with step_mode(chunk.method):
        state = chunk.method.init(problem, chunk.settings, problem.streams, 9)
        list(islice(take_steps(recorded, problem, chunk.settings, state), 3))
    assert "the data grow" in recorded.left_plain
