"""Leaderboards as Markdown and as tables for the terminal."""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pandas as pd

from parvibench.core.result import Status
from parvibench.harness.store.results import StoredRun

from .floor_comparison import lost_references
from .formatting import number
from .leaderboard import MORE, NO_BETTER, ONE_POINT, Row, average_ranks, groups, shown, table
from .page_tables import Table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

#: Marks beside the numbers of a leaderboard.
MARKS = {
    "≈": "indistinguishable from exact draws at this sample size (5%, all metrics with a floor combined by Holm)",
    "*": "some replicates diverged or blew up and count as worst",
    "†": "transient: R-hat above 1.05, or the path's bulk ESS below a quarter of the samples",
    "↓": "still improving: the last doubling of the budget brought more than 5%",
    "‡": "no better than the initial distribution",
    "•": "one point, many times: a discrepancy without reference samples cannot rank it among samples",
    "+": "more score evaluations than the others have: not ranked",
    "|": "step size at the edge of the tuning grid",
    "?": "step size not tuned",
}
#: Marks for the words of the column ``marks``.
_OF_WORDS = {
    "transient": "†",
    "still improving": "↓",
    NO_BETTER: "‡",
    ONE_POINT: "•",
    MORE: "+",
    "edge": "|",
    "untuned": "?",
}


def entry(row: Row) -> str:
    """A leaderboard's text for a row: its number with its ``MARKS``, or its status where it has none."""
    if row["status"] != Status.OK:
        return str(row["status"])
    mark = "≈" if row["verdict"] == "indistinguishable" else ""
    return mark + number(shown(row)) + ("*" if row["n_diverged"] else "") + _symbols(row)


def _symbols(row: Row) -> str:
    words = str(row["marks"]).split(", ")
    return "".join(symbol for word, symbol in _OF_WORDS.items() if word in words)


def marks_used(board: pd.DataFrame) -> list[str]:
    """The marks used in a board, with their meanings."""
    ok = board[board["status"] == Status.OK]
    symbols = "".join(_symbols(row) for row in ok.to_dict("records"))
    used = {mark: mark in symbols for mark in MARKS}
    used |= {"≈": bool((ok["verdict"] == "indistinguishable").any()), "*": bool((ok["n_diverged"] > 0).any())}
    return [f"{mark}: {meaning}" for mark, meaning in MARKS.items() if used[mark]]


def to_markdown(results: StoredRun, board: pd.DataFrame) -> str:
    """The leaderboards as Markdown tables."""
    ranks = average_ranks(board)
    rows = {(r["task"], r["label"]): r for _, r in board.iterrows()}
    lines = [f"# ParVIBench leaderboard: {_plain(results.run.suite.get('name', ''))}", ""]
    lines += [
        f"Run {_plain(results.run.id)}. Bold: best of the task among those that have converged. Anchors in italics are not ranked.",
        "",
    ]
    lines += [f"{_plain(mark)}.".replace("*", "\\*") for mark in marks_used(board)] + [""]
    for group in groups(board):
        lines += [f"## {_plain(group.title)}", ""]
        lines.append(_line(["method", "average rank", "tasks", *map(_plain, group.tasks)]))
        lines.append(_line(["---", *["---:"] * (2 + len(group.tasks))]))
        for label, rank in ranks.iterrows():
            cells = [_markdown_cell(rows.get((task, label))) for task in group.tasks]
            name = f"*{_plain(label)}*" if rank["anchor"] else _plain(label)
            lines.append(_line([name, number(rank["average_rank"]), str(rank["n_tasks"]), *cells]))
        lines.append("")
    failed = board[~board["status"].isin([Status.OK])]
    if len(failed):
        lines += ["## Without a result", "", _line(["task", "method", "status", "reason"]), _line(["---"] * 4)]
        texts = failed[["task", "label", "status", "reason"]].to_numpy()
        lines += [_line([_plain(text)[:300] for text in row]) for row in texts]
    return "\n".join(lines).rstrip() + "\n"


def markdown_table(table: Table) -> list[str]:
    """The lines of a table in Markdown."""
    lines = [_line([_plain(c.title) for c in table.columns])]
    lines.append(_line(["---:" if c.numeric else "---" for c in table.columns]))
    for row in table.rows:
        lines.append(_line([_plain(f"{e.text} {e.note}".strip()).replace("*", "\\*") for e in row.entries]))
    return lines


def _markdown_cell(row: pd.Series | None) -> str:
    if row is None:
        return ""
    text = _plain(entry(row)).replace("*", "\\*")
    return f"**{text}**" if row["best"] else text


def _plain(text: object) -> str:
    """Text escaped for Markdown, on one line."""
    return html.escape(" ".join(str(text).split()), quote=False).replace("|", "\\|")


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def print_leaderboard(results: StoredRun, console: Console, board: pd.DataFrame | None = None) -> None:
    """Print methods x tasks, one table per primary metric (several where the console is narrow).

    ``board`` is that of ``leaderboard.table``, if already made.
    """
    from rich.text import Text

    board = table(results) if board is None else board
    ranks = average_ranks(board)
    rows = {(r["task"], r["label"]): r for _, r in board.iterrows()}
    for group in groups(board):
        console.print(Text(group.title, style="bold"))
        for part in _fitting(group.tasks, console.width - (7 if _differ_in_tasks(ranks) else 0), results):
            console.print(_rich_table(part, ranks, rows))
    notes = ["bold: best of the task among those that have converged; italics: anchors, not ranked", *marks_used(board)]
    console.print(Text("; ".join(notes), style="dim"))
    if lost := lost_references(results.cells):
        console.print(Text(lost, style="yellow"))
    for _, row in board[board["status"] != Status.OK].iterrows():
        reason = " ".join(row["reason"].split())
        line = Text.assemble((row["status"], "yellow"), f"  {row['task']} / {row['label']}: {reason:.200}")
        console.print(line, soft_wrap=False)


def _rich_table(tasks: list[str], ranks: pd.DataFrame, rows: dict[tuple[str, str], pd.Series]) -> object:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD)
    drawn.add_column("method", max_width=20, overflow="ellipsis", no_wrap=True)
    drawn.add_column("avg rank", justify="right", no_wrap=True)
    counted = _differ_in_tasks(ranks)
    if counted:
        drawn.add_column("tasks", justify="right", no_wrap=True)
    for task in tasks:
        drawn.add_column(Text(_broken(task)), justify="right", no_wrap=False)
    for label, rank in ranks.iterrows():
        name = Text(str(label), style="italic" if rank["anchor"] else "")
        average = "" if rank["anchor"] else number(rank["average_rank"])
        count = [str(rank["n_tasks"] or "")] if counted else []
        drawn.add_row(name, average, *count, *[_rich_cell(rows.get((task, str(label)))) for task in tasks])
    return drawn


def _differ_in_tasks(ranks: pd.DataFrame) -> bool:
    """Whether methods are ranked on different numbers of tasks, which a table then shows."""
    return ranks.loc[~ranks["anchor"].astype(bool), "n_tasks"].nunique() > 1


def _rich_cell(row: pd.Series | None) -> Text:
    from rich.text import Text

    if row is None:
        return Text("")
    style = "bold" if row["best"] else "" if row["status"] == Status.OK else "yellow"
    return Text(entry(row), style=style)


def _broken(name: str) -> str:
    """A long name over several lines, at its hyphens."""
    lines = [""]
    for part in name.replace("-", "-\n").split("\n"):
        if lines[-1] and len(lines[-1]) + len(part) > 12:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def _fitting(tasks: tuple[str, ...], width: int, results: StoredRun) -> Iterator[list[str]]:
    """Tasks in groups whose columns fit the width beside the method's name."""
    labels = max((len(c.label) for c in results.cells), default=6)
    free = width - min(20, max(6, labels)) - 16
    part: list[str] = []
    used = 0
    for task in tasks:
        statuses = [len(c.status) for c in results.cells if c.task == task and c.status != Status.OK]
        need = 2 + max(6, *map(len, _broken(task).split("\n")), *statuses)
        if part and used + need > free:
            yield part
            part, used = [], 0
        part.append(task)
        used += need
    if part:
        yield part
