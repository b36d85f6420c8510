"""Bayesian neural network regression under the standard protocol.

Model of Liu & Wang (2016), arXiv:1608.04471, Section 5, and Zhang, Cheng & Zhang (2024), arXiv:2410.17935, Section 5.4:
one hidden layer of H = 50 ReLU units,

    y ~ N(f_w(x), 1/gamma),   w ~ N(0, I/lambda),   gamma, lambda ~ Gamma(1, rate 0.1)

State (D = (p+1) H + H + 1 + 2): W1 (p x H, row-major), b1 (H), W2 (H), b2 (1), log gamma, log lambda. With S = sum over
the batch of (y - f)^2 and D_w the number of weights, up to a constant,

    log p = n/2 log gamma - (n/B) gamma S / 2  +  D_w/2 log lambda - lambda ||w||^2 / 2
            + (log gamma - 0.1 gamma) + (log lambda - 0.1 lambda)         (priors with log-Jacobians)

Protocol: 90/10 splits as published (one per replicate), X and y standardised by training statistics, no development
set, predictions in original units with noise variance s_y^2 / gamma. For the papers' own: ``bnn_variants``.

Numerics: gamma and lambda are e^l up to l = 30 and continue along the tangent beyond, which keeps density and score
finite, smooth and consistent with each other. The posterior has no mass there (the prior alone gives less than
exp(-10^12)); the papers' code clamps both at 50 in the score instead, which biases every target with a noise deviation
below 0.14. ReLU has slope 0 at 0, as in PyTorch.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Generator, Tensor

from parvibench.core.reference import load_predictions
from parvibench.core.target import Target
from parvibench.core.task import PREDICTIVE_METRICS, Task
from parvibench.data.loaders import Table, load
from parvibench.data.splits import RegressionSplit, regression_split, training_rows

from .bnn_network import RATE, Model, Network
from .bnn_posterior import BNNTarget, HeldOut, stacked, with_ones

_MAX_START_ROWS = 1000


@dataclass(frozen=True, kw_only=True)
class BNNTask(Task):
    """Network regression on one table: a published split per replicate, no development set, original units."""

    table: str  #: name of the data set
    features: int  #: p

    def model(self) -> Model:
        """The network and its precisions."""
        return Model(Network(self.features))

    def split(self, table: Table, replicate: int) -> RegressionSplit:
        """The data of one replicate, split and standardised."""
        return regression_split(table, replicate)

    def target(self, replicates: Sequence[int], device: torch.device | str, dtype: torch.dtype) -> BNNTarget:
        """The posteriors given each replicate's training rows."""
        parts, like = self.splits(replicates), torch.empty(0, device=device, dtype=dtype)
        X, y = stacked([s.X_train for s in parts], like), stacked([s.y_train for s in parts], like)
        return BNNTarget(X, y, self.model())

    def initial(self, target: Target, n: int, generators: Sequence[Generator]) -> Tensor:
        """Initial points, (R, n, D), one lambda and one gamma per particle.

        W1 ~ N(0, 1/(p+1)), W2 ~ N(0, 1/(H+1)), biases 0, lambda from its prior, and 1/gamma the mean
        squared error of the particle's own network on at most 1000 training rows.
        """
        posterior = cast(BNNTarget, target)
        weights = torch.stack([fan_in_weights(posterior.model.network, n, g) for g in generators])
        log_lambda = torch.stack([self.initial_log_lambda(n, g) for g in generators])
        rows = torch.arange(min(posterior.rows, _MAX_START_ROWS)).expand(len(weights), -1)
        x = posterior.model.joined(weights, torch.zeros_like(log_lambda), log_lambda)
        return posterior.with_noise(x, lambda squares: -(squares / rows.shape[1]).log(), rows)

    def initial_log_lambda(self, n: int, generator: Generator) -> Tensor:
        """Logarithms of the weights' first precisions, (n,) float64: draws from the prior."""
        return torch.empty(n, dtype=torch.float64).exponential_(RATE, generator=generator).log()

    def predictive(self, replicates: Sequence[int], device: torch.device | str, dtype: torch.dtype) -> HeldOut:
        """The test rows of each replicate's split."""
        parts, like = self.splits(replicates), torch.empty(0, device=device, dtype=dtype)
        y_sd = like.new_tensor([s.y_sd for s in parts])
        known = load_predictions(self.name)
        return HeldOut(
            y=stacked([s.y_test for s in parts], like),
            X=with_ones(stacked([s.X_test for s in parts], like)),
            y_mean=like.new_tensor([s.y_mean for s in parts])[:, None, None],
            y_sd=y_sd[:, None, None],
            noise_unit=y_sd[:, None],
            model=self.model(),
            certified=None if known is None else known.of(replicates),
        )

    def splits(self, replicates: Sequence[int]) -> list[RegressionSplit]:
        """The data of each replicate."""
        return [self.split(load(self.table), r) for r in replicates]


def fan_in_weights(network: Network, n: int, generator: Generator) -> Tensor:
    """First weights of one replicate, (n, D_w) float64: W1 ~ N(0, 1/(p+1)), W2 ~ N(0, 1/(H+1)), biases 0."""
    p, H = network.features, network.hidden
    x = torch.zeros(n, network.weights, dtype=torch.float64)
    W1 = torch.randn(n, p * H, generator=generator, dtype=torch.float64)
    W2 = torch.randn(n, H, generator=generator, dtype=torch.float64)
    x[:, : p * H] = W1 / math.sqrt(p + 1)
    x[:, network.first : network.first + H] = W2 / math.sqrt(H + 1)
    return x


def fields_of(
    model: Model, table: str, rows: int, training: int, *, bundled: bool = False, code: str = ""
) -> dict[str, Any]:
    """What the tasks of all protocols share, given the rows of the whole table and of its training part.

    ``code`` says whose protocol it is, if not the standard one; a ``bundled`` data set comes with scikit-learn.
    """
    origin = f", as in {code}'s code" if code else ""
    return {
        "dim": model.dim,
        "summary": f"Bayesian network, {rows} rows, {model.network.features} features{origin}",
        "provides": frozenset({"score", "hvp", "full-batch", "data", "predictive"}),
        "metrics": PREDICTIVE_METRICS,
        "primary": "nll",
        "batch_size": 100,
        "rows": training,
        "data": () if bundled else (table,),
        "table": table,
        "features": model.network.features,
    }


def _task(name: str, table: str, rows: int, features: int, origin: str) -> BNNTask:
    """A row of the family; ``rows`` counts the whole table."""
    return BNNTask(
        name=name,
        tags=frozenset({"regression", "network", origin}),
        citation="Liu & Wang (2016), arXiv:1608.04471, Section 5",
        **fields_of(Model(Network(features)), table, rows, training_rows(rows), bundled=origin == "bundled"),
    )


#: Its posterior predictions are certified, so samples are also judged by agreement with them.
DIABETES_SKLEARN = replace(
    _task("bnn-diabetes-sklearn", "sklearn-diabetes", 442, 10, "bundled"),
    metrics=(*PREDICTIVE_METRICS, "predictive_mean_error", "predictive_sd_error"),
)
BOSTON = _task("bnn-boston", "bostonHousing", 506, 13, "uci")
CONCRETE = _task("bnn-concrete", "concrete", 1030, 8, "uci")
ENERGY = _task("bnn-energy", "energy", 768, 8, "uci")
KIN8NM = _task("bnn-kin8nm", "kin8nm", 8192, 8, "uci")
NAVAL = _task("bnn-naval", "naval-propulsion-plant", 11934, 16, "uci")
POWER = _task("bnn-power", "power-plant", 9568, 4, "uci")
PROTEIN = _task("bnn-protein", "protein-tertiary-structure", 45730, 9, "uci")
WINE_RED = _task("bnn-wine-red", "wine-quality-red", 1599, 11, "uci")
WINE_WHITE = _task("bnn-wine-white", "wine-quality-white", 4898, 11, "uci")
YACHT = _task("bnn-yacht", "yacht", 308, 6, "uci")
DIABETES = _task("bnn-diabetes", "sifg-diabetes", 768, 8, "sifg")
WINE_BINARY = _task("bnn-wine-binary", "sifg-wine-binary", 1599, 11, "sifg")
