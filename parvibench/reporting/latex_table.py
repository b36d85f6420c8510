"""The leaderboard as a LaTeX table for papers (packages booktabs and amsmath)."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd

from parvibench.core.result import Status
from parvibench.harness.store.results import StoredRun

from . import leaderboard as lb
from .formatting import number
from .text_tables import entry, marks_used

_SPECIAL = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
}  # fmt: skip
_SIGNS = {
    "∞": r"$\infty$",
    "−": "$-$",
    "–": "--",
    "≈": r"$\approx$",
    "…": r"\ldots{}",
    "|": "$|$",
    "†": r"$\dagger$",
    "‡": r"$\ddagger$",
    "↓": r"$\downarrow$",
}


def escape(text: object) -> str:
    """Text as LaTeX prints it; what is not printable is left out."""
    return "".join((_SPECIAL | _SIGNS).get(c, c) for c in str(text) if c.isprintable())


def write_latex(results: StoredRun, out: Path, board: pd.DataFrame | None = None) -> Path:
    """Write ``leaderboard.tex`` into a folder; its path. ``board`` is that of ``leaderboard.table``, if already made."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / "leaderboard.tex"
    path.write_text(to_latex(results, board), encoding="utf-8")
    return path


def to_latex(results: StoredRun, board: pd.DataFrame | None = None) -> str:
    """One booktabs table per quantity, methods by tasks: value, 95% interval, bold where best; anchors in italics."""
    board = lb.table(results) if board is None else board
    ranks = lb.average_ranks(board)
    rows = {(r["task"], r["label"]): r for _, r in board.iterrows()}
    lines = [rf"% ParVIBench, run {escape(results.run.id)}. \usepackage{{booktabs}}"]
    for group in lb.groups(board):
        heads = " & ".join([r"method", "avg. rank", *map(escape, group.tasks)])
        lines += [
            r"\begin{table}", r"\centering", rf"\caption{{{_caption(group, board)}}}",
            rf"\begin{{tabular}}{{lr{'r' * len(group.tasks)}}}", r"\toprule", heads + r" \\", r"\midrule",
        ]  # fmt: skip
        anchored = False
        for label, rank in ranks.iterrows():
            found = [rows.get((task, label)) for task in group.tasks]
            if all(row is None for row in found):
                continue
            if rank["anchor"] and not anchored:
                lines.append(r"\midrule")
                anchored = True
            name = rf"\textit{{{escape(label)}}}" if rank["anchor"] else escape(label)
            average = "" if rank["anchor"] else escape(number(rank["average_rank"]))
            lines.append(" & ".join([name, average, *map(_cell, found)]) + r" \\")
        lines += [r"\bottomrule", r"\end{tabular}", r"\end{table}", ""]
    return "\n".join(lines)


def _caption(group: lb.Group, board: pd.DataFrame) -> str:
    shown = board[board["task"].isin(group.tasks)]
    replicates = sorted({int(n) for n in shown["replicates"]})
    over = "--".join(str(n) for n in dict.fromkeys((replicates[0], replicates[-1])))
    text = escape(group.title)[0].upper() + escape(group.title)[1:]
    marks = "".join(f" {escape(mark)}." for mark in marks_used(shown))
    return f"{text}: median of {over} replicates with its 95\\% interval. Bold: best of the task.{marks}"


def _cell(row: pd.Series | None) -> str:
    if row is None:
        return ""
    text = escape(entry(row))
    if row["status"] != Status.OK:
        return text
    _, low, high = lb.shown_interval(row)
    around = "" if math.isnan(low) else rf" {{\scriptsize [{escape(number(low))}, {escape(number(high))}]}}"
    return (rf"\textbf{{{text}}}" if lb.is_best(row) else text) + around
