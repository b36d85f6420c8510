"""Effects of the claims of Huang, Dong, Zou & Zhang (2024), arXiv:2403.06183 (LAPD): theory, as the paper has no experiments."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from parvibench.core.registry import load_task
from parvibench.harness.store.cell_files import CurveGrid

from .claim import Laboratory, log_ratio
from .gaussian import CURVATURES, SHARED

KL = "kl_projected"
DIMS = (2, 8, 32, 128, 512)
STEPS = tuple(0.8 * 0.5**k for k in range(8))
LEVEL = 0.1
#: Nats that the divergence's estimate, which may be negative, cannot tell from none.
NOTHING = 1e-3
CHAINS = 1000
ITERATIONS = 300


def exact_prior(name: str, **settings: Any) -> dict[str, Any]:
    """LAPD with the precision of the targets' own Gaussian part."""
    return {"name": name, "settings": {"prior_precision": 1.0, **settings}}


def growth(lab: Laboratory) -> Mapping[str, ArrayLike]:
    """Exponents of the least iterations to the level, over all steps, in the dimension."""
    least: dict[str, list[NDArray[np.float64]]] = {"lapd": [], "ula": []}
    for dim in DIMS:
        entries = {f"lapd @ {eta:g}": exact_prior("lapd", step_size=eta) for eta in STEPS}
        entries |= {f"ula @ {eta:g}": {"name": "ula", "settings": {"step_size": eta}} for eta in STEPS}
        runs = lab.run(
            f"lapd-mixture-{dim}",
            entries,
            given_steps=True,
            metrics=[KL],
            particles=CHAINS,
            budget={"iterations": ITERATIONS},
        )
        for name, found in least.items():
            curves = [runs.results.curve_grid(c) for c in runs.results.cells if c.label.startswith(name)]
            found.append(np.min([iterations_to(curve, LEVEL) for curve in curves], axis=0))
    return {
        "0.2 less LAPD's exponent": 0.2 - exponents(least["lapd"]),
        "ULA's exponent less 0.5": exponents(least["ula"]) - 0.5,
    }


def iterations_to(curves: CurveGrid, level: float) -> list[float]:
    """Iterations after which each replicate is at or below a level, linear in logarithms between checkpoints; inf: never."""
    found = []
    curve = curves.metric(KL)
    for r in np.flatnonzero(curve.measured.any(0)):
        here = curve.measured[:, r]
        at, values = curve.spent["iteration"][here, r], curve.values[here, r]
        below = np.flatnonzero(values <= level)
        if not len(below):
            found.append(math.inf)
        elif (i := int(below[0])) == 0 or values[i] <= 0:
            found.append(float(at[i]))
        else:
            share = math.log(values[i - 1] / level) / math.log(values[i - 1] / values[i])
            found.append(float(at[i - 1] * (at[i] / at[i - 1]) ** share))
    return found or [math.nan]


def exponents(least: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Slopes of log iterations over log dimension, (R,)."""
    logs = np.log(DIMS[: len(least)])
    return np.array([stats.linregress(logs, np.log(run)).slope for run in np.array(least).T])


def unbiased_where_only_the_prior_acts(lab: Laboratory) -> Mapping[str, ArrayLike]:
    """Variances of the coordinates but the first, whose law is N(0, 1)."""
    eta = 0.5
    methods = {"lapd": exact_prior("lapd", step_size=eta), "ula": {"name": "ula", "settings": {"step_size": eta}}}
    runs = lab.run("lapd-mixture-32", methods, metrics=[KL], particles=CHAINS, budget={"iterations": 200})
    log_variance = {name: np.log(np.square(runs.samples(name)[:, :, 1:]).mean((1, 2))) for name in methods}
    return {
        "LAPD's log variance, away from 0": -np.abs(log_variance["lapd"]),
        "ULA's log variance, away from -log(1 - eta / 2)": -np.abs(log_variance["ula"] + np.log(1 - eta / 2)),
    }


def becomes_ula(lab: Laboratory) -> Mapping[str, ArrayLike]:
    methods = {
        "lapd": {"name": "lapd", "settings": {"prior_precision": 1e-7, "step_size": 0.01}},
        "ula": {"name": "ula", "settings": {"step_size": 0.01}},
    }
    runs = lab.run("gmm5-2d", methods, metrics=["sliced_w2"], particles=100, budget={"iterations": 50}, dtype="float64")
    return {"distance of the paths": -np.abs(runs.samples("lapd") - runs.samples("ula")).max((1, 2))}


def decaying_steps(lab: Laboratory) -> Mapping[str, ArrayLike]:
    """The lowest divergence after so many iterations that any of the steps reaches, constant or decaying."""
    best = {}
    for name in ("lapd", "lapd-decay"):
        entries = {f"{name} @ {eta:g}": exact_prior(name, step_size=eta) for eta in STEPS}
        runs = lab.run(
            "lapd-mixture-8", entries, given_steps=True, metrics=[KL], particles=4000, budget={"iterations": 1000}
        )
        best[name] = np.maximum(np.min([runs.last(label, KL) for label in entries], axis=0), NOTHING)
    return {"log KL at the best step, constant less decaying": log_ratio(best["lapd"], best["lapd-decay"])}


def either_order(lab: Laboratory) -> Mapping[str, ArrayLike]:
    """Both orders of the two stages on the same noise: the second, after one more drift, is on the first one's path."""
    task, eta, steps = load_task("lapd-mixture-8"), 0.1, 100
    problem = task.problem(lab.replicates, 0, particles=CHAINS, dtype=torch.float64)
    start, drift = problem.init(), float(np.expm1(eta))

    def drifted(x: torch.Tensor) -> torch.Tensor:
        return x + drift * problem.score_f(x, 1.0)

    def diffused(w: torch.Tensor, number: int) -> torch.Tensor:
        problem.streams.step = number
        noise = problem.streams.normal("noise", w.shape[1:])
        return np.exp(-eta) * w + np.sqrt(-np.expm1(-2 * eta)) * noise

    first, second = start, drifted(start)
    for number in range(steps):
        first = diffused(drifted(first), number)
        second = drifted(diffused(second, number))
    return {"distance after the shift": -(drifted(first) - second).abs().amax((1, 2)).numpy()}


def shared_curvature(lab: Laboratory) -> Mapping[str, ArrayLike]:
    """Divergence at one step of ULA and of LAPD with the curvature that nearly all directions share, half and twice of it.

    On a Gaussian (``gaussian.py``), whose marginals all methods keep Gaussian and independent.
    """
    entries = {
        "ula": {"name": "ula", "settings": {"step_size": 0.2}},
        **{
            label: {"name": "lapd", "settings": {"prior_precision": share * SHARED, "step_size": 0.2}}
            for label, share in (("half", 0.5), ("shared", 1.0), ("twice", 2.0))
        },
    }
    task = f"{Path(__file__).parent / 'gaussian.py'}:STIFF"
    runs = lab.run(task, entries, metrics=["ksd"], particles=4000, budget={"iterations": 100})
    kl = {label: gaussian_divergence(runs.samples(label), CURVATURES.numpy()) for label in entries}
    return {
        "log KL, ULA over LAPD at the shared curvature": log_ratio(kl["ula"], kl["shared"]),
        "log KL, LAPD at half of it over at it": log_ratio(kl["half"], kl["shared"]),
        "log KL, LAPD at twice of it over at it": log_ratio(kl["twice"], kl["shared"]),
    }


def gaussian_divergence(x: NDArray[np.float64], curvatures: NDArray[np.float64]) -> NDArray[np.float64]:
    """KL, (R,), from N(0, diag(1 / curvatures)) of the Gaussian with the samples' (R, n, D) means and variances; about D/n too high."""
    v, m = x.var(1) * curvatures, x.mean(1) ** 2 * curvatures
    return 0.5 * (v + m - 1 - np.log(v)).sum(1)
