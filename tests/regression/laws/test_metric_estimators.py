"""Questions about metrics: floors, bias, diagnostics of chains of known law, predictive scores by quadrature."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import get_args

import numpy as np
import pytest
import torch
from asking import assert_right
from law_tools import exact_draws
from numpy.typing import NDArray
from scipy import optimize, stats
from torch import Tensor

from parvibench.checks.question import Better, Bound, Expected, Law, Question, Values
from parvibench.checks.summaries import generator_of
from parvibench.core import registry
from parvibench.core.metric import Context
from parvibench.core.reference import Reference
from parvibench.core.registry import load_metric, load_task
from parvibench.metrics.compute import compute
from parvibench.metrics.evaluate import chain_diagnostics

Array = NDArray[np.float64]

#: Size of the sets that are compared with their floors.
_FLOOR_SIZE = 100
_SCORING_ERROR = 1e-7


@dataclass(frozen=True)
class Floors(Question):
    """Whether metrics of fresh exact draws are distributed like the shipped noise floors."""

    task: str  #: one with an exact sampler and a reference
    metrics: tuple[str, ...]  #: names
    algorithm: str = "metrics"  #: label

    def measure(self, replicates: range, seed: int) -> Values:
        """Every metric of one set of draws per replicate."""
        task = load_task(self.task)
        target = task.target([0], "cpu", torch.float64)
        sets = [task.exact(_FLOOR_SIZE, generator_of(self.task, "floor", seed, r)) for r in replicates]
        values, _ = compute(self.metrics, torch.stack(sets), Context(task, task.reference(), target))
        return {name: value.tolist() for name, value in values.items()}

    def expected(self) -> Mapping[str, Expected]:
        """The floors."""
        reference = load_task(self.task).reference()
        assert reference is not None
        return {
            name: Law(reference.floors[name][_FLOOR_SIZE], better=_better(registry.metrics()[name].direction))
            for name in self.metrics
        }


def _better(direction: str) -> Better:
    """A metric's direction; ``same`` for a neutral one."""
    return next((known for known in get_args(Better) if known == direction), "same")


@dataclass(frozen=True)
class Unbiased(Question):
    """Whether U-statistics of exact draws average zero; of KSD without the pairs i = j."""

    task: str = "banana"  #: one with an exact sampler
    sets: int = 30  #: in a replicate; their mean is the statistic
    points: int = 30  #: of a set
    bandwidth: float = 1.5  #: of both kernels, in units of x
    algorithm: str = "metrics"  #: label

    def measure(self, replicates: range, seed: int) -> Values:
        """Squared discrepancies, of draws against the density and against other draws."""
        task = load_task(self.task)
        target = task.target([0], "cpu", torch.float64)
        values: dict[str, list[float]] = {name: [] for name in self.expected()}
        for r in replicates:
            x, y = exact_draws(task, 2 * self.sets, self.points, generator_of("pairs", seed, r)).chunk(2)
            found = []
            for own, others in zip(x, y, strict=True):
                reference = Reference(others, True, {"bandwidth": self.bandwidth})
                scores, _ = compute(("ksd", "mmd2_u"), own[None], Context(task, reference, target))
                n, diagonal = len(own), target.score(own[None]).square().sum() + own.numel() / self.bandwidth**2
                u = (n**2 * scores["ksd"].square() - diagonal) / (n * (n - 1))
                found.append([float(u), float(scores["mmd2_u"])])
            for name, value in zip(values, np.mean(found, axis=0), strict=True):
                values[name].append(float(value))
        return values

    def expected(self) -> Mapping[str, Expected]:
        """Zero on average."""
        return {"unbiased.ksd": Bound(0.0), "unbiased.mmd2_u": Bound(0.0)}


@dataclass(frozen=True)
class Mixing(Question):
    """Whether diagnostics of chains are right on processes of known law.

    Autoregressive coordinates x_t = phi x_{t-1} + sqrt(1 - phi^2) e_t have T N (1 - phi) / (1 + phi) effective draws,
    the slowest of them the fewest. Chains of independent draws around centres of variance s^2, cut into halves, have
    R-hat^2 = 1 - 2/T + s^2, and where the centres are normal as well, ranks change nothing in it.
    """

    phi: tuple[float, ...] = (0.0, 0.9, 0.6)  #: a coordinate each
    chains: int = 20  #: N
    times: int = 500  #: T
    spread: float = 0.5  #: s, of the centres, in one coordinate of as many
    task: str = "chains"  #: label
    algorithm: str = "metrics"  #: label

    def measure(self, replicates: range, seed: int) -> Values:
        """Errors, that of the effective sample size on the logarithmic scale."""
        values: dict[str, list[float]] = {name: [] for name in self.expected()}
        ess = self.chains * self.times * min((1 - phi) / (1 + phi) for phi in self.phi)
        centres = self._centres()
        halves = torch.cat((centres, centres))
        rhat = math.sqrt(1 - 2 / self.times + float(halves.var()))
        for r in replicates:
            g = generator_of("paths", seed, r)
            slow = self._path(g)
            found = _diagnose(slow, "ess_bulk", "autocorrelation")
            values["mixing.ess_bulk"].append(math.log(found["ess_bulk"] / ess))
            chains = chain_diagnostics(slow.transpose(0, 1))
            assert chains is not None
            values["mixing.worth"].append(math.log(chains["worth"] / ess))
            values["mixing.autocorrelation"].append(found["autocorrelation"] - float(np.mean(self.phi)))
            apart = torch.randn(slow.shape, generator=g, dtype=torch.float64)
            apart[..., 1] += centres
            values["mixing.rhat"].append(_diagnose(apart, "rhat")["rhat"] - rhat)
        return values

    def expected(self) -> Mapping[str, Expected]:
        """Bounds on the errors, for the estimators' own bias."""
        limits = {"ess_bulk": 0.05, "worth": 0.05, "autocorrelation": 0.005, "rhat": 0.005}
        return {f"mixing.{name}": Bound(limit) for name, limit in limits.items()}

    def _centres(self) -> Tensor:
        """Centres of the chains, (N,): normal quantiles."""
        shares = (np.arange(self.chains) + 0.5) / self.chains
        return self.spread * torch.from_numpy(stats.norm.ppf(shares))

    def _path(self, generator: torch.Generator) -> Tensor:
        """Stationary chains, (T, N, D)."""
        phi = torch.tensor(self.phi, dtype=torch.float64)
        path = torch.randn(self.times, self.chains, len(phi), generator=generator, dtype=torch.float64)
        for before, at in pairwise(path):
            at.mul_((1 - phi.square()).sqrt()).addcmul_(phi, before)
        return path


def _diagnose(path: Tensor, *metrics: str) -> dict[str, float]:
    """Metrics of one replicate's recorded positions, (T, N, D)."""
    context = Context(load_task("banana"), path=path[None])
    return {name: float(load_metric(name).compute(path[:1], context)) for name in metrics}


@dataclass(frozen=True)
class Mixtures:
    """Predictive mixtures of normal distributions, in the form predictive metrics take."""

    y: Tensor  #: responses, (R, T)
    means: Tensor  #: of the components, (R, n, T)
    sds: Tensor  #: of the components, (R, n)
    certified: tuple[Tensor, Tensor] | None = None

    def predict(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        """The components that the samples, (R, n, 1), number."""
        index = samples[..., 0].long()
        rows = torch.arange(len(index))[:, None]
        return self.means[rows, index], self.sds[rows, index]


@pytest.mark.parametrize("data", range(10))
def test_predictive_scores(data: int) -> None:
    """Random mixtures of normals, three components, against densities, quadrature and root finding by SciPy."""
    g = generator_of("mixtures", 1, data)
    means = 2 * torch.randn(2, 3, 6, generator=g, dtype=torch.float64)
    sds = 0.3 + torch.rand(2, 3, generator=g, dtype=torch.float64)
    y = 3 * torch.randn(2, 6, generator=g, dtype=torch.float64)
    samples = torch.arange(3, dtype=torch.float64)[:, None].expand(2, -1, -1)
    context = Context(load_task("banana"), predictive=Mixtures(y, means, sds))
    truth = [scores_by_quadrature(*(v[i].numpy() for v in (y, means, sds))) for i in range(2)]
    for name in ("rmse", "nll", "crps", "coverage"):
        found = load_metric(name).compute(samples, context).tolist()
        assert found == pytest.approx([t[name] for t in truth], abs=_SCORING_ERROR), name


@cache
def _legendre() -> tuple[Array, Array]:
    return np.polynomial.legendre.leggauss(400)


def scores_by_quadrature(y: Array, means: Array, sds: Array) -> dict[str, float]:
    """Scores at y (T,) of equal-weight mixtures, means (n, T) and sds (n,), from density and distribution function."""
    nodes, weights = _legendre()

    def integral(f: Callable[[Array], Array], low: float, high: float) -> float:
        half = (high - low) / 2
        return float(half * weights @ f(low + half * (nodes + 1)))

    crps, inside, log_density = [], [], []
    for response, centres in zip(y, means.T, strict=True):

        def cdf(x: Array, centres: Array = centres) -> Array:
            return stats.norm.cdf(x, centres[:, None], sds[:, None]).mean(0)

        low = min(response, centres.min()) - 10 * sds.max()
        high = max(response, centres.max()) + 10 * sds.max()
        below = integral(lambda x: cdf(x) ** 2, low, response)
        crps.append(below + integral(lambda x: (1 - cdf(x)) ** 2, response, high))
        edges = [optimize.brentq(lambda x, p=p: float(cdf(np.array([x]))[0]) - p, low, high) for p in (0.025, 0.975)]
        inside.append(edges[0] <= response <= edges[1])
        log_density.append(np.log(stats.norm.pdf(response, centres, sds).mean()))
    return {
        "rmse": float(np.sqrt(np.mean((y - means.mean(0)) ** 2))),
        "nll": -float(np.mean(log_density)),
        "crps": float(np.mean(crps)),
        "coverage": float(np.mean(inside)),
    }


_CHEAP = (
    "sliced_w2", "w2", "mmd2", "mmd2_u", "energy_distance", "kl_knn", "ks_marginal", "ksd", "mean_error", "sd_error",
    "correlation_error",
)  # fmt: skip


@pytest.mark.parametrize(
    ("task", "metrics"),
    [
        pytest.param("banana", _CHEAP, id="banana"),
        pytest.param("gmm2-20d", (*_CHEAP, "w1", "modes_found", "mode_weight_tv"), id="gmm2-20d", marks=pytest.mark.ci),
        pytest.param("gmm2-20d", ("c2st",), id="gmm2-20d, classifier", marks=pytest.mark.ci),
    ],
)
def test_floors(task: str, metrics: tuple[str, ...]) -> None:
    assert_right(Floors(task, metrics))


def test_u_statistics_have_no_bias() -> None:
    assert_right(Unbiased())


def test_diagnostics_of_chains_of_known_law() -> None:
    assert_right(Mixing())


def test_scores_by_quadrature_of_one_normal() -> None:
    """Closed forms of Gneiting and Raftery (2007): one standard normal, response 1."""
    found = scores_by_quadrature(np.array([1.0]), np.zeros((1, 1)), np.ones(1))
    crps = 2 * stats.norm.pdf(1) + (2 * stats.norm.cdf(1) - 1) - 1 / np.sqrt(np.pi)
    assert found["crps"] == pytest.approx(crps, abs=1e-10)
    assert found["nll"] == pytest.approx(0.5 + 0.5 * np.log(2 * np.pi))
    assert (found["rmse"], found["coverage"]) == (1.0, 1.0)
