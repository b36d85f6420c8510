"""Recomputes from results.parquet what published pages say; imports nothing of ParVIBench.

    python tests/studies/sentences.py reports reports/toy reports/uci

Every assembled sentence of a page is in an element with ``data-s``, its id. The names and numbers in it are compared with
those that follow from the file: all that are needed are there, and no others. Its wording is free. Printed are sentences that
the file contradicts, ids for which there is no recomputation, and ranks and places among the best that the file itself states
otherwise; the exit code is then 1.
"""

from __future__ import annotations

import json
import math
import re
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


class Spans(HTMLParser):
    """Texts of the elements with ``data-s`` by their id."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: dict[str, str] = {}
        self._open, self._tag = "", ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if name := dict(attrs).get("data-s"):
            self._open, self._tag = name, tag
            self.found[name] = ""

    def handle_data(self, data: str) -> None:
        if self._open:
            self.found[self._open] += f"{data} " if self._tag != "span" else data

    def handle_endtag(self, tag: str) -> None:
        if tag == self._tag:
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


@dataclass
class Slots:
    """The names and numbers that a sentence needs, and those that it may have besides."""

    needed: list[str]
    allowed: set[str]

    def wrong(self, text: str, names: list[str]) -> str:
        """What is missing in a text or too much; empty where all is right. ``names``: all that a sentence could name."""
        found = []
        if names:
            pattern = "|".join(re.escape(n) for n in sorted(names, key=len, reverse=True))
            whole = re.compile(rf"(?<![\w-])(?:{pattern})(?![\w-])")
            found, text = whole.findall(text), whole.sub(" ", text)
        found += NUMBER.findall(text)
        missing = Counter(self.needed) - Counter(found)
        more = set(found) - set(self.needed) - self.allowed - {"other"}  # a kind of target, and a word
        return "; ".join(
            f"{what}: {', '.join(sorted(values))}" for what, values in (("lacks", missing), ("false", more)) if values
        )


NUMBER = re.compile(r"(?<![\w.])(?:−?∞|–|-?\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?)(?![\w%]|-\w)")


def first_of(labels: list[str], most: int) -> list[str]:
    """The names that a sentence has of a list, and how many more there are."""
    return [*labels] if len(labels) <= most else [*labels[:most], str(len(labels) - most)]


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


def middle(x: np.ndarray) -> np.ndarray:
    """Medians over the last axis."""
    x, n = np.sort(x, axis=-1), x.shape[-1]
    return (x[..., (n - 1) // 2] + x[..., n // 2]) / 2


@dataclass
class Use:
    """What to use for a kind of target: methods as (has marks, log cost, result, label, marks), the cheapest first."""

    group: str
    tasks: list[str]
    most: int
    best: list[tuple[bool, float, float, str, list[str]]]
    unsettled: list[str]
    dearer: bool
    numbered: bool
    with_tuning: set[str]  # not on pages that are older than this number

    @property
    def allowed(self) -> set[str]:
        return {
            self.group,
            *self.with_tuning,
            *(self.tasks if len(self.tasks) == 1 else ()),
            str(len(self.tasks)),
            str(self.most),
        }

    def named(self, method: tuple[bool, float, float, str, list[str]], *, cost: bool) -> list[str]:
        _, spent, result, label, marks = method
        return [label, *marks, *[three(result)] * self.numbered, *[f"{math.exp(spent):,.0f}"] * cost]

    @property
    def sentence(self) -> Slots:
        if not self.best:
            return Slots(first_of(self.unsettled, 3), self.allowed)
        needed = self.named(self.best[0], cost=True)
        if len(self.best) > 1 and self.dearer:
            needed += [self.best[1][3], *self.best[1][4], three(math.exp(self.best[1][1] - self.best[0][1]))]
        elif len(self.best) > 1:
            needed += self.named(self.best[1], cost=False)
        return Slots(needed, self.allowed)

    def row(self, *, unsettled: bool = True) -> Slots:
        needed = [part for method in self.best[:3] for part in self.named(method, cost=True)]
        return Slots(needed + (first_of(self.unsettled, 2) if unsettled else []), self.allowed)


@dataclass
class Board:
    """One row per cell, with rank and place among the best, of all methods or of one kind."""

    cells: pd.DataFrame
    values: dict[tuple[str, str], list[float]]
    reached: dict[tuple[str, str], list[float]]

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

    def task(self, task: str) -> Slots:
        rows = self.cells[self.cells["task"] == task]
        n, best = int(rows["finite"].sum()), rows[rows["best"]].sort_values("rank", kind="stable")
        needed = []
        for i, (_, r) in enumerate(best.head(6).iterrows()):
            scale = r["floor"] if r["floor"] == r["floor"] else 1.0
            needed += [
                r["label"],
                *(three(r[k] / scale) for k in ("med", "low", "high")[: 1 if i else 3]),
                *words(r["marks"]),
            ]
        needed += [str(len(best) - 6)] * (len(best) > 6)
        beaten, k = int((rows["finite"] & rows["beaten"]).sum()), len(best)
        far = n - k - beaten
        if k and n > 1:
            needed += map(str, (n, best["pairs"].iloc[0]))
        if 1 == k < n:
            needed += map(str, (best["beats"].iloc[0], n - 1, *[far] * (far > 0)))
        elif 1 < k < n:
            needed += map(str, (k, n - k, *((beaten, far) if beaten and far else ())))
        return Slots(needed, {task, *rows["group"]})

    def use(self, group: str, labels: set[str]) -> Use:
        """What to use of some methods: near the best of this board's methods, whichever replicates are drawn again."""
        rows = self.cells[self.cells["group"] == group] if group else self.cells
        tasks = list(dict.fromkeys(rows["task"]))
        times_near, cost, tuned = {}, {}, {}
        rows = rows[rows["finite"]]
        for _, mine in rows.groupby("task", sort=False):
            keys = list(zip(mine["task"], mine["label"], strict=True))
            n = min(len(self.values[key]) for key in keys)
            sign = -1 if mine["direction"].iloc[0] == "higher" else 1
            draws = np.random.default_rng(0).integers(n, size=(1000, n))
            x = sign * np.array([self.values[key][:n] for key in keys], dtype=float)
            middles = middle(np.where(np.isnan(x), math.inf, x)[:, draws])
            lowest, floor = middles.min(0), mine["floor"].iloc[0]
            limit = np.where(lowest > 0, 1.5 * (lowest if floor != floor else np.maximum(lowest, floor)), lowest / 1.5)
            if mine["primary"].iloc[0] == "nll":
                limit = lowest + 0.1
            each = mine["score_evaluations"], mine["tuning_evaluations"].fillna(0.0), middles <= limit
            for key, spent, tuning, own in zip(keys, *each, strict=True):
                times = np.nan_to_num(np.array(self.reached.get(key, [math.nan] * n), dtype=float)[:n], nan=spent)
                times_near[key[1]] = times_near.get(key[1], 0) + own
                cost.setdefault(key[1], []).append(
                    np.log(np.fmax(np.append(middle(times[draws]), middle(times)), 1e-9))
                )
                tuned.setdefault(key[1], []).append(math.log(max(middle(times), 1e-9) + tuning))
        times_near = {label: n for label, n in times_near.items() if label in labels}
        cost = {label: np.mean(logs, axis=0) for label, logs in cost.items()}
        least = {label: sorted(n)[50] for label, n in times_near.items()}
        most = max(least.values(), default=0)
        most = most if 2 * most > len(tasks) else 0
        best = []
        for label in (label for label in least if least[label] == most > 0):
            own = rows[rows["label"] == label]
            shown = (own["med"] / own["floor"].fillna(1.0)).sort_values(
                ascending=own["direction"].iloc[0] != "higher", kind="stable"
            )
            marks = list(dict.fromkeys(w for m in own["marks"][shown.index[:most]] for w in words(m)))
            best.append((bool(marks), cost[label][-1], shown.iloc[most - 1], label, marks))
        best = sorted(b for b in best if b[0] == min(best)[0])
        agree = times_near[best[0][3]] >= most if best else True
        best = [b for b in best if (agree & (times_near[b[3]] >= most)).mean() >= 0.95]
        wanted = most or len(tasks) // 2 + 1
        share = {label: float((n >= wanted).mean()) for label, n in times_near.items() if least[label] < wanted}
        unsettled = sorted((k for k in share if share[k] > 1 - 0.95), key=lambda k: (-share[k], k))
        dearer = False
        if len(best) > 1:
            first, second = (b[3] for b in best[:2])
            dearer = (agree & (times_near[second] >= most) & (cost[first] < cost[second])[:-1]).mean() >= 0.95
        floors, primary = rows["floor"].notna(), set(rows["primary"])
        numbered = bool(floors.all()) or (len(tasks) == 1 and len(primary) == 1)
        with_tuning = {f"{math.exp(np.mean(tuned[b[3]])):,.0f}" for b in best}
        return Use(group, tasks, most, best, unsettled, bool(dearer), numbered, with_tuning)


def words(marks: str) -> list[str]:
    """The warnings among marks."""
    return [w for w in marks.split(", ") if w not in ("", "edge", "untuned")]


class Sentences:
    """A page's sentences, made again from its ``results.parquet``."""

    def __init__(self, file: Path) -> None:
        self.rows = pd.read_parquet(file)
        self.about = self.rows.attrs
        cells = self.rows.drop_duplicates(["task", "label"]).reset_index(drop=True)
        first = self.rows[self.rows["primary"].fillna(False).astype(bool)]
        first = first.assign(reached=first.get("reached", math.nan))  # not in files of an older form
        of_task = first.drop_duplicates("task").set_index("task")
        floors = first.drop_duplicates(["task", "label"]).set_index(["task", "label"])["floor"]
        keys = pd.MultiIndex.from_frame(cells[["task", "label"]])
        cells["floor"] = floors.reindex(keys).to_numpy()
        cells["primary"], cells["direction"] = (cells["task"].map(of_task[c]) for c in ("metric", "direction"))
        cells["marks"] = cells["marks"].fillna("")
        cells["ran"] = ~cells["anchor"].astype(bool) & ~cells["status"].isin(NOT_RUN)
        cells["n"] = cells["replicates"].map(lambda ids: len(json.loads(ids)))
        self.cells = cells
        of_cell = dict(list(first.groupby(["task", "label"], sort=False)))
        self.values = {key: v["value"].astype(float).tolist() for key, v in of_cell.items()}
        self.reached = {key: v["reached"].astype(float).tolist() for key, v in of_cell.items()}
        self._boards: dict[str, Board] = {}

    def board(self, kind: str = "") -> Board:
        if kind not in self._boards:
            kinds = self.cells.groupby("label")["kind"].agg(lambda v: max(v, key=len))
            tuned = self.cells["label"].isin(self.cells.loc[self.cells["step_origin"] == "tuned", "label"])
            divisions = tuned.map({True: "tuned", False: "self-tuning"})
            shown = (self.cells["label"].map(kinds) == kind) | (divisions == kind) if kind else True
            self._boards[kind] = Board(
                self.cells[shown | self.cells["anchor"].astype(bool)].copy(), self.values, self.reached
            )
        return self._boards[kind]

    @cached_property
    def steps(self) -> tuple[Slots, int, int]:
        """How step sizes were chosen; numbers of cells with one, and of tuned ones."""
        c = self.cells[self.cells["step_origin"] != ""]
        cost, counts = c["tuning_evaluations"].sum(), Counter(c["step_origin"])
        edge = sum("edge" in marks.split(", ") for marks in c.loc[c["step_origin"] == "tuned", "marks"])
        needed = [*map(str, counts.values()), *([f"{cost:,.0f}"] if cost else [])]
        return Slots(needed, {str(edge)}), len(c), counts["tuned"]

    @cached_property
    def names(self) -> list[str]:
        """All that a sentence could name: methods, tasks, kinds of target, warnings."""
        c = self.cells[~self.cells["anchor"].astype(bool)]
        marks = (w for m in c["marks"] for w in words(m))
        every = dict.fromkeys(["lost replicates", *c["label"], *c["task"], *c["group"], *marks, *c["convergence"]])
        return [name for name in every if name]

    def expected(self, name: str) -> Slots | None:
        """What a sentence has to name and number; None where nothing says it."""
        what, *args = name.split("|")
        makers: dict[str, Callable[..., Slots]] = {
            "headline": lambda part: self.headline(part).sentence,
            "kind": lambda group, part: self.use(group, part).sentence,
            "use": lambda group, part: self.use(group, part).row(),
            "task": lambda task, kind: self.board(kind).task(task),
            "protocol": self.protocol,
            "counts": self.counts,
            "steps": lambda: self.steps[0],
            "untuned": lambda: Slots([], {str(self.steps[1] - self.steps[2]), str(self.steps[1])}),
            "unfinished": lambda: Slots([str((self.cells["status"] == "interrupted").sum())], {str(len(self.cells))}),
            "check": lambda title: self.check(title),
        }
        return makers[what](*args) if what in makers else None

    def use(self, group: str, part: str = "") -> Use:
        shown = self.board(part).cells
        warm = set(
            self.cells.loc[self.cells["start"] == "warm", "label"]
        )  # at a reference draw: nothing that a user has
        return self.board().use(group, set(shown.loc[~shown["anchor"].astype(bool), "label"]) - warm)

    def headline(self, part: str = "") -> Use:
        """Of a kind of target with a method: without warnings, near on most tasks, on every one."""
        every = [self.use(group, part) for group in ("", *dict.fromkeys(self.cells["group"]))]
        worth = [(bool(u.best), bool(u.best) and not u.best[0][0], u.most, u.most == len(u.tasks)) for u in every]
        return every[worth.index(max(worth))] if max(worth)[0] else every[0]

    def protocol(self) -> Slots:
        about = self.about["protocol"]
        limits = {k: v for k, v in (about["budget"] or {}).items() if v is not None}
        counts = [about[k] for k in ("particles", "samples", "replicates") if about[k]]
        whole = limits.get("scores_per_particle", 0) * (about["particles"] or 0) if len(limits) == 1 else 0
        usual = self.cells.groupby("task")["budget"].agg(lambda v: v.mode().iloc[0])
        budgets = usual.map(lambda text: json.loads(text).get("score_evaluations", whole))
        passes = budgets[budgets < 0.999 * whole]
        ends = dict.fromkeys(f"{v:,.0f}" for v in (passes.min(), passes.max())) if len(passes) else ()
        return Slots([*(f"{v:,g}" for v in limits.values()), *(f"{n:,}" for n in counts), *ends], set())

    def counts(self) -> Slots:
        return Slots([str(len(self.cells)), *map(str, Counter(self.cells["status"]).values())], set())

    def check(self, title: str) -> Slots:
        return {"Equal conditions": self.equal, "Tuning": lambda: self.steps[0], "Convergence": self.converged,
                "Cost": self.cost}[title]()  # fmt: skip

    def converged(self) -> Slots:
        c = self.cells[
            ~self.cells["anchor"].astype(bool) & (self.cells["status"] == "ok") & (self.cells["convergence"] != "")
        ]
        states = [part for state, n in Counter(c["convergence"]).items() for part in (state, str(n))]
        worse = int(c["marks"].str.contains("no better than initial", regex=False).sum())
        return Slots([str(len(c)), *states, *([str(worse)] if worse else [])], set())

    def cost(self) -> Slots:
        ok, tuning = self.cells[self.cells["status"] == "ok"], self.cells["tuning_evaluations"].sum()
        needed = [f"{(ok['score_evaluations'] * ok['n']).sum():,.0f}", *([f"{tuning:,.0f}"] if tuning else [])]
        if ok["seconds"].notna().any():
            needed += [f"{ok[column].sum() / 3600:.2g}" for column in ("seconds", "overhead_seconds")]
        return Slots(needed, set())

    def equal(self) -> Slots:
        c = self.cells[~self.cells["anchor"].astype(bool)]
        needed = []
        for values in (
            c["budget"],
            c["samples"].map(str),
            c["seed"].astype(str) + " " + c["replicates"],
            c["particles"].map(str),
        ):
            usual = values.groupby(c["task"]).transform(lambda v: v.mode().iloc[0])
            needed += first_of(list(dict.fromkeys(c.loc[values != usual, "label"])), 6)
        for kind in ("own", "prior", "warm", "pathfinder", "laplace"):
            needed += first_of(list(dict.fromkeys(c.loc[c["start"] == kind, "label"])), 6)
        return Slots(needed, set())

    def contradictions(self) -> list[str]:
        """Cells whose rank or place among the best in some view is another one; none in a file of an older form."""
        wrong = []
        for view in json.loads(self.cells["ranks"].iloc[0]) if "ranks" in self.cells else ():
            for _, r in self.board(view).cells.iterrows():
                said = json.loads(r["ranks"]).get(view)
                made = [None if math.isnan(r["rank"]) else int(r["rank"]), bool(r["best"])]
                if said != made:
                    wrong.append(f"{r['label']} on {r['task']} among {view or 'all'}: {said}, is {made}")
        return wrong


def false_sentences(folder: Path) -> list[str]:
    """What is wrong on the page of a folder, and in its file."""
    said = Spans((folder / "index.html").read_text("utf-8")).found
    page = Sentences(folder / "results.parquet")
    wrong = [f"{folder}: {line}" for line in page.contradictions()]
    if not any(name.startswith("headline") for name in said):
        wrong.append(f"{folder}: no sentence with an id")
    for name, text in said.items():
        expected = page.expected(name)
        if expected is None:
            wrong.append(f"{folder}: nothing recomputes {name}: {text}")
        elif found := expected.wrong(text, page.names):
            wrong.append(f"{folder}: {name}\n  says     {text}\n  {found}")
    return wrong


def false_on_the_front_page(reports: Path) -> list[str]:
    """What is wrong on the page over several reports; it is silent about folders whose results are in no file of this form."""
    wrong = []
    for name, text in Spans((reports / "index.html").read_text("utf-8")).found.items():
        folder, *group = name.split("|")
        file = reports / folder / "results.parquet"
        if file.is_file() and "reached" in pd.read_parquet(file):
            page = Sentences(file)
            slots = page.use(*group).row(unsettled=not page.use(*group).best) if group else page.headline().sentence
            slots.allowed.update(p.parent.name for p in reports.glob("*/index.html"))
            found = slots.wrong(text, page.names)
            wrong += [f"{reports}: {name}\n  says     {text}\n  {found}"] if found else []
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
