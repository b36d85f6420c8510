"""Effects of the claims of Zhang, Cheng & Zhang (2024), arXiv:2410.17935 (SIFG)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from parvibench.core.algorithm import take_steps
from parvibench.core.metric import Context
from parvibench.core.registry import load_method, load_task
from parvibench.metrics.divergence import kl_knn

from .claim import Laboratory, Measured, late, log_ratio, spread_ratio

FLOWS = ("sifg", "ada-sifg", "l2-gf", "ada-gwg")
COMPARED = ("sifg", "l2-gf", "ada-gwg")
MODES = 5
POINTS, ITERATIONS, FURTHER_SETS = 1000, 2000, 16
FIRST = "KL of the first set, away from the mean of sixteen more, in their spreads"
#: Nats of the divergence's estimate that count as none.
NOTHING = 0.01


def flows(lab: Laboratory, task: str, metrics: Sequence[str], names: Sequence[str] = FLOWS) -> Measured:
    """The methods with their presets of a task."""
    methods = {name: {"name": name, "preset": task} for name in names}
    return lab.run(task, methods, budget={"iterations": ITERATIONS}, metrics=list(metrics))


def finds_all_modes(lab: Laboratory) -> Mapping[str, ArrayLike]:
    runs = flows(lab, "gmm5-2d", ["modes_found"], COMPARED)
    found = {name: runs.last(name, "modes_found") for name in COMPARED}
    return {
        "modes of SIFG less 5": found["sifg"] - MODES,
        "modes of SIFG less L2-GF's": found["sifg"] - found["l2-gf"],
        "modes of SIFG less Ada-GWG's": found["sifg"] - found["ada-gwg"],
    }


def keeps_moving(lab: Laboratory) -> Mapping[str, ArrayLike]:
    runs = flows(lab, "gmm5-2d", ["displacement"], COMPARED)
    moved = {name: runs.last(name, "displacement") for name in COMPARED}
    return {
        "log ratio of SIFG's moves to L2-GF's": log_ratio(moved["sifg"], moved["l2-gf"]),
        "log ratio of SIFG's moves to Ada-GWG's": log_ratio(moved["sifg"], moved["ada-gwg"]),
    }


def faster_than(task: str, fast: str, slow: str) -> dict[str, tuple[str, str, str]]:
    return {f"{task}: {slow} over {fast}, mean log KL": (task, fast, slow)}


ORDER = faster_than("gmm5-10d", "sifg", "l2-gf")
ADAPTED = faster_than("gmm5-10d", "ada-sifg", "sifg") | faster_than("monomial-gamma", "ada-sifg", "sifg")
GAMMA = faster_than("monomial-gamma", "sifg", "l2-gf") | faster_than("monomial-gamma", "sifg", "ada-gwg")


def speeds(lab: Laboratory, compared: Mapping[str, tuple[str, str, str]]) -> dict[str, ArrayLike]:
    """How much lower the faster method's log divergence is over the checkpoints."""
    runs = {task: flows(lab, task, ["kl_knn"]) for task, _, _ in compared.values()}
    return {name: slower(runs[task], fast, slow) for name, (task, fast, slow) in compared.items()}


def falls_faster_in_ten_dimensions(lab: Laboratory) -> Mapping[str, ArrayLike]:
    return speeds(lab, ORDER)


def falls_faster_with_adapted_noise(lab: Laboratory) -> Mapping[str, ArrayLike]:
    return speeds(lab, ADAPTED)


def slower(runs: Measured, fast: str, slow: str) -> NDArray[np.float64]:
    """Mean log divergence of the slow method less the fast one's, (R,)."""
    return late(runs.curve(slow, "kl_knn"), NOTHING) - late(runs.curve(fast, "kl_knn"), NOTHING)


def steadier(lab: Laboratory) -> Mapping[str, ArrayLike]:
    """Under the paper's settings on the runs of its figure, at full length."""
    if lab.condition == "paper":
        runs = lab.rows("sifg-monomial-gamma", "*")
    else:
        runs = flows(lab, "monomial-gamma", ["kl_knn"])
    end = {name: runs.last(name, "kl_knn") for name in COMPARED}
    return {
        **{name: slower(runs, fast, slow) for name, (_, fast, slow) in GAMMA.items()},
        "spread of KL over seeds, L2-GF over SIFG": spread_ratio(end["l2-gf"], end["sifg"]),
        "spread of KL over seeds, Ada-GWG over SIFG": spread_ratio(end["ada-gwg"], end["sifg"]),
    }


def many_sets_from_one_run(lab: Laboratory) -> Mapping[str, ArrayLike]:
    """Sixteen further sets of draws from the carried particles of one run, beside the first."""
    task, method = load_task("gmm5-2d"), load_method("sifg")
    settings = method.make_settings(method.expand_preset({"preset": "gmm5-2d"}))
    problem = task.problem(lab.replicates, 0, particles=POINTS)
    start = method.init(problem, settings, problem.streams, ITERATIONS)
    [(state, _)] = deque(islice(take_steps(method.step, problem, settings, start), ITERATIONS), maxlen=1)
    sets = []
    for problem.streams.step in range(ITERATIONS, ITERATIONS + FURTHER_SETS + 1):
        sets.append(method.output(problem, settings, state, POINTS, problem.streams).double())
    context = Context(task, task.reference())
    values = np.array([kl_knn(x, context).numpy() for x in sets])
    apart = np.array([(x - sets[0]).norm(dim=-1).mean(1).numpy() for x in sets[1:]])
    spread = values[1:].std(0)
    return {
        FIRST: -np.abs(values[0] - values[1:].mean(0)) / spread,
        "mean distance between sets over sigma": apart.mean(0) / settings.sigma,
    }


UNMIXING = "ica-synthetic"
NETWORK = "bnn-boston-sifg"
RIVALS = ("svgd", "l2-gf", "ada-gwg")
#: Sets on which the text calls Ada-SIFG best or tied, and with whom it is compared there.
BEST = {"boston": RIVALS, "diabetes": RIVALS, "wine-binary": RIVALS, "power": ("l2-gf", "ada-gwg")}


def few_particles(lab: Laboratory) -> Mapping[str, ArrayLike]:
    """Amari distances at 10 and at 100 particles; the generated signals, whose unmixing is known, stand for the recording."""
    names = ("sifg", "l2-gf", "ada-gwg", "svgd")
    of = {}
    for n in (10, 100):
        methods = {name: {"name": name, "preset": "ica-meg-tempered"} for name in names}
        protocol: dict[str, Any] = {"particles": n, "samples": n, "budget": {"iterations": 2000}, "metrics": ["amari"]}
        runs = lab.run(UNMIXING, methods, **protocol)
        of |= {(name, n): runs.last(name, "amari") for name in names}
    lost = {name: log_ratio(of[name, 10], of[name, 100]) for name in names}
    return {
        **{
            f"log distance at {n}, {b} over SIFG": log_ratio(of[b, n], of["sifg", n])
            for n in (10, 100)
            for b in names[1:3]
        },
        "log distance, 10 over 100 particles, SVGD less SIFG": lost["svgd"] - lost["sifg"],
    }


def noise_repaired(lab: Laboratory) -> Mapping[str, ArrayLike]:
    methods = {
        "kept wrong": {"name": "sifg", "preset": NETWORK, "settings": {"sigma": 0.1}},
        "right": {"name": "sifg", "preset": NETWORK, "settings": {"sigma": 0.01}},
        "adapted": {"name": "ada-sifg", "preset": NETWORK, "settings": {"sigma": 0.1}},
    }
    runs = lab.run(NETWORK, methods, metrics=["rmse"], budget={"iterations": 2000})
    error = {label: runs.last(label, "rmse") for label in methods}
    return {
        "log RMSE, SIFG(0.1) over Ada-SIFG(0.1)": log_ratio(error["kept wrong"], error["adapted"]),
        "log RMSE, SIFG(0.01) over Ada-SIFG(0.1)": log_ratio(error["right"], error["adapted"]),
        "0.1 less the noise at the end": 0.1 - runs.last("adapted", "sigma"),
    }


def best_or_tied(lab: Laboratory) -> Mapping[str, ArrayLike]:
    names = ("ada-sifg", *RIVALS)
    runs = lab.rows("sifg-table-1", *(f"bnn-{s}-sifg/{name}" for s in BEST for name in names))
    effects = {}
    for name, rivals in BEST.items():
        error = {m: runs.last(m, "rmse", f"bnn-{name}-sifg") for m in names}
        effects[f"{name}: log RMSE, best rival over Ada-SIFG"] = log_ratio(
            np.min([error[rival] for rival in rivals], axis=0), error["ada-sifg"]
        )
    return effects


def states(name: str, task: str, preset: str, replicates: int, iterations: int, **own: Any) -> Iterator[Any]:
    """States of a method along a run."""
    method, problem = load_method(name), load_task(task).problem(replicates, 0, particles=100)
    settings = method.make_settings(method.expand_preset({"preset": preset, **own}))
    start = method.init(problem, settings, problem.streams, iterations)
    return (state for state, _ in islice(take_steps(method.step, problem, settings, start), iterations))


def moments_bounded(lab: Laboratory) -> Mapping[str, ArrayLike]:
    """The fifth absolute moment of the particles, whether the second half of a run brings more of it."""
    found = [
        state.x.norm(dim=-1).pow(5).mean(1).double().numpy()
        for state in states("ada-sifg", NETWORK, NETWORK, lab.replicates, 1000)
    ]
    moments = np.array(found)
    return {"log largest fifth moment, first half over second": log_ratio(moments[:500].max(0), moments[500:].max(0))}


#: Iterations between which the slope of the mean squared gradient is taken.
FALL = (20, 400)


def gradients_fall(lab: Laboratory) -> Mapping[str, ArrayLike]:
    """On a Gaussian, particles' law taken as the Gaussian of their moments, whose squared gradient is known."""
    task = load_task("correlated-2d")
    mean, covariance = (torch.as_tensor(v, dtype=torch.float64) for v in _moments(task))
    squared = np.array(
        [
            fisher_divergence(state.x.double(), 0.1, mean, covariance)
            for state in states("sifg", "correlated-2d", "gmm5-2d", lab.replicates, FALL[1], sigma=0.1, step_size=0.01)
        ]
    )
    means = squared.cumsum(0) / np.arange(1, len(squared) + 1)[:, None]
    first, last = FALL
    slope = np.log(means[last - 1] / means[first - 1]) / np.log(last / first)
    return {"slope of the log mean squared gradient, -1/2 less it": -0.5 - slope}


def _moments(task: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    draws = task.reference().draws.double().numpy()
    return draws.mean(0), np.cov(draws.T)


def fisher_divergence(z: Tensor, sigma: float, mean: Tensor, covariance: Tensor) -> NDArray[np.float64]:
    """E || grad log q - grad log p ||^2 under q, (R,): q the Gaussian of the moments of z (R, N, D) with noise sigma, p N(mean, covariance)."""
    m = z.mean(1)
    centred = z - m.unsqueeze(1)
    v = centred.mT @ centred / z.shape[1] + sigma**2 * torch.eye(z.shape[2], dtype=z.dtype)
    precision = torch.linalg.inv(covariance)
    gap = precision - torch.linalg.inv(v)
    shift = (m - mean) @ precision
    return ((gap @ v @ gap).diagonal(dim1=1, dim2=2).sum(1) + shift.square().sum(1)).numpy()
