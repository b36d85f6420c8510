"""A target that counts its evaluations, to be compared with what the meter of the problem has charged."""

from torch import Tensor

from parvibench.core.target import Target


class Counted(Target):
    """A density that counts its evaluations, in rows; a mini-batch of B out of n data rows counts B/n.

    ``constant`` is added to the log density, and the density is moved by ``shift`` along every coordinate.
    """

    scores: float  #: rows scored
    products: float  #: rows of scores differentiated
    log_densities: float  #: rows whose log density was taken

    def __init__(self, target: Target, constant: float = 0.0, shift: float = 0.0) -> None:
        self._target, self._constant, self._shift = target, constant, shift
        self.dim, self.rows, self.prior_precision = target.dim, target.rows, target.prior_precision
        self.scores = self.products = self.log_densities = 0.0

    @property
    def charged(self) -> float:
        """The charge due: log densities are free up to the number of scores."""
        return self.scores + self.products + max(0.0, self.log_densities - self.scores)

    def log_density(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Counted; so is the score of differentiating it."""
        self.log_densities += x.shape[1]
        value = self._target.log_density(x - self._shift, batch) + self._constant
        return self._when_differentiated(value, "scores", x.shape[1])

    def score(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
        """Counted; so is the Hessian-vector product of differentiating it."""
        rows = x.shape[1] * (1.0 if batch is None else batch.shape[1] / (self.rows or 1))
        self.scores += rows
        value = self._target.score(x - self._shift, batch)
        return self._when_differentiated(value, "products", rows)

    def log_density_and_score(self, x: Tensor, batch: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Both counted."""
        self.scores += x.shape[1]
        self.log_densities += x.shape[1]
        density, score = self._target.log_density_and_score(x - self._shift, batch)
        return density + self._constant, score

    def _when_differentiated(self, value: Tensor, what: str, rows: float) -> Tensor:
        def book(_: Tensor) -> None:
            setattr(self, what, getattr(self, what) + rows)

        if value.requires_grad:
            value.register_hook(book)  # type: ignore[no-untyped-call]
        return value
