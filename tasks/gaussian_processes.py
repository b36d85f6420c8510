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
from collections.abc import Callable

import torch
from torch import Tensor

from ._posterior import Make, ModelTarget, Place, Variables, by_model, posterior
from ._transforms import POSITIVE, Layout, Parameter, layout

_JITTER = 1e-10


def _in_double(log_joint: Callable[..., Tensor]) -> Make:
    """The density of an exact process; its inputs and responses are double whatever the states are."""

    def make(parameters: Layout, data: Variables, place: Place) -> ModelTarget:
        names = ("x", "y", "k")
        return ModelTarget(parameters, log_joint, [torch.tensor(data[n], device=place(0).device) for n in names])

    return make


def _factor(x: Tensor, rho: Tensor, alpha: Tensor, noise: Tensor | float) -> Tensor:
    """Lower Cholesky factor of the kernel's matrix plus noise on its diagonal, (R, N, n, n)."""
    rho, alpha = rho.double()[..., None, None], alpha.double()[..., None, None]
    kernel = alpha**2 * (-0.5 * (x[:, None] - x) ** 2 / rho**2).exp()
    return torch.linalg.cholesky_ex(kernel + noise * torch.eye(len(x), dtype=x.dtype, device=x.device))[0]


def _prior(rho: Tensor, alpha: Tensor) -> Tensor:
    """Log density of the length and the height."""
    return 24 * rho.log() - 4 * rho - 0.5 * (alpha / 2) ** 2


def _regression(x: Tensor, y: Tensor, _: Tensor, rho: Tensor, alpha: Tensor, sigma: Tensor) -> Tensor:
    """Log joint density of the length, the height and the variance of the noise."""
    factor = _factor(x, rho, alpha, sigma.double()[..., None, None])
    z = torch.linalg.solve_triangular(factor, y.expand(*rho.shape, -1).unsqueeze(-1), upper=False)
    likelihood = -0.5 * z.square().sum((-2, -1)) - factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return likelihood.to(rho) + _prior(rho, alpha) - 0.5 * sigma**2


def _poisson(x: Tensor, _: Tensor, counts: Tensor, rho: Tensor, alpha: Tensor, f_tilde: Tensor) -> Tensor:
    """Log joint density of the length, the height and z."""
    f = (_factor(x, rho, alpha, _JITTER) @ f_tilde.double().unsqueeze(-1)).squeeze(-1)
    likelihood = (counts * f - f.exp()).sum(-1)
    return likelihood.to(rho) + _prior(rho, alpha) - 0.5 * f_tilde.square().sum(-1)


def _bases(data: Variables) -> tuple[object, ...]:
    """Responses; basis functions and their frequencies, of the mean and of the logarithm of the noise."""
    of = ("_1", "_sigma_1")
    return data["Y"], *(a for s in of for a in (data[f"Xgp{s}"].T, data[f"slambda{s}"].squeeze(-1)))


def _acceleration(
    y: Tensor, mean_basis: Tensor, mean_frequencies: Tensor, sd_basis: Tensor, sd_frequencies: Tensor, **of: Tensor
) -> Tensor:
    """Log joint density of two processes by their basis functions."""
    mean, prior_of_mean = _process(mean_basis, mean_frequencies, of["sdgp_1"], of["lscale_1"], of["zgp_1"])
    scales = of["sdgp_sigma_1"], of["lscale_sigma_1"], of["zgp_sigma_1"]
    noise, prior_of_noise = _process(sd_basis, sd_frequencies, *scales)
    log_sd = of["Intercept_sigma"].unsqueeze(-1) + noise
    z = (y - of["Intercept"].unsqueeze(-1) - mean) * (-log_sd).exp()
    intercepts = _student(of["Intercept"], -13, 36), _student(of["Intercept_sigma"], 0, 10)
    prior = prior_of_mean + prior_of_noise + intercepts[0] + intercepts[1]
    return prior - (0.5 * z.square() + log_sd).sum(-1)


def _process(basis: Tensor, frequencies: Tensor, sd: Tensor, length: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """Values of a process at the rows, (R, N, n), and the log prior of its parameters."""
    decay = (-0.25 * (length.unsqueeze(-1) * frequencies) ** 2).exp()
    height = sd * (math.sqrt(2 * math.pi) * length).sqrt()
    prior = _student(sd, 0, 36) - 2.124909 * length.log() - 0.0177 / length - 0.5 * z.square().sum(-1)
    return (height.unsqueeze(-1) * decay * z) @ basis, prior


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
    _in_double(_regression),
)

GP_POIS_REGR = posterior(
    "gp-pois-regr",
    "counts whose log rate is a Gaussian process",
    "gaussian process, hierarchical",
    "posteriordb gp_pois_regr-gp_pois_regr",
    layout(_RHO, _ALPHA, Parameter("f_tilde", 11)),
    _in_double(_poisson),
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
    by_model(_bases, _acceleration),
)
