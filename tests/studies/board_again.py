"""A published board made again from its rows, and the names and numbers that its sentences need; nothing of ParVIBench is imported."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import optimize, special, stats


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
        both = {"lacks": missing, "false": more}
        return "; ".join(f"{what}: {', '.join(sorted(values))}" for what, values in both.items() if values)


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
        only = self.tasks if len(self.tasks) == 1 else ()
        return {self.group, *self.with_tuning, *only, str(len(self.tasks)), str(self.most)}

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
        columns = zip(*found, strict=True)
        self.cells = c = c.assign(**dict(zip(("med", "low", "high", "score"), columns, strict=True)))
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
            numbers = ("med", "low", "high")[: 1 if i else 3]
            needed += [r["label"], *(three(r[k] / scale) for k in numbers), *words(r["marks"])]
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
                needs = np.append(middle(times[draws]), middle(times))
                cost.setdefault(key[1], []).append(np.log(np.fmax(needs, 1e-9)))
                tuned.setdefault(key[1], []).append(math.log(max(middle(times), 1e-9) + tuning))
        times_near = {label: n for label, n in times_near.items() if label in labels}
        cost = {label: np.mean(logs, axis=0) for label, logs in cost.items()}
        least = {label: sorted(n)[50] for label, n in times_near.items()}
        most = max(least.values(), default=0)
        most = most if 2 * most > len(tasks) else 0
        best = []
        for label in (label for label in least if least[label] == most > 0):
            own = rows[rows["label"] == label]
            rising = own["direction"].iloc[0] != "higher"
            shown = (own["med"] / own["floor"].fillna(1.0)).sort_values(ascending=rising, kind="stable")
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
