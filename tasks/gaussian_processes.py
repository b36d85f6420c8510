"""Gaussian processes with unknown length scales.

- ``gp-regr`` (posteriordb gp_pois_regr-gp_regr): 11 values, y ~ N(0, K + sigma I), K of squared exponentials with
  length rho and height alpha; rho ~ Gamma(25, 4), alpha ~ N(0, 2), sigma ~ N(0, 1), all positive. Note: sigma is a
  variance.
- ``gp-pois-regr`` (gp_pois_regr-gp_pois_regr): 11 counts, k ~ Poisson(exp(f)), f = L z with L L' = K + 1e-10 I,
  z ~ N(0, I). At the lengths of the posterior K is singular to 12 digits: computed in double precision whatever the
  states are.
- ``accel-gp`` (mcycle_gp-accel_gp): head acceleration in motorcycle accidents, y ~ N(mu(t), exp(s(t))), with 40 and
  20 basis functions of a Gaussian process; sd ~ t_3(36), lengths ~ InvGamma(1.12, 0.018), intercepts ~ t_3. Weights
  of the basis functions are standardised; two funnels of height and length remain.
"""

import math

import torch
from torch import Tensor

from ._posterior import ModelTarget, Place, Variables, posterior
from ._transforms import POSITIVE, Parameter, layout

_JITTER = 1e-10


class KernelTarget(ModelTarget):
    """What the two exact processes share; their matrices are double whatever the states are."""

    def prepare(self, data: Variables, place: Place) -> None:
        """Squared distances, responses and counts."""
        self._device = place(0).device
        x, self._y, self._counts = (torch.tensor(data[name], device=self._device) for name in ("x", "y", "k"))
        self._halves = -0.5 * (x[:, None] - x) ** 2
        self._eye = torch.eye(len(x), dtype=torch.float64, device=self._device)

    def factor(self, rho: Tensor, alpha: Tensor, noise: Tensor | float) -> Tensor:
        """Lower Cholesky factor of the kernel's matrix plus noise on its diagonal, (R, N, n, n)."""
        rho, alpha = rho.double()[..., None, None], alpha.double()[..., None, None]
        kernel = alpha**2 * (self._halves / rho**2).exp()
        return torch.linalg.cholesky_ex(kernel + noise * self._eye)[0]

    @staticmethod
    def prior(rho: Tensor, alpha: Tensor) -> Tensor:
        """Log density of the length and the height."""
        return 24 * rho.log() - 4 * rho - 0.5 * (alpha / 2) ** 2


class RegressionTarget(KernelTarget):
    """The unnormalised posterior of (log rho, log alpha, log sigma)."""

    def log_joint(self, rho: Tensor, alpha: Tensor, sigma: Tensor) -> Tensor:
        """Log of prior times likelihood."""
        factor = self.factor(rho, alpha, sigma.double()[..., None, None])
        z = torch.linalg.solve_triangular(factor, self._y.expand(*rho.shape, -1).unsqueeze(-1), upper=False)
        likelihood = -0.5 * z.square().sum((-2, -1)) - factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return likelihood.to(rho) + self.prior(rho, alpha) - 0.5 * sigma**2


class PoissonTarget(KernelTarget):
    """The unnormalised posterior of (log rho, log alpha, z)."""

    def log_joint(self, rho: Tensor, alpha: Tensor, f_tilde: Tensor) -> Tensor:
        """Log of prior times likelihood."""
        factor = self.factor(rho, alpha, _JITTER)
        f = (factor @ f_tilde.double().unsqueeze(-1)).squeeze(-1)
        likelihood = (self._counts * f - f.exp()).sum(-1)
        return likelihood.to(rho) + self.prior(rho, alpha) - 0.5 * f_tilde.square().sum(-1)


class AccelerationTarget(ModelTarget):
    """The unnormalised posterior of two processes by their basis functions."""

    def prepare(self, data: Variables, place: Place) -> None:
        """Responses, basis functions and their frequencies, of the mean and of the logarithm of the noise."""
        self._y = place(data["Y"])
        self._bases = [place(data[name].T) for name in ("Xgp_1", "Xgp_sigma_1")]
        self._frequencies = [place(data[name].squeeze(-1)) for name in ("slambda_1", "slambda_sigma_1")]

    def log_joint(
        self,
        Intercept: Tensor,
        sdgp_1: Tensor,
        lscale_1: Tensor,
        zgp_1: Tensor,
        Intercept_sigma: Tensor,
        sdgp_sigma_1: Tensor,
        lscale_sigma_1: Tensor,
        zgp_sigma_1: Tensor,
    ) -> Tensor:
        """Log of prior times likelihood."""
        mean, prior_of_mean = self._process(0, sdgp_1, lscale_1, zgp_1)
        noise, prior_of_noise = self._process(1, sdgp_sigma_1, lscale_sigma_1, zgp_sigma_1)
        log_sd = Intercept_sigma.unsqueeze(-1) + noise
        z = (self._y - Intercept.unsqueeze(-1) - mean) * (-log_sd).exp()
        prior = prior_of_mean + prior_of_noise + _student(Intercept, -13, 36) + _student(Intercept_sigma, 0, 10)
        return prior - (0.5 * z.square() + log_sd).sum(-1)

    def _process(self, which: int, sd: Tensor, length: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        """Values of a process at the rows, (R, N, n), and the log prior of its parameters."""
        decay = (-0.25 * (length.unsqueeze(-1) * self._frequencies[which]) ** 2).exp()
        height = sd * (math.sqrt(2 * math.pi) * length).sqrt()
        prior = _student(sd, 0, 36) - 2.124909 * length.log() - 0.0177 / length - 0.5 * z.square().sum(-1)
        return (height.unsqueeze(-1) * decay * z) @ self._bases[which], prior


def _student(x: Tensor, centre: float, scale: float) -> Tensor:
    """Log density of t_3, up to a constant."""
    return -2 * (((x - centre) / scale) ** 2 / 3).log1p()


_RHO, _ALPHA = Parameter("rho", None, POSITIVE), Parameter("alpha", None, POSITIVE)

GP_REGR = posterior(
    "gp-regr",
    "length, height and noise of a Gaussian process",
    "gaussian process",
    "posteriordb gp_pois_regr-gp_regr",
    layout(_RHO, _ALPHA, Parameter("sigma", None, POSITIVE)),
    RegressionTarget,
)

GP_POIS_REGR = posterior(
    "gp-pois-regr",
    "counts whose log rate is a Gaussian process",
    "gaussian process, hierarchical",
    "posteriordb gp_pois_regr-gp_pois_regr",
    layout(_RHO, _ALPHA, Parameter("f_tilde", 11)),
    PoissonTarget,
)

ACCEL_GP = posterior(
    "accel-gp",
    "mean and noise of head acceleration in accidents, two Gaussian processes",
    "gaussian process, hierarchical, funnel",
    "Silverman (1985), JRSS B 47; posteriordb mcycle_gp-accel_gp",
    layout(
        Parameter("Intercept"),
        Parameter("sdgp_1", None, POSITIVE),
        Parameter("lscale_1", None, POSITIVE),
        Parameter("zgp_1", 40),
        Parameter("Intercept_sigma"),
        Parameter("sdgp_sigma_1", None, POSITIVE),
        Parameter("lscale_sigma_1", None, POSITIVE),
        Parameter("zgp_sigma_1", 20),
    ),
    AccelerationTarget,
)
