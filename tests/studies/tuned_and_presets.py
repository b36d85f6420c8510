"""The papers' methods as the suites tune them and with their papers' own presets, at equal score evaluations.

    python tests/studies/tuned_and_presets.py --store STORE --markdown reports/calibration/tuned-and-presets.md

A method that a suite tunes may not do worse on its own task than with the settings of its paper. Each pair below runs
both on the same replicates, with the suite's budget in score evaluations and its number of samples; the effect is the log
of the preset's primary metric over the tuned one's, per replicate, with the 95% interval of its mean. A replicate that
diverged counts as one more than twice the largest finite effect. LAPD's paper has no experiments and hence no preset.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from papers.claims.claim import INCONCLUSIVE, NOT_SUPPORTED, SUPPORTED, Measured, judge, log_ratio

import parvibench as pb
from parvibench.core.registry import load_task
from parvibench.harness.suite.cells import expand
from parvibench.harness.suite.suite import Suite, load_suite

VERDICTS = {SUPPORTED: "better", NOT_SUPPORTED: "worse", INCONCLUSIVE: "no difference shown"}


@dataclass(frozen=True)
class Pair:
    """A method on a task of a suite, by its label there, and the preset of its paper."""

    suite: str
    task: str
    label: str
    preset: str
    replicates: int = 10


PAIRS = (
    Pair("toy", "gmm5-2d", "sifg", "gmm5-2d"),
    Pair("toy", "gmm5-2d", "ada-sifg", "gmm5-2d"),
    Pair("toy", "correlated-2d", "srld", "correlated-2d"),
    Pair("toy", "gmm2-20d", "srld", "gmm2-20d"),
    Pair("toy", "banana", "ksivi", "banana"),
    Pair("toy", "multimodal", "ksivi", "multimodal"),
    Pair("toy", "x-shaped", "ksivi", "x-shaped"),
    Pair("uci", "bnn-boston", "sifg", "bnn-boston-sifg", 5),
    Pair("uci", "bnn-boston", "ksivi-plain", "bnn-boston-ksivi", 5),
    Pair("uci", "bnn-energy", "srld", "bnn-energy-srld", 5),
)


def arms(pair: Pair, profile: str) -> Suite:
    """The two: ``tuned``, as the suite has it, and ``preset``, the paper's settings under the suite's protocol."""
    suite = load_suite(pair.suite).with_profile(profile)
    entry = next(a for a in suite.algorithms if a.display == pair.label)
    task = next(t for t in suite.tasks if t.name == pair.task)
    (cell,) = expand(suite.model_copy(update={"tasks": (task,), "algorithms": (entry,)}))
    protocol = {name: getattr(cell.spec, name) for name in ("budget", "particles", "samples", "burn_in", "thinning")}
    tuned = {"name": entry.name, "label": "tuned", "settings": cell.spec.settings, **protocol}
    preset = {"name": entry.name, "label": "preset", "preset": pair.preset, **protocol}
    values = {"name": "tuned-and-presets", "tasks": [pair.task], "algorithms": [tuned, preset]}
    return Suite.model_validate(values | {"replicates": pair.replicates, "budget": cell.spec.budget})


def measured(store: Path, profile: str, workers: int | None) -> Iterator[list[str]]:
    """A line of the table for every pair."""
    for pair in PAIRS:
        runs = Measured(pb.run(arms(pair, profile), out=store, workers=workers, tracking=False, warn=str))
        metric = load_task(pair.task).metrics[0]
        preset, tuned = (runs.last(label, metric) for label in ("preset", "tuned"))
        found, (effect,) = judge({"gain": 0.0}, {"gain": log_ratio(preset, tuned)})
        medians = [f"{np.median(values):.3g}" for values in (preset, tuned)]
        gain = f"{effect.mean:.2f} [{effect.low:.2f}, {effect.high:.2f}]"
        yield [pair.suite, pair.task, pair.label, metric, *medians, gain, VERDICTS[found]]


def main() -> None:
    """Run the pairs; the store keeps what is finished."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--store", type=Path, default=Path("tuned-and-presets"))
    parser.add_argument("--profile", default="fast", help="of the suites")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    head = ["suite", "task", "method", "metric", "preset", "tuned", "log ratio [95%]", "tuned is"]
    lines = [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head))]
    print(*lines, sep="\n")
    for row in measured(options.store, options.profile, options.workers):
        lines.append(f"| {' | '.join(row)} |")
        print(lines[-1], flush=True)
    if options.markdown:
        said = (__doc__ or "").split("\n\n")
        text = [
            "# Tuned settings beside the papers' own",
            f"Made by `{said[1].strip()}`, profile `{options.profile}`.",
            said[2].strip(),
            "\n".join(lines),
        ]
        options.markdown.write_text("\n\n".join(text) + "\n")


if __name__ == "__main__":
    main()
