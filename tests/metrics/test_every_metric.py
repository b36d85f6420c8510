"""What every metric owes: a test against a known answer, and a floor or a reason for none."""

import ast
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from parvibench.core import registry
from parvibench.core.metric import Need
from parvibench.metrics import floors

COMPARISONS = {"approx", "assert_close", "allclose", "equal", "isclose"}


@cache
def compared() -> frozenset[str]:
    """Names in the tests of this folder, and of certified predictions, that compare a value with an answer."""
    here = Path(__file__).parent
    found: set[str] = set()
    for file in [*here.glob("test_*.py"), here.parent / "reference" / "test_predictive_reference.py"]:
        if file == Path(__file__):
            continue
        tree = ast.parse(file.read_text("utf-8"))
        constants = {n.targets[0].id: words(n.value) for n in tree.body if _names_something(n)}
        for test in ast.walk(tree):
            if isinstance(test, ast.FunctionDef) and test.name.startswith("test_"):
                names = words(test)
                names |= set().union(*(constants[name] for name in names & set(constants)))
                equal = any(isinstance(n, ast.Compare) and isinstance(n.ops[0], ast.Eq) for n in ast.walk(test))
                if names & COMPARISONS or equal:
                    found |= names
    return frozenset(found)


def _names_something(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)


def words(node: ast.AST) -> set[str]:
    """Names, attributes and strings under a node."""
    found = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    found |= {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
    return found | {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)}


@pytest.mark.parametrize("name", registry.metrics())
def test_a_known_answer_is_tested(name: str) -> None:
    assert name in compared(), f"no test in tests/metrics compares {name} with a known answer"


def test_a_metric_has_floors_or_its_need_says_why_not() -> None:
    assert set(floors.JUDGED) | set(floors.NO_FLOOR) == set(get_args(Need))
    assert not set(floors.JUDGED) & set(floors.NO_FLOOR)
    assert all(floors.NO_FLOOR.values())
