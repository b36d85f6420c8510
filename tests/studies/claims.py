"""The four papers' claims on runs of our own: ``python tests/studies/claims.py [C12 ...] [--condition paper]``.

Each claim (``paper_claims/``) is measured under the paper's settings, with steps matched so that methods move alike, and
with steps tuned by one rule, where these differ. Writes ``claims.csv``, an effect a line, and ``claims.md`` into
``reports/papers``; what stands there is not measured again, unless it is named. Finished runs are kept in ``--store``.
"""

import argparse
import time
from pathlib import Path

import pandas as pd
from paper_claims import (
    ksivi_claims,
    ksivi_table_claims,
    lapd_claims,
    sifg_claims,
    sifg_network_claims,
    srld_claims,
    srld_table_claims,
)
from paper_claims.claim import CONDITIONS, Claim, Laboratory, judge

REPORT = Path(__file__).parents[2] / "reports" / "papers"
MODULES = (
    sifg_claims,
    sifg_network_claims,
    srld_claims,
    srld_table_claims,
    ksivi_claims,
    ksivi_table_claims,
    lapd_claims,
)
CLAIMS = {claim.number: claim for module in MODULES for claim in module.CLAIMS}
COLUMNS = ["claim", "condition", "verdict", "effect", "bound", "mean", "low", "high", "replicates", "seconds"]


def measured(claim: Claim, condition: str, store: Path, workers: int | None = None) -> pd.DataFrame:
    """The verdict on a claim under a condition, an effect a row."""
    began = time.process_time()
    verdict, effects = judge(claim.bounds, claim.measure(Laboratory(store, condition, claim.replicates, workers)))
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
        "Made by `python tests/studies/claims.py`. Every effect has a bound that was fixed before it was measured, and a 95%",
        "interval of its mean over replicates; a claim is supported where all intervals lie above their bounds, not supported",
        "where one lies below at 95% over the claim's effects together (Bonferroni), else inconclusive. *paper*: its settings;",
        "*matched*: steps that move the methods alike; *tuned*: each method at its own best step.",
        "",
        "| claim | | " + " | ".join(CONDITIONS) + " |",
        "| --- | --- | " + " | ".join("---" for _ in CONDITIONS) + " |",
    ]
    for number, claim in sorted(CLAIMS.items()):
        found = table[table["claim"] == number].drop_duplicates("condition").set_index("condition")["verdict"]
        verdicts = [found.get(c, "not run" if c in claim.conditions else "–") for c in CONDITIONS]
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


def main() -> None:
    """Measure what the table lacks, or what is named, and write table and page after each."""
    parser = argparse.ArgumentParser(description="Verdicts on the papers' claims.")
    parser.add_argument("claims", nargs="*", choices=[*CLAIMS, []], help="measured again; default: those not measured")
    parser.add_argument("--condition", choices=CONDITIONS, action="append", help="default: all that the claim has")
    parser.add_argument("--store", type=Path, default=Path("parvibench-runs/claims"))
    parser.add_argument("--out", type=Path, default=REPORT)
    parser.add_argument("--workers", type=int)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "claims.csv"
    table = pd.read_csv(file) if file.exists() else pd.DataFrame(columns=COLUMNS)
    for number in options.claims or CLAIMS:
        claim = CLAIMS[number]
        for condition in options.condition or claim.conditions:
            known = (table["claim"] == number) & (table["condition"] == condition)
            if condition not in claim.conditions or (known.any() and not options.claims):
                continue
            print(f"{number} {condition} ...", flush=True)
            rows = measured(claim, condition, options.store, options.workers)
            table = pd.concat([table[~known], rows], ignore_index=True) if len(table) else rows
            table = table.sort_values(["claim", "condition"], kind="stable")
            table.to_csv(file, index=False)
            (options.out / "claims.md").write_text(page(table))
            print(f"{number} {condition}: {rows['verdict'].iloc[0]}", flush=True)


if __name__ == "__main__":
    main()
