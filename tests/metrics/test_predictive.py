"""Predictive metrics on a linear model; `tests/regression/laws` has them against quadrature."""

import math
from dataclasses import dataclass

import pytest
import torch
from scipy import stats
from torch import Tensor

from parvibench.core.metric import NotApplicable
from parvibench.metrics import common as pairwise
from parvibench.metrics.predictive import coverage, crps, nll, rmse

METRICS = (rmse, nll, crps, coverage)


@dataclass
class Line:
    """y ~ N(a x, exp(b)^2) for parameters (a, b)."""

    x: Tensor  # (R, T)
    y: Tensor  # (R, T)

    def predict(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        return samples[..., :1] * self.x[:, None, :], samples[..., 1].exp()


def example() -> tuple[Tensor, Line]:
    generator = torch.Generator().manual_seed(3)
    samples = torch.randn(2, 7, 2, generator=generator, dtype=torch.float64)
    x, y = torch.randn(2, 2, 5, generator=generator, dtype=torch.float64)
    return samples, Line(x, y)


def test_against_the_mixture_written_out(make_context) -> None:
    samples, line = example()
    context = make_context(predictive=line)
    for r in range(2):
        a, sd = samples[r, :, 0].numpy(), samples[r, :, 1].exp().numpy()
        x, y = line.x[r].numpy(), line.y[r].numpy()
        density = stats.norm.pdf(y[:, None], a * x[:, None], sd).mean(1)
        assert nll(samples, context)[r].item() == pytest.approx(-sum(map(math.log, density)) / 5)
        error = ((a * x[:, None]).mean(1) - y) ** 2
        assert rmse(samples, context)[r].item() == pytest.approx(error.mean() ** 0.5)


def test_one_normal_prediction_has_closed_forms(make_context) -> None:
    """CRPS of N(m, s^2): s (z (2 Phi(z) - 1) + 2 phi(z) - 1 / sqrt(pi)), Gneiting et al. (2005), Eq. 5; 95% means |z| < 1.96."""
    y = torch.tensor([[-3.0, -1.5, 0.0, 0.5, 1.9, 2.1]], dtype=torch.float64)
    sd = 1.3
    samples = torch.tensor([[[0.0, math.log(sd)]]], dtype=torch.float64)
    context = make_context(predictive=Line(torch.ones_like(y), y * sd))
    z = y[0].numpy()
    expected = sd * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - math.pi**-0.5)
    assert crps(samples, context).item() == pytest.approx(expected.mean())
    assert coverage(samples, context).item() == pytest.approx(4 / 6)


def test_blocks_do_not_matter(make_context, monkeypatch: pytest.MonkeyPatch) -> None:
    samples, line = example()
    context = make_context(predictive=line)
    whole = [metric(samples, context) for metric in METRICS]
    for entries in (10, 20, 200):
        monkeypatch.setattr(pairwise, "BLOCK_ENTRIES", entries)
        found = [metric(samples, context) for metric in METRICS]
        torch.testing.assert_close(found, whole, rtol=1e-12, atol=0)


def test_far_predictions_stay_finite(make_context) -> None:
    """Catches exponentials before the logarithm: the densities underflow at 100 sds."""
    samples = torch.zeros(1, 3, 2, dtype=torch.float64)
    line = Line(torch.ones(1, 4, dtype=torch.float64), torch.full((1, 4), 100.0, dtype=torch.float64))
    expected = 0.5 * 100**2 + 0.5 * math.log(2 * math.pi)
    assert nll(samples, make_context(predictive=line)).item() == pytest.approx(expected)


@pytest.mark.parametrize("metric", METRICS)
def test_no_data_and_an_empty_test_set(make_context, metric) -> None:
    samples, line = example()
    with pytest.raises(NotApplicable, match="held-out"):
        metric(samples, make_context())
    with pytest.raises(NotApplicable, match=r"empty: responses of shape \(2, 0\)"):
        metric(samples, make_context(predictive=Line(line.x[:, :0], line.y[:, :0])))
