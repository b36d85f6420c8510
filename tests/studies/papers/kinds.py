"""What was learned of every published number: judged against the paper, its rule or its program, within reach, or why not.

A number is compared with a row of a suite (``comparison``). Here this becomes one of fourteen kinds of verdict,
by what they rest on:

- the paper's own settings: ``agrees``, ``differs`` with or without a cause, ``inconclusive``;
- the paper's rule, where it prints no setting but says how it chose it (``rule.csv``, by ``srld_rule``);
- the paper's program, run next to ours on its own settings (``program.csv``, by ``sifg_program``): no statement on the paper;
- reach, where not even a rule is known: whether the number is in the range that a declared grid spans (``reach.csv``).
  It is never counted as agreement;
- none: the number cannot be judged, or ours has settings of our own choice, or it was not run; each with its reason.

Every table is one of a study and holds a line a published number; the tolerance is that of the package everywhere.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path

import pandas as pd
from scipy import stats

from parvibench.core.errors import InputError

from .comparison import RELATIVE, Comparison, SuiteComparison, Verdict, judge, tolerance
from .paper_words import words
from .published import numbers
from .replicates import Ours


class Kind(StrEnum):
    """Of verdicts, with what they rest on."""

    AGREES = "agrees"
    CAUSE = "differs, cause shown"
    DIFFERS = "differs, unexplained"
    INCONCLUSIVE = "inconclusive"
    RULE_AGREES = "agrees (settings by the paper's rule)"
    RULE_DIFFERS = "differs (settings by the paper's rule)"
    RULE_OPEN = "inconclusive (settings by the paper's rule)"
    PROGRAM_AGREES = "agrees with the program"
    PROGRAM_DIFFERS = "differs from the program"
    WITHIN = "within reach"
    OUT = "out of reach"
    NO_NUMBER = "no number to judge"
    INCOMPARABLE = "cannot be compared"
    NOT_RUN = "not run"


#: Judged against the paper, its rule or its program.
JUDGED = (
    Kind.AGREES, Kind.CAUSE, Kind.DIFFERS, Kind.RULE_AGREES, Kind.RULE_DIFFERS, Kind.PROGRAM_AGREES, Kind.PROGRAM_DIFFERS,
)  # fmt: skip
_PAPER = {Verdict.AGREES: Kind.AGREES, Verdict.DIFFERS: Kind.DIFFERS, Verdict.INCONCLUSIVE: Kind.INCONCLUSIVE}
_RULE = {Verdict.AGREES: Kind.RULE_AGREES, Verdict.DIFFERS: Kind.RULE_DIFFERS, Verdict.INCONCLUSIVE: Kind.RULE_OPEN}

#: Numbers that cannot be judged -> why; patterns of pointers.
NO_NUMBER: Mapping[str, str] = words("no number")
#: Numbers without settings, rule, and program, or without a run -> why; the first pattern that fits.
OPEN: Mapping[str, str] = words("open")
#: Of seeds that might decide.
SEEDS = (5, 10, 20, 40, 100, 400)
#: Of SRLD's networks; ours has several chains on each, the paper one.
SPLITS = 20
#: What a log likelihood of SRLD is compared with.
OWN_FORMULA = (
    "the formula of the log likelihood stands in neither paper nor program: ours is that of the mixture over samples"
)


@dataclass(frozen=True)
class Beside:
    """Values that a study compares with a published number."""

    ours: Ours
    note: str = ""
    spread: float = 0.0  #: standard deviation of the program's runs


@dataclass(frozen=True)
class Evidence:
    """The studies' tables by pointer."""

    rule: Mapping[str, Beside] = field(default_factory=dict)
    program: Mapping[str, Beside] = field(default_factory=dict)
    reach: Mapping[str, Beside] = field(default_factory=dict)


@dataclass(frozen=True)
class Finding:
    """A published number, our value, and the verdict."""

    comparison: Comparison
    kind: Kind
    ours: Ours | None
    note: str = ""  #: reason, cause or remark, in one line

    @property
    def pointer(self) -> str:
        """Of the number."""
        return self.comparison.number.pointer


def findings(found: SuiteComparison, evidence: Evidence) -> list[Finding]:
    """The kind of verdict on every number of a suite."""
    return [_found(c, evidence) for c in found.comparisons]


def _found(c: Comparison, evidence: Evidence) -> Finding:
    pointer = c.number.pointer
    unjudged = _first(NO_NUMBER, pointer)
    if unjudged:
        return Finding(c, Kind.NO_NUMBER, c.ours, unjudged)
    if pointer in evidence.rule:
        beside = evidence.rule[pointer]
        kinds = _PAPER if "/Energy/" in pointer else _RULE  # the one set whose steps the program publishes
        formula = OWN_FORMULA if pointer.endswith("/LL") else ""
        kind = kinds[judge(c.published, c.tolerance, beside.ours)]
        more = chains_needed(c, beside.ours) if kind in (Kind.RULE_OPEN, Kind.INCONCLUSIVE) else ""
        return Finding(c, kind, beside.ours, "; ".join(filter(None, [beside.note, formula, more])))
    if pointer in evidence.program:
        return _beside_program(c, evidence.program[pointer])
    if pointer in evidence.reach:
        beside = evidence.reach[pointer]
        published, allowed = tolerance(c.number)  # a number without a row has none in its comparison
        inside = beside.ours.low - allowed <= published <= beside.ours.high + allowed
        return Finding(c, Kind.WITHIN if inside else Kind.OUT, beside.ours, beside.note)
    if c.verdict in _PAPER:
        caused = c.verdict is Verdict.DIFFERS and c.cause
        more = seeds_needed(c) if c.verdict is Verdict.INCONCLUSIVE else ""
        return Finding(c, Kind.CAUSE if caused else _PAPER[c.verdict], c.ours, c.cause or c.reason or more)
    why = _first(OPEN, pointer) or c.reason or "no time was left for it"
    return Finding(c, Kind.NOT_RUN if c.ours is None else Kind.INCOMPARABLE, c.ours, why)


def seeds_needed(c: Comparison) -> str:
    """How many seeds would decide, should their mean and spread stay what they are."""
    if c.ours is None or not math.isfinite(c.ours.high - c.ours.low):
        return ""
    most = stats.t.ppf(0.975, max(c.ours.n - 1, 1))
    spread = (c.ours.high - c.ours.low) / 2 / most * math.sqrt(c.ours.n)
    for n in SEEDS:
        if stats.t.ppf(0.975, n - 1) * spread / math.sqrt(n) < _margin(c, c.ours):
            return f"about {n} seeds would decide, at the mean and spread of these {c.ours.n}"
    return f"more than {SEEDS[-1]} seeds would be needed, at the mean and spread of these {c.ours.n}"


def chains_needed(c: Comparison, ours: Ours) -> str:
    """Whether more chains of ours can decide: the interval holds the noise of the paper's one chain a split, too."""
    each = ours.n / SPLITS
    least = (ours.high - ours.low) / 2 / math.sqrt(1 + 1 / each)
    if least >= _margin(c, ours):
        return "at this mean and spread no number of chains decides: the paper has one a split"
    return "more chains a split may decide"


def _margin(c: Comparison, ours: Ours) -> float:
    return abs(abs(ours.mean - c.published) - c.tolerance)


def _beside_program(c: Comparison, beside: Beside) -> Finding:
    """Ours against the program's mean, by the rule by which it would be compared with the paper's."""
    theirs = beside.ours
    if c.ours is None:
        return Finding(c, Kind.NOT_RUN, None, "the program was run, our row was not")
    allowed = max(2 * beside.spread, c.number.unit, RELATIVE * abs(theirs.mean))
    near = {Verdict.AGREES: Kind.PROGRAM_AGREES, Verdict.DIFFERS: Kind.PROGRAM_DIFFERS}
    note = f"the program here: {theirs.mean:.4g} ({theirs.n}); {beside.note}"
    return Finding(c, near.get(judge(theirs.mean, allowed, c.ours), Kind.INCONCLUSIVE), c.ours, note)


def _first(reasons: Mapping[str, str], pointer: str) -> str:
    return next((reason for pattern, reason in reasons.items() if fnmatchcase(pointer, pattern)), "")


def read_evidence(folder: Path) -> Evidence:
    """The tables of the studies in a folder, as far as they are there."""
    return Evidence(*(read_study(folder / f"{name}.csv") for name in ("rule", "program", "reach")))


def read_study(file: Path) -> dict[str, Beside]:
    """A study's table, a published number a line; empty where there is no file. ``InputError`` where it is not a study's."""
    if not file.is_file():
        return {}
    try:
        with file.open(encoding="utf-8", newline="") as lines:
            read = {line["pointer"]: _beside(line) for line in csv.DictReader(lines)}
    except (ValueError, KeyError, TypeError, csv.Error) as error:
        raise InputError(f"{file}: not a table of pointer, mean, low, high, n and note ({error})") from None
    unknown = [pointer for pointer in read if pointer not in numbers()]
    if unknown:
        raise InputError(f"{file}: {unknown[0]} is no published number")
    return read


def _beside(line: Mapping[str, str]) -> Beside:
    ours = Ours(float(line["mean"]), float(line["low"]), float(line["high"]), int(line["n"]))
    return Beside(ours, line["note"], float(line.get("spread") or 0))


def add_lines(new: pd.DataFrame, file: Path, by: str = "pointer") -> None:
    """Write a study's lines into its table, in place of those of the same pointers."""
    if file.exists():
        old = pd.read_csv(file)
        new = pd.concat([old[~old[by].isin(new[by])], new], ignore_index=True)
    new.to_csv(file, index=False, float_format="%.6g")


def count(found: Iterable[Finding], *kinds: Kind) -> int:
    """How many have one of these kinds of verdict."""
    return sum(f.kind in kinds for f in found)
