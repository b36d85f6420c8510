"""Rules of the optimisers, at other options than the defaults, are PyTorch's; replicates never meet."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from parvibench.nn.optim import Moments, rms_normalised, sgd_nesterov, step_decay
from parvibench.nn.semi_implicit import SamplerState, SemiImplicitSettings


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 0.5


def stepped(optimiser: torch.optim.Optimizer, leaf: Tensor, grad: Tensor) -> None:
    leaf.grad = grad.clone()
    optimiser.step()


@pytest.mark.parametrize("momentum", [0.0, 0.6, 0.9])
def test_nesterov_s_momentum(momentum: float) -> None:
    x, leaf = random(2, 5), random(2, 5).requires_grad_()
    optimiser = torch.optim.SGD([leaf], lr=0.1, momentum=momentum, nesterov=momentum > 0)
    moments = Moments.start(x, second=False)
    for seed in range(1, 5):
        x, moments = sgd_nesterov(x, random(2, 5, seed=seed), moments, 0.1, momentum)
        stepped(optimiser, leaf, random(2, 5, seed=seed))
    torch.testing.assert_close(x, leaf.detach(), rtol=1e-12, atol=1e-14)


def test_the_default_momentum_is_nine_tenths() -> None:
    first = Moments(random(1, 3, seed=1), random(1, 0), 4)
    plain, given = (sgd_nesterov(random(1, 3), random(1, 3, seed=2), first, 0.1, *more)[0] for more in ((), (0.9,)))
    assert torch.equal(plain, given)


def test_the_decay_is_that_of_step_lr() -> None:
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, 3, 0.7)
    for step in range(10):
        assert step_decay(step, 0.7, 3) == pytest.approx(schedule.get_last_lr()[0], rel=1e-12)
        optimiser.step()
        schedule.step()


@pytest.mark.parametrize("size", [1.0, 1e-6])
def test_the_root_mean_square_of_velocities(size: float) -> None:
    """Velocities of the size of the 1e-6 below the root, too."""
    velocities, square = [size * random(2, 4, seed=seed) for seed in range(4)], torch.zeros(2, 4)
    mean = velocities[0].numpy() ** 2
    for step, velocity in enumerate(velocities):
        moved, square = rms_normalised(velocity, square, step == 0)
        mean = 0.9 * mean + 0.1 * velocity.numpy() ** 2
        np.testing.assert_allclose(moved.numpy(), velocity.numpy() / (1e-6 + np.sqrt(mean)), rtol=1e-12)


@pytest.mark.parametrize(
    "more",
    [{"clip_norm": 0.3}, {"clip_norm": None, "beta1": 0.5, "beta2": 0.7}, {"decay": 0.4, "decay_every": 2}],
    ids=str,
)
def test_each_replicate_is_clipped_decayed_and_moved_by_adam_alone(more: dict[str, Any]) -> None:
    """One gradient of norm 0.1, below every bound, and one of norm 5."""
    settings = SemiImplicitSettings.model_validate({"step_size": 0.05, "clip_norm": 1.0, "log_var_floor": -9.0, **more})
    x = random(2, 6)
    state = SamplerState(x, x, torch.zeros_like(x), torch.zeros_like(x), 0)
    leaves = [row.clone().requires_grad_() for row in x]
    optimisers = [torch.optim.Adam([w], lr=0.05, betas=(settings.beta1, settings.beta2)) for w in leaves]
    schedules = [torch.optim.lr_scheduler.StepLR(o, settings.decay_every, settings.decay) for o in optimisers]
    for seed in range(1, 6):
        grad = nn.functional.normalize(random(2, 6, seed=seed)) * torch.tensor([[0.1], [5.0]])
        state = settings.descend(state, grad, 2)
        for leaf, optimiser, schedule, row in zip(leaves, optimisers, schedules, grad, strict=True):
            leaf.grad = row.clone()
            if settings.clip_norm is not None:
                nn.utils.clip_grad_norm_(leaf, settings.clip_norm)
            optimiser.step()
            schedule.step()
    torch.testing.assert_close(state.parameters, torch.stack(leaves).detach(), rtol=1e-10, atol=1e-12)
