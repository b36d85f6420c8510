"""Effects of the claims of Ye, Ren & Liu (2020), arXiv:2002.09070 (SRLD).

LD is SRLD without repulsion, on the same noise. The paper compares both where they move equally far a step: under the
condition "paper" SRLD's step is scaled by the ratio of their drifts, under "matched" both have LD's step, under
"tuned" each has its own best.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from parvibench.core.registry import load_method, load_task

from .claim import Laboratory, Measured, log_ratio

METRICS = ["mmd2_u", "ess_bulk", "mode_weight_tv"]
STATES = 500
DRIFT = "drift_rms"


def chains(lab: Laboratory, task: str, settings: Mapping[str, Mapping[str, Any]], **protocol: Any) -> Measured:
    """Single chains with the preset of a task, label -> further settings."""
    entries = {label: {"name": "srld", "preset": task, "settings": own} for label, own in settings.items()}
    return lab.run(task, entries, metrics=METRICS, samples=STATES, **protocol)


def beside_ld(lab: Laboratory, task: str, **protocol: Any) -> Measured:
    """SRLD and LD, which under the paper's condition move equally far."""
    settings: dict[str, dict[str, Any]] = {"ld": {"alpha": 0.0}, "srld": {}}
    runs = chains(lab, task, settings, **protocol)
    if lab.condition == "paper":
        ratio = np.median(runs.last("ld", DRIFT)) / np.median(runs.last("srld", DRIFT))
        step = load_method("srld").expand_preset({"preset": task})["step_size"]
        runs = chains(lab, task, {**settings, "srld": {"step_size": float(step * ratio)}}, **protocol)
    return runs


def marginal_w1(runs: Measured, label: str, task: str) -> NDArray[np.float64]:
    """Sum over the coordinates of the 1-Wasserstein distance to the reference, (R,): the paper's code's distance."""
    reference = load_task(task).reference().draws.numpy()
    return np.array(
        [
            sum(stats.wasserstein_distance(a, b) for a, b in zip(x.T, reference.T, strict=True))
            for x in runs.samples(label)
        ]
    )


def excess(runs: Measured, label: str) -> NDArray[np.float64]:
    """Unbiased squared MMD, (R,), whose values below a ten-thousandth count as it."""
    return np.maximum(runs.last(label, "mmd2_u"), 1e-4)


def compared(runs: Measured, task: str) -> dict[str, ArrayLike]:
    return {
        "log MMD2, LD over SRLD": log_ratio(excess(runs, "ld"), excess(runs, "srld")),
        "log W1, LD over SRLD": log_ratio(marginal_w1(runs, "ld", task), marginal_w1(runs, "srld", task)),
        "log ESS, SRLD over LD": runs.log_ratio("ess_bulk", "srld", "ld"),
    }


def correlated(lab: Laboratory) -> Mapping[str, ArrayLike]:
    return compared(beside_ld(lab, "correlated-2d"), "correlated-2d")


def mixture(lab: Laboratory) -> Mapping[str, ArrayLike]:
    runs = beside_ld(lab, "gmm2-2d")
    means = load_task("gmm2-2d").facts.modes.means.numpy()
    return {
        **compared(runs, "gmm2-2d"),
        "log number of kept states before the second mode, LD over SRLD": log_ratio(
            first_visit(runs.samples("ld"), means), first_visit(runs.samples("srld"), means)
        ),
    }


def first_visit(x: NDArray[np.float64], means: NDArray[np.float64]) -> NDArray[np.float64]:
    """States (R, n, D) up to the first that is nearest to another mode than the first one was, (R,); n + 1 without."""
    nearest = np.linalg.norm(x[:, :, None] - means, axis=-1).argmin(-1)
    other = nearest != nearest[:, :1]
    return np.where(other.any(1), other.argmax(1), x.shape[1]) + 1.0


def unchanged_law(lab: Laboratory) -> Mapping[str, ArrayLike]:
    """Long chains: without repulsion LD's own path, and with it a bias that shrinks as the memory grows."""
    sizes = (5, 100)
    settings: dict[str, dict[str, Any]] = {f"M = {m}": {"memory": m, "spacing": 10} for m in sizes}
    long = {"budget": {"iterations": 40_000}, "burn_in": 0.25}
    runs = chains(lab, "correlated-2d", {"ld": {"alpha": 0.0}, **settings}, **long)
    plain = lab.run(
        "correlated-2d",
        {"sgld": {"name": "sgld", "particles": 1, "settings": _step()}},
        samples=STATES,
        metrics=METRICS,
        **long,
    )
    variance = load_task("correlated-2d").reference().draws.var(0).numpy()

    def bias(label: str) -> NDArray[np.float64]:
        return np.abs(np.log(runs.samples(label).var(1) / variance)).mean(1)

    return {
        "distance of LD's path from SGLD's": -np.abs(runs.samples("ld") - plain.samples("sgld")).max((1, 2)),
        "bias of log variance, M = 5 less M = 100": bias("M = 5") - bias("M = 100"),
    }


def _step() -> dict[str, Any]:
    return {"step_size": load_method("srld").expand_preset({"preset": "correlated-2d"})["step_size"]}


def too_strong(lab: Laboratory) -> Mapping[str, ArrayLike]:
    task, alphas = "gaussian-100d", (0.0, 10.0, 20.0, 50.0, 100.0)
    runs = chains(lab, task, {f"{a:g}": {"alpha": a} for a in alphas})
    return {
        "log ESS, 100 over 10": runs.log_ratio("ess_bulk", "100", "10"),
        "log MMD2, 100 over 10": log_ratio(excess(runs, "100"), excess(runs, "10")),
        "log W1, 100 over 10": log_ratio(marginal_w1(runs, "100", task), marginal_w1(runs, "10", task)),
    }


def stronger_is_better(lab: Laboratory) -> Mapping[str, ArrayLike]:
    task, alphas = "gmm2-20d", (0.0, 5.0, 10.0, 20.0)
    runs = chains(lab, task, {f"{a:g}": {"alpha": a} for a in alphas})
    return {
        f"log MMD2, {weak} over {strong}": log_ratio(excess(runs, weak), excess(runs, strong))
        for weak, strong in (("0", "5"), ("5", "10"), ("10", "20"))
    }


def spacing_matters_little(lab: Laboratory) -> Mapping[str, ArrayLike]:
    spacings = (10, 50, 100, 200)
    runs = chains(
        lab, "correlated-2d", {f"{c}": {"spacing": c, "memory": 10} for c in spacings}, budget={"iterations": 20_000}
    )
    values = {c: marginal_w1(runs, f"{c}", "correlated-2d") for c in spacings}
    others = [-np.abs(log_ratio(values[100], values[c])) for c in spacings if c != 100]
    return {"log W1, away from that of spacing 100, negative": np.mean(others, 0)}


SETS = ("boston", "concrete", "energy", "naval", "wine-red", "wine-white", "yacht")
BANDITS = ("bandit-mushroom", "bandit-wheel")
SPLITS = 20


def network(name: str) -> str:
    """The paper's task on a set."""
    return f"bnn-{name}-srld"


def networks_beside_ld(lab: Laboratory) -> Mapping[str, ArrayLike]:
    """By the rows of the table; tuned, by the chains that took their steps by the paper's rule, in a folder next to the store."""
    if lab.tuned:
        return _by_rule(lab.store.with_name("rule"))
    runs = lab.rows("srld-table-1", "*/ld", "*/srld")
    effects = {}
    for name in SETS:
        ld, srld = (runs.last(label, "nll", network(name)) for label in ("ld", "srld"))
        effects[f"{name}: log RMSE, LD over SRLD"] = runs.log_ratio("rmse", "ld", "srld", network(name))
        effects[f"{name}: NLL, LD less SRLD"] = ld - srld
    return effects


def _by_rule(folder: Path) -> Mapping[str, ArrayLike]:
    """Split by split, means over chains; NaN of a set that was not run."""
    effects = {}
    for name in SETS:
        file = folder / f"{name}-final.npz"
        none = np.full((SPLITS, 1, 1, 2), np.nan)
        at = dict(np.load(file)) if file.is_file() else {"LD": none, "SRLD": none}
        ld, srld = (at[method][:, :, -1].mean(1).T for method in ("LD", "SRLD"))
        effects[f"{name}: log RMSE, LD over SRLD"] = log_ratio(ld[0], srld[0])
        effects[f"{name}: NLL, LD less SRLD"] = srld[1] - ld[1]
    return effects


def more_samples(lab: Laboratory) -> Mapping[str, ArrayLike]:
    """The first checkpoint of these chains has 20 states, the last 100."""
    runs = lab.rows("srld-table-1", "*/srld")
    curves = {name: runs.curve("srld", "rmse", network(name)) for name in SETS}
    return {f"{name}: log RMSE, 20 over 100 samples": log_ratio(c[:, 0], c[:, -1]) for name, c in curves.items()}


def regret(lab: Laboratory) -> Mapping[str, ArrayLike]:
    runs = lab.rows("srld-table-2")
    effects = {}
    for task in BANDITS:
        effects[f"{task}: log regret, LD over SRLD"] = runs.log_ratio("regret_percent", "ld", "srld", task)
        effects[f"{task}: log regret, SVGD over LD"] = runs.log_ratio("regret_percent", "svgd", "ld", task)
    gaps = [np.asarray(effects[f"{task}: log regret, LD over SRLD"]) for task in BANDITS]
    return {**effects, "log regret, LD over SRLD: wheel less mushroom": gaps[1] - gaps[0]}
