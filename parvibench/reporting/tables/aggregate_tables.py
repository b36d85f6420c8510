"""Tables over tasks: average ranks, aggregates."""

import math
from collections.abc import Sequence

import pandas as pd

from parvibench.reporting.facts.averages import average_ranks, common_tasks
from parvibench.reporting.facts.findings import View
from parvibench.reporting.formatting import count, interval

from .table import ALL_GROUPS, Column, Row, Table, method, numeric


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
    body = []
    for label in labels:
        means = [[*map(float, p.loc[label])] if label in p.index else [math.nan] * 3 for p in parts.values()]
        body.append(Row((method(label), *(numeric(mean, note=f"[{interval(*ends)}]") for mean, *ends in means))))
    caption = "interquartile mean of the ratio to the floor [95%]"
    return Table(caption, (Column("method", numeric=False), *columns), tuple(body))
