"""The page about the bugs of libraries and the planted errors, from the store of ``wild_bugs.py``."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Entry = dict[str, Any]
Store = dict[tuple[str, str, str], Entry]

PAGE = Path(__file__).parents[3] / "reports" / "check" / "wild-bugs.md"
PARTS = Path(__file__).parent / "notes.md"


def read(store: Path) -> Store:
    """(look, kind, name) -> entry."""
    return {(e["look"], e["kind"], e["name"]): e for e in map(json.loads, store.read_text().splitlines())}


def write(store: Path) -> None:
    """Make the page."""
    from wild_bugs import bugs

    found = read(store)
    listed = bugs()
    counted = [b.name for b in listed if b.counted]
    shown, aside = (sorted({n for _, k, n in found if k == f"planted-{g}"}) for g in ("shown", "aside"))
    right = sorted({n for _, k, n in found if k == "right"})
    lines = ["# Bugs of well-known libraries, planted errors, and `parvibench check`", ""]
    lines += [
        *_note("summary"),
        "",
        "| set | number | found at the first look | found with the questions of now |",
        "|---|---:|---:|---:|",
    ]
    sets = [("bugs of libraries", "wild", counted), ("planted, shown", "planted-shown", shown)]
    sets += [("planted, put aside", "planted-aside", aside), ("right versions of the ports", "right", right)]
    sets += [
        (
            "right versions of those with planted errors",
            "right-planted",
            sorted({n for _, k, n in found if k == "right-planted"}),
        )
    ]
    lines += [
        f"| {title} | {len(names)} | {_share(found, 'first', k, names)} | {_share(found, 'now', k, names)} |"
        for title, k, names in sets
    ]
    lines += ["", "## The bugs", "", *_wild(found, listed), "", "## Replaced", ""]
    lines += [f"- {b.replaces}; in its place {b.reference}." for b in listed if b.replaces]
    lines += [
        "",
        "## Planted errors",
        "",
        *_note("planted"),
        "",
        *_planted(found, shown, aside),
        "",
        *_note("end"),
        "",
        *_power(found),
        "",
    ]
    PAGE.write_text("\n".join(lines))
    sys.stdout.write(f"{PAGE}\n")


def _note(part: str) -> list[str]:
    """A part of the hand-written notes."""
    text = PARTS.read_text().split(f"<!-- {part} -->\n")[1]
    return text.split("<!--")[0].strip().splitlines()


def _share(found: Store, look: str, kind: str, names: Iterable[str]) -> str:
    seen = [found[look, kind, n]["found"] for n in names if (look, kind, n) in found]
    return f"{sum(seen)} of {len(seen)}" if seen else "-"


def _wild(found: Store, listed: list[Any]) -> list[str]:
    head = "| bug | error | first look | now | chain states, CPU s | its own tests then, as far as the thread tells | independent draws that a test of moments needs |"
    rows = [head, "|---|---|---|---|---:|---|---:|"]
    for b in listed:
        first, now, plain = (found.get((look, "wild", b.name), {}) for look in ("first", "now", "moments"))
        last = now or first
        cost = f"{_count(last.get('draws', 0))}, {last.get('cpu_s', 0):.0f}"
        name = f"{b.name}{'' if b.counted else ' (changes no law)'}: {b.reference}"
        rows.append(
            f"| {name} | {_cell(b.error)} | {_by(first)} | {_by(now)} | {cost} | {b.tests} | {_needed(plain)} |"
        )
    return rows


def _power(found: Store) -> list[str]:
    """Bugs in a share of the steps."""
    entries: dict[str, list[tuple[float, Entry]]] = {n.split(" ")[0]: [] for _, k, n in found if k == "power"}
    for (_, kind, name), entry in found.items():
        if kind == "power":
            bug, share = name.split(" ")
            entries[bug].append((float(share), entry))
    rows = [
        "Bugs missed at the first look, in a share of the steps:",
        "",
        "| bug | share of steps | now | chain states |",
        "|---|---:|---|---:|",
    ]
    for bug, parts in sorted(entries.items()):
        rows += [
            f"| {bug} | {share:.1%} | {_by(e)} | {_count(e['draws'])} |"
            for share, e in sorted(parts, key=lambda p: -p[0])
        ]
    return rows if entries else []


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
    needed = entry["needed"]
    errors = f"mean {entry['mean']:+.2g} sd, variance {entry['variance']:+.1%}"
    if not math.isfinite(needed):
        return "no error seen in 240,000 states"
    return f"{_count(max(needed, 20))} ({errors})" if needed >= 20 else "20 or fewer"


def _count(number: float) -> str:
    """Two digits."""
    return f"{float(f'{number:.2g}'):,.0f}"


def _planted(found: Store, shown: list[str], aside: list[str]) -> list[str]:
    rows = ["| error | group | first look | now |", "|---|---|---|---|"]
    for group, names in (("shown", shown), ("aside", aside)):
        for name in names:
            first, now = (found.get((look, f"planted-{group}", name), {}) for look in ("first", "now"))
            rows.append(f"| {name.removeprefix('planted-')} | {group} | {_by(first)} | {_by(now)} |")
    return rows


def _cell(text: str) -> str:
    """Text in a table."""
    return text.replace("|", "\\|")
