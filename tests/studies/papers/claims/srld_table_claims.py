"""Claims of Ye, Ren & Liu (2020), arXiv:2002.09070 (SRLD), on networks and bandits: they read the runs of its tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from .claim import Claim, Laboratory, log_ratio

SETS = ("boston", "concrete", "energy", "naval", "wine-red", "wine-white", "yacht")
BANDITS = ("bandit-mushroom", "bandit-wheel")
SPLITS = 20


def network(name: str) -> str:
    """The paper's task on a set."""
    return f"bnn-{name}-srld"


def beside_ld(lab: Laboratory) -> Mapping[str, ArrayLike]:
    """By the rows of the table; tuned, by the chains that took their steps by the paper's rule, in a folder beside the store."""
    if lab.tuned:
        return _by_rule(lab.store.with_name("rule"))
    runs = lab.rows("srld-table-1", "*/ld", "*/srld")
    effects = {}
    for name in SETS:
        at = {label: {m: runs.last(label, m, network(name)) for m in ("rmse", "nll")} for label in ("ld", "srld")}
        effects[f"{name}: log RMSE, LD over SRLD"] = log_ratio(at["ld"]["rmse"], at["srld"]["rmse"])
        effects[f"{name}: NLL, LD less SRLD"] = at["ld"]["nll"] - at["srld"]["nll"]
    return effects


def _by_rule(folder: Path) -> Mapping[str, ArrayLike]:
    """Split by split, means over chains; NaN of a set that was not run."""
    effects = {}
    for name in SETS:
        file = folder / f"{name}-final.npz"
        at = (
            dict(np.load(file)) if file.is_file() else dict.fromkeys(("LD", "SRLD"), np.full((SPLITS, 1, 1, 2), np.nan))
        )
        ld, srld = (at[method][:, :, -1].mean(1).T for method in ("LD", "SRLD"))
        effects[f"{name}: log RMSE, LD over SRLD"] = log_ratio(ld[0], srld[0])
        effects[f"{name}: NLL, LD less SRLD"] = srld[1] - ld[1]
    return effects


BESIDE_LD = {f"{name}: {effect}": 0.0 for name in SETS for effect in ("log RMSE, LD over SRLD", "NLL, LD less SRLD")}


def more_samples(lab: Laboratory) -> Mapping[str, ArrayLike]:
    """The first checkpoint of these chains has 20 kept states, the last 100."""
    runs = lab.rows("srld-table-1", "*/srld")
    curves = {name: runs.curve("srld", "rmse", network(name)) for name in SETS}
    return {f"{name}: log RMSE, 20 over 100 samples": log_ratio(c[:, 0], c[:, -1]) for name, c in curves.items()}


def regret(lab: Laboratory) -> Mapping[str, ArrayLike]:
    runs = lab.rows("srld-table-2")
    effects = {}
    for task in BANDITS:
        of = {label: runs.last(label, "regret_percent", task) for label in ("svgd", "ld", "srld")}
        effects[f"{task}: log regret, LD over SRLD"] = log_ratio(of["ld"], of["srld"])
        effects[f"{task}: log regret, SVGD over LD"] = log_ratio(of["svgd"], of["ld"])
    gaps = [np.asarray(effects[f"{task}: log regret, LD over SRLD"]) for task in BANDITS]
    return {**effects, "log regret, LD over SRLD: wheel less mushroom": gaps[1] - gaps[0]}


REGRET = dict.fromkeys(
    (
        *(f"{task}: log regret, {pair}" for task in BANDITS for pair in ("LD over SRLD", "SVGD over LD")),
        "log regret, LD over SRLD: wheel less mushroom",
    ),
    0.0,
)

CLAIMS = (
    Claim(
        "C17",
        "SRLD, Section 6.2, Table 1",
        "On Bayesian networks SRLD has a lower error and a higher likelihood than LD, on all seven sets.",
        BESIDE_LD,
        beside_ld,
        replicates=SPLITS,
        conditions=("paper", "tuned"),
        note="paper: the published step of energy, scaled by the rows; tuned: steps by the paper's rule, one burn-in for both",
    ),
    Claim(
        "C18",
        "SRLD, Appendix B.5, Tables 3 and 4",
        "SRLD improves from 20 to 100 samples on all seven sets.",
        {f"{name}: log RMSE, 20 over 100 samples": 0.0 for name in SETS},
        more_samples,
        replicates=SPLITS,
        conditions=("paper",),
        note="SVGD beside it has no published settings and is left out",
    ),
    Claim(
        "C19",
        "SRLD, Section 6.3, Table 2",
        "Thompson sampling regrets least by SRLD, then LD, then SVGD; the gap is larger on the wheel.",
        REGRET,
        regret,
        replicates=3,
        conditions=("paper",),
    ),
)
