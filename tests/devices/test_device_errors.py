"""Device errors that are planted in samplers and in a task: the stand-in card finds every one of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import pytest
import torch
from both_devices import assert_same, on_both, stepped
from torch import Tensor

from parvibench.baselines.ula import ULA
from parvibench.core import registry
from parvibench.core.streams import Streams
from parvibench.core.task import Problem


class Counting(NamedTuple):
    """A state with a counter."""

    x: Tensor
    count: Tensor


@dataclass
class Planted:
    """A sampler with one error, and how it shows."""

    step: Callable[..., Tensor]
    shows: str
    count: Callable[[Tensor], Tensor] = lambda x: x.new_zeros(len(x))


def plain(problem: Problem, x: Tensor, streams: Streams) -> Tensor:
    return x + 0.01 * problem.score(x)


def noise_of_the_host(problem: Problem, x: Tensor, streams: Streams) -> Tensor:
    return plain(problem, x, streams) + 0.1 * torch.zeros(x.shape)


def scale_that_is_read(problem: Problem, x: Tensor, streams: Streams) -> Tensor:
    return plain(problem, x, streams) / max(1.0, x.abs().max().item())


def through_numpy(problem: Problem, x: Tensor, streams: Streams) -> Tensor:
    return torch.from_numpy(plain(problem, x, streams).numpy()).to(x)


def by_a_mask(problem: Problem, x: Tensor, streams: Streams) -> Tensor:
    moved = plain(problem, x, streams).clone()
    moved[moved > 5] = 5.0
    return moved


def generator_of_the_host(problem: Problem, x: Tensor, streams: Streams) -> Tensor:
    noise = torch.randn(x.shape, generator=streams.generator("noise", 0), device=x.device, dtype=x.dtype)
    return plain(problem, x, streams) + 0.1 * noise


def constants_every_step(problem: Problem, x: Tensor, streams: Streams) -> Tensor:
    return plain(problem, x, streams) * torch.tensor([1.0, 0.5], device=x.device)


ERRORS = {
    "a tensor made on the host": Planted(noise_of_the_host, "same device"),
    "a number read in a step": Planted(scale_that_is_read, "_local_scalar_dense"),
    "a round trip through NumPy": Planted(through_numpy, "to numpy"),
    "a mask as an index": Planted(by_a_mask, "index_put_"),
    "a generator of the host": Planted(generator_of_the_host, "device type for generator"),
    "constants copied at every step": Planted(constants_every_step, "tensor"),
    "a field of the state on the host": Planted(plain, "made on the host", lambda x: torch.zeros(len(x))),
}


def sampler_of(planted: Planted) -> Any:
    class Bad(ULA):  # type: ignore[misc]
        name: ClassVar[str] = "bad"

        def init(self, problem: Problem, settings: Any, streams: Streams, horizon: int) -> Any:
            x = problem.init()
            return Counting(x, planted.count(x))

        def step(self, problem: Problem, settings: Any, state: Any, streams: Streams) -> Any:
            return Counting(planted.step(problem, state.x, streams), state.count + 1)

    return Bad()


def check(sampler: Any, task: Any) -> None:
    """As the test of all samplers does."""
    there, here, _ = on_both(lambda device, card: stepped("bad", task, device, card, algorithm=sampler))
    assert_same((there.state, there.output), (here.state, here.output))
    assert there.waits.total() <= sampler.host_bound * there.gradients, there.waits


def test_without_an_error_nothing_is_found() -> None:
    check(sampler_of(Planted(plain, "")), registry.load_task("gmm5-2d"))


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_in_a_sampler_is_found(error: str) -> None:
    with pytest.raises((RuntimeError, TypeError, AssertionError), match=ERRORS[error].shows):
        check(sampler_of(ERRORS[error]), registry.load_task("gmm5-2d"))


def test_rows_of_the_host_in_a_task_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What every regression by networks once did: first points choose rows of data by indices of the host."""
    task = registry.load_task("bnn-diabetes-sklearn")
    kind = type(task.target((0,), "cpu", torch.float32))
    monkeypatch.setattr(
        kind, "squares", lambda self, x, batch=None: self._y.flatten().index_select(0, torch.arange(6)).expand(2, 6)
    )
    with pytest.raises(RuntimeError, match="same device"):
        check(sampler_of(Planted(plain, "")), task)
