"""Agreement with certified predictions, where they are known in closed form: Bayesian linear regression."""

import math
from dataclasses import dataclass

import pytest
import torch
from few import each
from torch import Tensor

from parvibench.core.metric import Context, NotApplicable
from parvibench.core.reference import Certified
from parvibench.core.registry import load_metric, load_task
from parvibench.metrics.transport import projections

TASK = load_task("bnn-diabetes-sklearn")
NOISE, DRAWS, POINTS = 0.7, 4000, 12


def normal_density(y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    return -0.5 * (y - mean).square() / variance - 0.5 * (2 * math.pi * variance).log()


@dataclass
class Lines:
    """y = x . w + noise of a known sd, w ~ N(0, I): posterior and predictions are normal."""

    replicates: int = 1
    stored: bool = True

    def __post_init__(self) -> None:
        self.generator = torch.Generator().manual_seed(3)
        X, self.X_test = self.normal(30, 3), self.normal(POINTS, 3)
        w = self.normal(3)
        precision = torch.eye(3).double() + X.T @ X / NOISE**2
        self.root = torch.linalg.cholesky(torch.linalg.inv(precision))
        self.w = torch.linalg.solve(precision, X.T @ (X @ w + NOISE * self.normal(30)) / NOISE**2)
        self.mean, self.sd = self.X_test @ self.w, (self.X_test @ self.root).norm(dim=1)
        y = self.X_test @ w + NOISE * self.normal(POINTS)
        self.y = y.expand(self.replicates, -1)
        draws = (self.draw(1, DRAWS)[0] @ self.X_test.T - self.mean) / self.sd
        log_p = normal_density(y, self.mean, self.sd**2 + NOISE**2)
        more = (draws, torch.full((DRAWS,), NOISE).double(), log_p) if self.stored else ()
        self.certified = Certified(*(a.expand(self.replicates, *a.shape) for a in (self.mean, self.sd, *more)))

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator, dtype=torch.float64)

    def draw(self, replicates: int, n: int) -> Tensor:
        """Exact posterior draws, (R, n, 3)."""
        return self.w + self.normal(replicates, n, 3) @ self.root.T

    def predict(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        return samples @ self.X_test.T, torch.full_like(samples[..., 0], NOISE)


def measured(name: str, samples: Tensor, lines: Lines) -> Tensor:
    return load_metric(name)(samples, Context(TASK, predictive=lines))


NAMES = (
    "predictive_w2",
    "predictive_mean_error",
    "predictive_sd_error",
    "predictive_nll_error",
    "predictive_coverage_error",
)


def test_a_posterior_moved_by_a_known_amount_has_the_distances_that_theory_gives() -> None:
    """Exact draws moved by delta: every f(x_t) is off by d_t = x_t . delta.

    Catches a missing unit, a likelihood without the spread of f, and intervals of f in place of y.
    """
    lines, delta = Lines(), torch.tensor([0.4, -0.2, 0.3]).double()
    x = lines.draw(1, DRAWS) + delta
    d, variance = lines.X_test @ delta, lines.sd**2 + NOISE**2
    z, by_sd = 1.959964, d / variance.sqrt()
    covered = torch.special.ndtr(z + by_sd) - torch.special.ndtr(-z + by_sd)
    shifted = normal_density(lines.y[0], lines.mean + d, variance) - lines.certified.log_p[0]
    expected = {
        "predictive_w2": ((projections(POINTS) @ (d / lines.sd)) ** 2).mean().sqrt(),
        "predictive_mean_error": ((d / lines.sd) ** 2).mean().sqrt(),
        "predictive_nll_error": shifted.abs().mean(),
        "predictive_coverage_error": (0.95 - covered).abs().mean(),
    }
    assert min(expected.values()) > 0.02
    for name, value in expected.items():
        assert measured(name, x, lines).item() == pytest.approx(float(value), rel=0.05), name
    assert measured("predictive_sd_error", x, lines).item() < 0.03


@pytest.mark.ci
@pytest.mark.parametrize("name", each(["predictive_mean_error", "predictive_coverage_error"], NAMES))
def test_exact_draws_come_closer_as_one_over_root_n(name: str) -> None:
    """Sixteen times as many draws: a quarter of the distance, the stored draws' own error apart."""
    lines = Lines(150)
    few, many = (measured(name, lines.draw(150, n), lines).square().mean().sqrt() for n in (25, 400))
    assert 3.0 < few / many < 4.8


def test_collapsed_and_spread_samples_are_apart() -> None:
    """All samples at the posterior mean: no spread, W2 about one sd, and intervals that are too short."""
    lines = Lines()
    x = lines.w.expand(1, 50, 3)
    assert measured("predictive_sd_error", x, lines).item() == pytest.approx(1.0)
    assert measured("predictive_w2", x, lines).item() == pytest.approx(1.0, abs=0.05)
    covered = torch.special.erf(1.959964 / math.sqrt(2) / (1 + lines.sd**2 / NOISE**2).sqrt())
    error = (0.95 - covered).mean().item()
    assert measured("predictive_coverage_error", x, lines).item() == pytest.approx(error, rel=0.1)


@pytest.mark.parametrize("name", ["predictive_w2", "predictive_nll_error", "predictive_coverage_error"])
def test_what_is_not_stored_is_not_compared(name: str) -> None:
    lines = Lines(stored=False)
    with pytest.raises(NotApplicable, match="only means and sds"):
        measured(name, lines.draw(1, 5), lines)
    assert measured("predictive_mean_error", lines.draw(1, 5), lines).isfinite().all()
