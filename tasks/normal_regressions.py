"""Linear regressions with unknown noise: posteriors of coefficients b and log sigma.

    y_i ~ N(x_i.b, sigma)

Models, priors and data of posteriordb, named after its posteriors. All are close to Gaussian; what makes them hard is
their scale. Condition numbers are of the Hessian at the mode, and in brackets of the correlations alone, which is what
a diagonal mass matrix leaves.

- ``ark`` (arK-arK): an autoregression of order 5; alpha, beta ~ N(0, 10), sigma ~ half Cauchy(2.5).
  110 (120).
- ``sblri`` (sblri-blr): five independent features; beta, sigma ~ N(0, 10). 7,900 (1.9), as coefficients are known to
  0.001 and log sigma to 0.07: the control of methods that scale coordinates.
- ``earn-height`` (earnings-earn_height): earnings in dollars on height in inches, flat priors. Badly scaled on
  purpose: an intercept of -61,316 +- 9,521, correlated at -0.998 with a slope of 1,262 +- 142, and a log sigma of
  9.84 +- 0.02. 2e11 (1,200). The start is 61,000 away.
- ``kidscore`` (kidiq-kidscore_interaction): test scores on the mother's schooling, IQ and their product, neither
  centred; flat, sigma ~ half Cauchy(2.5). Correlations up to 0.99. 1e7 (3,900).
- ``mesquite`` (mesquite-mesquite): weights of 46 bushes, six features in their own units, flat priors. 5e6 (430).
- ``nes1996`` (nes1996-nes): party identification on eight features, flat priors; age in four classes. 3,800 (380).
- ``diamonds`` (diamonds-diamonds): log prices of 5,000 diamonds on 24 centred columns; b ~ N(0, 1),
  Intercept ~ t_3(8, 10), sigma ~ half t_3(10). Almost collinear columns make it ill-conditioned in any
  scaling of coordinates: 350,000 (260,000).

The likelihood rests on the least squares fit: sum of squares = rss + ||R (b - b*)||^2 with the triangular R of the
design, which loses no digits where residuals are small against y, and costs D^2 a point whatever the rows.
"""

import math

import numpy as np
import torch
from torch import Tensor

from parvibench.core.target import JointTarget

from ._posterior import Array, Place, Variables, half_student, posterior
from ._transforms import POSITIVE, Layout, Parameter, layout

Table = tuple[Array, Array]  #: design (n, D - 1) and responses (n,)


class RegressionTarget(JointTarget):
    """The unnormalised posterior of (b, log sigma), from a table of design and responses.

    ``noise``: degrees of freedom and scale of sigma's half Student prior; an infinite scale is a flat prior. ``sds``:
    standard deviations of the Gaussian priors, inf for flat ones; one for all coefficients, or one each.
    """

    def __init__(
        self,
        parameters: Layout,
        table: Table,
        place: Place,
        noise: tuple[float, float] = (1, math.inf),
        sds: float | Array = math.inf,
    ) -> None:
        self.dim = parameters.dim
        X, y = table
        q, r = np.linalg.qr(X)
        best = np.linalg.solve(r, q.T @ y)
        self._rows, self._noise = len(y), noise
        self._rss = float(np.sum((y - X @ best) ** 2))
        self._r, self._best = place(r), place(best)
        self._precision = place(np.broadcast_to(np.asarray(sds, float) ** -2.0, best.shape))

    def log_density_and_score(self, x: Tensor, batch: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Both at once."""
        b, log_sigma = x[..., :-1], x[..., -1:]
        precision = (-2 * log_sigma).exp()
        residual = (b - self._best) @ self._r.T
        squares = precision * (self._rss + residual.square().sum(-1, keepdim=True))
        prior, slope = half_student(log_sigma, *self._noise)
        pull = self._precision * b
        log_p = prior - 0.5 * squares - (self._rows - 1) * log_sigma - 0.5 * (pull * b).sum(-1, keepdim=True)
        by_sigma = squares - self._rows + 1 + slope
        return log_p.squeeze(-1), torch.cat([-precision * (residual @ self._r) - pull, by_sigma], -1)


class DiamondsTarget(RegressionTarget):
    """With a Student t prior on the intercept, the last coefficient."""

    _df, _centre, _width = 3.0, 8.0, 10.0

    def log_density_and_score(self, x: Tensor, batch: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Both at once."""
        log_p, score = super().log_density_and_score(x)
        z = (x[..., -2:-1] - self._centre) / self._width
        prior = -0.5 * (self._df + 1) * (z**2 / self._df).log1p()
        slope = -(self._df + 1) * z / (self._df + z**2) / self._width
        return log_p + prior.squeeze(-1), score + torch.nn.functional.pad(slope, (self.dim - 2, 1))


def _ones_and(*columns: Array) -> Array:
    return np.column_stack([np.ones_like(columns[0]), *columns])


def _ark(parameters: Layout, data: Variables, place: Place) -> RegressionTarget:
    y, k = data["y"], int(data["K"])
    lags = [y[k - j - 1 : len(y) - j - 1] for j in range(k)]
    return RegressionTarget(parameters, (_ones_and(*lags), y[k:]), place, (1, 2.5), 10)


def _sblri(parameters: Layout, data: Variables, place: Place) -> RegressionTarget:
    return RegressionTarget(parameters, (data["X"], data["y"]), place, (math.inf, 10), 10)


def _earn_height(parameters: Layout, data: Variables, place: Place) -> RegressionTarget:
    return RegressionTarget(parameters, (_ones_and(data["height"]), data["earn"]), place)


def _kidscore(parameters: Layout, data: Variables, place: Place) -> RegressionTarget:
    hs, iq = data["mom_hs"], data["mom_iq"]
    return RegressionTarget(parameters, (_ones_and(hs, iq, hs * iq), data["kid_score"]), place, (1, 2.5))


def _mesquite(parameters: Layout, data: Variables, place: Place) -> RegressionTarget:
    columns = ("diam1", "diam2", "canopy_height", "total_height", "density", "group")
    return RegressionTarget(parameters, (_ones_and(*(data[c] for c in columns)), data["weight"]), place)


def _nes(parameters: Layout, data: Variables, place: Place) -> RegressionTarget:
    ages = ((data["age_discrete"] == k).astype(float) for k in (2, 3, 4))
    others = (data[c] for c in ("educ1", "gender", "income"))
    design = _ones_and(data["real_ideo"], data["race_adj"], *ages, *others)
    return RegressionTarget(parameters, (design, data["partyid7"]), place)


def _diamonds(parameters: Layout, data: Variables, place: Place) -> DiamondsTarget:
    X = data["X"][:, 1:]
    design = np.column_stack([X - X.mean(0), np.ones(len(X))])
    sds = np.append(np.ones(X.shape[1]), math.inf)
    return DiamondsTarget(parameters, (design, data["Y"]), place, (3, 10), sds)


_SIGMA = Parameter("sigma", None, POSITIVE)


# fmt: off
ARK = posterior(
    "ark", "an autoregression of order five", "regression, time series", "posteriordb arK-arK",
    layout(Parameter("alpha"), Parameter("beta", 5), _SIGMA), _ark,
)
SBLRI = posterior(
    "sblri", "linear regression on five independent features", "regression", "posteriordb sblri-blr",
    layout(Parameter("beta", 5), _SIGMA), _sblri,
)
EARN_HEIGHT = posterior(
    "earn-height", "earnings on height in their own units: an intercept of -61,000",
    "regression, badly scaled, correlated", "posteriordb earnings-earn_height",
    layout(Parameter("beta", 2), _SIGMA), _earn_height,
)
KIDSCORE = posterior(
    "kidscore", "test scores of children on two features and their product, not centred",
    "regression, badly scaled, correlated", "posteriordb kidiq-kidscore_interaction",
    layout(Parameter("beta", 4), _SIGMA), _kidscore,
)
MESQUITE = posterior(
    "mesquite", "weights of 46 bushes on six features in their own units", "regression, badly scaled",
    "posteriordb mesquite-mesquite", layout(Parameter("beta", 7), _SIGMA), _mesquite,
)
NES1996 = posterior(
    "nes1996", "party identification on eight features", "regression, correlated", "posteriordb nes1996-nes",
    layout(Parameter("beta", 9), _SIGMA), _nes,
)
DIAMONDS = posterior(
    "diamonds", "log prices of diamonds on 24 columns, ill-conditioned", "regression, badly scaled, correlated",
    "posteriordb diamonds-diamonds", layout(Parameter("b", 24), Parameter("Intercept"), _SIGMA), _diamonds,
)
# fmt: on
