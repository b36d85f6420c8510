"""The outcome of a check as a table, JSON, Markdown and JUnit XML."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any
from xml.etree import ElementTree

from .outcomes import RED, Test
from .rounds import CheckResult
from .traces.stored import MovedTrace
from .traces.trace import Value

#: Columns of ``rows``.
COLUMNS = ("task", "algorithm", "statistic", "oracle", "effect [95%]", "p", "replicates", "verdict")


def document(result: CheckResult) -> dict[str, Any]:
    """The document of ``--json``; numbers that are not finite are null."""
    return {
        "verdict": result.verdict,
        "seed": result.seed,
        "threshold": result.threshold,
        "new": result.new,
        "incomparable": result.incomparable,
        "traces": {"taken": result.traced, "moved": [asdict(m) | {"where": m.where} for m in result.moved]},
        "tests": [
            asdict(t) | {"effect": _number(t.effect), "interval": [_number(v) for v in t.interval]}
            for t in result.tests
        ],
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def counts(result: CheckResult) -> str:
    """One line: the numbers of tests, of failed ones, and of what was not tested."""
    pairs = len({(t.task, t.algorithm) for t in result.tests})
    line = f"{len(result.tests)} tests of {pairs} pairs: {len(result.red)} red"
    if result.traced:
        line = f"{result.traced} traces: {len(result.moved)} moved; {line}"
    others = {"new": len(result.new), "not comparable": len(result.incomparable)}
    return line + "".join(f", {count} {word}" for word, count in others.items() if count)


def rows(result: CheckResult) -> list[tuple[str, ...]]:
    """Failed tests as rows of text, small p-values first."""
    return [
        (t.task, t.algorithm, t.metric, t.oracle, _effect(t), f"{t.p_value:.1e}", str(t.replicates), t.verdict)
        for t in sorted(result.red, key=lambda t: t.p_value)
    ]  # fmt: skip


def notes(result: CheckResult) -> list[str]:
    """What has moved, what was not compared with the past, and why, a line each."""
    return [
        *(f"moved: {moved_line(m)}" for m in result.moved),
        *(f"new: no baseline yet, run parvibench check --update: {name}" for name in result.new),
        *(f"not comparable: {line}" for line in result.incomparable),
    ]


def moved_line(moved: MovedTrace) -> str:
    """Which trace, since when, both values, and where it runs."""
    values = f"{_value(moved.value)}, was {_value(moved.stored)}"
    through = f"; runs through {', '.join(moved.modules)}" if moved.modules else ""
    return f"{moved.trace}: {moved.where}: {values}{through}"


def _value(value: Value | None) -> str:
    return "nothing" if value is None else value if isinstance(value, str) else f"{value:.10g}"


def _effect(test: Test) -> str:
    """Effect with its interval, or the reason that stands in its place."""
    if test.reason:
        return test.reason
    low, high = test.interval
    return f"{test.effect:.3g} [{low:.3g}, {high:.3g}]"


def markdown(result: CheckResult) -> str:
    """A summary for a pull request."""
    lines = [f"## parvibench check: {result.verdict}", "", f"{counts(result)}; seed {result.seed}.", ""]
    if table := rows(result):
        lines += [_line(COLUMNS), "|---" * len(COLUMNS) + "|", *map(_line, table), ""]
    if told := notes(result):
        lines += [*(f"- {line}" for line in told), ""]
    return "\n".join(lines)


def _line(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(c.replace("|", "\\|").replace("\n", " ") for c in cells) + " |"


def junit(result: CheckResult) -> str:
    """JUnit XML: one case per test, grouped by task and algorithm; an error for what is not comparable."""
    root = ElementTree.Element(
        "testsuites",
        name="parvibench check",
        tests=str(len(result.tests) + len(result.moved)),
        failures=str(len(result.red) + len(result.moved)),
    )
    groups: dict[tuple[str, str], list[Test]] = {}
    for test in result.tests:
        groups.setdefault((test.task, test.algorithm), []).append(test)
    for (task, algorithm), tests in groups.items():
        red = [t for t in tests if t.verdict in RED]
        suite = ElementTree.SubElement(
            root, "testsuite", name=f"{task}/{algorithm}", tests=str(len(tests)), failures=str(len(red))
        )
        for t in tests:
            case = ElementTree.SubElement(
                suite, "testcase", classname=f"{task}.{algorithm}", name=f"{t.metric} ({t.oracle})"
            )
            if t in red:
                message = f"{t.verdict}: {_effect(t)}, p = {t.p_value:.2g}, {t.replicates} replicates"
                ElementTree.SubElement(case, "failure", message=message, type=t.verdict)
    for moved in result.moved:
        suite = ElementTree.SubElement(root, "testsuite", name=moved.trace, tests="1", failures="1")
        case = ElementTree.SubElement(suite, "testcase", classname="traces", name=moved.where)
        ElementTree.SubElement(case, "failure", message=moved_line(moved), type="changed")
    for line in result.incomparable:
        suite = ElementTree.SubElement(root, "testsuite", name="not comparable", tests="1", errors="1")
        case = ElementTree.SubElement(suite, "testcase", classname="baseline", name=line)
        ElementTree.SubElement(case, "error", message=line)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"
