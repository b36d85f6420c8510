"""Chain diagnostics: an autoregressive process of known autocorrelation, and the degenerate chains."""

import pytest
import torch
from torch import Generator

from parvibench.core.metric import NotApplicable
from parvibench.metrics.chains import ess_bulk, rhat

NOTHING = torch.zeros(1, 2, 2, dtype=torch.float64)


def ar1(rho: float, t: int, n: int, dim: int, generator: Generator) -> torch.Tensor:
    """Stationary AR(1) paths (1, T, N, D) with unit variance."""
    noise = torch.randn(t, n, dim, generator=generator, dtype=torch.float64)
    x = [noise[0]]
    for row in noise[1:]:
        x.append(rho * x[-1] + (1 - rho**2) ** 0.5 * row)
    return torch.stack(x)[None]


@pytest.mark.parametrize("rho", [-0.4, 0.0, 0.6])
def test_ess_of_an_autoregression(rho: float, make_context, generator: Generator) -> None:
    """T N (1 - rho) / (1 + rho); the estimate's own sd is about 4%. Not cut at T N for rho < 0."""
    t, n = 1250, 20
    found = ess_bulk(NOTHING, make_context(path=ar1(rho, t, n, 1, generator))).item()
    assert found == pytest.approx(t * n * (1 - rho) / (1 + rho), rel=0.15)


def test_long_paths_are_thinned(make_context, generator: Generator) -> None:
    """1000 times of 100 chains: every fourth is looked at, with the correlation rho^4."""
    found = ess_bulk(NOTHING, make_context(path=ar1(0.6, 1000, 100, 1, generator))).item()
    assert found == pytest.approx(25_000 * (1 - 0.6**4) / (1 + 0.6**4), rel=0.1)


def test_the_worst_coordinate_counts(make_context, generator: Generator) -> None:
    good, bad = ar1(0.0, 400, 4, 1, generator), ar1(0.9, 400, 4, 1, generator)
    both = make_context(path=torch.cat([good, bad], -1))
    assert ess_bulk(NOTHING, both).item() == ess_bulk(NOTHING, make_context(path=bad)).item()


def test_rhat_sees_chains_apart_and_a_trend_in_one(make_context, generator: Generator) -> None:
    mixed = ar1(0.0, 500, 4, 2, generator)
    assert rhat(NOTHING, make_context(path=mixed)).item() < 1.01
    apart = mixed + torch.arange(4.0)[:, None]
    assert rhat(NOTHING, make_context(path=apart)).item() > 1.5
    trend = mixed[:, :, :1] + torch.linspace(0, 4, 500)[:, None, None]
    assert rhat(NOTHING, make_context(path=trend)).item() > 1.5


def test_chains_that_never_moved(make_context) -> None:
    """ArviZ alone would report the full T N."""
    context = make_context(path=torch.ones(1, 20, 3, 2))
    assert ess_bulk(NOTHING, context).item() == 0
    assert rhat(NOTHING, context).item() == float("inf")


def test_at_most_fifty_coordinates_are_looked_at(make_context, generator: Generator) -> None:
    path = torch.randn(1, 10, 2, 250, generator=generator)
    path[..., 1] = 0.0  # stuck, but between the chosen coordinates 0 and 5
    context = make_context(250, path=path)
    assert ess_bulk(NOTHING, context).item() > 0
    path = path.clone()
    path[..., 5] = 0.0
    assert ess_bulk(NOTHING, make_context(250, path=path)).item() == 0


@pytest.mark.parametrize(("shape", "reason"), [(None, "no chain path"), ((1, 3, 2, 2), "3 draws")])
def test_no_path_or_too_few_draws(shape, reason: str, make_context) -> None:
    path = None if shape is None else torch.zeros(shape)
    for metric in (ess_bulk, rhat):
        with pytest.raises(NotApplicable, match=reason):
            metric(NOTHING, make_context(path=path))


def test_a_short_single_chain_cannot_be_split(make_context) -> None:
    with pytest.raises(NotApplicable, match="too short"):
        rhat(NOTHING, make_context(path=torch.zeros(1, 7, 1, 2)))
