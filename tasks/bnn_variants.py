"""Network regressions as the papers' own codes set them up, departures from the standard protocol included.

- ``-sifg``: Zhang, Cheng & Zhang (2024), arXiv:2410.17935, Section 5.4, and the authors' code.
- ``-srld``: Ye, Ren & Liu (2020), arXiv:2002.09070, Section 5.2, and the authors' code.
- ``-ksivi``: Cheng, Yu, Xie, Zhang & Zhang (2024), arXiv:2405.18997, Section 5.4, and the authors' code.

Step sizes and their schedules, noise and burn-in are the algorithms' business, not the tasks'. Batches are drawn as
everywhere, a fresh shuffle per epoch, but for ``-sifg``, whose code takes the training rows in turn.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from parvibench.core.target import Target
from parvibench.core.task import Problem
from parvibench.data.archives import load_permutation
from parvibench.data.loaders import Table
from parvibench.data.splits import RegressionSplit, Split, moments, permutation_for, standardised, tuning_split

from .bnn import BNNTask, fan_in_weights, fields_of
from .bnn_network import RATE, Model, Network
from .bnn_posterior import BNNTarget, HeldOut, RefittedNoise, stacked, with_ones

V = TypeVar("V", bound=BNNTask)

_MOST_DEV_ROWS = 500
_ONE_SPLIT = "one fixed split for all replicates, which differ by their seeds only"


@dataclass(frozen=True, kw_only=True)
class SIFGTask(BNNTask):
    """Network regression as in the SIFG authors' code, which follows that of SVGD."""

    citation: str = "Zhang, Cheng & Zhang (2024), arXiv:2410.17935, Section 5.4, and the authors' code"
    version: int = 2
    permutation: str = ""  #: name of the file with the split's permutation; empty where the code's recipe gives it
    departures: tuple[str, ...] = (
        _ONE_SPLIT,
        "a mini-batch is the next 100 training rows in the order of the split, from the first row on again and again",
        "a tenth of the training rows is thrown away, and the development set is the last tenth of the rows kept: "
        "part of what is trained on",
        "for predictions 1/gamma is every network's mean squared error on that development set, in original units "
        "(the code keeps the better of this and the sampled gamma, read in the wrong units: the former, being the "
        "maximum of the likelihood, always wins; it is fitted before SIFG's output noise is added, here after)",
        "gamma and lambda grow linearly in their logarithms beyond 50 (the code clamps them at 50 in the score, "
        "which is then no gradient of anything; both agree in the scores of the logarithms)",
        "all particles start at one lambda, from Gamma(1, scale 0.1): a hundredth of the prior mean",
    )

    def model(self) -> Model:
        """The network and its precisions."""
        return _sifg_model(self.features)

    def split(self, table: Table, replicate: int) -> RegressionSplit:
        """Standardised by the mean and the population standard deviation of the training rows."""
        rows = sifg_rows(len(table.y), replicate, self.permutation)
        return standardised(table, rows, moments(table.X[rows.train]), moments(table.y[rows.train]))

    def _problem_type(self) -> type[Problem]:
        return RowsInTurn

    def initial_log_lambda(self, n: int, generator: Generator) -> Tensor:
        """One draw for all particles, (n,) float64."""
        return torch.empty(1, dtype=torch.float64).exponential_(1 / RATE, generator=generator).log().expand(n)

    def predictive(self, replicates: Sequence[int], device: torch.device | str, dtype: torch.dtype) -> HeldOut:
        """The test rows, with the development rows that refit the noise."""
        plain, parts = super().predictive(replicates, device, dtype), self.splits(replicates)
        X_dev = with_ones(stacked([s.X_dev for s in parts], plain.y))
        return RefittedNoise(**vars(plain), X_dev=X_dev, y_dev=stacked([s.y_dev for s in parts], plain.y))


@dataclass(frozen=True, kw_only=True)
class SRLDTask(BNNTask):
    """Network regression as in the SRLD authors' code: tanh units, weights of prior variance 1."""

    citation: str = "Ye, Ren & Liu (2020), arXiv:2002.09070, Section 5.2, and the authors' code"
    first_row: int = 0  #: the first row that is read; 1 where the code takes row 0 for a header
    departures: tuple[str, ...] = (
        "the features are standardised by the mean of the training rows, but the deviation of the test rows",
        "the responses are not standardised: noise and weights keep their priors whatever the units are",
        "no output bias; the constant input stands for the hidden ones",
        "splits of the code's own, by seeds 1, 2, ...",
        "the log precision of the noise is a coordinate of the state with its exact conditional density, so that "
        "any algorithm samples the joint law (the code holds the noise variance fixed and redraws it from its "
        "inverse-gamma conditional every 25 iterations, each time with the same seed); it starts at its "
        "conditional mean",
    )

    def model(self) -> Model:
        """The network and its precisions."""
        return _srld_model(self.features)

    def split(self, table: Table, replicate: int) -> RegressionSplit:
        """Standardised features, responses as they are."""
        table = Table(table.X[self.first_row :], table.y[self.first_row :])
        rows = srld_rows(len(table.y), replicate)
        X_moments = table.X[rows.train].mean(axis=0), table.X[rows.test].std(axis=0) + 1e-6
        return standardised(table, rows, X_moments, (np.zeros(()), np.ones(())))

    def initial(self, target: Target, n: int, generators: Sequence[Generator]) -> Tensor:
        """Initial points, (R, n, D): weights uniform by Xavier's rule, the noise at its conditional mean."""
        posterior = cast(BNNTarget, target)
        weights = torch.stack([_xavier_weights(posterior.model.network, n, g) for g in generators])
        x = posterior.model.joined(weights, weights[..., 0], weights[..., 0])
        return posterior.with_noise(x, lambda squares: -((RATE + squares / 2) / (1 + posterior.rows / 2)).log())


@dataclass(frozen=True, kw_only=True)
class KSIVITask(BNNTask):
    """Network regression as in the KSIVI authors' code: both precisions are constants, not sampled."""

    citation: str = "Cheng, Yu, Xie, Zhang & Zhang (2024), arXiv:2405.18997, Section 5.4, and the authors' code"
    log_gamma: float  #: of the noise
    log_lambda: float  #: of the weights
    departures: tuple[str, ...] = (
        _ONE_SPLIT,
        "a tenth of the training rows is held back for development: part of no density, but an algorithm may ask to be "
        "pre-trained on their responses, as the code does",
        "features and responses are standardised with the unbiased standard deviation",
        "gamma and lambda are constants: means over the particles of an SVGD run, chosen in original units of the "
        "response, in which predictions use gamma too; the posterior multiplies standardised residuals with it, "
        "which tempers the likelihood by the variance of the response (80-fold for Boston)",
    )

    def model(self) -> Model:
        """The network and its precisions."""
        return Model(Network(self.features), self.log_gamma, self.log_lambda)

    def split(self, table: Table, replicate: int) -> RegressionSplit:
        """Standardised by the mean and the unbiased standard deviation of the training rows."""
        rows = ksivi_rows(len(table.y), replicate)
        X, y = table.X[rows.train], table.y[rows.train]
        scales = ((v.mean(axis=0), v.std(axis=0, ddof=1)) for v in (X, y))
        return standardised(table, rows, *scales)

    def target(self, replicates: Sequence[int], device: torch.device | str, dtype: torch.dtype) -> BNNTarget:
        """The posteriors given each replicate's training rows; they know the development rows too."""
        parts, like = self.splits(replicates), torch.empty(0, device=device, dtype=dtype)
        X, y = stacked([s.X_train for s in parts], like), stacked([s.y_train for s in parts], like)
        X_dev = stacked([s.X_dev for s in parts], like)
        y_dev = stacked([(s.y_dev - s.y_mean) / s.y_sd for s in parts], like)
        return BNNTarget(X, y, self.model(), (X_dev, y_dev))

    def initial(self, target: Target, n: int, generators: Sequence[Generator]) -> Tensor:
        """Initial points, (R, n, D): weights normal by fan-in, biases 0."""
        return torch.stack([fan_in_weights(self.model().network, n, g) for g in generators])

    def predictive(self, replicates: Sequence[int], device: torch.device | str, dtype: torch.dtype) -> HeldOut:
        """The test rows; gamma is in original units as it stands."""
        plain = super().predictive(replicates, device, dtype)
        return replace(plain, noise_unit=torch.ones_like(plain.noise_unit))


class RowsInTurn(Problem):
    """A problem whose mini-batches are consecutive training rows, the first one after the last."""

    def _batch(self) -> Tensor | None:
        """Rows t B, ..., t B + B - 1 modulo n at step t, the same for all replicates: (R, B)."""
        if self._batch_size is None:
            return None
        first = self.streams.step * self._batch_size
        rows = torch.arange(first, first + self._batch_size, device=self.device) % (self._target.rows or 1)
        return rows.expand(self.replicates, -1)


def sifg_rows(n: int, replicate: int, permutation: str = "") -> Split:
    """Test rows are the last tenth of a permutation; see ``SIFGTask.departures`` for the others."""

    def recipe(n: int, _: int) -> NDArray[np.int64]:
        return load_permutation(permutation) if permutation else np.random.RandomState(1234).permutation(n)

    rows = permutation_for(n, replicate, recipe)
    train, test = np.split(rows, [round(0.9 * n)])
    size = _dev_size(len(train))
    kept = train[:-size]
    return tuning_split(Split(kept, test, kept[-size:]), replicate)


def srld_rows(n: int, replicate: int) -> Split:
    """One seed a replicate; the first floor(0.9 n) rows of the permutation are trained on."""
    rows = permutation_for(n, replicate, lambda n, r: np.random.RandomState(1 + r).permutation(n))
    return tuning_split(Split(*np.split(rows, [int(0.9 * n)])), replicate)


def ksivi_rows(n: int, replicate: int) -> Split:
    """scikit-learn's ``train_test_split(test_size=0.1, random_state=42)``: the first tenth, rounded up, tests."""
    rows = permutation_for(n, replicate, lambda n, _: np.random.RandomState(42).permutation(n))
    test, train = np.split(rows, [-(-n // 10)])
    size = _dev_size(len(train))
    return tuning_split(Split(train[:-size], test, train[-size:]), replicate)


def _dev_size(training: int) -> int:
    return min(round(0.1 * training), _MOST_DEV_ROWS)


def _xavier_weights(network: Network, n: int, generator: Generator) -> Tensor:
    """(n, D_w) float64: every matrix uniform within sqrt(6 / (fan-in + fan-out))."""
    p, H = network.features, network.hidden
    u = 2 * torch.rand(n, network.weights, generator=generator, dtype=torch.float64) - 1
    u[:, : network.first] *= math.sqrt(6 / (p + 1 + H))
    u[:, network.first :] *= math.sqrt(6 / (H + 1))
    return u


def _sifg_model(features: int) -> Model:
    return Model(Network(features), tangent_from=math.log(50))


def _srld_model(features: int) -> Model:
    return Model(Network(features, activation="tanh", output_bias=False), log_lambda=0.0)


def _variant(
    kind: type[V], code: str, name: str, table: str, rows: int, model: Model, training: int, *more: str, **fields: Any
) -> V:
    """A set of Table 1 by the protocol of a paper's code; ``more`` departures are its own."""
    return kind(
        name=f"bnn-{name}-{code.lower()}",
        tags=frozenset({"regression", "network", "variant", code.lower()}),
        departures=(*kind.departures, *more),
        **(fields_of(model, table, rows, training, code=code) | fields),
    )


def _sifg(name: str, table: str, rows: int, features: int, *more: str, permutation: str = "") -> SIFGTask:
    model, training = _sifg_model(features), len(sifg_rows(rows, 0).train)
    own = {"permutation": permutation, "data": (table, permutation) if permutation else (table,)}
    return _variant(SIFGTask, "SIFG", name, table, rows, model, training, *more, **own)


def _srld(name: str, table: str, rows: int, features: int, *more: str, first_row: int = 0) -> SRLDTask:
    """``rows`` counts those that are read."""
    model, training = _srld_model(features), len(srld_rows(rows, 0).train)
    return _variant(SRLDTask, "SRLD", name, table, rows, model, training, *more, first_row=first_row)


def _ksivi(
    name: str, table: str, rows: int, features: int, log_lambda: float, log_gamma: float, *more: str
) -> KSIVITask:
    """With the constants that the code prints for it."""
    model, training = Model(Network(features), log_gamma, log_lambda), len(ksivi_rows(rows, 0).train)
    own = {"log_gamma": log_gamma, "log_lambda": log_lambda}
    return _variant(KSIVITask, "KSIVI", name, table, rows, model, training, *more, **own)


_BINARY = "0/1 outcomes are regressed on as if they were real"
_UNKNOWN_FILE = "the authors' file is not public: the UCI file stands in"

BOSTON_SIFG = _sifg("boston", "bostonHousing", 506, 13, permutation="sifg-boston-permutation")
CONCRETE_SIFG = _sifg("concrete", "concrete", 1030, 8)
DIABETES_SIFG = _sifg("diabetes", "sifg-diabetes", 768, 8, _BINARY)
POWER_SIFG = _sifg("power", "sifg-power", 9568, 4)
PROTEIN_SIFG = _sifg("protein", "sifg-protein", 13543, 9, "the authors' copy ends after 13543 of 45730 rows")
WINE_BINARY_SIFG = _sifg("wine-binary", "sifg-wine-binary", 1599, 11, _BINARY)

BOSTON_SRLD = _srld("boston", "bostonHousing", 506, 13)
CONCRETE_SRLD = _srld("concrete", "concrete", 1030, 8)
ENERGY_SRLD = _srld("energy", "energy", 768, 8)
NAVAL_SRLD = _srld("naval", "naval-propulsion-plant", 11934, 16)
WINE_RED_SRLD = _srld("wine-red", "wine-quality-red", 1599, 11)
WINE_WHITE_SRLD = _srld("wine-white", "wine-quality-white", 4898, 11)
YACHT_SRLD = _srld("yacht", "yacht", 307, 6, "the first row is lost: the code reads it as a header", first_row=1)

BOSTON_KSIVI = _ksivi("boston", "bostonHousing", 506, 13, -1.003869799168037, -2.555990767319021)
CONCRETE_KSIVI = _ksivi("concrete", "concrete", 1030, 8, -0.814071878103707, -3.449819990147337, _UNKNOWN_FILE)
POWER_KSIVI = _ksivi("power", "power-plant", 9568, 4, -0.901769000892788, -2.880246003841932, _UNKNOWN_FILE)
WINE_RED_KSIVI = _ksivi("wine-red", "wine-quality-red", 1599, 11, -0.857776388378304, 1.056112577113661, _UNKNOWN_FILE)
PROTEIN_KSIVI = _ksivi(
    "protein", "protein-tertiary-structure", 45730, 9, -0.788991274446742, -3.161733709183021, _UNKNOWN_FILE
)
YACHT_KSIVI = _ksivi("yacht", "yacht", 308, 6, -0.768671081013136, 0.329742800537996, _UNKNOWN_FILE)
