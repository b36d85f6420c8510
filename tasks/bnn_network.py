"""The network of the regression tasks and its precisions: where they lie in a state, and the passes."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")

HIDDEN = 50
#: Rate of the Gamma(1, rate) priors on both precisions.
RATE = 0.1

#: Hidden activations in memory at once; larger products go through the data in blocks of rows.
_MAX_ACTIVATIONS = 2**21


@dataclass(frozen=True)
class Network:
    """One hidden layer: where the weights lie, and the two passes.

    Inputs carry a last column of ones, so that (W1, b1), which lie together, are one (p+1, H) matrix.
    Activations are laid out (R, N, H, B): every product is then a batched one on views, and no array of
    N copies of the data is made.
    """

    features: int  #: p
    hidden: int = HIDDEN  #: H
    activation: Literal["relu", "tanh"] = "relu"  #: of the hidden layer
    output_bias: bool = True  #: whether there is a b2

    @property
    def first(self) -> int:
        """Number of weights of the first layer, biases included."""
        return (self.features + 1) * self.hidden

    @property
    def weights(self) -> int:
        """D_w, number of all weights."""
        return self.first + self.hidden + self.output_bias

    def forward(self, x: Tensor, X: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs (R, N, B) and hidden activations (R, N, H, B) at inputs X (R, B, p+1)."""
        R, N, _ = x.shape
        W1 = x[..., : self.first].view(R, N, self.features + 1, self.hidden)
        product = W1.mT.reshape(R, N * self.hidden, self.features + 1) @ X.mT
        # In place: the product is not used elsewhere.
        active = (product.relu_() if self.activation == "relu" else product.tanh_()).view(R, N, self.hidden, -1)
        W2, b2 = self._second(x)
        return (W2.unsqueeze(-2) @ active).squeeze(-2) + b2, active

    def pull_back(self, x: Tensor, residual: Tensor, active: Tensor, X: Tensor) -> Tensor:
        """Gradient of -sum(residual^2)/2 in the weights, (R, N, D_w).

        With r = y - f: b2 gets sum r, W2 gets sum r a, and column h of (W1, b1) gets
        W2_h * sum over the rows of r a_h' (x, 1), a' the slope of the activation.
        """
        # For ReLU the sign is 0 or 1; ten times faster than `where`.
        slope = active.sign() if self.activation == "relu" else 1 - active.square()
        gated = slope * residual.unsqueeze(-2)
        # Every product has its long side last: a matrix library is two to ten times slower with a narrow one there.
        sums = (X.mT @ gated.flatten(1, 2).mT).view(x.shape[0], -1, x.shape[1], self.hidden)  # (R, p+1, N, H)
        by_W1 = (sums.transpose(1, 2) * self._second(x)[0].unsqueeze(-2)).flatten(-2)
        by_W2 = (residual.unsqueeze(-2) @ active.mT).squeeze(-2)
        by_b2 = [residual.sum(-1, keepdim=True)] if self.output_bias else []
        return torch.cat([by_W1, by_W2, *by_b2], dim=-1)

    def blocks(self, x: Tensor, rows: int) -> Iterator[slice]:
        """Slices of the data rows that keep the activations of all networks within bounds."""
        size = max(1, _MAX_ACTIVATIONS // (x.shape[0] * x.shape[1] * self.hidden))
        return (slice(start, start + size) for start in range(0, rows, size))

    def outputs(self, x: Tensor, X: Tensor) -> Tensor:
        """Outputs alone, (R, N, B), in blocks of rows."""
        return torch.cat([self.forward(x, X[:, rows])[0] for rows in self.blocks(x, X.shape[1])], dim=-1)

    def _second(self, x: Tensor) -> tuple[Tensor, Tensor | float]:
        """W2 (R, N, H) and b2 (R, N, 1), or 0 without."""
        W2 = x[..., self.first : self.first + self.hidden]
        return W2, x[..., self.weights - 1 : self.weights] if self.output_bias else 0.0


@dataclass(frozen=True)
class Model:
    """A network with noise precision gamma and weight precision lambda: y ~ N(f_w, 1/gamma), w ~ N(0, I/lambda).

    Each precision is either a coordinate of the state, as its logarithm, with a Gamma(1, rate 0.1) prior, or a
    constant. The state holds the weights, then log gamma, then log lambda, as far as they are coordinates.
    """

    network: Network  #: f
    log_gamma: float | None = None  #: the constant, or None for a coordinate
    log_lambda: float | None = None  #: the constant, or None for a coordinate
    tangent_from: float = 30.0  #: l from which e^l is continued along its tangent

    @property
    def dim(self) -> int:
        """D."""
        return self.network.weights + (self.log_gamma is None) + (self.log_lambda is None)

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Weights (R, N, D_w), log gamma (R, N) and log lambda (R, N)."""
        weights, rest = x[..., : self.network.weights], x[..., self.network.weights :]
        constant = weights.new_full(weights.shape[:-1], 0.0)
        log_gamma = rest[..., 0] if self.log_gamma is None else constant + self.log_gamma
        log_lambda = rest[..., -1] if self.log_lambda is None else constant + self.log_lambda
        return weights, log_gamma, log_lambda

    def joined(self, weights: Tensor, log_gamma: Tensor, log_lambda: Tensor) -> Tensor:
        """The inverse of ``split``, (R, N, D); constants are left out."""
        precisions = self.coordinates(log_gamma, log_lambda)
        return torch.cat([weights, *(value.unsqueeze(-1) for value in precisions)], dim=-1)

    def coordinates(self, of_gamma: T, of_lambda: T) -> list[T]:
        """The values of those precisions that are coordinates."""
        pairs = ((self.log_gamma, of_gamma), (self.log_lambda, of_lambda))
        return [value for constant, value in pairs if constant is None]

    def precision(self, log_value: Tensor) -> tuple[Tensor, Tensor]:
        """e^l, continued along its tangent from ``tangent_from`` on so that nothing overflows, and its derivative."""
        slope = log_value.clamp(max=self.tangent_from).exp()
        return slope * (1 + (log_value - self.tangent_from).clamp(min=0)), slope

    def noise_sd(self, x: Tensor) -> Tensor:
        """1/sqrt(gamma), (R, N)."""
        return self.precision(self.split(x)[1])[0].rsqrt()
