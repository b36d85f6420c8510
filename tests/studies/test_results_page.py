"""docs/results.md says what the boards say: its numbers are those of their leaderboards, and false ones fail."""

import re
from pathlib import Path

import pandas as pd
import pytest
import results_page
from board_again import three

#: Tests of studies, which are no part of the product.
pytestmark = pytest.mark.ci

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")


def wrong(page: str) -> list[str]:
    """Entries of the page's tables that the files of the boards, written by ParVIBench, state otherwise."""
    found = []
    for part in page.split("\n## ")[1:]:
        rows = [
            [entry.strip() for entry in line.strip("|").split("|")] for line in part.splitlines() if line[:1] == "|"
        ]
        (unit, *tasks), _, *body = rows
        (board,) = re.findall(r"reports/([\w-]+)/", part)
        rows = pd.read_parquet(ROOT / "reports" / board / "results.parquet")
        if unit == "over the floor":
            numbers = rows.drop_duplicates(["label", "task"]).set_index(["label", "task"])["floor_ratio"]
        else:
            numbers = rows[rows["metric"] == unit].groupby(["label", "task"])["value"].median()
        for label, *entries in body:
            for task, entry in zip(tasks, entries, strict=True):
                known = numbers.get((label, task), float("nan"))
                if entry != three(known) and not (entry == "∞" and not known < float("inf")):
                    found.append(f"{board}: {label} on {task}: {entry}, not {three(known)}")
    return found


def test_the_page_is_that_of_the_boards() -> None:
    assert results_page.page(ROOT / "reports") == PAGE


def test_the_tables_are_those_of_the_leaderboards() -> None:
    assert not wrong(PAGE)
    assert len(re.findall("^## ", PAGE, re.M)) >= 10


ROWS = [line for line in PAGE.splitlines() if re.match(r"\| [a-z][^|]*\| [\d∞]", line)]


@pytest.mark.parametrize("row", ROWS[:: len(ROWS) // 11][:12], ids=lambda row: row.split("|")[1].strip())
def test_false_numbers_are_found(row: str) -> None:
    """One digit of a number, and the name of another method in its place."""
    number = re.findall(r"\d+\.?\d*(?= \|$)|∞", row)[-1]
    digit = "1" if number[-1] != "1" else "2"
    assert wrong(PAGE.replace(row, row.replace(f"{number} |", f"{number[:-1]}{digit} |")))
    name = row.split("|")[1].strip()
    assert wrong(PAGE.replace(row, row.replace(name, "nuts" if name != "nuts" else "svgd", 1)))


def test_a_finding_that_no_longer_holds_is_an_error() -> None:
    finding = results_page.FINDINGS[0]
    board = results_page.Board(ROOT / "reports" / finding.board)
    x = finding.numbers(board)
    with pytest.raises(ValueError, match="write it anew"):
        finding.say(x.assign(**{x.columns[0]: 9.0}), board)
