"""Ours against textbook twins and BlackJAX, as a table: ``python tests/benchmarks/table.py``.

Writes a Markdown page and the numbers behind it into ``reports/benchmarks/``. Restarts itself
with one thread and the allocator of the harness's workers.
"""

import argparse
import json
import os
import sys
from datetime import date
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    from pairing import restart_in_environment

    restart_in_environment()

import torch
from jobs import JOBS, METRIC_JOBS, absent
from pairing import paired_ratio

from parvibench.harness.store.environment import provenance

FOLDER = Path(__file__).resolve().parents[2] / "reports" / "benchmarks"
COMMAND = "python tests/benchmarks/table.py"


def measure(only: str, seconds: float, rounds: int) -> list[dict[str, Any]]:
    """One row for each job and rival; those that cannot run here say why."""
    rows = []
    for job in (*JOBS, *METRIC_JOBS):
        if only not in job.name:
            continue
        for rival, bar in job.rivals.items():
            row: dict[str, Any] = {"job": job.name, "rival": rival, "bar": bar}
            reason = job.missing or absent(rival)
            if reason:
                row["skipped"] = reason
            else:
                row |= vars(paired_ratio(job.ours(), job.rival(rival), seconds, rounds))
            rows.append(row)
            print(line(row), file=sys.stderr, flush=True)
    return rows


def line(row: dict[str, Any]) -> str:
    """A row of the Markdown table."""
    if "skipped" in row:
        return f"| {row['job']} | {row['rival']} | | | {row['skipped']} | | |"
    bar = "" if row["bar"] is None else f"{row['bar']:g}"
    verdict = "" if row["bar"] is None else "met" if row["value"] >= row["bar"] else "**not met**"
    ratio = f"{row['value']:.3g} ({row['low']:.3g} to {row['high']:.3g})"
    return (
        f"| {row['job']} | {row['rival']} | {1e3 * row['ours']:.3g} | {1e3 * row['other']:.3g} | {ratio} "
        f"| {bar} | {verdict} |"
    )


def page(found: dict[str, Any]) -> str:
    """The Markdown page."""
    facts, load = found["provenance"], found["load"]
    packages = ", ".join(f"{p} {facts['packages'][p]}" for p in ("torch", "numpy") if p in facts["packages"])
    return f"""# Speed against textbook programs and BlackJAX

Made by `{COMMAND}` on {found["day"]}. {facts["hardware"]}, {facts["cpus"]} cores, Python {facts["python"]},
{packages}{found["jax"]}; one thread, the allocator of the harness's workers on both sides.

Each ratio is the other side's time over ours for the same work, so more than 1 means that ours is faster: median
over {found["rounds"]} rounds and its 95% interval. The sides take turns of about {found["seconds"]:g} s in one process; times are
processor seconds, so work of others on the machine (load {load[0]:.1f} before, {load[1]:.1f} after, on {facts["cpus"]} cores) counts only
as far as it takes the caches. Compiling and warming up are left out.

- *twin*: the method as one writes it from its paper, with autograd for every gradient, modules and broadcasting
  (`tests/benchmarks/twin_samplers.py`); tests hold both at the same place in float64. Those of SIFG and Ada-SIFG take
  the target's score anew in every inner step, as their authors' program does; *twin, one score* takes it once.
- *blackjax*: its sampler, compiled, all steps in one scan.
- *loop*: ours, one replicate after another.
- *at least*: what was aimed at.

| job | against | ours, ms a step | theirs, ms | ratio | at least | |
|---|---|---|---|---|---|---|
{chr(10).join(line(row) for row in found["rows"])}

Effective samples a second of NUTS: [effective.md](effective.md).
"""


def main(only: str, seconds: float, rounds: int, folder: Path) -> None:
    """Measure and write."""
    torch.set_num_threads(1)
    before = os.getloadavg()[0]
    rows = measure(only, seconds, rounds)
    facts = provenance(COMMAND, "cpu")
    del facts["command"], facts["git"]
    jax = ""
    if not absent("blackjax"):
        import blackjax
        import jax as jax_package

        jax = f", JAX {jax_package.__version__}, BlackJAX {blackjax.__version__}"
    found = {
        "day": date.today().isoformat(), "rounds": rounds, "seconds": seconds, "jax": jax,
        "load": [before, os.getloadavg()[0]], "provenance": facts, "rows": rows,
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "benchmarks.json").write_text(json.dumps(found, indent=1) + "\n")
    (folder / "README.md").write_text(page(found))
    print((folder / "README.md").read_text())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="jobs whose name holds this")
    parser.add_argument("--seconds", type=float, default=0.3, help="length of a turn")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, default=FOLDER)
    given = parser.parse_args()
    main(given.only, given.seconds, given.rounds, given.out)
