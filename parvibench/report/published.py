"""Our numbers beside published ones, with both spreads and the differences between the protocols.

``published/<paper>.csv`` holds every number of the papers' tables, as printed. Columns: ``table``, ``task`` and ``dataset``
as the paper calls them, ``algorithm``, ``metric``, ``value``, ``std``, ``repeats``, ``suspicious`` (the paper contradicts itself
there), ``note``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from parvibench.core.result import CellRecord, Status
from parvibench.harness.store.results import Results, metric_values
from parvibench.statistics import holm

from .formatting import number
from .page_tables import Column, Entry, Row, Table, numeric, p_value, sortable


@dataclass(frozen=True)
class Paper:
    """The protocol of a paper's network regressions."""

    title: str  #: its short name with arXiv id
    one_split: bool  #: whether the spread is over seeds on one split of the data
    protocol: str  #: differences from the standard protocol


PAPERS = {
    "sifg": Paper(
        "SIFG, arXiv:2410.17935",
        True,
        "one fixed split, spread over seeds; 100 particles, 2000 iterations; a development set inside the training rows; steps "
        "normalised by their size",
    ),
    "srld": Paper(
        "SRLD, arXiv:2002.09070",
        False,
        "20 splits, spread is the mean's; one chain of 50,000 iterations, 100 samples kept; tanh units; responses not "
        "standardised, noise variance by Gibbs steps",
    ),
    "ksivi": Paper(
        "KSIVI, arXiv:2405.18997",
        True,
        "one split, spread over seeds; precisions of noise and weights fixed beforehand, likelihood tempered by the response's "
        "variance",
    ),
}
_DATASETS = {
    "Boston": "boston", "Concrete": "concrete", "Energy": "energy", "Naval": "naval", "Power": "power", "Protein": "protein",
    "Wine": "wine-red", "WineRed": "wine-red", "WineWhite": "wine-white", "Yacht": "yacht", "Diabetes": "diabetes",
    "WINE": "wine-binary",
}  # fmt: skip
_ALGORITHMS = {
    "SGLD": "sgld", "LD": "sgld", "SVGD": "svgd", "SRLD": "srld", "L2-GF": "l2-gf", "Ada-GWG": "ada-gwg", "Ada-SIFG": "ada-sifg",
    "SIVI": "sivi", "SIVI-SM": "sivi-sm", "KSIVI": "ksivi", "KSIVI-ustat": "ksivi-ustat", "KSIVI-vanilla": "ksivi",
    "UIVI": "uivi", "KSIVI@20k": "ksivi", "SIVI-SM@20k": "sivi-sm", "MIED": "mied", "KSDD": "ksdd", "KSIVI-riesz": "ksivi", "KSIVI-gaussian": "ksivi",
}  # fmt: skip
#: Published metric -> ours, and the sign between them.
_METRICS = {
    "RMSE": ("rmse", 1), "NLL": ("nll", 1), "LL": ("nll", -1), "sliced_WD": ("sliced_w2", 1),
    "relative_cumulative_regret_pct": ("regret_percent", 1),
}  # fmt: skip
#: Tables that repeat rows of another one.
_REPEATED = {("ksivi", "Table 8", method) for method in ("SIVI", "SIVI-SM", "KSIVI-vanilla")}
_COLUMNS = (
    Column("source", numeric=False),
    Column("task", numeric=False),
    Column("method", "ours; in small print the paper's name where it differs", numeric=False),
    Column("metric", numeric=False),
    Column("published", "mean, and the spread that the paper prints"),
    Column("ours", "mean over replicates, and their standard deviation"),
    Column("difference", "ours less published"),
    Column(
        "p-value",
        "two-sided Student test that both come from one method under one protocol, by our spread; a mean over seeds on one split "
        "counts as one draw; Holm over the table",
    ),
    Column("remarks", numeric=False),
)


class Comparison(NamedTuple):
    """A published number and ours."""

    paper: str  #: key of ``PAPERS``
    table: str  #: of the paper
    task: str  #: ours
    label: str  #: of our method
    theirs: str  #: the paper's name of the method
    metric: str  #: ours
    published: float  #: the number, in our sign
    spread: float  #: as printed, NaN without one
    mean: float  #: ours, over finite replicates
    sd: float  #: their standard deviation
    replicates: int  #: how many
    p_value: float  #: see ``consistency``; not adjusted
    suspicious: bool  #: whether the paper contradicts itself there
    remarks: str  #: on the entry and the protocols


@cache
def published(paper: str) -> pd.DataFrame:
    """The numbers of a paper's tables."""
    missing = {"value": [""], "std": [""], "repeats": [""]}
    with (files("parvibench.report") / "published" / f"{paper}.csv").open() as file:
        return pd.read_csv(file, keep_default_na=False, na_values=missing)


def consistency(published: float, draws: float, mean: float, sd: float, n: int) -> float:
    """Two-sided p-value that a published mean and ours, of n replicates, come from one law; NaN if unknown.

    The published spread is not used: over seeds on one split it does not include the variance between splits, which is
    most of it. Ours is used for both, ``t = (mean - published) / (sd sqrt(1/n + 1/draws))`` with n - 1 degrees of
    freedom, where ``draws`` is how many independent draws (splits, or seeds where all share the problem) the published
    number is the mean of.
    """
    if n < 2 or not sd > 0 or not math.isfinite(published):
        return math.nan
    t = (mean - published) / (sd * math.sqrt(1 / n + 1 / draws))
    return float(2 * stats.t.sf(abs(t), n - 1))


def comparisons(results: Results) -> list[Comparison]:
    """Every published number with a matching cell of the run, in the papers' order."""
    cells: dict[tuple[str, str], list[CellRecord]] = {}
    for c in results.cells:
        if c.status is Status.OK:
            cells.setdefault((c.task, c.algorithm), []).append(c)
    found = []
    for paper in PAPERS:
        for row in published(paper).to_dict("records"):
            if (paper, row["table"], row["algorithm"]) not in _REPEATED:
                for task in _tasks(paper, row["task"], row["dataset"]):
                    for cell in cells.get((task, _ALGORITHMS.get(row["algorithm"], "")), []):
                        found += _compare(paper, row, cell)
    return found


def _tasks(paper: str, task: str, dataset: str) -> list[str]:
    """Our tasks that match a published row: by the standard protocol, and as in the paper's code."""
    if task == "bnn_regression" and dataset in _DATASETS:
        plain = f"bnn-{_DATASETS[dataset]}"
        return [plain, f"{plain}-{paper}"]
    if task == "conditioned_diffusion":
        dim = dataset.removeprefix("d=")
        return [f"diffusion-{dim}", f"diffusion-{dim}-ksivi-code"]
    if task == "blr_waveform":
        return ["blr-waveform"]
    if task == "student_t_2d":
        return ["student-t"]
    return [f"bandit-{dataset.lower()}"] if task == "contextual_bandit" else []


def _compare(paper: str, row: dict[Any, Any], cell: CellRecord) -> list[Comparison]:
    metric, sign = _metric(row)
    if metric not in cell.values:
        return []
    values = np.array(metric_values(metric, cell.values[metric]))
    finite = values[np.isfinite(values)]
    if not len(finite):
        return []
    mean, sd = float(finite.mean()), float(finite.std(ddof=1)) if len(finite) > 1 else math.nan
    variant = cell.task.endswith(f"-{paper}")
    network = row["task"] == "bnn_regression"
    alone = network and PAPERS[paper].one_split and not variant
    repeats = 1.0 if alone or math.isnan(row["repeats"]) else float(row["repeats"])
    remarks = [
        row["note"],
        *([f"{len(values) - len(finite)} replicates diverged"] if len(finite) < len(values) else []),
    ]
    if network:
        remarks.append("as in the paper's code" if variant else "standard protocol, the paper's below")
    elif "step=" in row["dataset"]:
        remarks.append(f"learning rate {row['dataset'].removeprefix('step=')}; ours {cell.settings.get('step_size')}")
    value = sign * row["value"]
    return [
        Comparison(
            paper, row["table"], cell.task, cell.label, row["algorithm"], metric, value, row["std"], mean, sd, len(finite),
            consistency(value, repeats, mean, sd, len(finite)), bool(row["suspicious"]), "; ".join(r for r in remarks if r),
        )
    ]  # fmt: skip


def _metric(row: dict[Any, Any]) -> tuple[str, int]:
    if row["task"] == "student_t_2d":
        return f"w2sq_window_{row['dataset'].removeprefix('a=')}", 1
    return _METRICS.get(row["metric"], ("", 1))


def published_table(found: list[Comparison]) -> Table:
    """The comparisons as a table; suspicious numbers are marked and not tested."""
    tested = [i for i, c in enumerate(found) if not c.suspicious and not math.isnan(c.p_value)]
    adjusted = dict(zip(tested, holm([found[i].p_value for i in tested]), strict=True))
    rows = [_row(c, adjusted.get(i, math.nan)) for i, c in enumerate(found)]
    return Table("our numbers beside the published ones", _COLUMNS, tuple(rows))


def _row(c: Comparison, p: float) -> Row:
    spread = "" if math.isnan(c.spread) else f"± {c.spread:g}"
    flag = "suspicious: " if c.suspicious else ""
    entries = (
        Entry(f"{PAPERS[c.paper].title.split(',')[0]} {c.table}"),
        Entry(c.task),
        Entry(c.label, note=c.theirs if c.theirs.lower() != c.label else ""),
        Entry(c.metric),
        Entry(f"{c.published:g}", sortable(c.published), "status" if c.suspicious else "", note=spread),
        numeric(c.mean, note=f"± {number(c.sd)} ({c.replicates})"),
        numeric(c.mean - c.published),
        p_value(p) if not c.suspicious else Entry("not tested"),
        Entry(f"{flag}{c.remarks}", look="reason status" if c.suspicious else "reason"),
    )
    return Row(entries)


def published_sentence(found: list[Comparison]) -> str:
    """The outcome of the tests in a sentence; empty without tests."""
    tested = [c for c in found if not c.suspicious and not math.isnan(c.p_value)]
    if not tested:
        return ""
    different = [c for c, p in zip(tested, holm([c.p_value for c in tested]), strict=True) if p <= 0.05]
    better = sum(c.mean < c.published for c in different)
    suspicious = sum(c.suspicious for c in found)
    contradict = f" {suspicious} more contradict other numbers of their own paper and are not tested."
    flagged = contradict if suspicious else ""
    return (
        f"Of {len(tested)} published numbers {len(different)} differ significantly from ours: in {better} of these ours is lower "
        f"(better), in {len(different) - better} higher.{flagged}"
    )


def shown_papers(found: list[Comparison]) -> list[Paper]:
    """The papers with a comparison."""
    return [PAPERS[p] for p in dict.fromkeys(c.paper for c in found)]
