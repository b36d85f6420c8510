"""The stand-in card refuses what a real one refuses, counts what makes the host wait, and computes the same numbers."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from both_devices import assert_same, on_both, stepped
from stand_in_card import CUDA, StandInCard, make_generator, on_card
from torch import Tensor

from parvibench.baselines.ula import ULA
from parvibench.core import registry

REFUSED: dict[str, Callable[[Tensor], Any]] = {
    "a tensor made on the host": lambda x: x + torch.ones(4),
    "a product with the host's": lambda x: x @ torch.eye(4),
    "rows selected by the host's indices": lambda x: x.index_select(0, torch.tensor([0, 1])),
    "written into the host's": lambda x: torch.zeros(3, 4).add_(x),
    "a condition of the host": lambda x: torch.where(torch.ones(4, dtype=torch.bool), x, 0.0),
    "NumPy": lambda x: x.numpy(),
    "NumPy by itself": lambda x: torch.from_numpy(x.__array__()),
    "a generator of the host": lambda x: x.new_empty(3).normal_(generator=torch.Generator()),
    "draws by a generator of the host": lambda x: torch.randn(3, device=x.device, generator=torch.Generator()),
    "a generator of the card": lambda x: torch.randn(3, generator=make_generator("cuda")),
    "under vmap": lambda x: torch.func.vmap(lambda row: row * torch.arange(4))(x),
}
COUNTED: dict[str, Callable[[Tensor], Any]] = {
    "item": lambda x: x.sum().item(),
    "float": lambda x: float(x[0, 0]),
    "a branch": lambda x: 1 if x.any() else 2,
    "tolist": lambda x: x.tolist(),
    "nonzero": lambda x: x.nonzero(),
    "a mask": lambda x: x[x > 0],
    "a mask that is written to": lambda x: x.clone().__setitem__(x > 0, 1.0),
    "indices of the host": lambda x: x[:, torch.arange(2)],
    "a list of indices": lambda x: x[:, [0, 2]],
    "to the host": lambda x: x.cpu(),
    "from the host": lambda x: torch.ones(2).to(x.device),
    "a constant": lambda x: torch.tensor([1.0, 2.0], device=x.device),
    "new_tensor": lambda x: x.new_tensor([1.0]),
    "equal": lambda x: torch.equal(x, x),
    "cholesky": lambda x: torch.linalg.cholesky(x @ x.T + torch.eye(3, device=x.device)),
}
FREE: dict[str, Callable[[Tensor], Any]] = {
    "factories": lambda x: x * torch.ones(4, device=x.device) + x.new_zeros(4) + torch.full((4,), 2.0, device="cuda"),
    "scalars of the host": lambda x: torch.where(x > 0, x, torch.tensor(0.5)) + torch.tensor(1.0),
    "type": lambda x: x.to(x.double()).to(torch.float32),
    "in place": lambda x: x.clone().add_(1).clamp_(min=0)[:, 1:].mul_(2),
    "quantile": lambda x: x.quantile(0.5, dim=0),
    "gradient": lambda x: torch.autograd.grad((y := x.clone().requires_grad_()).exp().sum(), y)[0],
    "vmap": lambda x: torch.func.vmap(lambda row: row * torch.arange(4, device=row.device))(x),
    "inference": lambda x: torch.inference_mode()(lambda: x[:, 0] + 1)(),
    "pinned": lambda x: x + torch.ones(4).pin_memory().to(x.device, non_blocking=True),
}


@pytest.fixture
def x() -> Tensor:
    return torch.randn(3, 4, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("case", REFUSED)
def test_it_refuses(case: str, x: Tensor) -> None:
    with StandInCard().plugged_in():
        there = x.to("cuda")
        with pytest.raises((RuntimeError, TypeError), match="device"):
            REFUSED[case](there)


@pytest.mark.parametrize("case", COUNTED)
def test_it_counts(case: str, x: Tensor) -> None:
    card = StandInCard()
    with card.plugged_in():
        there = x.to("cuda")
        card.waits.clear()
        COUNTED[case](there)
    assert card.waits.total() >= 1


@pytest.mark.parametrize("case", FREE)
def test_it_lets_pass_what_needs_no_number(case: str, x: Tensor) -> None:
    card = StandInCard()
    with card.plugged_in():
        there = x.to("cuda")
        card.waits.clear()
        found = FREE[case](there)
        assert found.device == CUDA
        assert on_card(found)
        assert not card.waits
        assert torch.allclose(found.cpu(), FREE[case](x).cpu() if case != "factories" else x + 2)


class Reading(ULA):  # type: ignore[misc]
    """A sampler that reads a number in every step."""

    def step(self, problem: Any, settings: Any, state: Any, streams: Any) -> Any:
        moved = super().step(problem, settings, state, streams)
        return moved._replace(x=moved.x / max(1.0, moved.x.abs().max().item()))


@pytest.mark.parametrize(("sampler", "waits"), [(ULA, False), (Reading, True)])
def test_a_sampler_that_reads_the_device_has_more_waits_than_its_class_states(sampler: Any, waits: bool) -> None:
    task = registry.load_task("gmm5-2d")
    there, here, _ = on_both(lambda device, card: stepped("ula", task, device, card, algorithm=sampler()))
    assert_same((there.state, there.output), (here.state, here.output))
    assert (there.waits.total() > sampler.host_bound * there.gradients) is waits
    with pytest.raises(AssertionError, match="made on the host"):
        assert_same((there.state, torch.zeros(2)), (here.state, torch.zeros(2)))
