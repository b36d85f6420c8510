"""The outcome of a check as text for 80 columns, Markdown, JSON and JUnit XML, all in the same words."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any
from xml.etree import ElementTree

from .outcomes import RED, Test
from .rounds import CheckResult
from .suspects import suspects
from .traces.stored import MovedTrace
from .traces.trace import Value

#: Lines of text are at most so long; sentences of a group that are shown, and names of a list.
_WIDTH, _SENTENCES, _NAMES = 80, 4, 5


@dataclass(frozen=True)
class Group:
    """Red tests that share their probable cause."""

    title: str  #: methods and tasks
    where: str  #: the module in which the cause probably lies
    tests: list[Test]  #: the clearest first
    command: str  #: asks the clearest one's question again


def groups(result: CheckResult) -> list[Group]:
    """Red tests by what they share."""
    found = []
    for module, tests in suspects(result.tests):
        ordered = sorted(tests, key=_gravity)
        found.append(Group(_title(ordered), module, ordered, command(ordered[0], result)))
    return found


def _gravity(test: Test) -> tuple[int, float]:
    """What explains other failures comes first."""
    first = 0 if test.metric in ("status", "diverged") else 1 if test.metric.startswith("contract.") else 2
    return first, test.p_value


def _title(tests: list[Test]) -> str:
    methods, tasks = (_list(dict.fromkeys(getattr(t, name) for t in tests)) for name in ("algorithm", "task"))
    return f"{methods} on {tasks}"


def _list(names: Iterable[str]) -> str:
    shown = list(names)
    more = f" and {len(shown) - _NAMES} more" if len(shown) > _NAMES else ""
    return ", ".join(shown[:_NAMES]) + more


def command(test: Test, result: CheckResult) -> str:
    """What asks a test's question again, with the same draws."""
    method = [] if (test.oracle, test.algorithm) == ("past", "density") else ["-a", test.algorithm]
    parts = [*method, "-t", test.task, "--oracle", test.oracle, "--seed", str(result.seed)]
    return " ".join(
        ["parvibench check", *parts, *([result.options] if result.options and ":" in test.algorithm else [])]
    )


def lines(result: CheckResult) -> list[str]:
    """The whole outcome but for its last line, at 80 columns."""
    found = [*moved_lines(result), *(line for group in groups(result) for line in _lines_of(group))]
    return found or asked(result)


def moved_lines(result: CheckResult) -> list[str]:
    """Traces that moved, by the module that most of them run through, at 80 columns."""
    found, left = [], list(result.moved)
    while left:
        through = Counter(m for moved in left for m in moved.modules)
        shared = min(through, key=lambda m: (-through[m], not m.startswith(("baselines.", "tasks.")), m), default="")
        group = [m for m in left if not shared or shared in m.modules]
        left = [m for m in left if m not in group]
        found += _wrapped(f"CHANGED: {len(group)} trace" + "s" * (len(group) > 1) + f" through {shared or '?'}")
        for moved in group[:_SENTENCES]:
            found += _wrapped(f"- {moved_line(moved)}", "    ", "      ")
        if len(group) > _SENTENCES:
            found.append(f"    ... and {len(group) - _SENTENCES} more (--json has all)")
        found += ["  ask again: parvibench check --oracle traces", ""]
    return found


def moved_line(moved: MovedTrace) -> str:
    """Which trace, since when, and both values."""
    return f"{moved.trace}: {moved.where}: {_value(moved.value)}, was {_value(moved.stored)}"


def _value(value: Value | None) -> str:
    return "nothing" if value is None else value if isinstance(value, str) else f"{value:.7g}"


def _lines_of(group: Group) -> list[str]:
    verdicts = " and ".join(dict.fromkeys(t.verdict.upper() for t in group.tests))
    tests = f"{len(group.tests)} test" + "s" * (len(group.tests) > 1)
    found = _wrapped(f"{verdicts}: {group.title} ({tests})")
    before = ""
    for t in group.tests[:_SENTENCES]:
        heading = f"{t.algorithm} on {t.task}" + (f", {t.circumstances}" if t.circumstances else "") + ":"
        if heading != before:
            found += _wrapped(heading, "  ")
        before = heading
        found += _wrapped(f"- {t.reason}", "    ", "      ")
    if len(group.tests) > _SENTENCES:
        found.append(f"    ... and {len(group.tests) - _SENTENCES} more (--json has all)")
    if group.where:
        found += _wrapped(f"look in: {group.where}", "  ")
    return [*found, f"  ask again: {group.command}", ""]


def _wrapped(text: str, indent: str = "", hanging: str = "") -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent=indent, subsequent_indent=hanging or indent + "  ", break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def asked(result: CheckResult) -> list[str]:
    """What was asked: for one method every question, otherwise the numbers of methods, tasks and tests."""
    methods = {t.algorithm for t in result.tests}
    if len(methods) == 1:
        by_task: dict[str, list[str]] = {}
        for t in result.tests:
            by_task.setdefault(t.task, []).append(t.metric)
        names = {task: Counter(_kind(m) for m in metrics) for task, metrics in by_task.items()}
        return [
            line
            for task, kinds in names.items()
            for line in _wrapped(
                f"asked on {task}: " + ", ".join(f"{k} ({n})" if n > 1 else k for k, n in kinds.items())
            )
        ]
    oracles = Counter(t.oracle for t in result.tests)
    tasks = {t.task for t in result.tests}
    told = ", ".join(f"{count} against {'the past' if o == 'past' else 'known truth'}" for o, count in oracles.items())
    return _wrapped(f"asked: {len(methods)} methods on {len(tasks)} targets; {told}") if oracles else []


def _kind(metric: str) -> str:
    """The statistic without its index."""
    return metric.removeprefix("contract.").partition("[")[0].replace("_", " ")


def document(result: CheckResult) -> dict[str, Any]:
    """The document of ``--json``; numbers that are not finite are null."""
    return {
        "verdict": result.verdict,
        "seed": result.seed,
        "threshold": result.threshold,
        "new": result.new,
        "incomparable": result.incomparable,
        "traces": {"taken": result.traced, "moved": [asdict(m) | {"where": m.where} for m in result.moved]},
        "groups": [
            {"title": g.title, "where": g.where, "command": g.command, "tests": len(g.tests)}
            | {"reasons": [t.reason for t in g.tests[:_SENTENCES]]}
            for g in groups(result)
        ],
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


def notes(result: CheckResult) -> list[str]:
    """What was not compared with the past, and why, a line each."""
    return [
        *(f"new: no baseline yet, run parvibench check --update: {name}" for name in result.new),
        *(f"not comparable: {line}" for line in result.incomparable),
    ]


def markdown(result: CheckResult) -> str:
    """A summary for a pull request."""
    found = [f"## parvibench check: {result.verdict}", "", f"{counts(result)}; seed {result.seed}.", ""]
    if told := lines(result):
        found += ["```text", *(line.replace("```", "'''") for line in told), "```", ""]
    if noted := notes(result):
        found += [*(f"- {line}" for line in noted), ""]
    return "\n".join(found)


def junit(result: CheckResult) -> str:
    """JUnit XML: one case per test, grouped by task and algorithm; an error for what is not comparable."""
    root = ElementTree.Element(
        "testsuites",
        name="parvibench check",
        tests=str(len(result.tests) + len(result.moved)),
        failures=str(len(result.red) + len(result.moved)),
    )
    where = {id(t): group for group in groups(result) for t in group.tests}
    by_pair: dict[tuple[str, str], list[Test]] = {}
    for test in result.tests:
        by_pair.setdefault((test.task, test.algorithm), []).append(test)
    for (task, algorithm), tests in by_pair.items():
        red = [t for t in tests if t.verdict in RED]
        suite = ElementTree.SubElement(
            root, "testsuite", name=f"{task}/{algorithm}", tests=str(len(tests)), failures=str(len(red))
        )
        for t in tests:
            case = ElementTree.SubElement(
                suite, "testcase", classname=f"{task}.{algorithm}", name=f"{t.metric} ({t.oracle})"
            )
            if t in red:
                failure = ElementTree.SubElement(case, "failure", message=f"{t.verdict}: {t.reason}", type=t.verdict)
                again = command(t, result)
                told = {"": t.circumstances, "look in: ": where[id(t)].where, "ask again: ": again}
                failure.text = "\n".join(key + value for key, value in told.items() if value)
    for moved in result.moved:
        suite = ElementTree.SubElement(root, "testsuite", name=moved.trace, tests="1", failures="1")
        case = ElementTree.SubElement(suite, "testcase", classname="traces", name=moved.where)
        failure = ElementTree.SubElement(case, "failure", message=f"changed: {moved_line(moved)}", type="changed")
        failure.text = f"runs through: {' '.join(moved.modules)}"
    for line in result.incomparable:
        suite = ElementTree.SubElement(root, "testsuite", name="not comparable", tests="1", errors="1")
        case = ElementTree.SubElement(suite, "testcase", classname="baseline", name=line)
        ElementTree.SubElement(case, "error", message=line)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"
