"""Traces of functions on fixed arrays: shared arithmetic whose results reach a sampler or a table rounded, thresholded or not at all.

A median's bandwidth is one of three, an effective size is capped, a mode is found or not: what goes in there is traced here
itself. Where code takes another way for large inputs, these are large enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from parvibench import statistics
from parvibench.core.reference import Floor
from parvibench.kernels import gram, heat, named
from parvibench.metrics import evaluate, floors, mmd, modes, pairwise, power, predictive, stein
from parvibench.nn import lbfgs, optim
from parvibench.nn.mlp import MLP
from parvibench.reference import build, checks, long_run, own_gates, predictive_run
from parvibench.reference.long_run import Whitened

from .metric_traces import Bowl, everything, numbers
from .noise import normal_numbers
from .trace import Trace, plain

_INF = math.inf
#: Modules all of whose public functions have a trace.
COMPLETE = ("statistics", "kernels.gram", "kernels.heat", "kernels.named", "nn.optim", "nn.lbfgs")


def _array(key: int, *shape: int) -> np.ndarray:
    return normal_numbers(key, *shape)


def _failing(x: np.ndarray) -> np.ndarray:
    x = x.copy()
    x.flat[2] = np.nan
    return x


def curves() -> pd.DataFrame:
    """Curves of three replicates of two tasks at four checkpoints."""
    rows = [
        (task, r, "w2", float(np.exp(_array(100 + r, 5)[c] - 0.5 * c)), 10 * 2**c, 2**c, 0.1 * c)
        for task in ("a", "b")
        for r in range(3)
        for c in range(4)
    ]
    columns = ["task", "replicate", "metric", "value", "score_evaluations", "iteration", "seconds"]
    return pd.DataFrame(rows, columns=columns)


def _times() -> dict[str, Any]:
    of_a_task = curves().query("task == 'a'")
    values, spent = (of_a_task[c].to_numpy().reshape(3, 4).T for c in ("value", "score_evaluations"))
    goals = {"a": (4, 0.4), "b": (3, 0.6)}
    return {k: statistics.hitting_times(values, spent, m * np.array([1, 2, 4]), n) for k, (n, m) in goals.items()}


#: Tables (tasks, algorithms) and (algorithms, replicates) with ties.
_TIED = np.array([[1.0, 2.0, 1.0, 3.0], [2.0, 2.0, 2.0, 1.0], [4.0, 1.0, 4.0, 4.0]])

#: Every public function of ``statistics`` on fixed tables.
_STATISTICS: dict[str, Callable[[], Any]] = {
    "median_interval": lambda: [
        statistics.median_interval([*_array(1, n), *more], level)
        for n, more, level in ((3, (), 0.95), (7, (), 0.95), (20, (_INF,), 0.95), (20, (math.nan,) * 2, 0.5), (1, (), 0.9))
    ],
    "paired_difference": lambda: [
        statistics.paired_difference(_array(2, n), _failing(_array(3, n)) - 0.2, overlap=share)
        for n, share in ((3, 0.0), (10, 0.0), (10, 0.25), (40, 0.0), (40, 0.1))
    ],
    "all_pairs": lambda: [
        c for x in (_array(4, 4, 9), _failing(_array(4, 4, 9))) for share in (0.0, 0.2)
        for exact in ((), [np.array([0.2, 1e-9, math.nan, 1e-4]), np.full(len(_TIED.T), 0.5)])
        for c in [statistics.all_pairs([np.exp(x + np.array([[0], [1], [0.3], [2]])), _TIED.T], [share, 0.0], exact)]
    ],
    "p_loses_more": lambda: statistics.p_loses_more(_TIED > 2),
    "p_no_better": lambda: [statistics.p_no_better(_array(2, 9), _failing(_array(3, 9)), share) for share in (0.0, 0.2)],
    "holm": lambda: [statistics.holm([0.01, 0.04, 0.5, 0.03]), statistics.holm([0.02, 0.04, 0.001], weights=[1, 3, 2])],
    "interquartile_mean": lambda: [
        statistics.interquartile_mean([np.exp(_array(6, 7)), [1.0, *more, 2.5]], np.random.default_rng(3))
        for more in ((), (_INF,), (_INF,) * 6)
    ],
    "hitting_times": lambda: [{k: np.where(np.isfinite(v), v, -1) for k, v in _times().items()}],
    "runtime_profile": lambda: [statistics.runtime_profile(_times(), [5, 10, 20, 80], 4)],
}  # fmt: skip


def _points() -> tuple[Tensor, Tensor, Tensor]:
    """Two sets of points (R, n, D), (R, m, D) and weights (R, n, m)."""
    return numbers(200, 2, 9, 3), numbers(201, 2, 6, 3), numbers(202, 2, 9, 6)


def _many() -> Tensor:
    """A row of more entries than medians are searched among all at once, and another, (2, m)."""
    return numbers(203, 2, 2**17 + 5).exp()


def _distances() -> tuple[Tensor, Tensor, Tensor]:
    """Points (R, n, D), their squared distances (R, n, n) and a bandwidth (R, 1, 1)."""
    x = 1.5 * numbers(204, 2, 12, 3)
    return x, gram.self_distances(x), numbers(205, 2, 1, 1).exp()


def _sampled() -> list[Any]:
    index = gram.sampled_pairs(120, torch.device("cpu"))
    assert index is not None
    return [index.double(), float(index.max()), str(gram.sampled_pairs(50, torch.device("cpu")))]


_KERNELS: dict[str, Callable[[], Any]] = {
    "gram.squared_distances": lambda: gram.squared_distances(*_points()[:2]),
    "gram.self_distances": lambda: gram.self_distances(_points()[0]),
    "gram.exp_": lambda: gram.exp_(-_many()[:, :50]),
    "gram.median": lambda: [gram.median(x) for x in (_many(), _many()[:, :7], _many()[:, :8])],
    "gram.median_bandwidth": lambda: [
        gram.median_bandwidth(_distances()[1]), gram.median_bandwidth(_distances()[1], torch.arange(20) * 7),
    ],
    "gram.lower_median": lambda: [gram.lower_median(x) for x in (_many(), _many()[:, :8])],
    "gram.lower_median_bandwidth": lambda: gram.lower_median_bandwidth(_distances()[1]),
    "gram.sampled_pairs": _sampled,
    "heat.heat_error": lambda: heat.heat_error(*_distances()),
    "heat.heat_bandwidth": lambda: heat.heat_bandwidth(*_distances()),
    "gram.log_sum_exp": lambda: [gram.log_sum_exp(30 * _points()[0], dim) for dim in (1, -1)],
    "gram.mixture_score": lambda: [
        gram.mixture_score(*_points()[:2], sigma) for sigma in (0.7, numbers(205, 2, 1, 1).exp())
    ],
    "named.pull_back": lambda: [
        named.pull_back(kernel, *_points(), h, through)
        for kernel in ("gaussian", "imq", "riesz", "laplace") for h in (None, 0.8) for through in (False, True)
    ],
}  # fmt: skip


def _network(activation: Any, width: int) -> list[Any]:
    """All passes of a network, whose layers are narrow or wide."""
    net = MLP((3, width, width, 2), activation)
    parameters = net.initialise(torch.from_numpy(normal_numbers(210, 2, net.n_parameters)))
    x, tangent, grad = numbers(211, 2, 5, 3), numbers(212, 2, 5, 3), numbers(213, 2, 5, 2)
    values, tangents = net.forward(parameters, x), net.forward_tangent(parameters, x, tangent)
    back = net.backward(parameters, values, grad), net.backward_input(parameters, values, grad)
    return [*values[1:], *back, *tangents, net.backward_tangent(parameters, tangents, torch.cat((grad, -grad), 1))]


def _optimised(rule: Callable[..., Any], **more: Any) -> list[Any]:
    """Two steps of an optimiser."""
    x, moments = numbers(214, 2, 6), optim.Moments.start(numbers(214, 2, 6))
    for key in (215, 216):
        x, moments = rule(x, numbers(key, 2, 6), moments, 0.1, **more)
    return [x, *moments]


def _adam_() -> list[Any]:
    x, first, second = numbers(214, 2, 6).clone(), numbers(215, 2, 6).clone(), numbers(216, 2, 6).square()
    moments = optim.Moments(first, second, 3)
    optim.adam_(x, numbers(217, 2, 6), moments, 0.1, (0.8, 0.95), 1e-6)
    return [x, *moments]


def _quadratic(x: Tensor) -> tuple[Tensor, Tensor]:
    """Log density and score of a bent hill."""
    scale = torch.tensor([1.0, 6.0, 0.3], dtype=x.dtype)
    bent = x + 0.2 * x.roll(1, -1).square()
    back = 0.4 * x * (scale * bent).roll(-1, -1)
    return -0.5 * (scale * bent.square()).sum(-1), -(scale * bent + back)


def _climb() -> list[Any]:
    """Paths of L-BFGS after every few evaluations, and its estimate of the Hessian's inverse."""
    paths, found = lbfgs.start(2 * numbers(218, 2, 3, 3), 3), []
    for k in range(12):
        paths, accepted = lbfgs.advance(paths, *_quadratic(paths.trial), longest=30)
        if k % 3 == 2:
            estimate = lbfgs.inverse_hessian(paths.alpha, paths.s, paths.z)
            found += [paths.x, paths.t, paths.alpha, accepted.double(), estimate.times(paths.score), estimate.g]
    return found


_NETWORKS: dict[str, Callable[[], Any]] = {
    **{
        f"mlp {activation} {width}": partial(_network, activation, width)
        for activation in ("tanh", "relu", "leaky-relu") for width in (5, 18)
    },
    "optim.adam": lambda: [_optimised(optim.adam), _optimised(optim.adam, betas=(0.5, 0.9), epsilon=0.01)],
    "optim.adam_": _adam_,
    "optim.sgd_nesterov": lambda: [_optimised(optim.sgd_nesterov), _optimised(optim.sgd_nesterov, momentum=0.0)],
    "optim.rms_normalised": lambda: [
        optim.rms_normalised(size * numbers(219, 2, 6), size**2 * numbers(220, 2, 6).square(), first)
        for size in (1.0, 1e-5) for first in (True, False)
    ],
    "optim.step_decay": lambda: [optim.step_decay(steps, 0.7, 10) for steps in (0, 9, 10, 35)],
    "lbfgs.advance": _climb,
    "lbfgs.inverse_hessian": lambda: list(
        lbfgs.inverse_hessian(numbers(221, 1, 2, 3).exp(), numbers(222, 1, 2, 2, 3), numbers(222, 1, 2, 2, 3) + 1)
    ),
    "lbfgs.start": lambda: list(lbfgs.start(numbers(223, 1, 2, 3), 2)),
    "lbfgs.at_rest": lambda: [lbfgs.at_rest(x) * 1e9 for x in (50 * numbers(227, 2, 3), numbers(228, 2, 3).float())],
    "lbfgs.where": lambda: lbfgs.where(numbers(224, 2, 3) > 0, numbers(225, 2, 3, 4), numbers(226, 2, 3, 4)),
}  # fmt: skip


def _tied_p_values(p_value: Callable[..., float] = floors.p_value) -> list[Any]:
    """Against floors of few different values."""
    values = np.sort(np.round(np.abs(_array(230, 60)), 1))
    return [
        p_value(metric, found, Floor(100, values))
        for metric in ("w2", "modes_found")
        for found in (values[30], values[-1], [values[3], values[50]], math.nan)
    ]


_METRICS: dict[str, Callable[[], Any]] = {
    "modes.radius": lambda: [modes.radius(dim) for dim in (1, 2, 5, 20)],
    "pairwise.median_distance": lambda: [pairwise.median_distance(numbers(231, 40, 3), most) for most in (2000, 15)],
    "pairwise.thin": lambda: [pairwise.thin(numbers(231, 40, 3), most) for most in (7, 40, 39)],
    "mmd.kernel_mean": lambda: [
        mmd.kernel_mean(numbers(231, 40, 3), numbers(232, 30, 3), 1.3, kernel) for kernel in (mmd.gaussian, mmd.inverse_multiquadric)
    ],
    "mmd.mean_distance": lambda: mmd.mean_distance(numbers(231, 40, 3), numbers(232, 30, 3)),
    "stein.bootstrapped_ksd": lambda: stein.bootstrapped_ksd(numbers(233, 30, 4), Bowl(), 40, torch.Generator().manual_seed(2)),
    "predictive.relative_errors": lambda: predictive.relative_errors(
        numbers(234, 2, 5), numbers(235, 2, 5).exp(), numbers(236, 2, 5), numbers(237, 2, 5).exp()
    ),
    "power.detected_alterations": lambda: [power.detected_alterations(m) for m in ("sliced_w2", "mmd2", "mode_weight_tv")],
    "evaluate.chain_diagnostics": lambda: [
        evaluate.chain_diagnostics(numbers(238, count, 60, 3).cumsum(1) * torch.tensor([0.1, 0.0, 0.5]) + numbers(239, count, 60, 3))
        for count in (1, 4)
    ],
    "evaluate.serially_correlated": lambda: [
        evaluate.serially_correlated(share * numbers(240, 80, dim).cumsum(0) + numbers(241, 80, dim))
        for share in (0.0, 0.1, 0.2, 0.3, 0.5) for dim in (1, 40)
    ],
    "floors.p_value": _tied_p_values,
    "floors.exact_p_value": partial(_tied_p_values, floors.exact_p_value),
    "floors.rounded": lambda: floors.rounded(np.exp(_array(242, 20))),
}  # fmt: skip


def _chains(key: int) -> Tensor:
    """Chains (T, C, D) that have nearly forgotten their start."""
    return 0.1 * numbers(key, 60, 4, 3).cumsum(0) + numbers(key + 1, 60, 4, 3) + 0.3 * numbers(key + 2, 1, 4, 3)


def _whitened() -> list[Any]:
    """Densities and scores in the coordinates of draws and of the mode, and the way there and back."""
    z, found = numbers(250, 2, 5, 4), []
    for white in (
        Whitened.from_draws(Bowl(), 1.5 * numbers(251, 40, 4) + 1),
        Whitened.at_mode(Bowl(), numbers(252, 4)),
    ):
        found += [
            white.log_density(z),
            white.score(z),
            *white.log_density_and_score(z),
            white.from_base(white.to_base(z[0])),
        ]
    return found


def _gates() -> list[Any]:
    found = long_run.diagnostics(_chains(253))
    effort = own_gates.Effort()
    return [
        own_gates.mixing_gates(everything(), found), own_gates.mixing_gates(everything(), found, effort), own_gates.summary(found),
        own_gates.density_gates(everything(), numbers(254, 80, 4)), own_gates.density_gates(everything(), _chains(253)),
        own_gates.grade_of(own_gates.mixing_gates(everything(), found), found),
        [own_gates.round_up(v) for v in (0.3, 11.0, 1234.0)],
    ]  # fmt: skip


def _skew_checks() -> list[Any]:
    terms = numbers(255, 90, 6).exp() - math.exp(0.5)
    return [checks.largest_z("skew", terms), checks.largest_z("plain", numbers(256, 90, 6) + 0.3)]


def _sources() -> list[Any]:
    """Which draws are shipped and which make floors, of a long run and of an exact sampler."""
    draws = numbers(261, 30, 4, 4)
    run = long_run.LongRun(draws, {"check": numbers(262, 30, 4, 4)}, {"main": {}})
    found = []
    with mock.patch.multiple(build, ROWS=24, long_run=lambda *_: run, main_draws=lambda *_: draws):
        for source in (build.run_source(everything()), build.exact_source(everything())):
            sets = list(source.sets(10))
            found += [
                source.exact,
                source.rows,
                source.mean,
                source.sd,
                source.record,
                source.others,
                sets[0],
                len(sets),
            ]
        return [*found, next(iter(build.run_sets(everything())(10))), [build.shipped_rows(dim) for dim in (2, 10**6)]]


def _predictive_floors() -> Any:
    with mock.patch.object(predictive_run, "SETS", 12):
        return predictive_run.predictive_floors([_chains(259), _chains(260)])


_REFERENCES: dict[str, Callable[[], Any]] = {
    "long_run.diagnostics": lambda: long_run.diagnostics(_chains(253)),
    "long_run.agreement": lambda: long_run.agreement(*map(long_run.diagnostics, (_chains(253), _chains(257)))),
    "long_run.recorded": lambda: long_run.recorded(long_run.PILOT, 0.77, long_run.diagnostics(_chains(253)), 1.25),
    "long_run.correlations": lambda: long_run.correlations(_chains(253)),
    "long_run plans": lambda: [long_run.PILOT, long_run.MAIN, long_run.CHECK, long_run.BIASED, long_run.FROM_START],
    "shared_checks.largest_z": _skew_checks,
    "shared_checks.z_limit": lambda: [checks.z_limit(n, draws) for n in (1, 40) for draws in (None, 30)],
    "shared_checks.stein_checks": lambda: checks.stein_checks(numbers(258, 90, 4), -numbers(258, 90, 4) + 0.2),
    "predictive_run.predictive_floors": _predictive_floors,
    "build": _sources,
    "own_gates": _gates,
    "whitening": _whitened,
}  # fmt: skip

_FUNCTIONS: Mapping[str, Callable[[], Any]] = {
    **{f"statistics.{name}": take for name, take in _STATISTICS.items()},
    **{f"kernels.{name}": take for name, take in _KERNELS.items()},
    **{f"nn.{name}": take for name, take in _NETWORKS.items()},
    **{f"metrics.{name}": take for name, take in _METRICS.items()},
    **{f"reference.{name}": take for name, take in _REFERENCES.items()},
}


def function_traces() -> Iterator[Trace]:
    """One trace a function."""
    for name, take in _FUNCTIONS.items():
        yield Trace(f"functions {name}", lambda take=take: {"values": plain(take())})  # type: ignore[misc]
