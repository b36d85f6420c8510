"""The papers' claims measured, and their page: ``claims.csv``, an effect a line, and ``claims.md``."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from markdown_tables import table

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
    found = _read(out)
    mine = [(number, CLAIMS[number]) for number in sorted(CLAIMS) if CLAIMS[number].source.startswith(paper)]
    return [Stated(number, claim.says, claim.source, _verdicts(number, claim, found)) for number, claim in mine]


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


def page(found: pd.DataFrame) -> str:
    """The verdicts in Markdown, a claim a line, and their effects."""
    lines = [
        "# Claims of the four papers",
        "",
        "Made by `python tests/studies/papers --claims`. Every effect has a bound that was fixed before it was measured, and a 95%",
        "interval of its mean over replicates; a claim is supported where all intervals lie above their bounds, not supported",
        "where one lies below at 95% over the claim's effects together (Bonferroni), else inconclusive. *paper*: its settings;",
        "*matched*: steps that move the methods alike; *tuned*: each method at its own best step.",
        "",
        *table(
            ["claim", "statement", *CONDITIONS],
            ([n, _stated(c), *_verdicts(n, c, found)] for n, c in sorted(CLAIMS.items())),
        ),
        "",
    ]
    shown = [
        (r.claim, r.condition, r.effect, f"{r.bound:.3g}", f"{r.mean:.3g} [{r.low:.3g}, {r.high:.3g}]", r.replicates)
        for r in found.itertuples()
    ]
    lines += table(["claim", "condition", "effect", "bound", "mean [95%]", "replicates"], shown)
    return "\n".join(lines) + "\n"


def _stated(claim: Claim) -> str:
    note = f" *{claim.note[0].upper()}{claim.note[1:]}.*" if claim.note else ""
    return f"{claim.says} ({claim.source}){note}"


def measure_claims(
    named: Sequence[str], conditions: Sequence[str] | None, store: Path, out: Path, workers: int | None = None
) -> None:
    """Measure what the table in a folder lacks, or the claims that are named; it is written after each."""
    found = _read(out)
    for number in named or CLAIMS:
        claim = CLAIMS[number]
        for condition in conditions or claim.conditions:
            known = (found["claim"] == number) & (found["condition"] == condition)
            if condition not in claim.conditions or (known.any() and not named):
                continue
            print(f"{number} {condition} ...", flush=True)
            rows = measured(claim, condition, store, workers)
            found = pd.concat([found[~known], rows], ignore_index=True) if len(found) else rows
            found = found.sort_values(["claim", "condition"], kind="stable")
            found.to_csv(out / FILE, index=False)
            print(f"{number} {condition}: {rows['verdict'].iloc[0]}", flush=True)


def write_claims(out: Path) -> None:
    """Write ``claims.md`` next to the table, where there is one."""
    if (out / FILE).exists():
        (out / "claims.md").write_text(page(_read(out)))


def _read(out: Path) -> pd.DataFrame:
    return pd.read_csv(out / FILE) if (out / FILE).exists() else pd.DataFrame(columns=COLUMNS)
