"""Diagnostics of recorded chains: effective sample size, R-hat and autocorrelation.

All are of a path (R, T, N, D) with T >= 4, and use no samples.

Vehtari et al. (2021), Bayesian Analysis 16:667-718, as implemented by ArviZ. They measure how well chains mix, not
whether they converge to the right distribution. Effective sample sizes and R-hat report the worst coordinate. Above 50
coordinates a screen of all of them finds those that are ranked: the worst by R-hat of halves, of the bounded
``atan((x - median) / spread)`` and of its distance from zero, and by the variance of batch means. At most 25,000 draws
are used, so that the cost stays small compared with the run: evenly spaced ones, and for the effective sample size of chains
that mix faster than these are apart, as many neighbouring ones in the middle. Sizes are of all states recorded.

The weights of a network switch labels, so that no chain of them mixes: networks are judged by what they say, their
predictions at 20 held-out rows and the log likelihood of these rows, the worst of which counts.

Many short chains (8 to 99 states after the burn-in, at least 10 chains) have no halves to compare: their R-hat is the nested one
(Margossian et al. 2024, Bayesian Analysis, "Nested R-hat", Section 3) of five equal groups of chains, neighbours at the
beginning of that path, over its second half: chains that have not forgotten where they were make the groups differ.
"""

import importlib
import math
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special
from torch import Tensor

from parvibench.core.metric import Context, Metric, NotApplicable, metric
from parvibench.core.task import PredictiveData

from .common import average_ranks, evenly, given, thin
from .recorded import recorded_cost

#: Coordinates that are ranked, and taken by every statistic of the screen.
MOST_COORDINATES = 50
_BY_EACH = 12
#: States at which the screen looks, of these the ones that give location and spread, and batches of a chain.
_SCREENED = 5000
_LOCATED = 400
_BATCHES = 5
#: Chains of which more than this share of the spaced draws is effective may mix faster than these are apart.
_MIXED = 0.5
MOST_DRAWS = 25_000
#: R-hat is the nested one of chains with fewer states than this, for at least so many chains; groups of it.
NESTED_BELOW, NESTED_FROM, GROUPS = 100, 10, 5
#: Held-out rows at which networks are compared, and states at a time.
PREDICTIONS, _STATES = 20, 2000
FEWEST_DRAWS = 4
TAILS = (0.05, 0.95)


@metric("higher", "draws", "path", "bulk effective sample size, worst coordinate", when="last")
def ess_bulk(samples: Tensor, context: Context) -> Tensor:
    """Effective sample size of the rank-normalised split chains, worst coordinate.

    (R,) in draws, out of the T N recorded; higher is better; not cut at T N (antithetic chains exceed it). Zero when
    a coordinate never moved. O(T N log(T N)) a coordinate.

    >>> ess_bulk(x, chains)
    tensor([500.5597], dtype=torch.float64)
    """
    return _smallest_ess(_recorded(context), method="bulk").to(samples)


@metric("higher", "draws", "path", "effective sample size of the 5% and 95% quantiles, worst coordinate", when="last")
def ess_tail(samples: Tensor, context: Context) -> Tensor:
    """Effective sample size of the 5% and 95% quantiles, the smaller one, worst coordinate.

    (R,) in draws, out of the T N recorded; higher is better. Zero when a coordinate never moved. Cost as ``ess_bulk``.

    >>> ess_tail(x, chains)
    tensor([463.2779], dtype=torch.float64)
    """
    return _smallest_ess(_recorded(context), method="tail", prob=TAILS).to(samples)


def ess_over(samples: Tensor, context: Context, spent: str) -> Tensor:
    """``ess_bulk`` over the score evaluations charged, or over the steady compute time of a replicate, burn-in included.

    Rejected proposals count; the replicates of a chunk share its time evenly. Bounded by the number of recorded positions:
    draws dropped from a thinned path do not count.

    (R,) in draws per row scored, or per second; higher is better. Needs a cost, too.

    >>> ess_over(x, chains, "score_evaluations"), ess_over(x, chains, "seconds")
    (tensor([1.2514], dtype=torch.float64), tensor([1001.1194], dtype=torch.float64))
    """
    cost, path = float(getattr(recorded_cost(context), spent)), _recorded(context)
    if cost <= 0:
        raise NotApplicable("nothing was spent")
    return (_smallest_ess(path, method="bulk") / cost).to(samples)


def _rate(name: str, spent: str, unit: str, summary: str) -> Metric:
    return Metric(name, partial(ess_over, spent=spent), "higher", unit, "path", summary, when="last")


ess_per_evaluation = _rate(
    "ess_per_evaluation", "score_evaluations", "draws/row", "bulk effective sample size per score evaluation"
)
ess_per_second = _rate("ess_per_second", "seconds", "draws/s", "bulk effective sample size per second of compute")


@metric("lower", "1", "path", "correlation of neighbouring recorded positions, mean over coordinates", when="last")
def autocorrelation(samples: Tensor, context: Context) -> Tensor:
    """Correlation between neighbouring recorded positions, mean over coordinates.

    ``sum (x_t - m)(x_{t+1} - m) / sum (x_t - m)^2`` per coordinate, numerator and denominator as means over
    times and chains, m the mean of all chains: chains that stay apart are correlated. Recorded positions may
    lie several iterations apart, so compare runs of one length only.

    (R,) in [-1, 1] or so; lower is better; one for a coordinate that never moved. O(T N D).

    >>> autocorrelation(x, chains)
    tensor([-0.6548], dtype=torch.float64)
    """
    values = []
    for path in _spaced_coordinates(context):
        centred = path - path.mean((0, 1))
        variance = np.square(centred).mean((0, 1))
        with np.errstate(invalid="ignore"):
            each = (centred[:, 1:] * centred[:, :-1]).mean((0, 1)) / variance
        values.append(float(np.where(np.ptp(path, axis=(0, 1)) > 0, each, 1.0).mean()))
    return torch.tensor(values, dtype=samples.dtype)


@metric("higher", "draws", "path", "effective sample size by autocorrelations, mean over coordinates", when="last")
def ess_autocorrelation(samples: Tensor, context: Context) -> Tensor:
    """Effective sample size from the autocorrelations themselves, mean over coordinates.

    ``T / (1 + 2 sum_t rho_t)`` per coordinate, the sum cut by Geyer's initial positive sequence (1992, Statistical
    Science 7:473-483), with no ranks and no split, over the chains by their mean. It replaces the one of Ye, Ren & Liu
    (2020), arXiv:2002.09070, who define none and whose chains are antithetic at some lag: it is not cut at T N.

    (R,) in draws, out of the T N recorded; higher is better. Zero for coordinates that never moved. O(T log T N) a
    coordinate, at most 50 of them, evenly spaced.

    >>> ess_autocorrelation(x, chains)
    tensor([378.5519], dtype=torch.float64)
    """
    values = []
    for path in _spaced_coordinates(context):
        chains, times, _ = path.shape
        centred = path - path.mean((0, 1))
        spectrum = np.fft.rfft(centred, 2 * times, axis=1)
        covariance = np.fft.irfft(np.square(np.abs(spectrum)), axis=1)[:, :times].mean(0) / times
        moved = covariance[0] > 0
        rho = covariance[:, moved] / covariance[0, moved]
        pairs = rho[: 2 * (times // 2)].reshape(times // 2, 2, -1).sum(1)  # rho_2k + rho_2k+1, positive in theory
        kept = np.cumprod(pairs > 0, axis=0)
        spread = np.maximum(2 * (pairs * kept).sum(0) - 1, 1 / (times * chains))
        values.append(float(chains * times * (1 / spread).sum() / len(moved)))
    return torch.tensor(values, dtype=samples.dtype)


@metric("lower", "1", "path", "rank-normalised split R-hat, worst coordinate", when="last")
def rhat(samples: Tensor, context: Context) -> Tensor:
    """Rank-normalised split R-hat, the larger of bulk and folded, worst coordinate.

    A single chain is cut into two halves first; many short ones get the nested R-hat.

    (R,), dimensionless; lower is better, 1 for mixed chains; +inf when no chain ever moved. A single chain needs 8 times.

    >>> rhat(x, chains)
    tensor([0.9920], dtype=torch.float64)
    """
    path = _recorded(context)
    if 2 * FEWEST_DRAWS <= path.shape[1] < NESTED_BELOW and path.shape[2] >= NESTED_FROM:
        return torch.tensor([_nested_rhat(x) for x in _worst(path)], dtype=samples.dtype)
    values = []
    for worst in _worst(_thinned(path)):
        half = worst.shape[1] // 2
        if len(worst) == 1 and half < FEWEST_DRAWS:
            raise NotApplicable(f"a single chain of {worst.shape[1]} draws is too short to be split")
        chains = worst if len(worst) > 1 else np.concatenate([worst[:, :half], worst[:, half : 2 * half]])
        with np.errstate(divide="ignore", invalid="ignore"):
            each = array_stats().rhat(chains, chain_axis=0, draw_axis=1, method="rank")
        values.append(float(np.where(np.isnan(each), np.inf, each).max()))
    return torch.tensor(values, dtype=samples.dtype)


def array_stats() -> Any:
    """ArviZ's diagnostics on plain arrays; imported when first used, and untyped, since its types are incomplete."""
    return importlib.import_module("arviz_stats.base").array_stats


def _smallest_ess(path: Tensor, **method: Any) -> Tensor:
    """(R,) float64, worst coordinate, out of all T N states of the path; ``method`` is ArviZ's."""
    spaced = _thinned(path)
    draws, kept = path.shape[1], spaced.shape[1]
    first = (draws - kept) // 2
    middle = path[:, first : first + kept]  # as many neighbouring times
    states, used = draws * path.shape[2], kept * path.shape[2]
    values = []
    for chains, neighbours in zip(_worst(spaced), _worst(middle), strict=True):
        size = _ess(chains, **method)
        if used < states and size > _MIXED * used:
            size = _ess(neighbours, **method) * states / used
        values.append(size)
    return torch.tensor(values, dtype=torch.float64)


def _ess(chains: NDArray[np.float64], **method: Any) -> float:
    each = array_stats().ess(chains, chain_axis=0, draw_axis=1, **method)
    # ArviZ gives constant chains the full T N.
    return float(np.where(np.ptp(chains, axis=(0, 1)) > 0, each, 0.0).min())


def _recorded(context: Context) -> Tensor:
    """The recorded path, (R, T, N, D), with at least ``FEWEST_DRAWS`` times."""
    path = given(context.path, "no chain path is recorded")
    draws = path.shape[1]
    if draws < FEWEST_DRAWS:
        raise NotApplicable(f"the chain path has {draws} draws; at least {FEWEST_DRAWS} are needed")
    return _said(path, context)


def _said(path: Tensor, context: Context) -> Tensor:
    """What the networks of a path say, (R, T, N, K + 1): K predictions and their log likelihood; other paths as they are."""
    of_rows = getattr(context.predictive, "of_rows", None)
    if of_rows is None or "network" not in context.task.tags:
        return path
    replicates, draws, chains, dim = path.shape
    held_out = evenly(context.predictive.y.shape[1], PREDICTIONS)  # type: ignore[union-attr]
    kept = len(held_out)
    data: PredictiveData = of_rows(held_out)
    found = []
    for states in torch.split(path.reshape(replicates, draws * chains, dim), _STATES, dim=1):
        means, sds = data.predict(states)
        z = (data.y[:, None] - means) / sds[..., None]
        log_likelihood = -(0.5 * z.square().sum(-1) + kept * sds.log())
        found.append(torch.cat((means, log_likelihood[..., None]), -1))
    return torch.cat(found, 1).reshape(replicates, draws, chains, kept + 1)


def _nested_rhat(chains: NDArray[np.float64]) -> float:
    """The larger nested R-hat of ranks and of ranks of distances from the median, worst coordinate of (N, T, D)."""
    size = len(chains) // GROUPS
    chains = chains[: size * GROUPS]
    late = chains[:, chains.shape[1] // 2 :]
    if (np.ptp(late, axis=(0, 1)) == 0).any():
        return math.inf
    scores = []
    for d in range(chains.shape[2]):
        order = np.argsort(chains[:, 0, d], kind="stable")
        x = late[order, :, d]
        for values in (x, np.abs(x - np.median(x))):
            ranks = average_ranks(values.ravel()).reshape(values.shape)
            scores.append(special.ndtri((ranks - 0.375) / (ranks.size + 0.25)))
    groups = np.repeat(np.arange(GROUPS), size)
    # ArviZ's own ranks are those of split chains.
    each = array_stats().rhat_nested(np.stack(scores), groups, method="identity", chain_axis=1, draw_axis=2)
    return float(each.max())


def _thinned(path: Tensor) -> Tensor:
    """Evenly spaced times of (R, T, N, D), so that T N is at most MOST_DRAWS."""
    draws, chains = path.shape[1:3]
    return path[:, evenly(draws, max(FEWEST_DRAWS, MOST_DRAWS // chains))]


def _spaced_coordinates(context: Context) -> list[NDArray[np.float64]]:
    """As ``_paths``, of the recorded path, with at most MOST_COORDINATES evenly spaced coordinates."""
    path = _recorded(context)
    return _paths(path[..., evenly(path.shape[3], MOST_COORDINATES)])


def _worst(path: Tensor) -> list[NDArray[np.float64]]:
    """As ``_paths``, with at most MOST_COORDINATES: those that the screen finds the worst."""
    if path.shape[3] <= MOST_COORDINATES:
        return _paths(path)
    return [_paths(x[None, ..., _screen(x)])[0] for x in path]


def _screen(path: Tensor) -> Tensor:
    """The worst coordinates of a replicate's path, (T, N, D), by cheap statistics of all of them: indices."""
    draws, chains = path.shape[:2]
    x = path[evenly(draws, max(FEWEST_DRAWS, _SCREENED // chains))].double()
    x = torch.where(x.isfinite(), x, 0.0)
    low, centre, high = thin(x.flatten(0, 1), _LOCATED).quantile(torch.tensor([0.16, 0.5, 0.84], dtype=x.dtype), dim=0)
    # Bounded as ranks are, so that heavy tails hide nothing.
    x = ((x - centre) / (high - low).clamp(min=torch.finfo(x.dtype).tiny)).atan()
    found = [*_unequal(x, 2), *_unequal(x.abs(), 2)[:1], _unequal(x, min(_BATCHES, len(x) // 2))[0]]
    worst = {int(i) for v in found for i in v.topk(min(_BY_EACH, v.numel())).indices}
    return torch.tensor(sorted(worst))


def _unequal(x: Tensor, parts: int) -> tuple[Tensor, Tensor]:
    """Variance of the means of ``parts`` parts of chains (T, N, D) over the mean variance within; the least of these, negated.

    (D,) each; infinite where nothing varies within.
    """
    length = len(x) // parts
    x = x[: length * parts].reshape(parts, length, *x.shape[1:])
    means, within = x.mean(1).flatten(0, 1), x.var(1).flatten(0, 1)
    ratio = means.var(0) / within.mean(0)
    return torch.where(within.mean(0) > 0, ratio, torch.inf), -within.amin(0)


def _paths(path: Tensor) -> list[NDArray[np.float64]]:
    """Every replicate's path as (N chains, T draws, D); zeros where not finite."""
    chains = path.transpose(1, 2).to(torch.float64).cpu()
    return list(torch.where(chains.isfinite(), chains, 0.0).numpy())
