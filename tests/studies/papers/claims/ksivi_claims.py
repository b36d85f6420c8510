"""Claims of Cheng, Yu, Xie, Zhang & Zhang (2024), arXiv:2405.18997 (KSIVI).

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

from .claim import Claim, Laboratory, Measured, late, log_ratio, spread_ratio

TOYS = ("banana", "multimodal", "x-shaped")
ITERATIONS = 5_000
#: Nats of the divergence's estimate that count as none.
NOTHING = 0.01
SIMILAR = float(np.log(1.5))
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


STEADIER = {
    "banana: mean log KL, SIVI-SM less KSIVI": 0.0,
    **{f"spread of KL over seeds on {task}, SIVI-SM over KSIVI": 0.0 for task in TOYS},
}


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


ALIKE = {
    f"{task}: log KL, {a} less {b}": -SIMILAR
    for task in TOYS[:2]
    for a, b in (("Gaussian", "IMQ"), ("IMQ", "Gaussian"))
}
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


CLAIMS = (
    Claim(
        "C21",
        "KSIVI, Section 6.1, Figure 2",
        "KSIVI varies less from seed to seed than SIVI-SM and is faster on the banana.",
        STEADIER,
        steadier_than_score_matching,
        replicates=5,
        conditions=("paper", "tuned"),
        note="tuned: 5,000 of 50,000 iterations",
    ),
    Claim(
        "C22",
        "KSIVI, Section 6.1",
        "The Gaussian and the IMQ kernel do equally well, within a factor of 1.5 in KL.",
        ALIKE,
        kernels_alike,
        replicates=5,
        conditions=("paper", "tuned"),
        note="tuned: 5,000 of 50,000 iterations",
    ),
    Claim(
        "C24",
        "KSIVI, Section 6.2, Table 5",
        "On logistic regression KSIVI's distance depends less on the learning rate than SIVI-SM's.",
        {"log range over learning rates, SIVI-SM less KSIVI": 0.0},
        insensitive_to_the_step,
        replicates=3,
        conditions=("paper",),
    ),
    Claim(
        "C26",
        "KSIVI, Appendix C.3, Table 7",
        "A step of the U-statistic is cheaper than a vanilla one, its gradient slightly noisier.",
        {
            "log time of a step, vanilla over U-statistic": 0.0,
            "log variance of the gradient, U-statistic over vanilla": 0.0,
        },
        u_statistic_is_cheaper,
        conditions=("paper",),
    ),
    Claim(
        "C27",
        "KSIVI, Section 6.3, Table 2",
        "A step of KSIVI takes less time than SIVI-SM's and as much as SIVI's, within a quarter.",
        {
            "log time of a step, SIVI-SM over KSIVI": 0.0,
            "log time of a step, SIVI over KSIVI": -float(np.log(1.25)),
            "log time of a step, KSIVI over SIVI": -float(np.log(1.25)),
        },
        as_fast_as_sivi,
        conditions=("paper",),
    ),
)
