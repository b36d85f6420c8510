"""Which tasks, algorithms and metrics exist, without importing any of them.

A row holds what ``list`` shows, so that listing imports neither torch nor MLflow; a test holds the rows
equal to the classes. Outsiders register under the entry-point groups ``parvibench.tasks`` and
``parvibench.algorithms``; duplicates are refused, naming both owners.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from .algorithm import Algorithm
    from .metric import Metric
    from .task import Task


@dataclass(frozen=True)
class TaskRow:
    """A task's row: ``target`` is ``module:attribute`` of a Task."""

    name: str
    target: str
    dim: int | None = None
    summary: str = ""
    tags: tuple[str, ...] = ()
    data: tuple[str, ...] = ()


@dataclass(frozen=True)
class AlgorithmRow:
    """An algorithm's row: ``target`` is ``module:attribute`` of an Algorithm class."""

    name: str
    target: str
    kind: str = ""
    summary: str = ""
    needs: tuple[str, ...] = ()
    citation: str = ""


@dataclass(frozen=True)
class MetricRow:
    """A metric's row: ``target`` is ``module:attribute`` of its function."""

    name: str
    target: str
    direction: str
    unit: str
    need: str
    when: str
    floor_ratio: bool
    summary: str

    @property
    def goal(self) -> str:
        """Which values are better, in words."""
        return f"{'neither' if self.direction == 'neutral' else self.direction} is better"


def _task(name: str, module: str, dim: int, summary: str, tags: str, data: str = "") -> TaskRow:
    return TaskRow(name, f"parvibench.tasks.{module}", dim, summary, tuple(tags.split()), tuple(data.split()))


def _algorithm(name: str, target: str, kind: str, summary: str, needs: str, citation: str) -> AlgorithmRow:
    return AlgorithmRow(name, f"parvibench.baselines.{target}", kind, summary, tuple(needs.split()), citation)


def _metric(
    name: str, target: str, direction: str, unit: str, need: str, when: str, ratio: bool, summary: str
) -> MetricRow:
    return MetricRow(name, f"parvibench.metrics.{target}", direction, unit, need, when, ratio, summary)


_TASKS = (
    _task("gmm5-2d", "mixtures:GMM5_2D", 2, "five Gaussians of sd 0.1 to 0.5; start beside the narrowest", "2d multimodal exact sifg"),
    _task("multimodal", "mixtures:MULTIMODAL", 2, "two unit Gaussians four apart", "2d multimodal exact ksivi"),
    _task("x-shaped", "mixtures:X_SHAPED", 2, "two crossed, strongly correlated Gaussians", "2d correlated exact ksivi"),
    _task("banana", "banana:BANANA", 2, "a correlated Gaussian bent along a parabola", "2d curved exact ksivi"),
    _task("correlated-2d", "correlated:CORRELATED_2D", 2, "a flat-topped ridge along a parabola; start at one end", "2d curved exact srld"),
    _task("gmm5-10d", "mixtures:GMM5_10D", 10, "five Gaussians of sd 0.1 to 0.5, far apart; start in between", "multimodal exact sifg"),
    _task("monomial-gamma", "heavy_tails:MONOMIAL_GAMMA", 2, "independent coordinates with tails exp(-0.3 |x|^0.9)", "2d exact sifg"),
    _task("student-t", "heavy_tails:STUDENT_T", 2, "two mixed Student t coordinates with two degrees of freedom", "2d heavy-tailed exact ksivi"),
    _task("banana-ksivi-code", "banana:BANANA_KSIVI_CODE", 2, "the banana of the KSIVI authors' code: opens downwards", "2d curved exact ksivi"),
    _task("gmm2-2d", "mixtures:GMM2_2D", 2, "two unit Gaussians at (1, 1) and (-1, -1); start beyond the former", "2d multimodal exact srld"),
    _task("gmm2-20d", "mixtures:GMM2_20D", 20, "two unit Gaussians 2 sqrt(2) apart on the diagonal; start beyond one", "multimodal exact srld"),
    _task("gaussian-100d", "mixtures:GAUSSIAN_100D", 100, "a Gaussian of variance 1/2; start far out", "gaussian log-concave exact srld"),
    _task("biased-start-gaussian", "mixtures:BIASED_START_GAUSSIAN", 2, "a unit Gaussian; start on its left half", "2d gaussian log-concave exact srld"),
    _task("funnel-10d", "heavy_tails:FUNNEL_10D", 10, "Neal's funnel: the scale of nine coordinates is the exponential of the first", "curved heavy-tailed exact"),
    _task("lapd-mixture-2", "mixtures:LAPD_MIXTURE_2", 2, "two unit Gaussians three apart along the first axis", "2d multimodal exact lapd"),
    _task("lapd-mixture-8", "mixtures:LAPD_MIXTURE_8", 8, "two unit Gaussians three apart along the first axis", "multimodal exact lapd"),
    _task("lapd-mixture-32", "mixtures:LAPD_MIXTURE_32", 32, "two unit Gaussians three apart along the first axis", "multimodal exact lapd"),
    _task("lapd-mixture-128", "mixtures:LAPD_MIXTURE_128", 128, "two unit Gaussians three apart along the first axis", "multimodal exact lapd"),
    _task("lapd-mixture-512", "mixtures:LAPD_MIXTURE_512", 512, "two unit Gaussians three apart along the first axis", "multimodal exact lapd"),
    _task("lapd-mixture-2048", "mixtures:LAPD_MIXTURE_2048", 2048, "two unit Gaussians three apart along the first axis", "multimodal exact lapd"),
    _task("diffusion-50", "diffusion:DIFFUSION_50", 50, "a double-well diffusion of 50 steps given 10 observations", "path correlated exact ksivi"),
    _task("diffusion-100", "diffusion:DIFFUSION_100", 100, "a double-well diffusion of 100 steps given 20 observations", "path correlated exact ksivi"),
    _task("diffusion-200", "diffusion:DIFFUSION_200", 200, "a double-well diffusion of 200 steps given 40 observations", "path correlated exact ksivi"),
    _task("diffusion-100-ksivi-code", "diffusion:DIFFUSION_100_KSIVI_CODE", 100, "a double-well diffusion of 100 steps given 20 observations, the authors' drift", "path correlated exact ksivi"),
    _task("linear-regression", "linear:LINEAR_REGRESSION", 3, "Bayesian linear regression, 60 rows in batches of 12, in closed form", "gaussian log-concave exact"),
    _task("blr-breast-cancer", "logistic:BREAST_CANCER", 31, "Bayesian logistic regression, 569 rows", "classification log-concave bundled"),
    _task("blr-waveform", "logistic:WAVEFORM", 22, "Bayesian logistic regression, 400 rows", "classification log-concave ksivi", "waveform"),
    _task("ica-synthetic", "ica:ICA_SYNTHETIC", 25, "unmixing of five generated signals, 1000 rows", "unmixing multimodal sifg"),
    _task("ica-meg", "ica:ICA_MEG", 25, "unmixing of five recorded channels, 17730 rows", "unmixing multimodal sifg", "meg-art"),
    _task("ica-meg-tempered", "ica:ICA_MEG_TEMPERED", 25, "unmixing of five recorded channels, log likelihood divided by 17730", "unmixing multimodal sifg", "meg-art"),
    _task("bnn-diabetes-sklearn", "bnn:DIABETES_SKLEARN", 603, "Bayesian network, 442 rows, 10 features", "regression network bundled"),
    _task("bnn-boston", "bnn:BOSTON", 753, "Bayesian network, 506 rows, 13 features", "regression network uci", "bostonHousing"),
    _task("bnn-concrete", "bnn:CONCRETE", 503, "Bayesian network, 1030 rows, 8 features", "regression network uci", "concrete"),
    _task("bnn-energy", "bnn:ENERGY", 503, "Bayesian network, 768 rows, 8 features", "regression network uci", "energy"),
    _task("bnn-kin8nm", "bnn:KIN8NM", 503, "Bayesian network, 8192 rows, 8 features", "regression network uci", "kin8nm"),
    _task("bnn-naval", "bnn:NAVAL", 903, "Bayesian network, 11934 rows, 16 features", "regression network uci", "naval-propulsion-plant"),
    _task("bnn-power", "bnn:POWER", 303, "Bayesian network, 9568 rows, 4 features", "regression network uci", "power-plant"),
    _task("bnn-protein", "bnn:PROTEIN", 553, "Bayesian network, 45730 rows, 9 features", "regression network uci", "protein-tertiary-structure"),
    _task("bnn-wine-red", "bnn:WINE_RED", 653, "Bayesian network, 1599 rows, 11 features", "regression network uci", "wine-quality-red"),
    _task("bnn-wine-white", "bnn:WINE_WHITE", 653, "Bayesian network, 4898 rows, 11 features", "regression network uci", "wine-quality-white"),
    _task("bnn-yacht", "bnn:YACHT", 403, "Bayesian network, 308 rows, 6 features", "regression network uci", "yacht"),
    _task("bnn-diabetes", "bnn:DIABETES", 503, "Bayesian network, 768 rows, 8 features", "regression network sifg", "sifg-diabetes"),
    _task("bnn-wine-binary", "bnn:WINE_BINARY", 653, "Bayesian network, 1599 rows, 11 features", "regression network sifg", "sifg-wine-binary"),
    _task("bnn-boston-sifg", "bnn_variants:BOSTON_SIFG", 753, "Bayesian network, 506 rows, 13 features, as in SIFG's code", "regression network variant sifg", "bostonHousing sifg-boston-permutation"),
    _task("bnn-concrete-sifg", "bnn_variants:CONCRETE_SIFG", 503, "Bayesian network, 1030 rows, 8 features, as in SIFG's code", "regression network variant sifg", "concrete"),
    _task("bnn-diabetes-sifg", "bnn_variants:DIABETES_SIFG", 503, "Bayesian network, 768 rows, 8 features, as in SIFG's code", "regression network variant sifg", "sifg-diabetes"),
    _task("bnn-power-sifg", "bnn_variants:POWER_SIFG", 303, "Bayesian network, 9568 rows, 4 features, as in SIFG's code", "regression network variant sifg", "sifg-power"),
    _task("bnn-protein-sifg", "bnn_variants:PROTEIN_SIFG", 553, "Bayesian network, 13543 rows, 9 features, as in SIFG's code", "regression network variant sifg", "sifg-protein"),
    _task("bnn-wine-binary-sifg", "bnn_variants:WINE_BINARY_SIFG", 653, "Bayesian network, 1599 rows, 11 features, as in SIFG's code", "regression network variant sifg", "sifg-wine-binary"),
    _task("bnn-boston-srld", "bnn_variants:BOSTON_SRLD", 751, "Bayesian network, 506 rows, 13 features, as in SRLD's code", "regression network variant srld", "bostonHousing"),
    _task("bnn-concrete-srld", "bnn_variants:CONCRETE_SRLD", 501, "Bayesian network, 1030 rows, 8 features, as in SRLD's code", "regression network variant srld", "concrete"),
    _task("bnn-energy-srld", "bnn_variants:ENERGY_SRLD", 501, "Bayesian network, 768 rows, 8 features, as in SRLD's code", "regression network variant srld", "energy"),
    _task("bnn-naval-srld", "bnn_variants:NAVAL_SRLD", 901, "Bayesian network, 11934 rows, 16 features, as in SRLD's code", "regression network variant srld", "naval-propulsion-plant"),
    _task("bnn-wine-red-srld", "bnn_variants:WINE_RED_SRLD", 651, "Bayesian network, 1599 rows, 11 features, as in SRLD's code", "regression network variant srld", "wine-quality-red"),
    _task("bnn-wine-white-srld", "bnn_variants:WINE_WHITE_SRLD", 651, "Bayesian network, 4898 rows, 11 features, as in SRLD's code", "regression network variant srld", "wine-quality-white"),
    _task("bnn-yacht-srld", "bnn_variants:YACHT_SRLD", 401, "Bayesian network, 307 rows, 6 features, as in SRLD's code", "regression network variant srld", "yacht"),
    _task("bnn-boston-ksivi", "bnn_variants:BOSTON_KSIVI", 751, "Bayesian network, 506 rows, 13 features, as in KSIVI's code", "regression network variant ksivi", "bostonHousing"),
    _task("bnn-concrete-ksivi", "bnn_variants:CONCRETE_KSIVI", 501, "Bayesian network, 1030 rows, 8 features, as in KSIVI's code", "regression network variant ksivi", "concrete"),
    _task("bnn-power-ksivi", "bnn_variants:POWER_KSIVI", 301, "Bayesian network, 9568 rows, 4 features, as in KSIVI's code", "regression network variant ksivi", "power-plant"),
    _task("bnn-wine-red-ksivi", "bnn_variants:WINE_RED_KSIVI", 651, "Bayesian network, 1599 rows, 11 features, as in KSIVI's code", "regression network variant ksivi", "wine-quality-red"),
    _task("bnn-protein-ksivi", "bnn_variants:PROTEIN_KSIVI", 551, "Bayesian network, 45730 rows, 9 features, as in KSIVI's code", "regression network variant ksivi", "protein-tertiary-structure"),
    _task("bnn-yacht-ksivi", "bnn_variants:YACHT_KSIVI", 401, "Bayesian network, 308 rows, 6 features, as in KSIVI's code", "regression network variant ksivi", "yacht"),
    _task("bandit-mushroom", "bandits:MUSHROOM", 22102, "eat a mushroom or not; network on 117 indicators", "bandit network sequential srld", "mushroom"),
    _task("bandit-wheel", "bandits:WHEEL", 10905, "five actions on a disc, a rare large reward at its rim; network", "bandit network sequential srld"),
)  # fmt: skip

_ALGORITHMS = (
    _algorithm("svgd", "svgd:SVGD", "particles", "Stein variational gradient descent", "score", "Liu & Wang (2016), arXiv:1608.04471"),
    _algorithm("sgld", "sgld:SGLD", "chains", "stochastic gradient Langevin dynamics", "score", "Welling & Teh (2011)"),
    _algorithm("ula", "ula:ULA", "chains", "unadjusted Langevin algorithm on exact scores", "full-batch score", "Roberts & Tweedie (1996)"),
    _algorithm("mala", "mala:MALA", "chains", "Metropolis-adjusted Langevin algorithm", "full-batch score", "Roberts & Tweedie (1996)"),
    _algorithm("hmc", "hmc:HMC", "chains", "Hamiltonian Monte Carlo, fixed number of leapfrog steps", "full-batch score", "Neal (2011), arXiv:1206.1901"),
    _algorithm("sifg", "sifg:SIFG", "particles", "semi-implicit functional gradient flow", "score", "Zhang, Cheng & Zhang (2024), arXiv:2410.17935"),
    _algorithm("ksivi", "ksivi:KSIVI", "generator", "kernel semi-implicit variational inference", "hvp score", "Cheng, Yu, Xie, Zhang & Zhang (2024), arXiv:2405.18997"),
    _algorithm("srld", "srld:SRLD", "chains", "Stein self-repulsive Langevin dynamics", "score", "Ye, Ren & Liu (2020), arXiv:2002.09070"),
    _algorithm("lapd", "lapd:LAPD", "chains", "Langevin algorithm with prior diffusion", "full-batch score", "Huang, Dong, Zou & Zhang (2024), arXiv:2403.06183"),
    _algorithm("lapd-decay", "lapd_decay:LAPDDecay", "chains", "Langevin algorithm with prior diffusion, decaying steps", "full-batch score", "Huang, Dong, Zou & Zhang (2024), arXiv:2403.06183, Theorem 4.2"),
    _algorithm("psgld", "psgld:PSGLD", "chains", "stochastic gradient Langevin dynamics, preconditioned by RMSprop", "score", "Li, Chen, Carlson & Carin (2016), arXiv:1512.07666"),
    _algorithm("sghmc", "sghmc:SGHMC", "chains", "stochastic gradient Hamiltonian Monte Carlo", "score", "Chen, Fox & Guestrin (2014), arXiv:1402.4102"),
    _algorithm("uld", "uld:ULD", "chains", "underdamped Langevin dynamics, exact integrator", "score", "Cheng, Chatterji, Bartlett & Jordan (2018), arXiv:1707.03663"),
    _algorithm("sr-uld", "sr_uld:SRULD", "chains", "self-repulsive underdamped Langevin dynamics", "score", "Ye, Ren & Liu (2020), arXiv:2002.09070, Section 5"),
    _algorithm("sr-sghmc", "sr_sghmc:SRSGHMC", "chains", "self-repulsive stochastic gradient Hamiltonian Monte Carlo", "score", "Ye, Ren & Liu (2020), arXiv:2002.09070, Section 5"),
    _algorithm("nuts", "nuts:NUTS", "chains", "the No-U-Turn sampler of Pyro, one chain", "full-batch score", "Hoffman & Gelman (2014), arXiv:1111.4246"),
    _algorithm("deep-ensemble", "deep_ensemble:DeepEnsemble", "particles", "independent Adam runs to the posterior's modes", "score", "Lakshminarayanan, Pritzel & Blundell (2017), arXiv:1612.01474"),
    _algorithm("map", "map:MAP", "particles", "one Adam run to a mode of the posterior", "score", "Kingma & Ba (2015), arXiv:1412.6980"),
    _algorithm("ada-sifg", "ada_sifg:AdaSIFG", "particles", "semi-implicit functional gradient flow with adaptive noise", "score", "Zhang, Cheng & Zhang (2024), arXiv:2410.17935"),
    _algorithm("l2-gf", "l2_gf:L2GF", "particles", "L2 functional gradient flow with a neural network", "score", "di Langosco, Fortuin & Strathmann (2021), arXiv:2107.10731"),
    _algorithm("ada-gwg", "ada_gwg:AdaGWG", "particles", "generalised Wasserstein gradient flow with adaptive exponent", "score", "Cheng, Zhang, Yu & Zhang (2023), arXiv:2310.16516"),
    _algorithm("mied", "mied:MIED", "particles", "mollified interaction energy descent", "full-batch score", "Li, Liu, Korba, Yurochkin & Solomon (2023), arXiv:2210.13400"),
    _algorithm("ksdd", "ksdd:KSDD", "particles", "kernel Stein discrepancy descent", "hvp score", "Korba, Aubin-Frankowski, Majewski & Ablin (2021), arXiv:2105.09994"),
    _algorithm("ksivi-ustat", "ksivi:KSIVIUStat", "generator", "kernel semi-implicit variational inference, U-statistic", "hvp score", "Cheng, Yu, Xie, Zhang & Zhang (2024), arXiv:2405.18997"),
    _algorithm("sivi", "sivi:SIVI", "generator", "semi-implicit variational inference", "score", "Yin & Zhou (2018), arXiv:1805.11183"),
    _algorithm("sivi-sm", "sivi_sm:SIVISM", "generator", "semi-implicit variational inference by score matching", "hvp score", "Yu & Zhang (2023), arXiv:2308.10014"),
    _algorithm("uivi", "uivi:UIVI", "generator", "unbiased implicit variational inference", "score", "Titsias & Ruiz (2019), arXiv:1808.02078"),
    _algorithm("mean-field", "mean_field:MeanField", "generator", "Gaussian variational inference, diagonal covariance", "score", "Kucukelbir, Tran, Ranganath, Gelman & Blei (2017), arXiv:1603.00788"),
    _algorithm("full-rank", "full_rank:FullRank", "generator", "Gaussian variational inference, full covariance", "score", "Kucukelbir, Tran, Ranganath, Gelman & Blei (2017), arXiv:1603.00788"),
    _algorithm("iaf", "iaf:IAF", "generator", "variational inference with inverse autoregressive flows", "score", "Kingma, Salimans, Jozefowicz, Chen, Sutskever & Welling (2016), arXiv:1606.04934"),
    _algorithm("exact", "anchors:Exact", "anchor", "fresh exact draws: the best a sampler can do", "exact", ""),
    _algorithm("initial", "anchors:Initial", "anchor", "the initial distribution: what doing nothing achieves", "", ""),
)  # fmt: skip

_METRICS = (
    _metric("sliced_w2", "transport:sliced_w2", "lower", "x", "reference", "every", True, "sliced 2-Wasserstein distance, 500 projections"),
    _metric("w2", "transport:w2", "lower", "x", "reference", "last", True, "exact 2-Wasserstein distance"),
    _metric("w1", "transport:w1", "lower", "x", "reference", "last", True, "exact 1-Wasserstein distance"),
    _metric("w2sq_window_5", "transport:w2sq_window_5", "lower", "x^2", "reference", "last", False, "squared 2-Wasserstein distance inside (-5, 5)^D"),
    _metric("w2sq_window_8", "transport:w2sq_window_8", "lower", "x^2", "reference", "last", False, "squared 2-Wasserstein distance inside (-8, 8)^D"),
    _metric("w2sq_window_10", "transport:w2sq_window_10", "lower", "x^2", "reference", "last", False, "squared 2-Wasserstein distance inside (-10, 10)^D"),
    _metric("mmd2", "mmd:mmd2", "lower", "1", "reference", "every", True, "squared MMD, V-statistic, RBF at the reference's median distance"),
    _metric("mmd2_u", "mmd:mmd2_u", "lower", "1", "reference", "every", False, "squared MMD, U-statistic, RBF at the reference's median distance"),
    _metric("mmd2_linear", "mmd:mmd2_linear", "lower", "x^2", "reference", "every", True, "squared MMD of the linear kernel: squared distance of the means"),
    _metric("mmd2_imq", "mmd:mmd2_imq", "lower", "1", "reference", "last", True, "squared MMD, V-statistic, IMQ at the reference's median distance"),
    _metric("energy_distance", "energy:energy_distance", "lower", "x", "reference", "last", True, "energy distance, V-statistic, no root"),
    _metric("kl_knn", "divergence:kl_knn", "lower", "nats", "reference", "every", False, "KL(samples || reference) by third nearest neighbours"),
    _metric("c2st", "classifier:c2st", "lower", "1", "reference", "last", False, "cross-validated accuracy of a classifier between samples and reference; 0.5 when alike"),
    _metric("ks_marginal", "marginals:ks_marginal", "lower", "1", "reference", "every", False, "largest Kolmogorov-Smirnov distance over coordinates"),
    _metric("ksd", "stein:ksd", "lower", "1", "target", "every", False, "kernel Stein discrepancy, V-statistic, IMQ kernel"),
    _metric("ksd_u", "stein:ksd_u", "lower", "1", "target", "last", False, "kernel Stein discrepancy, signed root of the U-statistic, IMQ kernel"),
    _metric("ksd_rbf", "stein:ksd_rbf", "lower", "1", "target", "last", False, "kernel Stein discrepancy, V-statistic, RBF kernel"),
    _metric("mean_error", "moments:mean_error", "lower", "sd", "moments", "every", False, "root mean square error of the means, in reference sd"),
    _metric("sd_error", "moments:sd_error", "lower", "1", "moments", "every", False, "root mean square relative error of the standard deviations"),
    _metric("correlation_error", "moments:correlation_error", "lower", "1", "reference", "every", False, "root mean square error of the correlations"),
    _metric("modes_found", "modes:modes_found", "higher", "count", "modes", "every", False, "modes holding at least 2% of the samples"),
    _metric("mode_weight_tv", "modes:mode_weight_tv", "lower", "1", "modes", "every", False, "total variation between the modes' weights and the samples' shares"),
    _metric("amari", "unmixing:amari", "lower", "1", "unmixing", "every", False, "Amari distance to the known unmixing matrix, mean over samples"),
    _metric("ess_bulk", "chains:ess_bulk", "higher", "draws", "path", "last", False, "bulk effective sample size, worst coordinate"),
    _metric("ess_tail", "chains:ess_tail", "higher", "draws", "path", "last", False, "effective sample size of the 5% and 95% quantiles, worst coordinate"),
    _metric("ess_per_evaluation", "chains:ess_per_evaluation", "higher", "draws/row", "path", "last", False, "bulk effective sample size per score evaluation"),
    _metric("ess_per_second", "chains:ess_per_second", "higher", "draws/s", "path", "last", False, "bulk effective sample size per second of compute"),
    _metric("autocorrelation", "chains:autocorrelation", "lower", "1", "path", "last", False, "correlation of neighbouring recorded positions, mean over coordinates"),
    _metric("rhat", "chains:rhat", "lower", "1", "path", "last", False, "rank-normalised split R-hat, worst coordinate"),
    _metric("rmse", "predictive:rmse", "lower", "y", "predictive", "every", False, "root mean square error of the predictive mean"),
    _metric("nll", "predictive:nll", "lower", "nats", "predictive", "every", False, "negative log likelihood of the predictive mixture per test row"),
    _metric("crps", "predictive:crps", "lower", "y", "predictive", "last", False, "continuous ranked probability score of the predictive mixture"),
    _metric("coverage", "predictive:coverage", "neutral", "1", "predictive", "last", False, "share of test rows inside the central 95% predictive interval"),
    _metric("predictive_mean_error", "predictive:predictive_mean_error", "lower", "sd", "predictive", "every", False, "root mean square error of the predictive mean against the certified posterior's, in its sd"),
    _metric("predictive_sd_error", "predictive:predictive_sd_error", "lower", "1", "predictive", "every", False, "root mean square relative error of the predictions' spread against the certified posterior's"),
    _metric("regret", "decisions:regret", "lower", "reward", "decisions", "every", False, "reward missed against the best actions in hindsight"),
    _metric("regret_percent", "decisions:regret_percent", "lower", "%", "decisions", "every", False, "regret in percent of the uniform policy's"),
    _metric("contexts", "decisions:contexts", "neutral", "count", "decisions", "every", False, "decisions made so far"),
    _metric("displacement", "motion:displacement", "neutral", "x", "motion", "last", False, "mean distance moved over the last fifth of the budget"),
    _metric("acceptance", "diagnostics:acceptance", "neutral", "1", "diagnostics", "every", False, "mean acceptance probability since the checkpoint before"),
    _metric("divergences", "diagnostics:divergences", "lower", "1", "diagnostics", "every", False, "share of divergent transitions since the checkpoint before"),
    _metric("tree_depth", "diagnostics:tree_depth", "neutral", "doublings", "diagnostics", "every", False, "mean doublings of a trajectory since the checkpoint before"),
    _metric("refit_loss", "diagnostics:refit_loss", "neutral", "1", "diagnostics", "every", False, "mean loss of the refitted network since the checkpoint before"),
    _metric("seconds", "cost:seconds", "lower", "s", "cost", "every", False, "steady compute time per replicate"),
    _metric("score_evaluations", "cost:score_evaluations", "lower", "rows", "cost", "every", False, "score evaluations charged per replicate"),
    _metric("peak_memory", "cost:peak_memory", "lower", "MiB", "cost", "last", False, "most memory held: the process's, or on a GPU PyTorch's"),
)  # fmt: skip


@cache
def tasks() -> Mapping[str, TaskRow]:
    """All tasks by name, built-in ones first."""
    rows = {row.name: row for row in _TASKS}
    _add_entry_points("parvibench.tasks", rows, lambda name, target: TaskRow(name, target))
    return rows


@cache
def algorithms() -> Mapping[str, AlgorithmRow]:
    """All algorithms by name, built-in ones first."""
    rows = {row.name: row for row in _ALGORITHMS}
    _add_entry_points("parvibench.algorithms", rows, lambda name, target: AlgorithmRow(name, target))
    return rows


@cache
def metrics() -> Mapping[str, MetricRow]:
    """All metrics by name."""
    return {row.name: row for row in _METRICS}


def load_task(name: str) -> Task:
    """The task of that name.

    Raises:
        UnknownNameError: with near names.
    """
    rows = tasks()
    if name not in rows:
        raise UnknownNameError(
            "task", name, rows, "A task from another package must be installed and listed under the "
            "entry-point group 'parvibench.tasks'.",
        )  # fmt: skip
    return _resolve(rows[name].target)


def load_algorithm(name: str) -> Algorithm:
    """The algorithm of that name, or of ``module:attribute`` / ``file.py:attribute``.

    Raises:
        UnknownNameError: with near names.
        InputError: the attribute is no algorithm.
    """
    from .algorithm import Algorithm

    rows = algorithms()
    if name not in rows and ":" not in name:
        raise UnknownNameError(
            "algorithm", name, rows, "An algorithm from another package must be installed and listed under "
            "the entry-point group 'parvibench.algorithms', or be named as 'module:Class'.",
        )  # fmt: skip
    found = _resolve(rows[name].target if name in rows else name)
    algorithm = found() if isinstance(found, type) else found
    if not isinstance(algorithm, Algorithm):
        raise InputError(f"{name} is a {type(algorithm).__name__}, not a parvibench Algorithm")
    return algorithm


@cache
def load_metric(name: str) -> Metric:
    """The metric of that name.

    Raises:
        UnknownNameError: with near names.
    """
    from .metric import Metric

    rows = metrics()
    if name not in rows:
        raise UnknownNameError("metric", name, rows)
    row: Any = rows[name]
    return Metric(
        row.name,
        _resolve(row.target),
        row.direction,
        row.unit,
        row.need,
        row.when,
        row.floor_ratio,
        row.summary,
    )


def _resolve(target: str) -> Any:
    """Import ``module:attribute`` or ``path/to/file.py:attribute``."""
    place, _, attribute = target.rpartition(":")
    try:
        module = _load_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
        return getattr(module, attribute)
    except (ImportError, FileNotFoundError, AttributeError) as error:
        raise InputError(f"cannot load {target!r}: {error}") from error


def _load_file(path: Path) -> Any:
    """Import a file plug-in under a name of its own (a second import gives the same module)."""
    name = "parvibench_plugin_" + path.resolve().as_posix().replace("/", "_").removesuffix(".py")
    if name in sys.modules:
        return sys.modules[name]
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _add_entry_points(group: str, rows: dict[str, Any], make: Any) -> None:
    owners = dict.fromkeys(rows, "parvibench")
    for point in entry_points(group=group):
        owner = point.dist.name if point.dist else "an unknown package"
        if point.name in rows:
            raise InputError(f"{group}: {point.name!r} is defined by both {owners[point.name]} and {owner}")
        owners[point.name] = owner
        rows[point.name] = make(point.name, point.value)
