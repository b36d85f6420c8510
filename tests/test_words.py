"""Words of CONTRIBUTING's table in docstrings and comments become fewer: no room has more of them than recorded here."""

import ast
import io
import re
import tokenize
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WORDS = re.compile(
    r"\b(found|held(?!-out| out| back)|kept|asked|told|stands|lies|beside|anew|nobody|somebody|someone|vouch\w*|tells of itself"
    r"|of (?:one's|your) own)\b",
    re.IGNORECASE,
)
#: Room -> most such words; lower a number when a change removes some.
MOST = {
    "baselines": 35, "parvibench/api": 2, "parvibench/authoring": 4, "parvibench/board": 3, "parvibench/checks": 1,
    "parvibench/cli": 2, "parvibench/core": 1, "parvibench/data": 2, "parvibench/harness": 15,
    "parvibench/jax_programs": 1, "parvibench/kernels": 1, "parvibench/metrics": 3, "parvibench/nn": 3,
    "parvibench/reference": 11, "parvibench/reporting": 27, "parvibench/targets": 1, "parvibench/tracking": 3,
    "tasks": 4, "tests": 16, "tests/api": 2, "tests/authoring": 5, "tests/baselines": 25, "tests/benchmarks": 20,
    "tests/board": 3, "tests/checks": 9, "tests/core": 4, "tests/data": 7, "tests/devices": 8, "tests/harness": 12,
    "tests/metrics": 6, "tests/nn": 1, "tests/reference": 3, "tests/regression": 12, "tests/reporting": 11,
    "tests/studies": 120, "tests/targets": 9, "tests/tasks": 3,
}  # fmt: skip

pytestmark = pytest.mark.skipif(not (ROOT / "baselines").is_dir(), reason="needs a checkout")


def texts(source: str) -> list[str]:
    """The docstrings and comments of a module."""
    comments = [t.string for t in tokenize.generate_tokens(io.StringIO(source).readline) if t.type == tokenize.COMMENT]
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return comments + [ast.get_docstring(n) or "" for n in ast.walk(ast.parse(source)) if isinstance(n, owners)]


def test_the_words_become_fewer() -> None:
    counts: Counter[str] = Counter()
    for folder in ("parvibench", "tasks", "baselines", "tests"):
        for file in (ROOT / folder).rglob("*.py"):
            parts = file.relative_to(ROOT).parts
            room = "/".join(parts[:2]) if len(parts) > 2 else folder
            if WORDS.search(source := file.read_text("utf-8")):
                counts[room] += sum(len(WORDS.findall(text)) for text in texts(source))
    assert {room: (n, MOST.get(room, 0)) for room, n in counts.items() if n > MOST.get(room, 0)} == {}


def test_only_texts_are_counted() -> None:
    found = texts('"""Held."""\nkept = "told"  # asked\ndef f():\n    """Held-out rows are held back."""\n')
    assert [WORDS.findall(text) for text in found] == [["asked"], ["Held"], []]
