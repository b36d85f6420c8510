"""Leaderboards as text: Markdown, LaTeX for papers (packages booktabs and amsmath), tables for the terminal."""

import html
import math
from collections.abc import Iterator, Sequence

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from parvibench.core import registry
from parvibench.core.result import Status
from parvibench.reporting.facts.board import entry, groups, marks_used, shown_interval, unfinished
from parvibench.reporting.facts.findings import Method
from parvibench.reporting.facts.run import Facts
from parvibench.reporting.figures.figure import slug
from parvibench.reporting.formatting import number
from parvibench.reporting.text import marks

_LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "∞": r"$\infty$",
    "−": "$-$",
    "–": "--",
    "≈": r"$\approx$",
    "…": r"\ldots{}",
    "|": "$|$",
    "†": r"$\dagger$",
    "‡": r"$\ddagger$",
    "↓": r"$\downarrow$",
})  # fmt: skip


def to_markdown(facts: Facts) -> str:
    """The leaderboards as Markdown tables."""
    board = facts.board
    lines = [f"# ParVIBench leaderboard: {_plain(facts.suite.get('name', ''))}", ""]
    lines += [f"Run {_plain(facts.run.id)}. {marks.BOLD}", ""]
    lines += [text, ""] if (text := unfinished(facts)) else []
    lines += [f"{_plain(mark)}.".replace("*", "\\*") for mark in marks_used(board)] + [""]
    for group in groups(board):
        lines += [f"## {_plain(group.title)}", ""]
        lines.append(_line(["method", "average rank", "tasks", *map(_plain, group.tasks)]))
        lines.append(_line(["---", *["---:"] * (2 + len(group.tasks))]))
        for label, rank, rows in facts.all.methods:
            shown = {task: _plain(entry(row)).replace("*", "\\*") for task, row in rows.items()}
            cells = [f"**{shown[t]}**" if t in rows and rows[t]["best"] else shown.get(t, "") for t in group.tasks]
            name = f"*{_plain(label)}*" if rank["anchor"] else _plain(label)
            lines.append(_line([name, number(rank["average_rank"]), str(rank["n_tasks"]), *cells]))
        lines.append("")
    failed = board[board["status"] != Status.OK]
    if len(failed):
        lines += ["## Without a result", "", _line(["task", "method", "status", "reason"]), _line(["---"] * 4)]
        texts = [(row["task"], row["label"], entry(row), row["reason"]) for row in failed.to_dict("records")]
        lines += [_line([_plain(text)[:300] for text in row]) for row in texts]
    return "\n".join(lines).rstrip() + "\n"


def _plain(text: object) -> str:
    """Text escaped for Markdown, on one line."""
    return html.escape(" ".join(str(text).split()), quote=False).replace("|", "\\|")


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def escape(text: object) -> str:
    """Text as LaTeX prints it; what is not printable is left out."""
    return "".join(filter(str.isprintable, str(text))).translate(_LATEX)


def to_latex(facts: Facts) -> str:
    """One booktabs table per quantity, methods by tasks: value, 95% interval, bold where best; anchors in italics."""
    board = facts.board
    own = {c.label for c in facts.cells if c.algorithm not in registry.algorithms()}
    lines = [rf"% ParVIBench, run {escape(facts.run.id)}. \usepackage{{booktabs}}"]
    for group in groups(board):
        label = slug(*filter(None, (str(facts.suite.get("name", "")), group.metric)))
        board_of = board[board["task"].isin(group.tasks)]
        counts = sorted({int(n) for n in board_of["replicates"]})
        over = "--".join(str(n) for n in dict.fromkeys((counts[0], counts[-1])))
        caption = escape(marks.caption(group.title, over)) + "".join(f" {escape(m)}." for m in marks_used(board_of))
        heads = " & ".join([r"method", "avg. rank", *map(escape, group.tasks)])
        lines += [
            r"\begin{table}", r"\centering", rf"\caption{{{caption}}}", rf"\label{{tab:{label}}}",
            rf"\begin{{tabular}}{{lr{'r' * len(group.tasks)}}}", r"\toprule", heads + r" \\", r"\midrule",
        ]  # fmt: skip
        anchored = False
        for label, rank, rows in facts.all.methods:
            if rows.keys().isdisjoint(group.tasks):
                continue
            cells = []
            for row in map(rows.get, group.tasks):
                text = "" if row is None else escape(entry(row))
                if row is not None and row["status"] == Status.OK:
                    _, low, high = shown_interval(row)
                    around = rf" {{\scriptsize [{escape(number(low))}, {escape(number(high))}]}}"
                    text = (rf"\textbf{{{text}}}" if row["best"] else text) + around * (not math.isnan(low))
                cells.append(text)
            if rank["anchor"] and not anchored:
                lines.append(r"\midrule")
                anchored = True
            name = rf"\textit{{{escape(label)}}}" if rank["anchor"] else escape(label) + " (own)" * (label in own)
            average = "" if rank["anchor"] else escape(number(rank["average_rank"]))
            lines.append(" & ".join([name, average, *cells]) + r" \\")
        lines += [r"\bottomrule", r"\end{tabular}", r"\end{table}", ""]
    return "\n".join(lines)


def print_leaderboard(facts: Facts, console: Console) -> None:
    """Print methods x tasks, one table per primary metric (several where the console is narrow)."""
    board = facts.board
    methods = facts.all.methods
    counted = len({rank["n_tasks"] for _, rank, _ in methods if not rank["anchor"]}) > 1
    plain = console.color_system is None  # without bold, the best are in brackets
    for group in groups(board):
        console.print(Text(group.title, style="bold"))
        for part in _fitting(group.tasks, console.width - (7 if counted else 0), facts):
            console.print(_rich_table(part, methods, counted=counted, plain=plain))
    look, anchors = ("[ ]", "") if plain else ("bold", "; italics: anchors, not ranked")
    best = marks.BEST_SHORT.format(look=look, anchors=anchors)
    console.print(Text("; ".join([best, *marks_used(board)]), style="dim"))
    for notice in filter(None, (unfinished(facts), marks.lost_references(facts.lost_references))):
        console.print(Text(notice, style="yellow"))
    told: dict[tuple[str, str], list[str]] = {}
    for row in board[(board["status"] != Status.OK) | np.isinf(board["median"].astype(float))].to_dict("records"):
        reason = " ".join(row["reason"].split())
        if not reason and row["n_diverged"]:
            reason = f"{row['n_diverged']} of {row['replicates']} replicates diverged"
        reason = reason or f"{row['metric']} is not finite"
        told.setdefault((entry(row), reason), []).append(f"{row['task']} / {row['label']}")
    for (word, reason), cells in told.items():
        more = f" and {len(cells) - 1} more" if len(cells) > 1 else ""
        console.print(Text.assemble((word, "yellow"), f"  {cells[0]}{more}: {reason:.200}"), soft_wrap=False)


def _rich_table(tasks: list[str], methods: Sequence[Method], *, counted: bool, plain: bool) -> Table:
    """Methods x tasks; ``counted``: with the number of tasks that rank each, where these differ."""
    drawn = Table(box=box.SIMPLE_HEAD)
    drawn.add_column("method", max_width=20, overflow="ellipsis", no_wrap=True)
    drawn.add_column("avg rank", justify="right", no_wrap=True)
    if counted:
        drawn.add_column("tasks", justify="right", no_wrap=True)
    for task in tasks:
        drawn.add_column(Text(_broken(task)), justify="right", no_wrap=False)
    for label, rank, rows in methods:
        name = Text(label, style="italic" if rank["anchor"] else "")
        average = "" if rank["anchor"] else number(rank["average_rank"])
        cells: list[str | Text] = [str(rank["n_tasks"] or "")] if counted else []
        for row in map(rows.get, tasks):
            best, text = row is not None and row["best"], "" if row is None else entry(row)
            style = "bold" if best else "" if row is None or row["status"] == Status.OK else "yellow"
            cells.append(Text(f"[{text}]" if plain and best else text, style=style))
        drawn.add_row(name, average, *cells)
    return drawn


def _broken(name: str) -> str:
    """A long name over several lines, at its hyphens."""
    lines = [""]
    for part in name.replace("-", "-\n").split("\n"):
        if lines[-1] and len(lines[-1]) + len(part) > 12:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def _fitting(tasks: tuple[str, ...], width: int, facts: Facts) -> Iterator[list[str]]:
    """Tasks in groups whose columns fit the width beside the method's name."""
    labels = max((len(c.label) for c in facts.cells), default=6)
    free = width - min(20, max(6, labels)) - 16
    part: list[str] = []
    used = 0
    for task in tasks:
        failed = [c for c in facts.by_task[task] if c.status != Status.OK]
        statuses = [len(marks.status_word(c.status, c.reason)) for c in failed]
        need = 2 + max(8, *map(len, _broken(task).split("\n")), *statuses)
        if part and used + need > free:
            yield part
            part, used = [], 0
        part.append(task)
        used += need
    if part:
        yield part
