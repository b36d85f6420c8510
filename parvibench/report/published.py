"""Our numbers beside published ones, where a cell ran the paper's protocol.

``published/<paper>.csv`` holds every number of the papers' tables, as printed. Columns: ``table``, ``task`` and ``dataset``
as the paper calls them, ``algorithm``, ``metric``, ``value``, ``std``, ``repeats``, ``suspicious`` (the paper contradicts itself
there), ``note``. A number is compared with a cell of the task that follows the paper, run with a preset of that task
unchanged: settings, iterations, points and the states judged. Other cells answer another question and are not shown.
"""

from __future__ import annotations

import math
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from parvibench.core import registry
from parvibench.core.algorithm import Method
from parvibench.core.result import CellRecord, Status
from parvibench.harness.store.results import Results, metric_values
from parvibench.harness.suite.cells import task_of_preset
from parvibench.statistics import holm

from .formatting import number
from .page_tables import Column, Entry, Row, Table, numeric, p_value, sortable

#: Key -> short title.
PAPERS = {"sifg": "SIFG, arXiv:2410.17935", "srld": "SRLD, arXiv:2002.09070", "ksivi": "KSIVI, arXiv:2405.18997"}
_DATASETS = {
    "Boston": "boston", "Concrete": "concrete", "Energy": "energy", "Naval": "naval", "Power": "power", "Protein": "protein",
    "Wine": "wine-red", "WineRed": "wine-red", "WineWhite": "wine-white", "Yacht": "yacht", "Diabetes": "diabetes",
    "WINE": "wine-binary",
}  # fmt: skip
_ALGORITHMS = {
    "SGLD": "sgld", "LD": "sgld", "SVGD": "svgd", "SRLD": "srld", "L2-GF": "l2-gf", "Ada-GWG": "ada-gwg", "Ada-SIFG": "ada-sifg",
    "SIVI": "sivi", "SIVI-SM": "sivi-sm", "KSIVI": "ksivi", "KSIVI-ustat": "ksivi-ustat", "KSIVI-vanilla": "ksivi",
    "UIVI": "uivi", "MIED": "mied", "KSDD": "ksdd", "KSIVI-riesz": "ksivi", "KSIVI-gaussian": "ksivi",
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
        "two-sided Student test that both come from one law, by our spread over replicates; Holm over the table",
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
    remarks: str  #: on the entry and our replicates


@cache
def published(paper: str) -> pd.DataFrame:
    """The numbers of a paper's tables."""
    missing = {"value": [""], "std": [""], "repeats": [""]}
    with (files("parvibench.report") / "published" / f"{paper}.csv").open() as file:
        return pd.read_csv(file, keep_default_na=False, na_values=missing)


def consistency(published: float, draws: float, mean: float, sd: float, n: int) -> float:
    """Two-sided p-value that a published mean of ``draws`` repeats and ours, of n replicates, come from one law; NaN if unknown.

    Our spread is used for both, since what the printed one is of differs from paper to paper:
    ``t = (mean - published) / (sd sqrt(1/n + 1/draws))`` with n - 1 degrees of freedom.
    """
    if n < 2 or not sd > 0 or not math.isfinite(published):
        return math.nan
    t = (mean - published) / (sd * math.sqrt(1 / n + 1 / draws))
    return float(2 * stats.t.sf(abs(t), n - 1))


def comparisons(results: Results) -> list[Comparison]:
    """Every published number whose protocol a cell of the run followed, in the papers' order."""
    cells: dict[tuple[str, str], list[CellRecord]] = {}
    for c in results.cells:
        if c.status is Status.OK:
            cells.setdefault((c.task, c.algorithm), []).append(c)
    found = []
    for paper in PAPERS:
        for row in published(paper).to_dict("records"):
            if (paper, row["table"], row["algorithm"]) not in _REPEATED:
                task = task_of(paper, row["task"], row["dataset"])
                for cell in cells.get((task, method_of(row["algorithm"])), []):
                    found += _compare(paper, row, cell) if follows(cell, row) else []
    return found


def task_of(paper: str, task: str, dataset: str) -> str:
    """Our task that follows the program behind a published row; empty without one."""
    if task == "bnn_regression" and dataset in _DATASETS:
        return f"bnn-{_DATASETS[dataset]}-{paper}"
    if task == "conditioned_diffusion":
        dim = dataset.removeprefix("d=")
        return f"diffusion-{dim}-ksivi-code" if dim == "100" else f"diffusion-{dim}"
    if task == "contextual_bandit":
        return f"bandit-{dataset.lower()}"
    return {"blr_waveform": "blr-waveform", "student_t_2d": "student-t"}.get(task, "")


def method_of(theirs: str) -> str:
    """Our method behind a published row; empty without one."""
    return _ALGORITHMS.get(theirs.partition("@")[0], "")


def follows(cell: CellRecord, row: dict[Any, Any]) -> bool:
    """Whether a cell ran the protocol of a published row: a preset of its task, with the row's own iterations and step."""
    method = registry.load_method(cell.algorithm)
    return any(_ran(cell, method, p, row) for p in method.presets if task_of_preset(p) == cell.task)


def _ran(cell: CellRecord, method: Method, preset: str, row: dict[Any, Any]) -> bool:
    protocol = method.protocol(preset)
    settings = method.make_settings({"preset": preset}).model_dump(mode="json")
    theirs, _, thousands = row["algorithm"].partition("@")
    if thousands:
        protocol["iterations"] = 1000 * int(thousands.removesuffix("k"))
    if "step=" in row["dataset"]:
        settings["step_size"] = float(row["dataset"].removeprefix("step="))
    variant = theirs.rpartition("-")[2]
    if variant in ("riesz", "gaussian") and settings.get("kernel") != variant:
        return False
    ran = {"iterations": cell.spec.budget.iterations}
    return cell.settings == settings and all(ran.get(k, getattr(cell.spec, k, None)) == v for k, v in protocol.items())


def _compare(paper: str, row: dict[Any, Any], cell: CellRecord) -> list[Comparison]:
    metric, sign = _metric(row)
    values = np.array(metric_values(metric, cell.values.get(metric, [])))
    finite = values[np.isfinite(values)]
    if not len(finite):
        return []
    mean, sd = float(finite.mean()), float(finite.std(ddof=1)) if len(finite) > 1 else math.nan
    repeats = 1.0 if math.isnan(row["repeats"]) else float(row["repeats"])
    lost = len(values) - len(finite)
    remarks = [row["note"], f"{lost} replicates diverged" if lost else ""]
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
        Entry(f"{PAPERS[c.paper].split(',')[0]} {c.table}"),
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
