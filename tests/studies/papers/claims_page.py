"""The papers' claims measured, and their page: ``claims.csv``, an effect a line, and ``claims.md``."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from .claims.claim import CONDITIONS, Claim, Laboratory, judge, read_claims

CLAIMS = read_claims()
#: The table of claims.
FILE = "claims.csv"
COLUMNS = ["claim", "condition", "verdict", "effect", "bound", "mean", "low", "high", "replicates", "seconds"]


@dataclass(frozen=True)
class Stated:
    """A claim and its verdicts, in the order of ``CONDITIONS``."""

    number: str
    says: str
    source: str
    verdicts: tuple[str, ...]


def stated(paper: str, out: Path) -> list[Stated]:
    """The claims of a paper, by the name that sources begin with, and what the table in a folder says of them."""
    table = _read(out)
    mine = [(number, CLAIMS[number]) for number in sorted(CLAIMS) if CLAIMS[number].source.startswith(paper)]
    return [Stated(number, claim.says, claim.source, _verdicts(number, claim, table)) for number, claim in mine]


def _verdicts(number: str, claim: Claim, table: pd.DataFrame) -> tuple[str, ...]:
    found = table[table["claim"] == number].drop_duplicates("condition").set_index("condition")["verdict"]
    return tuple(found.get(c, "not run" if c in claim.conditions else "–") for c in CONDITIONS)


def measured(claim: Claim, condition: str, store: Path, workers: int | None = None) -> pd.DataFrame:
    """The verdict on a claim under a condition, an effect a row."""
    began = time.process_time()
    verdict, effects = judge(claim.bounds, claim.effects(Laboratory(store, condition, claim.replicates, workers)))
    spent = round(time.process_time() - began, 1)
    rows = [
        (claim.number, condition, verdict, e.name, e.bound, e.mean, e.low, e.high, e.replicates, spent) for e in effects
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def page(table: pd.DataFrame) -> str:
    """The verdicts in Markdown, a claim a line, and their effects."""
    lines = [
        "# Claims of the four papers",
        "",
        "Made by `python tests/studies/papers --claims`. Every effect has a bound that was fixed before it was measured, and a 95%",
        "interval of its mean over replicates; a claim is supported where all intervals lie above their bounds, not supported",
        "where one lies below at 95% over the claim's effects together (Bonferroni), else inconclusive. *paper*: its settings;",
        "*matched*: steps that move the methods alike; *tuned*: each method at its own best step.",
        "",
        "| claim | | " + " | ".join(CONDITIONS) + " |",
        "| --- | --- | " + " | ".join("---" for _ in CONDITIONS) + " |",
    ]
    for number, claim in sorted(CLAIMS.items()):
        verdicts = _verdicts(number, claim, table)
        note = f" *{claim.note[0].upper()}{claim.note[1:]}.*" if claim.note else ""
        lines.append(f"| {number} | {claim.says} ({claim.source}){note} | {' | '.join(verdicts)} |")
    lines += [
        "",
        "| claim | condition | effect | bound | mean [95%] | replicates |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in table.itertuples():
        interval = f"{row.mean:.3g} [{row.low:.3g}, {row.high:.3g}]"
        lines.append(
            f"| {row.claim} | {row.condition} | {row.effect} | {row.bound:.3g} | {interval} | {row.replicates} |"
        )
    return "\n".join(lines) + "\n"


def measure_claims(
    named: Sequence[str], conditions: Sequence[str] | None, store: Path, out: Path, workers: int | None = None
) -> None:
    """Measure what the table in a folder lacks, or the claims that are named; it is written after each."""
    table = _read(out)
    for number in named or CLAIMS:
        claim = CLAIMS[number]
        for condition in conditions or claim.conditions:
            known = (table["claim"] == number) & (table["condition"] == condition)
            if condition not in claim.conditions or (known.any() and not named):
                continue
            print(f"{number} {condition} ...", flush=True)
            rows = measured(claim, condition, store, workers)
            table = pd.concat([table[~known], rows], ignore_index=True) if len(table) else rows
            table = table.sort_values(["claim", "condition"], kind="stable")
            table.to_csv(out / FILE, index=False)
            print(f"{number} {condition}: {rows['verdict'].iloc[0]}", flush=True)


def write_claims(out: Path) -> None:
    """Write ``claims.md`` next to the table, where there is one."""
    if (out / FILE).exists():
        (out / "claims.md").write_text(page(_read(out)))


def _read(out: Path) -> pd.DataFrame:
    return pd.read_csv(out / FILE) if (out / FILE).exists() else pd.DataFrame(columns=COLUMNS)
