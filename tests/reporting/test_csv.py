"""CSV files are opened in spreadsheets: no text of a store is run there, and numbers stay numbers."""

import csv
from pathlib import Path

import pandas as pd
import pytest

from parvibench.reporting.formatting import write_csv


@pytest.mark.parametrize("label", ["=cmd()", "+1+1", "-1+1", "@SUM(1)", "\t=1", "\r=1", '=HYPERLINK("http://x")'])
def test_a_formula_becomes_text(label: str, tmp_path: Path) -> None:
    write_csv(pd.DataFrame({"label": [label, "svgd"], label: [1.5, -2.0]}), tmp_path / "x.csv")
    with (tmp_path / "x.csv").open(newline="") as file:
        head, *rows = csv.reader(file)
    text = "'" + label.replace("\t", " ").replace("\r", " ")
    assert head == ["label", text]
    assert rows == [[text, "1.5"], ["svgd", "-2"]]


def test_other_values_stay(tmp_path: Path) -> None:
    table = pd.DataFrame({"task": ["a-b", "c"], "value": [-1.0, float("inf")], "n": pd.array([1, None], dtype="Int64")})
    write_csv(table, tmp_path / "x.csv")
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "x.csv", dtype={"n": "Int64"}), table, check_dtype=False)
