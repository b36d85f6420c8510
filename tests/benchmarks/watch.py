"""The small part that every change must pass: ``python tests/benchmarks/watch.py``; exit code 1 on a regression.

The ratio of a few jobs over their twins against ``baseline.json``. A job fails when its ratio is more than 30% below
the baseline in all of three attempts: noise of a busy machine rarely strikes thrice, a slower program always does.
``--update`` writes the baseline again; the ratios of jobs of tiny steps, ULA and SRLD, differ by half between two machines
of one name, and the smaller is stored. A sound program failed in none of 160 verdicts on a machine with load 4 to 8 on two
cores, and none took a second attempt.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    from pairing import restart_in_environment

    restart_in_environment()

import torch
from jobs import JOBS, METRIC_JOBS
from pairing import paired_ratio

from parvibench.harness.store.environment import hardware

BASELINE = Path(__file__).with_name("baseline.json")
WORST = 1 / 1.3
SECONDS, ROUNDS, ATTEMPTS = 0.06, 9, 3


def watched() -> list[Any]:
    """The jobs, all runnable without downloads."""
    return [job for job in (*JOBS, *METRIC_JOBS) if job.watched]


def attempt(job: Any) -> float:
    """Median ratio of the twin over ours."""
    return paired_ratio(job.ours(), job.rival("twin"), SECONDS, ROUNDS).value


def judge(job: Any, baseline: float) -> tuple[bool, list[float]]:
    """Whether the job holds its baseline, and the ratios of the attempts it took."""
    ratios: list[float] = []
    while len(ratios) < ATTEMPTS:
        ratios.append(attempt(job))
        if ratios[-1] >= WORST * baseline:
            return True, ratios
    return False, ratios


def update() -> None:
    """Write the median of three attempts of each job."""
    ratios = {}
    for job in watched():
        ratios[job.name] = round(sorted(attempt(job) for _ in range(3))[1], 2)
        print(job.name, ratios[job.name], flush=True)
    BASELINE.write_text(json.dumps({"hardware": hardware("cpu"), "ratios": ratios}, indent=1) + "\n")


def check() -> int:
    """Judge all jobs; how many verdicts were failures."""
    held, failures = json.loads(BASELINE.read_text()), 0
    for job in watched():
        baseline = held["ratios"][job.name]
        fine, ratios = judge(job, baseline)
        failures += not fine
        shown = ", ".join(f"{r:.2f}" for r in ratios)
        print(f"{'ok  ' if fine else 'FAIL'} {job.name}: {shown} against {baseline:.2f}", flush=True)
    if failures:
        print(
            f"Ours have become more than 30% slower relative to their twins. Baseline from: {held['hardware']}. "
            "If that is meant, or the hardware is another: python tests/benchmarks/watch.py --update",
            file=sys.stderr,
        )
    return failures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--update", action="store_true", help="write the baseline anew")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.update:
        update()
    else:
        raise SystemExit(check() > 0)
