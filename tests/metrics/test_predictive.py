"""Predictive metrics on a linear model: mixtures written out, closed forms, integrals and quantiles."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Generator, Tensor

from parvibench.core.metric import NotApplicable
from parvibench.metrics import pairwise
from parvibench.metrics.predictive import coverage, crps, nll, rmse

METRICS = (rmse, nll, crps, coverage)


@dataclass
class Line:
    """y ~ N(a x, exp(b)^2) for parameters (a, b)."""

    x: Tensor  # (R, T)
    y: Tensor  # (R, T)

    def predict(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        return samples[..., :1] * self.x[:, None, :], samples[..., 1].exp()


def location(y: Tensor) -> Line:
    """y ~ N(a, exp(b)^2) in every test row."""
    return Line(torch.ones_like(y), y)


def example() -> tuple[Tensor, Line]:
    generator = torch.Generator().manual_seed(3)
    samples = torch.randn(2, 23, 2, generator=generator, dtype=torch.float64)
    x, y = torch.randn(2, 2, 11, generator=generator, dtype=torch.float64)
    return samples, Line(x, y)


def test_against_the_mixture_written_out(make_context) -> None:
    samples, line = example()
    context = make_context(predictive=line)
    for r in range(2):
        a, sd = samples[r, :, 0].numpy(), samples[r, :, 1].exp().numpy()
        x, y = line.x[r].numpy(), line.y[r].numpy()
        density = stats.norm.pdf(y[:, None], a * x[:, None], sd).mean(1)
        assert nll(samples, context)[r].item() == pytest.approx(-np.log(density).mean())
        error = ((a * x[:, None]).mean(1) - y) ** 2
        assert rmse(samples, context)[r].item() == pytest.approx(error.mean() ** 0.5)


def test_far_predictions_stay_finite(make_context) -> None:
    """Catches exponentials before the logarithm: the densities underflow at 100 sds."""
    samples = torch.zeros(1, 3, 2, dtype=torch.float64)
    line = Line(torch.ones(1, 4, dtype=torch.float64), torch.full((1, 4), 100.0, dtype=torch.float64))
    expected = 0.5 * 100**2 + 0.5 * math.log(2 * math.pi)
    assert nll(samples, make_context(predictive=line)).item() == pytest.approx(expected)


def test_one_normal_has_the_closed_form(make_context, generator: Generator) -> None:
    """sd [z (2 Phi(z) - 1) + 2 phi(z) - 1 / sqrt(pi)] (Gneiting & Raftery 2007, JASA 102:359-378, Eq. 21)."""
    y = torch.randn(1, 9, generator=generator, dtype=torch.float64)
    samples = torch.tensor([[0.3, math.log(0.7)]], dtype=torch.float64).expand(1, 4, 2)
    z = ((y - 0.3) / 0.7).numpy()
    expected = 0.7 * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - math.pi**-0.5)
    found = crps(samples, make_context(predictive=location(y))).item()
    assert found == pytest.approx(expected.mean(), rel=1e-12)


def test_mixtures_against_the_integral(make_context, generator: Generator) -> None:
    """CRPS = integral of (F(t) - 1{t >= y})^2, component by component unequal."""
    samples = torch.randn(2, 6, 2, generator=generator, dtype=torch.float64)
    y = torch.randn(2, 3, generator=generator, dtype=torch.float64)
    found = crps(samples, make_context(predictive=location(y)))
    for r in range(2):
        a, sd = samples[r, :, 0].numpy(), samples[r, :, 1].exp().numpy()

        def gap(t: float, at: float, a=a, sd=sd) -> float:
            return (stats.norm.cdf(t, a, sd).mean() - (t >= at)) ** 2

        parts = [
            integrate.quad(gap, *ends, args=(v,), epsabs=1e-9)[0]
            for v in y[r].tolist()
            for ends in ((-60.0, v), (v, 60.0))
        ]
        assert found[r].item() == pytest.approx(sum(parts) / 3, abs=1e-6)


def test_coverage_by_quantiles_of_the_mixture(make_context, generator: Generator) -> None:
    """Against the 2.5% and 97.5% points of 200,000 draws of the mixture, rows near them left out."""
    samples = torch.randn(1, 8, 2, generator=generator, dtype=torch.float64)
    rng = np.random.default_rng(5)
    a, sd = samples[0, :, 0].numpy(), samples[0, :, 1].exp().numpy()
    k = rng.integers(8, size=200_000)
    low, high = np.quantile(rng.normal(a[k], sd[k]), [0.025, 0.975])
    y = rng.normal(0, 6, size=400)
    y = y[(abs(y - low) > 0.3) & (abs(y - high) > 0.3)]
    expected = np.mean((y >= low) & (y <= high))
    assert 0.2 < expected < 0.9
    data = location(torch.from_numpy(y)[None])
    assert coverage(samples, make_context(predictive=data)).item() == pytest.approx(expected, abs=1e-12)


def test_calibrated_predictions_cover_95_percent(make_context, generator: Generator) -> None:
    """20,000 rows from the predictive law itself. Catches a one-sided or a 90% interval. False alarms: 6e-5."""
    y = torch.randn(1, 20_000, generator=generator, dtype=torch.float64)
    samples = torch.zeros(1, 2, 2, dtype=torch.float64)
    found = coverage(samples, make_context(predictive=location(y))).item()
    assert abs(found - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 20_000)


@pytest.mark.parametrize("entries", [20, 300, 3000])
def test_blocks_do_not_matter(entries: int, make_context, monkeypatch: pytest.MonkeyPatch) -> None:
    samples, line = example()
    context = make_context(predictive=line)
    whole = [metric(samples, context) for metric in METRICS]
    monkeypatch.setattr(pairwise, "BLOCK_ENTRIES", entries)
    torch.testing.assert_close([metric(samples, context) for metric in METRICS], whole, rtol=1e-12, atol=0)


@pytest.mark.parametrize("metric", METRICS)
def test_no_data_and_an_empty_test_set(metric, make_context) -> None:
    samples, line = example()
    with pytest.raises(NotApplicable, match="held-out"):
        metric(samples, make_context())
    with pytest.raises(NotApplicable, match=r"empty: responses of shape \(2, 0\)"):
        metric(samples, make_context(predictive=Line(line.x[:, :0], line.y[:, :0])))
