"""Tables over tasks: the methods among the best, average ranks, aggregates."""

from collections.abc import Mapping, Sequence

import pandas as pd

from parvibench.reporting.facts import board as lb
from parvibench.reporting.facts.averages import average_ranks, common_tasks
from parvibench.reporting.facts.findings import Best, View
from parvibench.reporting.formatting import count, interval
from parvibench.reporting.text import leaders

from .table import ALL_GROUPS, Column, Entry, Row, Table, method, numeric

_WINNER_COLUMNS = (
    Column("target", "a task, or shaded a kind of target", numeric=False),
    Column("among the best", "on every task of the target", numeric=False),
    Column(
        "lowest result",
        "ratio to the floor (1: as good as exact draws) or the metric named; 95% interval",
        numeric=False,
    ),
    Column(
        "significantly worse", "than another method, or than exact draws where a method passes for them", numeric=False
    ),
    Column("fewest score evaluations", "of the methods among the best, counted per replicate"),
    Column("least seconds", "of the methods among the best, steady-state compute time per replicate"),
)


def winners_table(view: View, links: Mapping[str, str]) -> Table:
    """The methods among the best of every kind of target and of every task; ``links``: task -> fragment of its section."""
    rows = []
    for group in view.groups:
        rows.append(_winner_row(group, group.where, f"{group.where} ({count(len(group.tasks), 'task')})", ""))
        rows += [
            _winner_row(b, group.where, b.where, links.get(b.where, "")) for b in view.tasks if b.where in group.tasks
        ]
    return Table("methods among the best by target", _WINNER_COLUMNS, tuple(rows))


def _winner_row(best: Best, group: str, title: str, link: str) -> Row:
    target, members = Entry(title, link=link, note=group if link else ""), best.members
    names = Entry(", ".join(members) or "none on every task", look="best strong" if members else "status")
    worse = Entry(f"{best.compared - len(members)} of {best.compared}" if link else "")
    lowest = Entry("")
    if link and members:
        row = best.rows.iloc[0]
        lowest = Entry(leaders.result(lb.shown_interval(row), lb.unit(row)), note=str(row["label"]))
    cost = best.rows[best.rows["label"].isin(members)].groupby("label")[["score_evaluations", "seconds"]].mean()
    least = [_least(cost[c]) for c in cost]
    return Row((target, names, lowest, worse, *least), group=group, look="" if link else "group")


def _least(costs: pd.Series) -> Entry:
    costs = costs.dropna()
    return numeric(float(costs.min()), note=str(costs.idxmin())) if len(costs) else Entry("")


def ranks_table(board: pd.DataFrame) -> Table | None:
    """Average ranks over the tasks that all methods ran on that ran on half of them; None where these are all or none."""
    common = common_tasks(board)
    if not common or len(common) == board["task"].nunique():
        return None
    ranks = average_ranks(board[board["task"].isin(common)])
    ranks = ranks[~ranks["anchor"].astype(bool) & (ranks["n_tasks"] == len(common))]
    body = tuple(Row((method(str(label)), numeric(rank))) for label, rank in ranks["average_rank"].items())
    title = f"average rank over the {len(common)} tasks that all methods ran on: {', '.join(common)}"
    return Table(title, (Column("method", numeric=False), Column("average rank")), body)


def means_table(view: View, tasks: Sequence[str]) -> Table:
    """Interquartile means of the ratio to the floor, over all of these tasks and over each group."""
    board = view.board
    by_group = {"all": tuple(tasks)} | {
        str(g): tuple(str(t) for t in rows["task"].unique())
        for g, rows in board[board["task"].isin(tasks)].groupby("group", sort=False)
    }
    parts = {g: view.means(t) for g, t in by_group.items()}
    columns = [
        Column(g, f"interquartile mean over {', '.join(t)}"[:300], group=ALL_GROUPS if g == "all" else g, sub=count(len(t), "task"))
        for g, t in by_group.items()
    ]  # fmt: skip
    labels = dict.fromkeys(str(label) for part in parts.values() for label in part.index)
    body = [Row((method(label), *[_mean_entry(part, label) for part in parts.values()])) for label in labels]
    caption = "interquartile mean of the ratio to the floor [95%]"
    return Table(caption, (Column("method", numeric=False), *columns), tuple(body))


def _mean_entry(part: pd.DataFrame, label: str) -> Entry:
    if label not in part.index:
        return Entry("")
    value, low, high = (float(part[column][label]) for column in ("value", "low", "high"))
    return numeric(value, note=f"[{interval(low, high)}]")
