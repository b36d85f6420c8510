"""The coordinates in which hierarchical posteriors run for their references."""

import model_references
import pytest
import torch
from few import needs_data
from torch import Generator
from torch.autograd.functional import jacobian

from parvibench.core.registry import load_task

#: Tests of studies, which are no part of the product.
pytestmark = pytest.mark.ci

#: Centred task -> the non-centred one, which is written apart from the map tested here.
WRITTEN_BY_HAND = {"radon-centered": "radon-noncentered", "eight-schools-centered": "eight-schools-noncentered"}


def coordinates(name: str) -> tuple[model_references.NonCentredTarget, torch.Tensor]:
    """The target on standardised effects, and points z (1, 20, D)."""
    task = load_task(name)
    target = model_references.NonCentredTarget(
        task.target([0], "cpu", torch.float64), task.layout, model_references.NON_CENTRED[name]
    )
    z = 2 * torch.rand(1, 20, task.dim, dtype=torch.float64, generator=Generator().manual_seed(0)) - 1
    return target, z


def with_data(names):
    return pytest.mark.parametrize("name", [pytest.param(name, marks=needs_data(name)) for name in names])


@with_data(WRITTEN_BY_HAND)
def test_densities_are_those_of_the_non_centred_models(name):
    target, z = coordinates(name)
    density, score = target.log_density_and_score(z)
    other, other_score = load_task(WRITTEN_BY_HAND[name]).target([0], "cpu", torch.float64).log_density_and_score(z)
    apart = density - other
    torch.testing.assert_close(apart, apart[:, :1].expand_as(apart), rtol=0, atol=1e-9)
    torch.testing.assert_close(score, other_score, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(target.log_density(z), density)


@with_data(model_references.NON_CENTRED)
def test_the_map_has_its_inverse_and_its_jacobian(name):
    target, z = coordinates(name)
    x, log_jacobian = target.centred(z)
    torch.testing.assert_close(target.standardised(x), z)
    matrix = jacobian(lambda point: target.centred(point)[0], z[0, 0])
    torch.testing.assert_close(torch.linalg.slogdet(matrix).logabsdet, log_jacobian[0, 0])


@with_data(model_references.STAN)
def test_coordinates_are_the_inverse_of_the_transforms(name):
    layout = load_task(name).layout
    x = 4 * torch.rand(20, 3, layout.dim, dtype=torch.float64, generator=Generator().manual_seed(0)) - 2
    draws = {}
    for p in layout.parameters:
        value = layout.constrain(x)[0][p.name]
        draws |= {p.name: value} if p.size is None else {f"{p.name}[{i + 1}]": value[..., i] for i in range(p.size)}
    torch.testing.assert_close(model_references.coordinates(layout, draws), x)
