"""Claims of Cheng, Yu, Xie, Zhang & Zhang (2024), arXiv:2405.18997 (KSIVI), on posteriors: they read the runs of its tables."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from parvibench.core.registry import load_task

from .claim import Claim, Laboratory, Measured, log_ratio

SEEDS = 3
REGRESSION = "blr-waveform"
#: The coefficient whose spread the text names, counted from the intercept.
COEFFICIENT = 4
DIFFUSIONS = ("diffusion-50", "diffusion-100-ksivi-code")
STUDENT = "student-t"
WINDOWS = (5, 8, 10)
#: Errors within 5% are on a par.
PAR = float(np.log(1.05))
NETWORK = "bnn-boston-ksivi"


def correlations(lab: Laboratory) -> Mapping[str, ArrayLike]:
    runs = lab.rows("ksivi-figure-3", "*/sivi", "*/sivi-sm", "*/ksivi")
    error = {name: runs.last(name, "correlation_error") for name in ("sivi", "sivi-sm", "ksivi")}
    reference = load_task(REGRESSION).reference().draws[:, COEFFICIENT].std().item()
    return {
        "log error of the correlations, SIVI over KSIVI": log_ratio(error["sivi"], error["ksivi"]),
        "log error of the correlations, SIVI-SM over KSIVI": log_ratio(error["sivi-sm"], error["ksivi"]),
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
        distance = {name: runs.last(name, "sliced_w2", task) for name in ("sivi", "sivi-sm", "ksivi")}
        sd = load_task(task).reference().draws.std(0).numpy()
        narrow = (runs.samples("sivi", task).std(1) / sd).mean(1)
        effects |= {
            f"{task}: log sliced W2, SIVI-SM over KSIVI": log_ratio(distance["sivi-sm"], distance["ksivi"]),
            f"{task}: log sliced W2, SIVI over SIVI-SM": log_ratio(distance["sivi"], distance["sivi-sm"]),
            f"{task}: log sd, reference over SIVI": -np.log(narrow),
            f"{task}: log variation of the mean path, SIVI-SM over KSIVI": log_ratio(
                variation(runs, "sivi-sm", task), variation(runs, "ksivi", task)
            ),
        }
    return effects


def variation(runs: Measured, label: str, task: str) -> NDArray[np.float64]:
    """Total variation along time of the mean path, (R,)."""
    return np.abs(np.diff(runs.samples(label, task).mean(1), axis=1)).sum(1)


PATHS = {
    f"{task}: {effect}": 0.0
    for task in DIFFUSIONS
    for effect in (
        "log sliced W2, SIVI-SM over KSIVI",
        "log sliced W2, SIVI over SIVI-SM",
        "log sd, reference over SIVI",
        "log variation of the mean path, SIVI-SM over KSIVI",
    )
}


def tails(lab: Laboratory) -> Mapping[str, ArrayLike]:
    runs = lab.rows("ksivi-table-3")
    of = {
        (label, a): runs.last(label, f"w2sq_window_{a}", STUDENT)
        for label in ("mied", "ksdd", "ksivi-gaussian", "ksivi-riesz")
        for a in WINDOWS
    }
    return {
        f"log squared W2 within {a}, {worse} over {better}": log_ratio(of[worse, a], of[better, a])
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
    difference = log_ratio(runs.last("sivi-sm", "rmse", NETWORK), runs.last("ksivi", "rmse", NETWORK))
    return {"log RMSE, SIVI-SM over KSIVI": difference, "log RMSE, KSIVI over SIVI-SM": -difference}


CLAIMS = (
    Claim(
        "C23",
        "KSIVI, Section 6.2, Figures 3 and 4",
        "On logistic regression KSIVI's correlations are nearer to the reference; SIVI is a little too narrow.",
        dict.fromkeys(
            (
                "log error of the correlations, SIVI over KSIVI",
                "log error of the correlations, SIVI-SM over KSIVI",
                f"log sd of coefficient {COEFFICIENT}, reference over SIVI",
            ),
            0.0,
        ),
        correlations,
        replicates=SEEDS,
        conditions=("paper",),
    ),
    Claim(
        "C25",
        "KSIVI, Section 6.3, Table 6 and Figure 5",
        "On conditioned diffusions KSIVI is nearest, then SIVI-SM, whose mean path is rough, then SIVI, too narrow.",
        PATHS,
        paths,
        replicates=SEEDS,
        conditions=("paper",),
    ),
    Claim(
        "C28",
        "KSIVI, Appendix, Table 3",
        "On heavy tails Riesz beats the Gaussian kernel; MIED is best in windows 5 and 8, KSIVI in 10; KSDD is worst.",
        {f"log squared W2 within {a}, {worse} over {better}": 0.0 for a, worse, better in TAILS},
        tails,
        replicates=SEEDS,
        conditions=("paper",),
    ),
    Claim(
        "C29",
        "KSIVI, Appendix, Table 1",
        "On Boston's network KSIVI's error is SIVI-SM's, within 5%.",
        {"log RMSE, SIVI-SM over KSIVI": -PAR, "log RMSE, KSIVI over SIVI-SM": -PAR},
        on_a_par,
        replicates=SEEDS,
        conditions=("paper",),
    ),
)
