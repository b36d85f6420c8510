"""Hand-written gradients against autograd of the objective written out, at random parameters, for every option.

The target is ``bent`` of the easy ones, whose score has a full Jacobian. Objectives: the negative evidence bound of
variational families, with the Jacobian of their own map by autograd; SIVI's surrogate (Yin & Zhou 2018,
arXiv:1805.11183, Eq. 6); KSIVI's discrepancy (arXiv:2405.18997, Eq. 12 and its U-statistic); SIVI-SM's minimax
objective (Yu & Zhang 2023); MIED's energy (arXiv:2210.10059, Eq. 5); the kernel Stein discrepancy of KSDD.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping
from itertools import pairwise, product
from typing import Any

import pytest
import torch
from law_tools import problem_at
from torch import Tensor

from parvibench.checks.summaries import generator_of
from parvibench.checks.targets import STABLE
from parvibench.core import registry
from parvibench.core.target import Target
from parvibench.core.task import Problem
from parvibench.nn.mlp import LEAK, MLP

_DIM, _POINTS, _AGREEMENT = 2, 6, 1e-7
#: (module, target, problem of one replicate, options, random normal numbers of a shape) -> largest relative error.
Compare = Callable[[Any, Target, Problem, dict[str, Any], Callable[..., Tensor]], float]


def _label(options: Mapping[str, Any]) -> str:
    return " ".join(f"{k}={v}" for k, v in options.items()) or "defaults"


def _error(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().max() / (expected.abs().max() + 1e-300))


# -- networks, written out ---------------------------------------------------------------------------------------


def _plain_network(net: MLP, flat: Tensor, x: Tensor) -> Tensor:
    """Layers of parameters (P,) on x (n, d)."""
    activate: dict[str, Callable[[Tensor], Tensor]] = {
        "relu": torch.relu,
        "tanh": torch.tanh,
        "leaky-relu": lambda v: torch.where(v > 0, v, LEAK * v),
    }
    for n_in, n_out in pairwise(net.sizes):
        weight, bias, flat = torch.tensor_split(flat, (n_in * n_out, (n_in + 1) * n_out))
        x = x @ weight.view(n_in, n_out) + bias
        x = activate[net.activation](x) if len(flat) else x
    return x


# -- variational families ----------------------------------------------------------------------------------------


def _bound(module: Any, target: Target, problem: Problem, options: dict[str, Any], normal: Any) -> float:
    """Minus the mean of log p(x) + log |det dx / d noise|, x the family's own map of the noise."""
    name = options["family"]
    algorithm: Any = registry.load_algorithm(name)
    settings = algorithm.make_settings({k: v for k, v in options.items() if k != "family"})
    start = algorithm.init(problem, settings, problem.streams, 10).parameters
    mask = torch.ones_like(start)
    if name == "iaf":
        _, kept = module.masked_network(_DIM, settings.hidden, start.device, start.dtype)
        mask = torch.cat((kept.repeat(settings.flows), torch.ones(2 * _DIM)))[None].to(start)
    size = 0.15 if name == "iaf" else 0.4  # small: gradients pass straight through the clamp of IAF's log scales
    leaf, noise = (size * normal(*start.shape) * mask).requires_grad_(), normal(1, _POINTS, _DIM)
    log_det = torch.stack(
        [
            torch.linalg.slogdet(
                torch.autograd.functional.jacobian(  # type: ignore[no-untyped-call]
                    lambda at: algorithm.push(settings, leaf * mask, at.view(1, 1, _DIM)).flatten(),
                    point,
                    create_graph=True,
                )
            )[1]
            for point in noise[0]
        ]
    )
    x = algorithm.push(settings, leaf * mask, noise)
    (expected,) = torch.autograd.grad(-(target.log_density(x) + log_det).mean(), leaf)
    with torch.no_grad():
        return _error(algorithm.gradient(problem, settings, leaf.detach(), noise), expected)


# -- semi-implicit methods ---------------------------------------------------------------------------------------


def _semi_implicit(
    name: str, chosen: dict[str, Any], normal: Any, further: int = 0
) -> tuple[Any, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Settings, parameters, z, xi; and samples, centres and sigma as functions of the parameters' leaf."""
    settings: Any = registry.load_algorithm(name).make_settings({"hidden": 5, "batch": _POINTS, **chosen})
    net = settings.network(_DIM)
    leaf = (0.5 * normal(1, net.n_parameters + _DIM)).requires_grad_()
    z, xi = normal(1, _POINTS + further, settings.latent_dim), normal(1, _POINTS, _DIM)
    mu, sigma = _plain_network(net, leaf[0, :-_DIM], z[0]), (0.5 * leaf[0, -_DIM:]).exp()
    return settings, leaf, z, xi, mu[:_POINTS] + sigma * xi[0], mu, sigma


def _sivi(module: Any, target: Target, problem: Problem, options: dict[str, Any], normal: Any) -> float:
    settings, leaf, z, xi, x, mu, sigma = _semi_implicit("sivi", options, normal, options["mixing"])
    others = mu[_POINTS:].expand(_POINTS, -1, -1)
    centres = torch.cat((mu[:_POINTS, None], others), 1)
    log_q = (-0.5 * ((x[:, None] - centres) / sigma).square() - sigma.log()).sum(-1).logsumexp(1)
    loss = (log_q - 0.3 * target.log_density(x[None])[0]).mean()
    (expected,) = torch.autograd.grad(loss, leaf)
    with torch.no_grad():
        return _error(module.surrogate_gradient(problem, settings, leaf.detach(), z, xi, 0.3), expected)


def _ksivi(module: Any, target: Target, problem: Problem, options: dict[str, Any], normal: Any) -> float:
    chosen, weight = {k: v for k, v in options.items() if k != "batches"}, 0.7
    settings, leaf, z, xi, x, _, sigma = _semi_implicit("ksivi", chosen, normal)
    batches, m = options["batches"], _POINTS // options["batches"]
    f = 0.3 * _score(target, x) + xi[0] / sigma
    (x1, x2), (f1, f2) = (x.chunk(2), f.chunk(2)) if batches == 2 else ((x, x), (f, f))
    metric = torch.eye(_DIM, dtype=x.dtype)
    if settings.affine_invariant:
        metric = torch.linalg.inv(torch.cov(x1.detach().T) + 1e-8 * metric)
    products = (f1 @ metric @ f2.T) * _kernel(settings, x1, x2)
    loss = products.mean() if batches == 2 else (products.sum() - products.trace()) / (m * (m - 1))
    loss = loss - weight * 0.3 * target.log_density(x[None, :m]).mean()
    (expected,) = torch.autograd.grad(loss, leaf)
    with torch.no_grad():
        given = (problem, settings, leaf.detach(), (z, xi), 0.3, weight, batches)
        return _error(module.discrepancy_gradient(*given), expected)


def _kernel(settings: Any, x: Tensor, y: Tensor) -> Tensor:
    """The kernel matrix; lower medians over log(n + 1), through which the Gaussian kernel alone is differentiated."""
    apart = x[:, None] - y[None]
    d = apart.square().sum(-1) if settings.kernel in ("gaussian", "imq") else apart.abs().sum(-1)
    if settings.kernel == "riesz":
        d = x.abs().sum(-1)[:, None] + y.abs().sum(-1) - d
    h: Any = settings.bandwidth
    if h == "median":
        middle = d.flatten().sort().values[(d.numel() - 1) // 2]
        if settings.kernel == "riesz" and middle <= 1e-5 * d.mean():  # most pairs in opposite quadrants
            middle = d.mean()
        middle = middle / math.log(len(x) + 1)
        through = settings.kernel == "gaussian" and not settings.fixed_median
        h = middle if through else middle.detach()
    if settings.kernel == "riesz":
        return d / h
    return (1 + d / h) ** -0.5 if settings.kernel == "imq" else torch.exp(-d / h)


def _score(target: Target, x: Tensor) -> Tensor:
    """Differentiable once more: (n, D) -> (n, D)."""
    at = x[None] if x.requires_grad else x[None].requires_grad_()
    return torch.autograd.grad(target.log_density(at).sum(), at, create_graph=True)[0][0]


def _sivi_sm(module: Any, target: Target, problem: Problem, options: dict[str, Any], normal: Any) -> float:
    chosen, psi = {"activation": options["activation"], "critic_hidden": 4}, options["psi"]
    settings, leaf, z, xi, x, _, sigma = _semi_implicit("sivi-sm", chosen, normal)
    net = MLP((_DIM, 4, 4, _DIM), "relu")
    critic = (0.7 * normal(1, net.n_parameters)).requires_grad_()
    s, noise = 0.3 * _score(target, x), xi[0] / sigma
    g = _plain_network(net, critic[0], x) + psi * s
    objective = (g * (2 * s + 2 * noise - g)).sum(-1).mean()
    expected, by_critic = torch.autograd.grad(objective, (leaf, critic))
    with torch.no_grad():
        given = (problem, settings, leaf.detach(), critic.detach(), (z, xi), 0.3, psi)
        found = module.sampler_gradient(*given), -module.critic_gradient(*given)
    return max(_error(found[0], expected), _error(found[1], by_critic))


# -- particles ---------------------------------------------------------------------------------------------------


def _mied(module: Any, target: Target, problem: Problem, options: dict[str, Any], normal: Any) -> float:
    """log sum_ij phi(x_i - x_j) (p(x_i) p(x_j))^-a; for Riesz, D_ii stands for the nearest neighbour's, held fixed."""
    settings = module.Settings.model_validate({**options, "width": 0.6})
    leaf = normal(_POINTS, _DIM).requires_grad_()
    d = (leaf[:, None] - leaf[None]).square().sum(-1)
    if settings.mollifier == "riesz":
        nearest = (d.detach() + torch.diag(torch.full((_POINTS,), torch.inf))).amin(1) / (1.3 * _DIM) ** (2 / _DIM)
        own = torch.eye(_POINTS, dtype=torch.bool)
        log_phi = -(settings.alpha * _DIM + 5e-5) * (torch.where(own, nearest[:, None], d) + 1e-8).log()
    else:
        log_phi = -d / (2 * 0.6) if settings.mollifier == "gaussian" else -(d + 1e-10).sqrt() / 0.6
    log_p = target.log_density(leaf[None])[0]
    energy = (log_phi - settings.alpha * (log_p[:, None] + log_p)).flatten().logsumexp(0)
    (expected,) = torch.autograd.grad(energy, leaf)
    x = leaf.detach()[None]
    _, found = module.log_energy(settings, x, target.log_density(x), target.score(x))
    return _error(found[0], expected)


def _ksdd(module: Any, target: Target, problem: Problem, options: dict[str, Any], normal: Any) -> float:
    """The mean of s_i s_j k + s_i d_j k + s_j d_i k + tr d_i d_j k, by autograd over two copies of the points."""
    settings, x = module.Settings.model_validate(options), normal(_POINTS, _DIM)
    scores = normal(_POINTS, _DIM).requires_grad_()
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    apart = (a[:, None] - b[None]).square().sum(-1)
    h = settings.bandwidth
    if h == "median":
        h = float(apart.detach().flatten().quantile(0.5)) / math.log(_POINTS + 1)
    k = torch.exp(-apart / h) if settings.kernel == "gaussian" else (1 + apart / h) ** -0.5
    total = (k * (scores @ scores.T)).sum()
    for i, j in product(range(_POINTS), repeat=2):
        at, other = torch.autograd.grad(k[i, j], (a, b), create_graph=True)
        total = total + scores[i] @ other[j] + scores[j] @ at[i]
        total = total + sum(torch.autograd.grad(at[i, m], b, create_graph=True)[0][j, m] for m in range(_DIM))
    total = total / _POINTS**2
    by_a, by_b, by_scores = torch.autograd.grad(total, (a, b, scores))
    _, found_x, found_s = module.discrepancy(settings, x[None], scores.detach()[None])
    return max(_error(found_x[0], by_a + by_b), _error(found_s[0], by_scores))


def _choices(**options: tuple[Any, ...]) -> list[dict[str, Any]]:
    return [dict(zip(options, values, strict=True)) for values in product(*options.values())]


_ACTIVATIONS = ("relu", "tanh", "leaky-relu")
#: Registered name -> how it is compared, and the options for which it is.
_METHODS: dict[str, tuple[Compare, list[dict[str, Any]]]] = {
    "mean-field": (_bound, _choices(family=("mean-field",))),
    "full-rank": (_bound, _choices(family=("full-rank",))),
    "iaf": (_bound, _choices(family=("iaf",), flows=(1, 3), hidden=(7,))),
    "realnvp": (_bound, _choices(family=("realnvp",), flows=(1, 3), hidden=(5,))),
    "sivi": (_sivi, _choices(activation=_ACTIVATIONS, mixing=(1, 4))),
    "ksivi": (
        _ksivi,
        [
            {"kernel": kernel, "batches": batches, **more}
            for kernel in ("gaussian", "imq", "riesz", "laplace")
            for batches in (1, 2)
            for more in ({}, {"bandwidth": 0.8}, {"fixed_median": True}, {"affine_invariant": True})
        ],
    ),
    "sivi-sm": (_sivi_sm, _choices(activation=_ACTIVATIONS, psi=(0.0, 0.6))),
    "mied": (_mied, _choices(mollifier=("riesz", "gaussian", "laplace"), alpha=(0.5, 0.8))),
    "ksdd": (_ksdd, _choices(kernel=("gaussian", "imq"), bandwidth=("median", 1.3))),
}


CASES = [(name, number) for name, (_, options) in _METHODS.items() for number in range(len(options))]


@pytest.mark.parametrize(("name", "number"), CASES, ids=[f"{n} {_label(_METHODS[n][1][i])}" for n, i in CASES])
def test_gradient_by_hand(name: str, number: int) -> None:
    """At random parameters, five times."""
    compare, options = _METHODS[name]
    module = importlib.import_module(registry.algorithms()[name].target.partition(":")[0])
    target = STABLE["bent"].target([0], "cpu", torch.float64)
    for replicate in range(5):
        problem = problem_at(target, torch.zeros(1, _POINTS, _DIM, dtype=torch.float64), [replicate], 1)
        g = generator_of("gradients", 1, replicate, number)
        normal = lambda *shape, g=g: torch.randn(*shape, generator=g, dtype=torch.float64)  # noqa: E731
        assert compare(module, target, problem, options[number], normal) < _AGREEMENT
