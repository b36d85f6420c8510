"""The audit of the papers: ``python tests/studies/papers [STORE ...] [--claims [C12 ...]] [--times]``.

Compares the runs of the papers' suites in the stores with every published number and writes the page into
``reports/papers``, as HTML, Markdown and CSV. Results of rows are stored there in ``measured.csv``: later stores add to it, and
without a store the page is made from these.

``--claims`` first measures the papers' claims (``claims/``): under the paper's settings, with steps matched so that methods
move alike, and with steps tuned by one rule, where these differ; those that ``claims.csv`` lacks, or those that are named.
``--times`` first measures what the way of writing KSIVI costs (``plain_times``), on an idle machine, into ``causes.csv``;
``--rule`` SRLD's networks with settings by the paper's rule (``srld_rule``), ``--reach`` what a grid gives where there is no
rule (``reach``), ``--program FOLDER`` SIFG's public program next to our rows (``sifg_program``), and ``--pictures STORE``
draws the figures of finished suites (``pictures``).
"""

import argparse
from pathlib import Path

from parvibench.core.errors import InputError

from . import pictures, plain_times, reach, sifg_program, srld_rule
from .audit_page import write_papers
from .claims.claim import CONDITIONS
from .claims_page import CLAIMS, measure_claims, write_claims
from .plain_times import CAUSES

REPORT = Path(__file__).resolve().parents[3] / "reports" / "papers"


def main(arguments: list[str] | None = None) -> None:
    """Measure what the options name, then write the pages."""
    parser = argparse.ArgumentParser("papers", description="Published numbers and claims of the papers, beside ours.")
    parser.add_argument("stores", nargs="*", type=Path, help="that hold rows of the papers' suites")
    parser.add_argument("--to", type=Path, default=REPORT, help="folder of the pages")
    parser.add_argument("--times", action="store_true", help="measure the times of plain programs")
    parser.add_argument(
        "--claims", nargs="*", choices=[*CLAIMS, []], help="measure these; without names what is missing"
    )
    parser.add_argument("--condition", choices=CONDITIONS, action="append", help="of the claims; default: all of each")
    parser.add_argument(
        "--claims-store", type=Path, default=Path("parvibench-runs/claims"), help="finished runs of claims"
    )
    parser.add_argument("--rule", nargs="*", choices=[*srld_rule.SETS, []], help="measure these sets, or all")
    parser.add_argument("--rule-store", type=Path, default=Path("parvibench-runs/rule"), help="its finished parts")
    parser.add_argument(
        "--reach", nargs="*", choices=[*(grid.name for grid in reach.GRIDS), []], help="run these grids, or all"
    )
    parser.add_argument("--reach-store", type=Path, default=Path("parvibench-runs/reach"), help="its finished runs")
    parser.add_argument("--program", type=Path, help="folder of SIFG's program for networks: run it")
    parser.add_argument("--pictures", nargs="+", type=Path, default=[], help="stores of suites whose figures to draw")
    parser.add_argument("--workers", type=int, help="processes of the claims' runs")
    options = parser.parse_args(arguments)
    for store in options.stores:
        if not (store / "cells").is_dir():
            parser.error(f"{store}: not a store; `parvibench run --suite sifg-table-1 --out {store}` makes one")
    options.to.mkdir(parents=True, exist_ok=True)
    if options.times:
        plain_times.measure(options.to / CAUSES)
    if options.rule is not None:
        srld_rule.measure(options.rule, options.rule_store, options.to)
    if options.reach is not None:
        reach.measure(options.reach, options.reach_store, options.to)
    if options.program:
        sifg_program.measure(options.program.resolve(), options.to / "program.csv")
    pictures.keep(options.pictures, options.to / pictures.FIGURES)
    if options.claims is not None:
        measure_claims(options.claims, options.condition, options.claims_store, options.to, options.workers)
    try:
        print(write_papers(options.stores, options.to))
    except InputError as error:
        parser.error(str(error))
    write_claims(options.to)
