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
import sys
from collections import Counter
from collections.abc import Callable
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
from board_again import Board, Slots, Use, first_of, words

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
            cells = self.cells[shown | self.cells["anchor"].astype(bool)].copy()
            self._boards[kind] = Board(cells, self.values, self.reached)
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
        warm = set(self.cells.loc[self.cells["start"] == "warm", "label"])  # at a reference draw, which no user has
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
        c = self.cells[~self.cells["anchor"].astype(bool) & (self.cells["status"] == "ok")]
        c = c[c["convergence"] != ""]
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
        seeds = c["seed"].astype(str) + " " + c["replicates"]
        for values in (c["budget"], c["samples"].map(str), seeds, c["particles"].map(str)):
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
    found = []
    for folder in map(Path, sys.argv[1:]):
        found += (false_sentences if (folder / "results.parquet").is_file() else false_on_the_front_page)(folder)
    print("\n".join(found) or "every sentence is true")
    sys.exit(bool(found))
