"""Effects of the claims of Cheng, Yu, Xie, Zhang & Zhang (2024), arXiv:2405.18997 (KSIVI).

Under the paper's settings the toys are the runs of its Figure 2; tuned, they take a tenth of its 50,000 iterations, and
the annealing of the score likewise. Times are ratios within one process.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import nullcontext
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from parvibench.baselines.ksivi import discrepancy_gradient
from parvibench.core.algorithm import take_steps
from parvibench.core.registry import load_method, load_task

from .claim import Laboratory, Measured, late, log_ratio, spread_ratio

TOYS = ("banana", "multimodal", "x-shaped")
ITERATIONS = 5_000
#: Nats of the divergence's estimate that count as none.
NOTHING = 0.01
#: A tenth of the presets' own.
ANNEALING = {"multimodal": {"annealing": 2_500}}
TOY_METHODS: dict[str, dict[str, Any]] = {
    "ksivi": {"name": "ksivi"},
    "ksivi-imq": {"name": "ksivi", "settings": {"kernel": "imq"}},
    "sivi-sm": {"name": "sivi-sm"},
}


def toys(lab: Laboratory, task: str, *labels: str) -> Measured:
    """The methods on a law in two dimensions: the figure's rows, or shorter runs at tuned steps."""
    if not lab.tuned:
        return lab.rows("ksivi-figure-2", *(f"{task}/{label}" for label in labels))
    entries = {}
    for label in labels:
        entry = TOY_METHODS[label]
        settings = {**entry.get("settings", {}), **ANNEALING.get(task, {})}
        entries[label] = {**entry, "preset": task, "settings": settings}
    return lab.run(task, entries, metrics=["kl_knn"], budget={"iterations": ITERATIONS})


def steadier_than_score_matching(lab: Laboratory) -> Mapping[str, ArrayLike]:
    names = ("ksivi", "sivi-sm")
    runs = {task: toys(lab, task, *names) for task in TOYS}
    banana = {name: late(runs["banana"].curve(name, "kl_knn", "banana"), NOTHING) for name in names}
    spreads = {
        f"spread of KL over seeds on {task}, SIVI-SM over KSIVI": spread_ratio(
            *(runs[task].last(name, "kl_knn", task) for name in ("sivi-sm", "ksivi"))
        )
        for task in TOYS
    }
    return {"banana: mean log KL, SIVI-SM less KSIVI": banana["sivi-sm"] - banana["ksivi"], **spreads}


def kernels_alike(lab: Laboratory) -> Mapping[str, ArrayLike]:
    effects = {}
    for task in TOYS[:2]:
        labels = ("ksivi", "ksivi-imq")
        runs = toys(lab, task, *labels)
        gaussian, imq = (np.maximum(runs.last(label, "kl_knn", task), NOTHING) for label in labels)
        difference = log_ratio(gaussian, imq)
        effects[f"{task}: log KL, Gaussian less IMQ"] = difference
        effects[f"{task}: log KL, IMQ less Gaussian"] = -difference
    return effects


RATES = (1e-4, 5e-4, 2e-3, 8e-3)


def insensitive_to_the_step(lab: Laboratory) -> Mapping[str, ArrayLike]:
    """Log range of the distance over four learning rates, each replicate its own."""
    ranges = {}
    for name in ("ksivi", "sivi-sm"):
        entries = {
            f"{name} @ {rate:g}": {"name": name, "preset": "blr-waveform", "settings": {"step_size": rate}}
            for rate in RATES
        }
        runs = lab.run("blr-waveform", entries, metrics=["sliced_w2"], budget={"iterations": 10_000})
        logs = np.log([runs.last(label, "sliced_w2") for label in entries])
        ranges[name] = logs.max(0) - logs.min(0)
    return {"log range over learning rates, SIVI-SM less KSIVI": ranges["sivi-sm"] - ranges["ksivi"]}


def seconds(name: str, task: str, rounds: int, steps: int = 40) -> NDArray[np.float64]:
    """Processor seconds of so many steps with the preset of a task, (rounds,)."""
    method, problem = load_method(name), load_task(task).problem(1, 0)
    settings = method.make_settings(method.expand_preset({"preset": task}))
    state = method.init(problem, settings, problem.streams, 100_000)
    walk, found = take_steps(method.step, problem, settings, state), []
    with nullcontext() if method.differentiates else torch.no_grad():
        for _ in range(rounds + 1):
            began = time.process_time()
            for _ in islice(walk, steps):
                pass
            found.append(time.process_time() - began)
    return np.array(found[1:])  # the first round warms up


def u_statistic_is_cheaper(lab: Laboratory) -> Mapping[str, ArrayLike]:
    task = "diffusion-100"
    ratio = log_ratio(seconds("ksivi", task, lab.replicates), seconds("ksivi-ustat", task, lab.replicates))
    return {
        "log time of a step, vanilla over U-statistic": ratio,
        "log variance of the gradient, U-statistic over vanilla": log_ratio(
            gradient_variance("ksivi-ustat", task, lab.replicates), gradient_variance("ksivi", task, lab.replicates)
        ),
    }


def gradient_variance(name: str, task: str, replicates: int, draws: int = 100) -> NDArray[np.float64]:
    """Mean variance of the loss's gradient over fresh batches, at the network's random start, (R,)."""
    method, problem = load_method(name), load_task(task).problem(replicates, 0)
    settings = method.make_settings(method.expand_preset({"preset": task}))
    state = method.init(problem, settings, problem.streams, 100_000)
    gradients = []
    for problem.streams.step in range(draws):
        noise = settings.noise(problem, problem.streams, method.batches * settings.batch)
        gradient = discrepancy_gradient(
            problem, settings, state.parameters, noise, settings.temper(state), 0.0, method.batches
        )
        gradients.append(gradient.numpy())
    return np.var(gradients, axis=0, ddof=1).mean(1)


def as_fast_as_sivi(lab: Laboratory) -> Mapping[str, ArrayLike]:
    task, rounds = "diffusion-100", lab.replicates
    kernel, matching = seconds("ksivi", task, rounds), seconds("sivi-sm", task, rounds)
    plain = seconds("sivi", task, rounds)
    return {
        "log time of a step, SIVI-SM over KSIVI": log_ratio(matching, kernel),
        "log time of a step, SIVI over KSIVI": log_ratio(plain, kernel),
        "log time of a step, KSIVI over SIVI": log_ratio(kernel, plain),
    }


REGRESSION = "blr-waveform"
#: The coefficient whose spread the text names, counted from the intercept.
COEFFICIENT = 4
DIFFUSIONS = ("diffusion-50", "diffusion-100-ksivi-code")
STUDENT = "student-t"
WINDOWS = (5, 8, 10)
NETWORK = "bnn-boston-ksivi"


def correlations(lab: Laboratory) -> Mapping[str, ArrayLike]:
    runs = lab.rows("ksivi-figure-3", "*/sivi", "*/sivi-sm", "*/ksivi")
    reference = load_task(REGRESSION).reference().draws[:, COEFFICIENT].std().item()
    return {
        "log error of the correlations, SIVI over KSIVI": runs.log_ratio("correlation_error", "sivi", "ksivi"),
        "log error of the correlations, SIVI-SM over KSIVI": runs.log_ratio("correlation_error", "sivi-sm", "ksivi"),
        f"log sd of coefficient {COEFFICIENT}, reference over SIVI": log_ratio(
            reference, runs.samples("sivi")[:, :, COEFFICIENT].std(1)
        ),
    }


def paths(lab: Laboratory) -> Mapping[str, ArrayLike]:
    runs = lab.rows(
        "ksivi-table-6", *(f"{task}/{name}" for task in DIFFUSIONS for name in ("sivi", "sivi-sm", "ksivi"))
    )
    effects: dict[str, ArrayLike] = {}
    for task in DIFFUSIONS:
        sd = load_task(task).reference().draws.std(0).numpy()
        narrow = (runs.samples("sivi", task).std(1) / sd).mean(1)
        effects |= {
            f"{task}: log sliced W2, SIVI-SM over KSIVI": runs.log_ratio("sliced_w2", "sivi-sm", "ksivi", task),
            f"{task}: log sliced W2, SIVI over SIVI-SM": runs.log_ratio("sliced_w2", "sivi", "sivi-sm", task),
            f"{task}: log sd, reference over SIVI": -np.log(narrow),
            f"{task}: log variation of the mean path, SIVI-SM over KSIVI": log_ratio(
                variation(runs, "sivi-sm", task), variation(runs, "ksivi", task)
            ),
        }
    return effects


def variation(runs: Measured, label: str, task: str) -> NDArray[np.float64]:
    """Total variation along time of the mean path, (R,)."""
    return np.abs(np.diff(runs.samples(label, task).mean(1), axis=1)).sum(1)


def tails(lab: Laboratory) -> Mapping[str, ArrayLike]:
    runs = lab.rows("ksivi-table-3")
    return {
        f"log squared W2 within {a}, {worse} over {better}": runs.log_ratio(f"w2sq_window_{a}", worse, better, STUDENT)
        for a, worse, better in TAILS
    }


TAILS = (
    *((a, "ksivi-gaussian", "ksivi-riesz") for a in WINDOWS),
    (5, "ksivi-riesz", "mied"),
    (8, "ksivi-riesz", "mied"),
    (10, "mied", "ksivi-riesz"),
    *((a, "ksdd", "ksivi-gaussian") for a in WINDOWS),
)


def on_a_par(lab: Laboratory) -> Mapping[str, ArrayLike]:
    runs = lab.rows("ksivi-table-1", f"{NETWORK}/ksivi", f"{NETWORK}/sivi-sm")
    difference = runs.log_ratio("rmse", "sivi-sm", "ksivi", NETWORK)
    return {"log RMSE, SIVI-SM over KSIVI": difference, "log RMSE, KSIVI over SIVI-SM": -difference}
