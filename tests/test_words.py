"""Words of CONTRIBUTING's table in docstrings and comments become fewer: no room has more of them than recorded here."""

import re
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
    "baselines": 6, "parvibench/api": 2, "parvibench/board": 2, "parvibench/checks": 1, "parvibench/cli": 2,
    "parvibench/core": 1, "parvibench/data": 2, "parvibench/harness": 1, "parvibench/metrics": 4,
    "parvibench/reference": 5, "parvibench/reporting": 16, "parvibench/targets": 1, "parvibench/tracking": 1,
    "tasks": 4, "tests/api": 2, "tests/authoring": 5, "tests/baselines": 22, "tests/board": 1, "tests/checks": 9,
    "tests/core": 4, "tests/data": 7, "tests/harness": 1, "tests/metrics": 6, "tests/nn": 1,
    "tests/reference": 3, "tests/regression": 2, "tests/reporting": 10, "tests/studies": 7, "tests/targets": 9,
    "tests/tasks": 3, "tests/tracking": 1,
}  # fmt: skip

pytestmark = pytest.mark.skipif(not (ROOT / "baselines").is_dir(), reason="needs a checkout")


#: Strings in triple quotes, other strings, comments; in a tenth of the time of Python's tokenizer.
PARTS = re.compile(r"""(?s:("{3}|'{3})(.*?)(?<!\\)\1)|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|(#[^\n]*)""")


def texts(source: str) -> list[str]:
    """The docstrings and comments of a module; a docstring begins a file or follows a colon or a comment."""
    read = []
    for part in PARTS.finditer(source):
        last = source[max(0, part.start() - 300) : part.start()].rstrip(" rR\n").rpartition("\n")[2]
        if part[3]:
            read.append(part[3])
        elif part[1] and (not last or last.lstrip().startswith("#") or last.partition("  #")[0].endswith(":")):
            read.append(part[2])
    return read


def test_the_words_become_fewer() -> None:
    counts: Counter[str] = Counter()
    for folder in ("parvibench", "tasks", "baselines", "tests"):
        for file in (ROOT / folder).rglob("*.py"):
            parts = file.relative_to(ROOT).parts
            room = "/".join(parts[:2]) if len(parts) > 2 else folder
            counts[room] += sum(len(WORDS.findall(text)) for text in texts(file.read_text("utf-8")))
    assert {room: (n, MOST.get(room, 0)) for room, n in counts.items() if n > MOST.get(room, 0)} == {}


def test_only_texts_are_counted() -> None:
    source = '"""Held."""\nkept = "told # told"  # asked\ndef f():\n    """Held-out rows are held back."""\n    x = """kept"""\n'
    assert [WORDS.findall(text) for text in texts(source)] == [["Held"], ["asked"], []]
