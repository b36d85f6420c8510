"""The shipped suites of the papers: every published number has a place, and fast profiles cut no budget."""

from collections import Counter
from fnmatch import fnmatchcase
from functools import cache

import pytest
from papers.published import PAPERS, numbers

from parvibench.core import registry
from parvibench.harness.suite.cells import expand
from parvibench.harness.suite.suite import Suite, load_suite
from parvibench.suites import of_papers, shipped


@cache
def suites() -> dict[str, Suite]:
    return {name: load_suite(name) for name in of_papers()}


def test_every_paper_has_its_suites_and_they_are_named_after_it() -> None:
    assert {name.partition("-")[0] for name in of_papers()} == set(PAPERS)
    assert set(of_papers()) < set(shipped())
    assert all(suite.name == name and suite.rows for name, suite in suites().items())


def test_every_number_has_a_row_or_a_reason() -> None:
    """Once: a number that a row names is not said to be incomparable, and no other suite names it."""
    named = Counter(p.pointer for s in suites().values() for r in s.rows if not r.varies for p in r.published)
    assert set(named) <= set(numbers())
    assert [p for p, n in named.items() if n > 1] == []
    given = [pattern for s in suites().values() for pattern in s.incomparable]
    assert [g for g in given if not any(fnmatchcase(p, g) for p in numbers())] == []
    absent = {p for p in numbers() if any(fnmatchcase(p, g) for g in given)}
    assert not absent & set(named)
    assert set(numbers()) == absent | set(named)


def test_ratios_name_numbers_of_their_own_suite() -> None:
    for suite in suites().values():
        own = {p.pointer for r in suite.rows for p in r.published}
        assert {p.over for r in suite.rows for p in r.published if p.over} <= own


@pytest.mark.parametrize("name", list(of_papers()))
def test_profiles_cut_rows_and_seeds_and_never_budgets(name: str) -> None:
    suite = suites()[name]
    assert next(iter(suite.profiles)) == "paper"
    assert "fast" in suite.profiles
    assert suite.profiles["paper"].rows is None
    for profile in suite.profiles.values():
        assert profile.budget is profile.particles is profile.samples is profile.contexts is None
        # What `run --dry-run` foresees; nothing of a recording that has to be requested.
        assert profile.hours or any(registry.tasks()[row.task].judged_by == "none" for row in suite.rows)


def test_numbers_of_one_chain_are_read_off_one_run() -> None:
    """Tables 1, 3 and 4 of the SRLD paper: the same cells."""
    keys = []
    for name in ("srld-table-1", "srld-table-3", "srld-table-4"):
        suite = suites()[name]
        cells = zip(suite.rows, expand(suite), strict=True)
        keys.append({c.key for r, c in cells if r.display == "srld"})
    assert keys[0] == keys[1] == keys[2]
    assert len(keys[0]) == 7
