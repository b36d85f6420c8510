"""The outcome of a check as text for 80 columns, Markdown, JSON and JUnit XML, all in the same words."""

import html
import math
import shlex
import textwrap
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any
from xml.etree import ElementTree

from parvibench.core import registry
from parvibench.core.errors import InputError

from .outcomes import RED, Test
from .question import Question
from .rounds import Findings
from .targets import STABLE

#: Width of text; sentences shown of a group, and names of a list.
_WIDTH, _SENTENCES, _NAMES = 80, 4, 5
#: In place of a sampler's name in questions about a density.
_DENSITY = "density"


@dataclass(frozen=True)
class Group:
    """Red tests of one sampler, or of one density."""

    title: str  #: sampler and tasks
    where: str  #: its module or file; empty where it is not known
    tests: list[Test]  #: the clearest first
    command: str  #: repeats the clearest one's question


def groups(findings: Findings) -> list[Group]:
    """Red tests by sampler."""
    by_source: dict[tuple[str, str], list[Test]] = {}
    for t in sorted(findings.red, key=_gravity):
        by_source.setdefault((t.algorithm, source(t)), []).append(t)
    return [
        Group(
            f"{_label(tests[0])} on {_list(dict.fromkeys(map(_task, tests)))}",
            where,
            tests,
            command(tests[0], findings),
        )
        for (_, where), tests in by_source.items()
    ]


def source(test: Test) -> str:
    """Module or file of a test's sampler, or of its task where the test is about a density."""
    table, name = (registry.tasks(), test.task) if _of_density(test) else (registry.algorithms(), test.algorithm)
    place = table[name].target if name in table else name
    return place.rpartition(":")[0]


def _label(test: Test) -> str:
    """The sampler as a run labels it: one from a place by its own name."""
    try:
        return registry.load_method(test.algorithm).name if registry.is_elsewhere(test.algorithm) else test.algorithm
    except InputError:
        return test.algorithm


def _task(test: Test) -> str:
    """The task as a run names it."""
    return registry.load_task(test.task).name if registry.is_place(test.task) else test.task


def _of_density(test: Test) -> bool:
    return test.algorithm == _DENSITY


def _gravity(test: Test) -> tuple[int, float]:
    """What explains other failures comes first."""
    first = 0 if test.metric in ("status", "diverged", "again") else 1 if test.metric.startswith("contract.") else 2
    return first, test.p_value


def _list(names: Iterable[str]) -> str:
    shown = list(names)
    more = f" and {len(shown) - _NAMES} more" if len(shown) > _NAMES else ""
    return ", ".join(shown[:_NAMES]) + more


def command(test: Test, findings: Findings) -> str:
    """The command that repeats a test's question with the same draws."""
    parts = ["parvibench check", *([] if _of_density(test) else ["-a", test.algorithm]), "-t", test.task]
    parts += [findings.options[test.algorithm]] if findings.options.get(test.algorithm) else []
    parts += ["--baseline", shlex.quote(findings.baseline)] if test.oracle == "past" else []
    return " ".join([*parts, "--seed", str(findings.seed)])


def lines(findings: Findings) -> list[str]:
    """The whole outcome but for its last line, at 80 columns."""
    return [line for group in groups(findings) for line in _lines_of(group)] or asked(findings)


def _lines_of(group: Group) -> list[str]:
    verdicts = " and ".join(dict.fromkeys(t.verdict.upper() for t in group.tests))
    tests = f"{len(group.tests)} test" + "s" * (len(group.tests) > 1)
    found = _wrapped(f"{verdicts}: {group.title} ({tests})")
    before = ""
    for t in group.tests[:_SENTENCES]:
        heading = f"{_label(t)} on {_task(t)}" + (f", {t.circumstances}" if t.circumstances else "") + ":"
        if heading != before:
            found += _wrapped(heading, "  ")
        before = heading
        found += _wrapped(f"- {_stated(t)}", "    ", "      ")
    if len(group.tests) > _SENTENCES:
        found.append(f"    ... and {len(group.tests) - _SENTENCES} more (--json lists all)")
    if group.tests[0].cause:
        found += _wrapped(f"usual causes: {group.tests[0].cause}", "  ")
    if group.where:
        found += _wrapped(f"source: {group.where}", "  ")
    return [*found, f"  run again: {group.command}", ""]


def _stated(test: Test) -> str:
    """The reason with its p-value, where it is a matter of chance."""
    return test.reason + (f" (p = {test.p_value:.1g}, {test.replicates} replicates)" if test.p_value else "")


def failure(question: Question, findings: Findings, level: float) -> str:
    """A failed question for whoever has never seen it: what was asked, on which target, the statistics, usual causes."""
    red, target = sorted(findings.red, key=_gravity), STABLE.get(question.task)
    measured = [f"- {_stated(t)}" for t in red[:_SENTENCES]]
    measured += [f"... and {len(red) - _SENTENCES} more"] * (len(red) > _SENTENCES)
    text = [
        f"asked: {(type(question).__doc__ or '').partition(chr(10))[0]}",
        f"target: {question.task}" + (f", {target.summary}" if target else ""),
        f"run: {red[0].circumstances}",
        *measured,
        f"usual causes: {question.hint}",
        f"a right sampler fails this test with probability {level:.1g} at most (p < {findings.threshold:.1g})",
        f"seed: {findings.seed}",
    ]
    head = f"{findings.verdict.upper()}: {question.algorithm}, {question.name}"
    return "\n".join([head, *(line for said in text for line in _wrapped(said, "  ", "      "))])


def _wrapped(text: str, indent: str = "", hanging: str = "") -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent=indent, subsequent_indent=hanging or indent + "  ", break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def asked(findings: Findings) -> list[str]:
    """The tests that were made: of one sampler every statistic, otherwise numbers of samplers, targets and tests."""
    samplers = {t.algorithm for t in findings.tests}
    if len(samplers) == 1:
        by_task: dict[str, Counter[str]] = {}
        for t in findings.tests:
            by_task.setdefault(_task(t), Counter())[_kind(t.metric)] += 1
        listed = {task: ", ".join(f"{k} ({n})" if n > 1 else k for k, n in c.items()) for task, c in by_task.items()}
        return [line for task, kinds in listed.items() for line in _wrapped(f"tested on {task}: {kinds}")]
    against = Counter(t.oracle for t in findings.tests)
    tasks = {t.task for t in findings.tests}
    parts = (f"{n} against {'the baseline' if o == 'past' else 'known truth'}" for o, n in against.items())
    number = len(samplers - {_DENSITY})
    who = f"{number} sampler" + "s" * (number != 1)
    return _wrapped(f"tested: {who} on {len(tasks)} targets; {', '.join(parts)}") if against else []


def _kind(metric: str) -> str:
    """The statistic without its index."""
    return metric.removeprefix("contract.").partition("[")[0].replace("_", " ")


def document(findings: Findings) -> dict[str, Any]:
    """The document of ``--json``; numbers that are not finite are null."""
    return {
        "verdict": findings.verdict,
        "seed": findings.seed,
        "threshold": findings.threshold,
        "new": findings.new,
        "incomparable": findings.incomparable,
        "groups": [
            {"title": g.title, "where": g.where, "command": g.command, "tests": len(g.tests)}
            | {"reasons": [t.reason for t in g.tests[:_SENTENCES]]}
            for g in groups(findings)
        ],
        "tests": [
            asdict(t) | {"effect": _number(t.effect), "interval": [_number(v) for v in t.interval]}
            for t in findings.tests
        ],
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def counts(findings: Findings) -> str:
    """One line: the numbers of tests, of failed ones, and of what was not compared."""
    samplers = len({t.algorithm for t in findings.tests if not _of_density(t)})
    targets = len({t.task for t in findings.tests})
    of = f"{_number_of(samplers, 'sampler')} on " if samplers else ""
    line = f"{len(findings.tests)} tests of {of}{_number_of(targets, 'target')}: {len(findings.red)} red"
    others = {"new": len(findings.new), "changed": len(findings.incomparable)}
    return line + "".join(f", {count} {word}" for word, count in others.items() if count)


def _number_of(count: int, thing: str) -> str:
    return f"{count} {thing}{'s' * (count != 1)}"


def notes(findings: Findings) -> list[str]:
    """What could not be compared with the baseline, and why, a line each."""
    return [
        *(f"new: not in the baseline yet, add it with --update: {name}" for name in findings.new),
        *(f"changed: {line}; accept with --update" for line in findings.incomparable),
    ]


def markdown(findings: Findings) -> str:
    """A summary for a pull request."""
    found = [f"## parvibench check: {findings.verdict}", "", f"{counts(findings)}; seed {findings.seed}.", ""]
    found += [*_table(findings), ""] if findings.tests else []
    if text := lines(findings):
        found += ["```text", *(line.replace("```", "'''") for line in text), "```", ""]
    if noted := notes(findings):
        found += [*(f"- {line}" for line in noted), ""]
    return "\n".join(found)


def _table(findings: Findings) -> list[str]:
    """A row for each sampler and question: its outcome, and the clearest failure."""
    rows: dict[tuple[str, str], list[Test]] = {}
    for t in findings.tests:
        rows.setdefault((_label(t), t.question), []).append(t)
    table = ["| sampler | question | tests | outcome | clearest failure |", "|---|---|---:|---|---|"]
    for (label, question), tests in rows.items():
        red = sorted((t for t in tests if t.verdict in RED), key=_gravity)
        outcome, why = (f"**{red[0].verdict}** ({len(red)})", _stated(red[0])) if red else ("ok", "")
        cells = (html.escape(" ".join(cell.split()), quote=False) for cell in (label, question, why))
        name, asked, said = (cell.replace("|", "\\|").replace("`", "&#96;") for cell in cells)
        table.append(f"| {name} | {asked} | {len(tests)} | {outcome} | {said} |")
    return table


def junit(findings: Findings) -> str:
    """JUnit XML: one case per test, grouped by task and sampler; an error for a cell that cannot be compared."""
    sizes = {"tests": len(findings.tests), "failures": len(findings.red), "errors": len(findings.incomparable)}
    root = ElementTree.Element("testsuites", {"name": "parvibench check"} | {k: str(v) for k, v in sizes.items()})
    by_pair: dict[tuple[str, str], list[Test]] = {}
    for test in findings.tests:
        by_pair.setdefault((test.task, test.algorithm), []).append(test)
    for tests in by_pair.values():
        red = str(sum(t.verdict in RED for t in tests))
        suite = ElementTree.SubElement(
            root, "testsuite", name=f"{_task(tests[0])}/{_label(tests[0])}", tests=str(len(tests)), failures=red
        )
        for t in tests:
            _case(suite, t, findings)
    for line in findings.incomparable:
        suite = ElementTree.SubElement(root, "testsuite", name="changed", tests="1", errors="1")
        case = ElementTree.SubElement(suite, "testcase", classname="baseline", name=line)
        ElementTree.SubElement(case, "error", message=line)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _case(suite: ElementTree.Element, test: Test, findings: Findings) -> None:
    name = f"{test.metric} ({test.oracle})"
    case = ElementTree.SubElement(suite, "testcase", classname=f"{_task(test)}.{_label(test)}", name=name)
    if test.verdict in RED:
        message = f"{test.verdict}: {test.reason}"
        failure = ElementTree.SubElement(case, "failure", message=message, type=test.verdict)
        facts = {"": test.circumstances, "source: ": source(test), "run again: ": command(test, findings)}
        failure.text = "\n".join(key + value for key, value in facts.items() if value)
