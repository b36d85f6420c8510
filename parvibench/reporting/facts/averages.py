"""Averages of a board over tasks: ranks, and the tasks that methods have in common."""

from collections.abc import Iterator

import pandas as pd

from parvibench.core.result import Status

from . import board as lb

#: As given by ``by_method``.
Method = tuple[str, pd.Series, dict[str, lb.Row]]


def common_tasks(board: pd.DataFrame) -> list[str]:
    """Tasks of a board, in its order, that all methods ran on that ran on half of the tasks.

    Averages over them are of the same tasks for all methods: a method that loses to another on all of them cannot be
    listed above it.
    """
    rows = board[~board["anchor"].astype(bool) & ~board["status"].isin([str(s) for s in lb.NOT_RUN])]
    ran = {str(label): set(mine["task"]) for label, mine in rows.groupby("label", sort=False)}
    names = [str(t) for t in dict.fromkeys(rows["task"])]
    counted = [mine for mine in ran.values() if 2 * len(mine) >= len(names)]
    return [t for t in names if all(t in mine for mine in counted)]


def average_ranks(board: pd.DataFrame) -> pd.DataFrame:
    """Rank of every method of a board averaged over the tasks that rank it; best first, anchors last.

    Index label; columns ``anchor``, ``average_rank`` (ties share the mean of their ranks), ``n_tasks`` (that rank the
    method) and ``n_failed`` (of these, without a result).
    """
    rows = board[["task", "label", "anchor", "status", "rank"]].copy()
    # ``rank`` gives ties the best of their places; an average needs the middle.
    rows["rank"] = rows.groupby("task")["rank"].rank(method="average")
    failed = rows["rank"].notna() & (rows["status"] != Status.OK)
    frame = rows.assign(failed=failed).groupby("label", sort=False).agg(
        anchor=("anchor", "first"), average_rank=("rank", "mean"), n_tasks=("rank", "count"), n_failed=("failed", "sum")
    )  # fmt: skip
    return frame.sort_values(["anchor", "average_rank"], kind="stable")


def by_label(board: pd.DataFrame) -> dict[str, dict[str, lb.Row]]:
    """Label -> task -> row of the board."""
    rows: dict[str, dict[str, lb.Row]] = {}
    for row in board.to_dict("records"):
        rows.setdefault(str(row["label"]), {})[str(row["task"])] = row
    return rows


def by_method(board: pd.DataFrame) -> Iterator[Method]:
    """Label, row of ``average_ranks`` and, by task, rows of the board of every method: best first, anchors last."""
    rows = by_label(board)
    for label, rank in average_ranks(board).iterrows():
        yield str(label), rank, rows[str(label)]
