"""The outcome of a check as text for 80 columns and as JSON, in the same words."""

import shlex
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any, NamedTuple, TypeVar

from parvibench.core import registry
from parvibench.core.errors import InputError
from parvibench.core.result import to_json_number
from parvibench.reporting.formatting import count

from .outcomes import Test
from .question import Question
from .rounds import Findings
from .targets import STABLE

#: Width of text; sentences shown of a group, and names of a list.
_WIDTH, _SENTENCES, _NAMES = 80, 4, 5
#: In place of a sampler's name in questions about a density.
_DENSITY = "density"
T = TypeVar("T")


class Group(NamedTuple):
    """Red tests of one sampler, or of one density."""

    title: str  #: sampler and tasks
    where: str  #: its module or file; empty where it is not known
    tests: list[Test]  #: the clearest first
    command: str  #: repeats the clearest one's question


def groups(findings: Findings) -> list[Group]:
    """Red tests by sampler."""
    found = []
    for (_, where), tests in _grouped(_sorted(findings.red), lambda t: (t.algorithm, source(t))).items():
        tasks = list(dict.fromkeys(map(_task, tests)))
        more = f" and {len(tasks) - _NAMES} more" if len(tasks) > _NAMES else ""
        title = f"{_label(tests[0])} on {', '.join(tasks[:_NAMES])}{more}"
        found.append(Group(title, where, tests, command(tests[0], findings)))
    return found


def _grouped(tests: Iterable[Test], key: Callable[[Test], T]) -> dict[T, list[Test]]:
    """In the order in which the keys come."""
    found: dict[T, list[Test]] = {}
    for t in tests:
        found.setdefault(key(t), []).append(t)
    return found


def _sorted(red: Iterable[Test]) -> list[Test]:
    """What explains other failures first, then the clearest."""
    first = ("status", "diverged", "again")
    return sorted(red, key=lambda t: (t.metric not in first, not t.metric.startswith("contract."), t.p_value))


def source(test: Test) -> str:
    """Module or file of a test's sampler, or of its task where the test is about a density."""
    density = test.algorithm == _DENSITY
    table, name = (registry.tasks(), test.task) if density else (registry.algorithms(), test.algorithm)
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


def command(test: Test, findings: Findings) -> str:
    """The command that repeats a test's question with the same draws."""
    parts = ["parvibench check", *([] if test.algorithm == _DENSITY else ["-a", test.algorithm]), "-t", test.task]
    parts += [findings.options[test.algorithm]] if findings.options.get(test.algorithm) else []
    parts += ["--baseline", shlex.quote(findings.baseline)] if test.oracle == "past" else []
    return " ".join([*parts, "--seed", str(findings.seed)])


def lines(findings: Findings) -> list[str]:
    """The whole outcome but for its last line, at 80 columns."""
    return [line for group in groups(findings) for line in _lines_of(group)] or [*asked(findings), *findings.sees]


def _lines_of(group: Group) -> list[str]:
    verdicts = " and ".join(dict.fromkeys(t.verdict.upper() for t in group.tests))
    found = _wrapped(f"{verdicts}: {group.title} ({count(len(group.tests), 'test')})")
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
    """A failed question in full: its claim, its target, the statistics, usual causes."""
    red, target = _sorted(findings.red), STABLE.get(question.task)
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
    """The tests that were made: of one sampler by question, otherwise numbers of samplers, targets and tests."""
    samplers = {t.algorithm for t in findings.tests}
    if len(samplers) == 1:
        found = []
        for task, tests in _grouped(findings.tests, _task).items():
            kinds = Counter(t.question.removesuffix(f" on {t.task}") for t in tests)
            found += _wrapped(f"tested on {task}: {', '.join(f'{kind} ({n})' for kind, n in kinds.items())}")
        return found
    against = Counter(t.oracle for t in findings.tests)
    tasks = {t.task for t in findings.tests}
    parts = (f"{n} against {'the baseline' if o == 'past' else 'known truth'}" for o, n in against.items())
    who = count(len(samplers - {_DENSITY}), "sampler")
    return _wrapped(f"tested: {who} on {len(tasks)} targets; {', '.join(parts)}") if against else []


def document(findings: Findings) -> dict[str, Any]:
    """The document of ``--json``; numbers that are not finite are null."""
    fields = ("verdict", "seed", "threshold", "new", "incomparable", "unanswered")
    return {
        **{name: getattr(findings, name) for name in fields},
        "groups": [
            {"title": g.title, "where": g.where, "command": g.command, "tests": len(g.tests)}
            | {"reasons": [t.reason for t in g.tests[:_SENTENCES]]}
            for g in groups(findings)
        ],
        "tests": [
            asdict(t) | {"effect": to_json_number(t.effect), "interval": [to_json_number(v) for v in t.interval]}
            for t in findings.tests
        ],
    }


def counts(findings: Findings) -> str:
    """One line: the numbers of tests, of failed ones, and of what was not compared."""
    samplers = len({t.algorithm for t in findings.tests} - {_DENSITY})
    targets = len({t.task for t in findings.tests})
    of = f"{count(samplers, 'sampler')} on " if samplers else ""
    line = f"{len(findings.tests)} tests of {of}{count(targets, 'target')}: {len(findings.red)} red"
    others = {"new": len(findings.new), "changed": len(findings.incomparable)}
    return line + "".join(f", {n} {word}" for word, n in others.items() if n)


def notes(findings: Findings) -> list[str]:
    """Questions without an answer, and why, a line each."""
    return [
        *(f"new: not in the baseline yet, add it with --update: {name}" for name in findings.new),
        *(f"changed: {line}; accept with --update" for line in findings.incomparable),
        *[f"stopped before a clear answer: {', '.join(findings.unanswered)}"] * bool(findings.unanswered),
    ]
