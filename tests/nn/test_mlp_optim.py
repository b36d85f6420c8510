"""The batched network and Adam against PyTorch's own, in float64.

The other rules are held to programs with PyTorch's optimisers and schedules in `tests/baselines`.
"""

import pytest
import torch
from plain_programs import flattened, modules
from torch import Tensor

from parvibench.nn.mlp import MLP, NARROW, Activation, tanh
from parvibench.nn.optim import Moments, adam, adam_

ACTIVATIONS: list[Activation] = ["tanh", "relu", "leaky-relu"]


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("sizes", [(3, 7, 5, 2), (2, NARROW, NARROW - 1, NARROW + 1)], ids=str)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_forward_and_backward_equal_pytorchs(activation: Activation, sizes: tuple[int, ...]) -> None:
    """Products are taken the other way round below a width: both sides of it."""
    net = MLP(sizes, activation)
    parameters = net.initialise(random(2, net.n_parameters))
    x, upstream = random(2, 6, sizes[0], seed=1) - 0.5, random(2, 6, sizes[-1], seed=2) - 0.5
    values = net.forward(parameters, x)
    assert [v.shape[-1] for v in values] == list(sizes)
    flat = net.backward(parameters, values, upstream)
    for r in range(2):
        twin = modules(net, parameters[r])
        output = twin(x[r])
        torch.testing.assert_close(values[-1][r], output.detach(), rtol=1e-12, atol=1e-12)
        output.backward(upstream[r])
        expected = flattened(p.grad for p in twin.parameters())
        torch.testing.assert_close(flat[r], expected, rtol=1e-12, atol=1e-13)


def test_tanh_is_torchs_to_rounding() -> None:
    x = torch.linspace(-30, 30, 10_001)
    assert (tanh(x.clone()) - x.tanh()).abs().max() <= 2 * torch.finfo(x.dtype).eps
    torch.testing.assert_close(tanh(x.double()), x.double().tanh(), rtol=0, atol=1e-15)


def test_initial_parameters_fill_pytorchs_default_range() -> None:
    net = MLP((16, 50, 1), "tanh")
    parameters = net.initialise(random(3, net.n_parameters))
    bounds = torch.cat([torch.full((17 * 50,), 1 / 4), torch.full((51,), 50**-0.5)])
    share = parameters.abs() / bounds
    assert share.max() <= 1
    assert share.mean().item() == pytest.approx(0.5, abs=0.05)


def test_adam_equals_torch_optim_fused_and_by_hand() -> None:
    """By hand: the operations that a GPU runs, here."""
    fused, by_hand, leaf = random(2, 9), random(2, 9), random(2, 9).requires_grad_()
    optimiser = torch.optim.Adam([leaf], lr=0.05, betas=(0.8, 0.99), eps=1e-3)
    moments, own = Moments.start(fused), Moments(torch.zeros_like(by_hand), torch.zeros_like(by_hand), 0)
    for step in range(5):
        grad = random(2, 9, seed=step + 1) - 0.5
        leaf.grad = grad.clone()
        optimiser.step()
        fused, moments = adam(fused, grad, moments, 0.05, (0.8, 0.99), 1e-3)
        own = own._replace(steps=step + 1)
        adam_(by_hand, grad, own, 0.05, (0.8, 0.99), 1e-3)
    torch.testing.assert_close(fused, leaf.detach(), rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(by_hand, fused, rtol=1e-12, atol=1e-13)
    assert moments.steps == 5


def test_adam_strided() -> None:
    """Gradients, points and memories that are transposed or every second of more: as the contiguous ones."""
    grad = (random(9, 4, seed=1) - 0.5).T[::2]
    start, first, second = random(9, 2, seed=2).T, random(9, 2, seed=3).T, random(9, 2, seed=4).T
    whole = [t.contiguous() for t in (start, first, second)]
    expected, memory = adam(whole[0], grad.contiguous(), Moments(*whole[1:], 3), 0.05)
    expected, memory = adam(expected, grad.contiguous(), memory, 0.05)
    actual, own = adam(start, grad, Moments(first, second, 3), 0.05)
    actual, own = adam(actual, grad, own, 0.05, inplace=True)  # what a step returned it may overwrite
    for a, b in zip((actual, own.first, own.second), (expected, memory.first, memory.second), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13)


def test_adam_overwrites_only_what_it_may() -> None:
    start, grad = random(2, 9), random(2, 9, seed=1) - 0.5
    kept, moments = start.clone(), Moments.start(start)
    first, own = adam(start, grad, moments, 0.05)
    assert torch.equal(start, kept)
    assert not moments.first.any()
    expected, _ = adam(first, grad, own, 0.05)
    second, after = adam(first, grad, own, 0.05, inplace=True)
    assert second is first
    assert after.first is own.first
    assert torch.equal(second, expected)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradient_in_the_input_equals_autograd(activation: Activation) -> None:
    net = MLP((3, 7, 5, 2), activation)
    parameters = net.initialise(random(2, net.n_parameters))
    leaf, upstream = (random(2, 6, 3, seed=1) - 0.5).requires_grad_(), random(2, 6, 2, seed=2) - 0.5
    values = net.forward(parameters, leaf)
    (expected,) = torch.autograd.grad(values[-1], leaf, grad_outputs=upstream)
    actual = net.backward_input(parameters, [v.detach() for v in values], upstream)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_tangents_and_their_gradients_equal_autograd(activation: Activation) -> None:
    """Catches a lost second derivative of tanh, and a bias added to a derivative."""
    net = MLP((3, 7, 5, 2), activation)
    parameters = net.initialise(random(2, net.n_parameters))
    x, e = random(2, 6, 3, seed=1) - 0.5, random(2, 6, 3, seed=2) - 0.5
    upstream = random(2, 12, 2, seed=3) - 0.5
    values = net.forward_tangent(parameters, x, e)

    leaf = parameters.clone().requires_grad_()
    jvp = torch.autograd.functional.jvp(lambda at: net.forward(leaf, at)[-1], x, e, create_graph=True)
    both = torch.cat(jvp, 1)
    torch.testing.assert_close(values[-1], both.detach())
    (expected,) = torch.autograd.grad(both, leaf, grad_outputs=upstream)
    actual = net.backward_tangent(parameters, values, upstream)
    torch.testing.assert_close(actual, expected, rtol=1e-11, atol=1e-12)
