"""Tables of a run: per task, over tasks, as Markdown, CSV and in the terminal.

Every requested cell has a row. The anchors ``exact`` and ``initial`` stand beside the methods and are not
ranked. Cells that diverged, timed out, ran out of memory or crashed share the last rank; cells that were
not run (unsupported, skipped, interrupted) have none.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import pandas as pd

from parvibench.core import registry
from parvibench.core.reference import Floor
from parvibench.core.result import CellRecord, Status
from parvibench.harness.results import Results, metric_values
from parvibench.statistics import median_interval

from .judgement import floor_of, judge

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

NOT_RUN = (Status.UNSUPPORTED, Status.SKIPPED, Status.INTERRUPTED)
#: What stands beside a number in a leaderboard.
MARKS = {
    "≈": "indistinguishable from exact draws at this sample size (5%, all metrics with a floor combined by Holm)",
    "*": "some replicates diverged and count as worst",
}
#: Columns of ``table`` before the medians of all metrics.
COLUMNS = (
    "task", "rank", "label", "algorithm", "kind", "anchor", "status", "reason", "metric", "median", "low",
    "high", "floor_ratio", "verdict", "p_value", "equivalent", "equivalent_low", "equivalent_high", "n_diverged", "replicates", "samples", "score_evaluations", "seconds",
)  # fmt: skip


@dataclass(frozen=True)
class Group:
    """Tasks whose leaderboards show the same quantity.

    Attributes:
        metric: the primary metric.
        ratio: whether it is divided by the floor's median.
        tasks: names, in the order of the run.
    """

    metric: str
    ratio: bool
    tasks: tuple[str, ...]

    @property
    def title(self) -> str:
        """What the numbers are."""
        if self.ratio:
            return f"{self.metric} over its floor (1: as good as exact draws)"
        row = registry.metrics().get(self.metric)
        direction = f" ({row.goal})" if row is not None else ""
        return f"{self.metric or 'no metric'}{direction}"


def task_names(results: Results) -> list[str]:
    """The tasks of a run, in its order."""
    return list(dict.fromkeys(c.task for c in results.cells))


def is_anchor(cell: CellRecord) -> bool:
    """Whether a cell is there for comparison only."""
    row = registry.algorithms().get(cell.algorithm)
    return cell.kind == "anchor" or (row is not None and row.kind == "anchor")


def higher_is_better(metric: str) -> bool:
    """The direction of a metric; lower for unknown ones."""
    row = registry.metrics().get(metric)
    return row is not None and row.direction == "higher"


def primary_metric(results: Results, task: str) -> str:
    """The metric that ranks a task: its own, or for unknown tasks the first there is; empty without any."""
    present = dict.fromkeys(m for c in results.cells if c.task == task for m in c.values)
    own = _declared_primary(task)
    return next((m for m in (own, "sliced_w2", "nll", *present) if m in present), own)


def floor(task: str, metric: str, n: int) -> Floor | None:
    """The floor of a metric at sample size n where a ratio to it makes sense, else None."""
    row = registry.metrics().get(metric)
    return floor_of(task, metric, n) if row is not None and row.floor_ratio else None


@cache
def _declared_primary(task: str) -> str:
    try:
        return registry.load_task(task).primary
    except Exception:  # a plug-in's module may fail in any way; the report does without
        return ""


def ranking(results: Results, task: str) -> pd.DataFrame:
    """One row per cell of a task, best first, then unranked ones, then anchors; columns ``COLUMNS``.

    ``median`` is the primary metric's over replicates (failed replicates count as worst), ``low`` and
    ``high`` its 95% interval, ``floor_ratio`` the median over the floor's median; ``verdict`` to
    ``equivalent_high`` see ``judgement.Judgement``. ``score_evaluations`` and ``seconds`` are per replicate.
    """
    metric = primary_metric(results, task)
    sign = -1 if higher_is_better(metric) else 1
    frame = pd.DataFrame(
        [_row(c, metric) for c in results.cells if c.task == task],
        columns=[c for c in COLUMNS if c != "rank"],
    )
    ranked = ~frame["anchor"] & ~frame["status"].isin([str(s) for s in NOT_RUN])
    score = sign * frame["median"].astype(float)
    score[ranked & (frame["status"] != Status.OK)] = math.inf
    ranked &= score.notna()
    frame.insert(1, "rank", score.where(ranked).rank(method="min"))
    order = frame.assign(score=score).sort_values(["anchor", "rank", "score"], kind="stable").index
    return frame.loc[order].reset_index(drop=True)


def _row(cell: CellRecord, metric: str) -> dict[str, object]:
    median, low, high = median_interval(metric_values(metric, cell.values.get(metric, [])))
    found = floor(cell.task, metric, cell.samples)
    judged = judge(cell, metric)
    return {
        "task": cell.task,
        "label": cell.label,
        "algorithm": cell.algorithm,
        "kind": cell.kind,
        "anchor": is_anchor(cell),
        "status": str(cell.status),
        "reason": cell.reason,
        "metric": metric,
        "median": median,
        "low": low,
        "high": high,
        "floor_ratio": median / found.median if found else math.nan,
        "verdict": judged.verdict,
        "p_value": judged.p_value,
        "equivalent": judged.equivalent,
        "equivalent_low": judged.low,
        "equivalent_high": judged.high,
        "n_diverged": cell.n_diverged,
        "replicates": cell.replicates,
        "samples": cell.samples,
        "score_evaluations": cell.score_evaluations,
        "seconds": cell.seconds / max(1, cell.replicates),
    }


def table(results: Results) -> pd.DataFrame:
    """All rankings, one below the other, with the median of every other metric beside them."""
    medians = {
        (c.task, c.label): {m: median_interval(metric_values(m, v))[0] for m, v in c.values.items()}
        for c in results.cells
    }
    rankings = [ranking(results, task) for task in task_names(results)]
    if not rankings:
        return pd.DataFrame(columns=list(COLUMNS))
    frame = pd.concat(rankings, ignore_index=True)
    wide = pd.DataFrame([medians[key] for key in zip(frame["task"], frame["label"], strict=True)])
    return pd.concat([frame, wide.drop(columns=[m for m in wide if m in COLUMNS])], axis=1)


def groups(board: pd.DataFrame) -> list[Group]:
    """Tasks of ``table`` by what their leaderboards show."""
    found: dict[tuple[str, bool], list[str]] = {}
    for task, rows in board.groupby("task", sort=False):
        key = (str(rows["metric"].iloc[0]), bool(rows["floor_ratio"].notna().any()))
        found.setdefault(key, []).append(str(task))
    return [Group(metric, ratio, tuple(tasks)) for (metric, ratio), tasks in found.items()]


def average_ranks(board: pd.DataFrame) -> pd.DataFrame:
    """Rank of every method averaged over the tasks that rank it; best first, anchors last.

    Args:
        board: from ``table``.

    Returns:
        Index label; columns ``anchor``, ``average_rank`` (ties share the mean of their ranks), ``n_tasks``
        (that rank it), ``n_failed`` (of these, without a result).
    """
    rows = board[["task", "label", "anchor", "status", "rank"]].copy()
    # ``rank`` gives ties the best of their places; an average needs the middle.
    rows["rank"] = rows.groupby("task")["rank"].rank(method="average")
    failed = rows["rank"].notna() & (rows["status"] != Status.OK)
    by_label = rows.assign(failed=failed).groupby("label", sort=False)
    frame = pd.DataFrame(
        {
            "anchor": by_label["anchor"].first(),
            "average_rank": by_label["rank"].mean(),
            "n_tasks": by_label["rank"].count(),
            "n_failed": by_label["failed"].sum(),
        }
    )
    return frame.sort_values(["anchor", "average_rank"], kind="stable")


def values(results: Results) -> pd.DataFrame:
    """Long form of everything: one row per task, label, metric and replicate (null: not finite).

    A cell without values has one row without metric, so that no requested cell is missing.
    """
    columns = ["task", "label", "algorithm", "status", "metric", "replicate", "value"]
    rows: list[tuple[object, ...]] = []
    for c in results.cells:
        head = (c.task, c.label, c.algorithm, str(c.status))
        found = [(*head, m, r, v) for m, stored in c.values.items() for r, v in enumerate(stored)]
        rows.extend(found or [(*head, None, None, None)])
    types = {"metric": "string", "replicate": "Int64", "value": "float64"}
    return pd.DataFrame(rows, columns=columns).astype(types)


def number(value: float | None) -> str:
    """Three significant digits; a dash for nothing."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    value = float(f"{value:.3g}")
    size = abs(value)
    if value == 0 or 1e-3 <= size < 1e5:
        digits = 0 if value == 0 else max(0, 2 - math.floor(math.log10(size)))
        return f"{value:.{digits}f}"
    mantissa, _, exponent = f"{value:.2e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def shown(row: pd.Series) -> float:
    """What a leaderboard shows of a row: the ratio to the floor where there is one, else the median."""
    return float(row["median"] if math.isnan(row["floor_ratio"]) else row["floor_ratio"])


def entry(row: pd.Series) -> str:
    """A row's place in a matrix: its number with its marks (see ``MARKS``); else its status."""
    if row["status"] != Status.OK:
        return str(row["status"])
    alike = "≈" if row["verdict"] == "indistinguishable" else ""
    return alike + number(shown(row)) + ("*" if row["n_diverged"] else "")


def marks_used(board: pd.DataFrame) -> list[str]:
    """The marks that a board needs, with their meanings."""
    ok = board[board["status"] == Status.OK]
    used = {"≈": (ok["verdict"] == "indistinguishable").any(), "*": (ok["n_diverged"] > 0).any()}
    return [f"{mark}: {meaning}" for mark, meaning in MARKS.items() if used[mark]]


def to_markdown(results: Results) -> str:
    """The leaderboards as Markdown tables."""
    board = table(results)
    ranks = average_ranks(board)
    rows = {(r["task"], r["label"]): r for _, r in board.iterrows()}
    lines = [f"# ParVIBench leaderboard: {_plain(results.run.suite.get('name', ''))}", ""]
    lines += [f"Run {_plain(results.run.id)}. Bold: best of the task. Anchors in italics are not ranked.", ""]
    lines += [f"{_plain(mark)}.".replace("*", "\\*") for mark in marks_used(board)] + [""]
    for group in groups(board):
        lines += [
            f"## {_plain(group.title)}",
            "",
            _line(["method", "average rank", *map(_plain, group.tasks)]),
        ]
        lines.append(_line(["---", *["---:"] * (1 + len(group.tasks))]))
        for label, rank in ranks.iterrows():
            cells = [_markdown_cell(rows.get((task, label))) for task in group.tasks]
            name = f"*{_plain(label)}*" if rank["anchor"] else _plain(label)
            lines.append(_line([name, number(rank["average_rank"]), *cells]))
        lines.append("")
    failed = board[~board["status"].isin([Status.OK])]
    if len(failed):
        lines += [
            "## Without a result",
            "",
            _line(["task", "method", "status", "reason"]),
            _line(["---"] * 4),
        ]
        lines += [_line([_plain(r[c])[:300] for c in ("task", "label", "status", "reason")]) for _, r in failed.iterrows()]  # fmt: skip
    return "\n".join(lines).rstrip() + "\n"


def _markdown_cell(row: pd.Series | None) -> str:
    if row is None:
        return ""
    text = _plain(entry(row)).replace("*", "\\*")
    return f"**{text}**" if row["rank"] == 1 and row["status"] == Status.OK else text


def _plain(text: object) -> str:
    """Text that Markdown shows as it is, on one line."""
    return html.escape(" ".join(str(text).split()), quote=False).replace("|", "\\|")


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def print_leaderboard(results: Results, console: Console) -> None:
    """Print methods x tasks, one table per primary metric (several where the console is narrow)."""
    from rich.text import Text

    board = table(results)
    ranks = average_ranks(board)
    rows = {(r["task"], r["label"]): r for _, r in board.iterrows()}
    for group in groups(board):
        console.print(Text(group.title, style="bold"))
        for part in _fitting(group.tasks, console.width, results):
            console.print(_rich_table(part, ranks, rows))
    notes = ["bold: best of the task; italics: anchors, not ranked", *marks_used(board)]
    console.print(Text("; ".join(notes), style="dim"))
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
    for task in tasks:
        drawn.add_column(Text(_broken(task)), justify="right", no_wrap=False)
    for label, rank in ranks.iterrows():
        name = Text(str(label), style="italic" if rank["anchor"] else "")
        average = "" if rank["anchor"] else number(rank["average_rank"])
        drawn.add_row(name, average, *[_rich_cell(rows.get((task, str(label)))) for task in tasks])
    return drawn


def _rich_cell(row: pd.Series | None) -> Text:
    from rich.text import Text

    if row is None:
        return Text("")
    ok = row["status"] == Status.OK
    style = "bold" if ok and row["rank"] == 1 else "" if ok else "yellow"
    return Text(entry(row), style=style)


def _broken(name: str) -> str:
    """A long name over several lines, at its hyphens."""
    lines = [""]
    for part in name.replace("-", "-\n").split("\n"):
        if lines[-1] and len(lines[-1]) + len(part) > 12:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def _fitting(tasks: tuple[str, ...], width: int, results: Results) -> Iterator[list[str]]:
    """Tasks in portions whose columns fit beside the method's name."""
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
