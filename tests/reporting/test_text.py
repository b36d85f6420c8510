"""Marks beside the numbers of a leaderboard."""

import math

import pandas as pd

from parvibench.reporting.facts import board as leaderboard


def test_marks_beside_a_number() -> None:
    row = {
        "status": "ok",
        "median": 3.1,
        "floor_ratio": 1.234,
        "verdict": "indistinguishable",
        "n_diverged": 1,
        "marks": "transient, edge",
    }
    crashed = {
        "status": "crashed",
        "reason": "",
        "median": math.nan,
        "floor_ratio": math.nan,
        "verdict": "",
        "n_diverged": 0,
        "marks": "",
    }
    assert leaderboard.entry(row) == "≈1.23*†|"
    assert leaderboard.entry(crashed) == "crashed"
    assert [line[0] for line in leaderboard.marks_used(pd.DataFrame([row, crashed]))] == ["≈", "*", "†", "|"]
