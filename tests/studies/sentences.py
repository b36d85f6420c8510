"""Recomputes the sentences of published pages from results.parquet; imports nothing of ParVIBench.

    python tests/studies/sentences.py reports reports/toy reports/uci

Every assembled sentence of a page stands in an element with ``data-s``, its id. Printed are sentences that the file
contradicts, and ids for which there is no recomputation; the exit code is then 1.
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import optimize, special, stats

NOT_RUN = ("unsupported", "skipped", "interrupted", "damaged")
RULE = (
    "Among the best of a task are the methods than which no other method with a finite result is significantly better: "
    "with a lower median, and by moderated t tests paired by replicate, Holm over all pairs of methods on all tasks of a kind of "
    "target, 5% for each kind. Where replicates were lost, the same family holds an exact test of every method's number of them: "
    "methods that lose significantly more than the others are not among the best, and rank behind these. "
    "Where replicates of these methods differ little (logarithms with standard deviations up to 0.5) and some pass for exact draws, "
    "those are left out that have over five times the medians of all that pass and are significantly worse than exact draws (exact "
    "rank tests against the floor, in the same family). Replicates that differ more can hide differences from such tests. Methods "
    "that have not converged take part and are marked."
)
UNITS = {
    "iterations": "iterations", "score_evaluations": "score evaluations per replicate",
    "scores_per_particle": "score evaluations per particle", "seconds": "seconds",
}  # fmt: skip
STARTS = {"prior": "draws from the prior", "warm": "one reference draw, scattered by a tenth of its spread"}


class Spans(HTMLParser):
    """Texts of the elements with ``data-s`` by their id."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: dict[str, str] = {}
        self._open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if name := dict(attrs).get("data-s"):
            self._open = name
            self.found[name] = ""

    def handle_data(self, data: str) -> None:
        if self._open:
            self.found[self._open] += data

    def handle_endtag(self, tag: str) -> None:
        self._open = ""


def three(x: float) -> str:
    """Three significant digits."""
    if math.isnan(x):
        return "–"
    if math.isinf(x):
        return "∞" if x > 0 else "−∞"
    digits = f"{x:.2e}"
    exponent = int(digits.partition("e")[2])
    if float(digits) == 0:
        return "0"
    if -3 <= exponent < 5:
        return f"{float(digits):.{max(0, 2 - exponent)}f}"
    return f"{digits.partition('e')[0]}e{exponent}"


def listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1] if words else ""


def plural(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def some(labels: list[str], most: int) -> str:
    return listed(labels if len(labels) <= most else [*labels[:most], f"{len(labels) - most} more"])


def median(values: list[float]) -> tuple[float, float, float]:
    """The median and its interval from order statistics."""
    x, n = sorted(math.inf if math.isnan(v) else v for v in values), len(values)
    k = 1
    while k < (n + 1) // 2 and 2 * stats.binom.cdf(k, n, 0.5) <= 0.05:
        k += 1
    low, high = x[(n - 1) // 2], x[n // 2]
    return (low if low == high else (low + high) / 2), x[k - 1], x[n - k]


def moderated_p(x: np.ndarray, overlap: float) -> list[tuple[int, int, float, float]]:
    """Of all pairs of rows: mean difference and p-value, variances shrunk as Smyth (2004) does."""
    n = x.shape[1]
    pairs = [(i, j, x[i] - x[j]) for i in range(len(x)) for j in range(i + 1, len(x))]
    if n < 3:
        return [(i, j, float(d.mean()), 1.0) for i, j, d in pairs]
    own = [float(np.var(d, ddof=1)) for *_, d in pairs]
    logs = np.log([v for v in own if v > 1e-24 * float((x**2).mean())])
    d0, s0 = 0.0, 0.0
    if len(logs) > 1:
        e = logs - special.digamma((n - 1) / 2) + math.log((n - 1) / 2)
        excess = e.var(ddof=1) - special.polygamma(1, (n - 1) / 2)
        if excess > 1e-6:
            half = optimize.root_scalar(lambda v: special.polygamma(1, v) - excess, bracket=(1e-6, 2 / excess + 2)).root
            d0, s0 = 2 * half, math.exp(e.mean() + special.digamma(half) - math.log(half))
        else:
            d0, s0 = math.inf, math.exp(e.mean())
    most, found = (len(x) - 1) * (n - 1), []
    for (i, j, d), v in zip(pairs, own, strict=True):
        mean = float(d.mean())
        spread, df = (s0, most) if math.isinf(d0) else ((d0 * s0 + (n - 1) * v) / (d0 + n - 1), min(d0 + n - 1, most))
        error = math.sqrt(spread * (1 / n + overlap))
        p = 1.0 if mean == 0 else 0.0 if error == 0 else float(2 * stats.t.sf(abs(mean) / error, df))
        found.append((i, j, mean, p))
    return found


def loses_more(lost: np.ndarray) -> list[float]:
    """Of every row, chance of so many losses or more, if in each column each row is one of the lost ones by equal chances."""
    found = []
    for mine in lost.sum(1):
        chances = {0: 1.0}  # number of losses -> probability
        for share in lost.mean(0):
            some = {n: p * (1 - share) for n, p in chances.items()}
            for n, p in chances.items():
                some[n + 1] = some.get(n + 1, 0.0) + p * share
            chances = some
        found.append(min(1.0, sum(p for n, p in chances.items() if n >= mine)))
    return found


@dataclass
class Board:
    """One row per cell, with rank and place among the best, of all methods or of one kind."""

    cells: pd.DataFrame
    values: dict[tuple[str, str], list[float]]

    def __post_init__(self) -> None:
        c = self.cells
        found = [self._measured(row) for _, row in c.iterrows()]
        self.cells = c = c.assign(
            **{name: [f[i] for f in found] for i, name in enumerate(("med", "low", "high", "score"))}
        )
        c["ranked"] = c["ran"] & c["score"].notna() & ~c["marks"].str.contains("one point", regex=False)
        for _, rows in c.groupby("task"):
            c.loc[self._beyond(rows), "ranked"] = False
            ranked = rows.index[c.loc[rows.index, "ranked"]]
            if not np.isfinite(c.loc[ranked, "score"]).any():
                c.loc[ranked, "ranked"] = False
        c[["best", "beaten", "lossy", "beats", "pairs"]] = [False, False, False, 0, 0]
        c["finite"] = c["ranked"] & np.isfinite(c["score"])
        for _, rows in c[c["finite"]].groupby("group"):
            self._compare(rows)
        c["rank"] = math.nan
        for _, rows in c[c["ranked"]].groupby("task"):
            places = list(zip(np.isinf(rows["score"]), rows["lossy"], rows["score"], strict=True))
            c.loc[rows.index, "rank"] = [1.0 + sum(other < own for other in places) for own in places]

    def _measured(self, row: pd.Series) -> tuple[float, float, float, float]:
        values = self.values.get((row["task"], row["label"]))
        if not values or row["status"] != "ok":
            failed = math.inf if row["ran"] and row["status"] != "ok" else math.nan
            return math.nan, math.nan, math.nan, failed
        sign = -1 if row["direction"] == "higher" else 1
        middle, low, high = median([sign * v for v in values])
        return sign * middle, *sorted((sign * low, sign * high)), middle

    @staticmethod
    def _beyond(rows: pd.DataFrame) -> list[Any]:
        """Cells with a budget of their own that spent over 1.1 times what the others did."""
        rows = rows[["budget", "score_evaluations"]]
        usual = rows["budget"] == rows["budget"].mode().iloc[0]
        if 2 * usual.sum() <= len(rows):
            return []
        return list(rows.index[~usual & (rows["score_evaluations"] > 1.1 * rows.loc[usual, "score_evaluations"].max())])

    def _compare(self, rows: pd.DataFrame) -> None:
        tests: list[tuple[Any, ...]] = []
        losses: list[tuple[Any, float]] = []
        for _, mine in rows.groupby("task"):
            sign = -1 if mine["direction"].iloc[0] == "higher" else 1
            lists = [self.values[t, m] for t, m in zip(mine["task"], mine["label"], strict=True)]
            x = sign * np.array([v[: min(map(len, lists))] for v in lists], dtype=float)
            finite = np.isfinite(x)
            if not finite.all():
                losses += zip(mine.index, loses_more(~finite), strict=True)
            x = np.where(finite, x, x[finite].max())
            x = np.log(x) if (x > 0).all() else x
            tests += [(mine.index[i], mine.index[j], m, p) for i, j, m, p in moderated_p(x, mine["overlap"].iloc[0])]
        tests += [(None, i, -1.0, p) for i, p in rows["p_exact"].items() if p == p]  # exact draws are better than i
        tests += [(None, (i,), -1.0, p) for i, p in losses]  # the others lose fewer replicates than i
        worst, worse, told, better = 0.0, set(), set(), []
        for place, (i, j, mean, p) in enumerate(sorted(tests, key=lambda test: test[3])):
            worst = max(worst, p * (len(tests) - place))
            if worst > 0.05:
                break
            if isinstance(j, tuple):
                worse.update(j)
                self.cells.loc[list(j), "lossy"] = True
            elif i is None:
                told.add(j)
            else:
                better.append((i, j) if mean < 0 else (j, i))
        for i, j in better:
            if rows.loc[i, "score"] < rows.loc[j, "score"] and not self.cells.loc[i, "lossy"]:
                worse.add(j)
                self.cells.loc[i, "beats"] += 1
        self.cells.loc[rows.index, "pairs"] = len(tests)
        self.cells.loc[rows.index, "beaten"] = rows.index.isin(worse)
        for _, mine in rows.groupby("task"):
            unbeaten = mine[~mine.index.isin(worse)]
            ratios = unbeaten["med"] / unbeaten["floor"]
            passing = ratios[unbeaten["verdict"] == "indistinguishable"].max()
            lists = [self.values[t, m] for t, m in zip(unbeaten["task"], unbeaten["label"], strict=True)]
            near = bool(told) and all(len(x) > 2 and np.std(np.log(x), ddof=1) <= 0.5 for x in lists)
            best = [i for i, ratio in ratios.items() if not (near and i in told and ratio > 5 * passing)]
            self.cells.loc[best, "best"] = True
            if mine["marks"].str.contains("no better than initial", regex=False).all():
                self.cells.loc[mine.index, "best"] = False

    def by_metric(self, rows: pd.DataFrame) -> str:
        names = set(rows.loc[rows["best"], "primary"])
        if names and all(name.startswith("ksd") for name in names):
            return " Ranked by KSD alone, which sees neither a missed mode nor wrong weights of separated modes."
        predictions = " Ranked by predictions of test rows, which do not tell how near samples are to the posterior."
        return predictions if names == {"nll"} else ""

    def task(self, task: str) -> str:
        return self.one(task) + self.by_metric(self.cells[self.cells["task"] == task])

    def one(self, task: str, shown: str = "") -> str:
        rows = self.cells[self.cells["task"] == task]
        n, best = int(rows["finite"].sum()), rows[rows["best"]].sort_values("rank", kind="stable")
        on = f"On {shown or task}, "
        if not len(best):
            return f"{on}no method has a finite result better than the initial distribution."
        names = []
        for i, (_, r) in enumerate(best.iterrows()):
            scale = r["floor"] if r["floor"] == r["floor"] else 1.0
            value, low, high = (three(r[k] / scale) for k in ("med", "low", "high"))
            text = (
                value
                if i
                else f"{value} × floor [{low}, {high}]"
                if scale == r["floor"]
                else f"{r['primary']} {value} [{low}, {high}]"
            )
            words = [w for w in r["marks"].split(", ") if w not in ("", "edge", "untuned")]
            names.append(f"{r['label']} ({', '.join([text, *words])})")
        who = some(names, 6)
        pairs = int(best["pairs"].iloc[0])
        beaten = int((rows["finite"] & rows["beaten"]).sum())
        far = n - beaten - len(best)
        test = f" (paired t tests{', exact rank tests' * (far > 0)}, Holm over {plural(pairs, 'comparison')}, 5%)"
        draws = "than exact draws, with over five times the medians of the methods that pass for them"
        if n == 1:
            return f"{on}{who} is the only method with a finite result."
        if len(best) == 1:
            return f"{on}{who} is the best of {n} methods: significantly better than {best['beats'].iloc[0]} of {n - 1} others{f', {far} worse {draws}' if far else ''}{test}."
        if len(best) == n:
            return f"{on}none of {n} methods is significantly better than another{test}: {who}."
        other = f"the other {n - len(best)} {'are each' if n - len(best) > 1 else 'is'} significantly worse"
        if not far:
            than = " than another method"
        else:
            than = f", {beaten} than another method and {far} {draws}" if beaten else f" {draws}"
        return f"{on}{len(best)} of {n} methods are among the best: {who}; {other}{than}{test}."

    def several(self, group: str) -> str:
        rows = self.cells[self.cells["group"] == group] if group else self.cells
        return self.outcome(group, rows) + self.by_metric(rows)

    def outcome(self, group: str, rows: pd.DataFrame) -> str:
        tasks = list(dict.fromkeys(rows["task"]))
        if len(tasks) == 1:
            return self.one(tasks[0], f"{group} ({tasks[0]})" if group else "")
        over = f"On {group} ({len(tasks)} tasks), " if group else f"Over all {len(tasks)} tasks, "
        n = rows.loc[rows["finite"], "label"].nunique()
        best = rows[rows["best"]]
        if not len(best):
            return f"{over}no method has a finite result better than the initial distribution."
        count, mean = best.groupby("label").size(), best.groupby("label")["rank"].mean()
        order = sorted(count.index, key=lambda label: (-count[label], mean[label], label))
        words = {}
        for label in order:
            marks = Counter(
                "lost replicates" if w.startswith("lost ") else w
                for m in best.loc[best["label"] == label, "marks"]
                for w in m.split(", ")
                if w not in ("", "edge", "untuned")
            )
            words[label] = [f"{w} on {k}" for w, k in marks.items()]
        every = [label for label in order if count[label] == len(tasks)]

        def name(label: str, *first: str) -> str:
            told = ", ".join([*first, *words[label]])
            return f"{label} ({told})" if told else label

        if len(every) == 1:
            return (
                f"{over}{name(every[0])} is the only one of {plural(n, 'method')} that is among the best on every task."
            )
        if every:
            return f"{over}{len(every)} of {n} methods are among the best on every task: {some([name(v) for v in every], 6)}."
        most = some([name(v, str(count[v])) for v in order if count[v] >= count[order[:3][-1]]], 3)
        return f"{over}none of {plural(n, 'method')} is among the best on every task; most often are {most}."

    def method(self, label: str, group: str) -> str:
        rows = self.cells[(self.cells["label"] == label) & (self.cells["group"] == group) & self.cells["ranked"]]
        best, exact = (
            list(rows.loc[rows["best"], "task"]),
            list(rows.loc[rows["verdict"] == "indistinguishable", "task"]),
        )
        parts = [f"average rank {three(rows['rank'].mean())} over {plural(len(rows), 'task')}"]
        parts += [f"among the best on {', '.join(best)}"] if best else []
        parts += [f"indistinguishable from exact draws on {', '.join(exact)}"] if exact else []
        return f"{group}: {'; '.join(parts)}."


class Sentences:
    """A page's sentences, made again from its ``results.parquet``."""

    def __init__(self, file: Path) -> None:
        self.rows = pd.read_parquet(file)
        self.about = self.rows.attrs
        cells = self.rows.drop_duplicates(["task", "label"]).reset_index(drop=True)
        first = self.rows[self.rows["primary"].fillna(False).astype(bool)]
        of_task = first.drop_duplicates("task").set_index("task")
        floors = first.drop_duplicates(["task", "label"]).set_index(["task", "label"])["floor"]
        keys = pd.MultiIndex.from_frame(cells[["task", "label"]])
        cells["floor"] = floors.reindex(keys).to_numpy()
        cells["primary"], cells["direction"] = (cells["task"].map(of_task[c]) for c in ("metric", "direction"))
        cells["marks"] = cells["marks"].fillna("")
        cells["ran"] = ~cells["anchor"].astype(bool) & ~cells["status"].isin(NOT_RUN)
        cells["n"] = cells["replicates"].map(lambda ids: len(json.loads(ids)))
        self.cells = cells
        self.values = {
            key: v["value"].astype(float).tolist() for key, v in first.groupby(["task", "label"], sort=False)
        }
        self._boards: dict[str, Board] = {}

    def board(self, kind: str = "") -> Board:
        if kind not in self._boards:
            kinds = self.cells.groupby("label")["kind"].agg(lambda v: max(v, key=len))
            tuned = self.cells["label"].isin(self.cells.loc[self.cells["step_origin"] == "tuned", "label"])
            divisions = tuned.map({True: "tuned", False: "self-tuning"})
            shown = (self.cells["label"].map(kinds) == kind) | (divisions == kind) if kind else True
            self._boards[kind] = Board(self.cells[shown | self.cells["anchor"].astype(bool)].copy(), self.values)
        return self._boards[kind]

    @cached_property
    def steps(self) -> tuple[str, int, int, int]:
        """How step sizes were chosen; numbers of cells with one, tuned ones, tuned ones at the grid's edge."""
        c = self.cells[self.cells["step_origin"] != ""]
        tuned = c[c["step_origin"] == "tuned"]
        by = {
            "regression": "tuned on a held-out fifth of the training rows",
            "sequential": "tuned on separate decisions",
        }
        ways = dict.fromkeys(
            next((text for tag, text in by.items() if tag in tags.split(", ")), "tuned against the reference")
            for tags in tuned["tags"]
        )
        cost = c["tuning_evaluations"].sum()
        parts = [", ".join(f"{n} {origin}" for origin, n in Counter(c["step_origin"]).items()), *ways]
        parts += [f"tuning cost: {cost:,.0f} score evaluations in total"] if cost else []
        edge = sum("edge" in marks.split(", ") for marks in tuned["marks"])
        return "; ".join(parts), len(c), len(tuned), edge

    def expected(self, name: str) -> str | None:
        """What a sentence has to say; None where nothing says it."""
        what, *args = name.split("|")
        makers: dict[str, Callable[..., str]] = {
            "headline": lambda kind: self.board(kind).several(""),
            "target": lambda group, kind: self.board(kind).several(group),
            "task": lambda task, kind: self.board(kind).task(task),
            "method": lambda label, group: self.board().method(label, group),
            "protocol": self.protocol,
            "counts": self.counts,
            "steps": lambda: self.steps[0],
            "untuned": self.untuned,
            "unfinished": self.unfinished,
            "check": lambda title: self.check(title),
        }
        return makers[what](*args) if what in makers else None

    def protocol(self) -> str:
        about = self.about["protocol"]
        parts = [f"{v:,g} {UNITS.get(k, k)}" for k, v in (about["budget"] or {}).items() if v is not None]
        names = {"particles": "particles or chains", "samples": "samples judged", "replicates": "replicates"}
        parts += [f"{about[k]:,} {text}" for k, text in names.items() if about[k]]
        limits = {k: v for k, v in (about["budget"] or {}).items() if v is not None}
        whole = limits.get("scores_per_particle", 0) * (about["particles"] or 0) if len(limits) == 1 else 0
        usual = self.cells.groupby("task")["budget"].agg(lambda v: v.mode().iloc[0])
        budgets = usual.map(lambda text: json.loads(text).get("score_evaluations", whole))
        passes = budgets[budgets < 0.999 * whole]
        said = " to ".join(dict.fromkeys(f"{v:,.0f}" for v in (passes.min(), passes.max()))) if len(passes) else ""
        meaning = f" A score evaluation is one pass over the data at one point; a mini-batch counts as its share of the rows: on tasks scored by mini-batches the budget is {said} passes per replicate."
        return f"Budget of each method: {listed(parts)}.{meaning if said else ''}"

    def counts(self) -> str:
        waiting = {"interrupted": self.about["unfinished"]} if self.about["unfinished"] else {}
        by_status = Counter(self.cells["status"].replace(waiting))
        return f"{len(self.cells)} cells: {', '.join(f'{n} {status}' for status, n in by_status.items())}"

    def unfinished(self) -> str:
        missing = (self.cells["status"] == "interrupted").sum()
        return f"This run is {self.about['unfinished']}: {missing} of {len(self.cells)} cells have no result yet."

    def untuned(self) -> str:
        _, n, tuned, _ = self.steps
        which = "No step size was tuned" if not tuned else f"{n - tuned} of {n} step sizes were not tuned"
        return f"{which}: a method may rank low here because its step size does not suit the target."

    def check(self, title: str) -> str:
        return {"Equal conditions": self.equal, "Tuning": self.tuning, "Convergence": self.converged,
                "Best methods": lambda: RULE, "Cost": self.cost}[title]()  # fmt: skip

    def tuning(self) -> str:
        text, n, _, edge = self.steps
        if not n:
            return "No method has a step size."
        return f"Step sizes: {text}." + (f" Best values at the edge of the grid (marked |): {edge}." if edge else "")

    def converged(self) -> str:
        c = self.cells[
            ~self.cells["anchor"].astype(bool) & (self.cells["status"] == "ok") & (self.cells["convergence"] != "")
        ]
        meaning = {
            "converged": " (R-hat and ESS)",
            "flat": " (the metric no longer falls; no test of convergence applies)",
        }
        words = ", ".join(
            f"{n} {state}{meaning.get(state, '')}" for state, n in sorted(Counter(c["convergence"]).items())
        )
        worse = int(c["marks"].str.contains("no better than initial", regex=False).sum())
        more = f" {worse} {'is' if worse == 1 else 'are'} no better than the initial distribution." if worse else ""
        return f"Of {len(c)} results: {words}.{more}"

    def cost(self) -> str:
        ok = self.cells[self.cells["status"] == "ok"]
        parts = [f"{(ok['score_evaluations'] * ok['n']).sum():,.0f} score evaluations"]
        if ok["seconds"].notna().any():
            hours = ok["seconds"].sum() / 3600, ok["overhead_seconds"].sum() / 3600
            parts.append(
                f"{hours[0]:.2g} hours of steady-state compute on one process; {hours[1]:.2g} hours of metrics and warm-up"
            )
        tuning = self.cells["tuning_evaluations"].sum()
        return "; ".join([*parts, *([f"{tuning:,.0f} score evaluations of tuning"] if tuning else [])]) + "."

    def equal(self) -> str:
        c = self.cells[~self.cells["anchor"].astype(bool)]
        seeds = c["seed"].astype(str) + " " + c["replicates"]
        shared = {"budget": c["budget"], "number of samples judged": c["samples"].map(str), "seeds and data splits": seeds,
                  "number of particles or chains": c["particles"].map(str)}  # fmt: skip
        parts = []
        for what, values in shared.items():
            usual = values.groupby(c["task"]).transform(lambda v: v.mode().iloc[0])
            odd = list(dict.fromkeys(c.loc[values != usual, "label"]))
            parts.append(
                f"The methods of a task had the same {what}, except {some(odd, 6)}."
                if odd
                else f"All methods of a task had the same {what}."
            )
        where = {"own": "own initial points", **STARTS}
        apart = {text: list(dict.fromkeys(c.loc[c["start"] == kind, "label"])) for kind, text in where.items()}
        said = [f"{some(labels, 6)} ({text})" for text, labels in apart.items() if labels]
        started = (c["start"] != "").sum()
        if said:
            parts.append(f"The methods of a task started at its initial points, except {listed(said)}.")
        elif started and started == (c["status"] == "ok").sum():
            parts.append("All methods started at the task's initial points (which differ between numbers of chains).")
        return " ".join(parts)


def false_sentences(folder: Path) -> list[str]:
    """What is wrong on the page of a folder."""
    said, page, wrong = (
        Spans((folder / "index.html").read_text("utf-8")).found,
        Sentences(folder / "results.parquet"),
        [],
    )
    if not any(name.startswith("headline") for name in said):
        wrong.append(f"{folder}: no sentence with an id")
    for name, text in said.items():
        expected = page.expected(name)
        if expected is None:
            wrong.append(f"{folder}: nothing recomputes {name}: {text}")
        elif expected != text:
            wrong.append(f"{folder}: {name}\n  says     {text}\n  is       {expected}")
    return wrong


def false_on_the_front_page(reports: Path) -> list[str]:
    """What is wrong on the page over several reports; it is silent about folders whose results are in no file of this form."""
    wrong = []
    for folder, text in Spans((reports / "index.html").read_text("utf-8")).found.items():
        file = reports / folder / "results.parquet"
        if file.is_file() and "primary" in pd.read_parquet(file):
            expected = Sentences(file).expected("headline|")
            wrong += [] if text == expected else [f"{reports}: {folder}\n  says     {text}\n  is       {expected}"]
    return wrong


if __name__ == "__main__":
    folders = list(map(Path, sys.argv[1:]))
    found = [
        line
        for folder in folders
        for line in (false_sentences if (folder / "results.parquet").is_file() else false_on_the_front_page)(folder)
    ]
    print("\n".join(found) or "every sentence is true")
    sys.exit(bool(found))
