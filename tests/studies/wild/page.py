"""The page about the bugs of libraries and the planted errors, from the store of ``wild_bugs.py``."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markdown_tables import table

Entry = dict[str, Any]
Store = dict[tuple[str, str, str], Entry]

PAGE = Path(__file__).parents[3] / "reports" / "check" / "wild-bugs.md"
PARTS = Path(__file__).parent / "notes.md"
#: Rows of the first table: title and kind.
SETS = {
    "bugs of libraries": "wild", "planted, shown": "planted-shown", "planted, put aside": "planted-aside",
    "right versions of the ports": "right", "right versions of those with planted errors": "right-planted",
}  # fmt: skip


def write(store: Path, page: Path = PAGE) -> None:
    """Make the page."""
    from wild_bugs import bugs

    entries: Store = {(e["look"], e["kind"], e["name"]): e for e in map(json.loads, store.read_text().splitlines())}
    listed = bugs()
    names = {kind: sorted({n for _, k, n in entries if k == kind}) for kind in SETS.values()}
    names["wild"] = [b.name for b in listed if b.counted]
    shares = [
        (t, len(names[k]), *(_share(entries, look, k, names[k]) for look in ("first", "now"))) for t, k in SETS.items()
    ]
    planted = [
        (
            n.removeprefix("planted-"),
            group,
            *(_by(entries.get((look, f"planted-{group}", n), {})) for look in ("first", "now")),
        )
        for group in ("shown", "aside")
        for n in names[f"planted-{group}"]
    ]
    head = ["set", "number", "found at the first look", "found with the questions of now"]
    blocks = [
        ["# Bugs of well-known libraries, planted errors, and `parvibench check`"],
        _note("summary"),
        table(head, shares, head[1:]),
        ["## The bugs"],
        _wild(entries, listed),
        ["## Replaced"],
        [f"- {b.replaces}; in its place {b.reference}." for b in listed if b.replaces],
        ["## Planted errors"],
        _note("planted"),
        table(["error", "group", "first look", "now"], planted),
        _note("end"),
        *_power(entries),
    ]
    page.write_text("\n\n".join("\n".join(block) for block in blocks) + "\n")
    sys.stdout.write(f"{page}\n")


def _note(part: str) -> list[str]:
    """A part of the hand-written notes."""
    text = PARTS.read_text().split(f"<!-- {part} -->\n")[1]
    return text.split("<!--")[0].strip().splitlines()


def _share(entries: Store, look: str, kind: str, names: Sequence[str]) -> str:
    seen = [entries[look, kind, n]["found"] for n in names if (look, kind, n) in entries]
    return f"{sum(seen)} of {len(seen)}" if seen else "-"


def _wild(entries: Store, listed: Sequence[Any]) -> list[str]:
    head = [
        "bug",
        "error",
        "first look",
        "now",
        "chain states, CPU s",
        "its own tests then, as far as the thread tells",
    ]
    head += ["independent draws that a test of moments needs"]
    rows = []
    for b in listed:
        first, now, plain = (entries.get((look, "wild", b.name), {}) for look in ("first", "now", "moments"))
        last = now or first
        cost = f"{_count(last.get('draws', 0))}, {last.get('cpu_s', 0):.0f}"
        name = f"{b.name}{'' if b.counted else ' (changes no law)'}: {b.reference}"
        rows.append((name, b.error, _by(first), _by(now), cost, b.tests, _needed(plain)))
    return table(head, rows, (head[4], head[6]))


def _power(entries: Store) -> list[list[str]]:
    """Bugs in a share of the steps."""
    parts = [(*name.split(" "), e) for (_, kind, name), e in entries.items() if kind == "power"]
    parts.sort(key=lambda part: (part[0], -float(part[1])))
    rows = [(bug, f"{float(share):.1%}", _by(e), _count(e["draws"])) for bug, share, e in parts]
    head = ["bug", "share of steps", "now", "chain states"]
    return [["Bugs missed at the first look, in a share of the steps:"], table(head, rows, head[1::2])] if rows else []


def _by(entry: Entry) -> str:
    """The question that failed, and how."""
    if not entry:
        return "-"
    if not entry["found"]:
        return "not found"
    return f"{entry['verdict']}: {entry['task']}, {entry['metric'].replace('[', ' ').replace(']', '')}"


def _needed(entry: Entry) -> str:
    if not entry:
        return "-"
    if not math.isfinite(entry["needed"]):
        return "no error seen in 240,000 states"
    errors = f"mean {entry['mean']:+.2g} sd, variance {entry['variance']:+.1%}"
    return f"{_count(entry['needed'])} ({errors})" if entry["needed"] >= 20 else "20 or fewer"


def _count(number: float) -> str:
    """Two digits."""
    return f"{float(f'{number:.2g}'):,.0f}"
