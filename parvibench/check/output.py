"""The outcome of a check for people, for programs, and for CI."""

from __future__ import annotations

import math
from typing import Any
from xml.etree import ElementTree

from .judging import RED, Test
from .rounds import CheckResult


def document(result: CheckResult) -> dict[str, Any]:
    """For ``--json``: see the README."""
    return {
        "verdict": result.verdict,
        "seed": result.seed,
        "threshold": result.threshold,
        "incomparable": result.incomparable,
        "tests": [_plain(test) for test in result.tests],
    }


def _plain(test: Test) -> dict[str, Any]:
    """A test with missing numbers as null."""
    return {
        "task": test.task,
        "algorithm": test.algorithm,
        "metric": test.metric,
        "oracle": test.oracle,
        "effect": _number(test.effect),
        "interval": [_number(v) for v in test.interval],
        "p_value": test.p_value,
        "verdict": test.verdict,
        "replicates": test.replicates,
        "reason": test.reason,
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def counts(result: CheckResult) -> str:
    """One line: how many tests of how many pairs, and how many of them are red."""
    pairs = len({(t.task, t.algorithm) for t in result.tests})
    red, better = len(result.red), sum(t.verdict == "improved" for t in result.tests)
    line = f"{len(result.tests)} tests of {pairs} pairs: {red} red"
    return line + (f", {better} improved" if better else "")


def notable(result: CheckResult) -> list[Test]:
    """Red tests and improvements, the most certain first."""
    return sorted(
        (t for t in result.tests if t.verdict != "ok"), key=lambda t: (t.verdict not in RED, t.p_value)
    )


def effect_text(test: Test) -> str:
    """Effect with its interval, or what stands in its place."""
    if test.reason:
        return test.reason
    low, high = test.interval
    return f"{test.effect:.3g} [{low:.3g}, {high:.3g}]"


def markdown(result: CheckResult) -> str:
    """A summary for a pull request."""
    lines = [f"## parvibench check: {result.verdict}", "", f"{counts(result)}; seed {result.seed}.", ""]
    rows = notable(result)
    if rows:
        lines += [
            "| task | algorithm | statistic | effect [95%] | p | replicates | verdict |",
            "|---|---|---|---|---|---|---|",
        ]
        for t in rows:
            cells = (
                t.task,
                t.algorithm,
                f"{t.metric} ({t.oracle})",
                effect_text(t),
                f"{t.p_value:.1e}",
                t.replicates,
                t.verdict,
            )
            lines.append(
                "| " + " | ".join(str(c).replace("|", "\\|").replace("\n", " ") for c in cells) + " |"
            )
        lines.append("")
    if result.incomparable:
        lines += ["Not compared:", "", *(f"- {line}" for line in result.incomparable), ""]
    return "\n".join(lines)


def junit(result: CheckResult) -> str:
    """JUnit XML: one case per test, grouped by task and algorithm."""
    root = ElementTree.Element(
        "testsuites", name="parvibench check", tests=str(len(result.tests)), failures=str(len(result.red))
    )
    suites: dict[tuple[str, str], ElementTree.Element] = {}
    for test in result.tests:
        key = (test.task, test.algorithm)
        if key not in suites:
            suites[key] = ElementTree.SubElement(root, "testsuite", name="/".join(key))
        case = ElementTree.SubElement(
            suites[key],
            "testcase",
            classname=f"{test.task}.{test.algorithm}",
            name=f"{test.metric} ({test.oracle})",
        )
        if test.verdict in RED:
            message = (
                f"{test.verdict}: {effect_text(test)}, p = {test.p_value:.2g}, {test.replicates} replicates"
            )
            ElementTree.SubElement(case, "failure", message=message, type=test.verdict)
    for name, suite in suites.items():
        cases = [t for t in result.tests if (t.task, t.algorithm) == name]
        suite.set("tests", str(len(cases)))
        suite.set("failures", str(sum(t.verdict in RED for t in cases)))
    for line in result.incomparable:
        suite = ElementTree.SubElement(root, "testsuite", name="not compared", tests="1", errors="1")
        case = ElementTree.SubElement(suite, "testcase", classname="baseline", name=line)
        ElementTree.SubElement(case, "error", message=line)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"
