"""False alarms of the questions about samplers: runs of right samplers with fresh seeds, and runs resampled from them.

    python tests/studies/right_samplers.py runs STORE [NAME[=CLAIM] ...] [--seeds 10]    runs that are not in STORE yet
    python tests/studies/right_samplers.py runs STORE jax_kernels:Nuts --seeds 10        likewise, of a kernel in JAX
    python tests/studies/right_samplers.py report STORE TO                               the page on them

A run asks one sampler, given by its place, all questions, as ``parvibench check -a module:Class`` does. Its replicates
are kept; a resampled run draws the stages of every question from those of all runs of its sampler.
"""

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from false_alarms import Pool, red_runs
from scipy import stats

from parvibench.checks.question import Question, Values
from parvibench.checks.questions import sampler_questions
from parvibench.checks.questions.of_sampler import Effort
from parvibench.checks.rounds import Plan, check
from parvibench.core import registry

#: Built-in samplers, with what they claim where their classes do not say so.
SAMPLERS = (
    "ula", "sgld", "lapd", "lapd-decay", "psgld", "sghmc", "uld", "sr-uld", "sr-sghmc", "srld", "mean-field", "full-rank",
    "svgd", "smc", "mclmc", "mala", "hmc", "adjusted-mclmc", "emcee=invariant", "meads",
    "chees-hmc", "nuts", "parallel-tempering", "blackjax-nuts", "numpyro-nuts",
)  # fmt: skip
#: Kernels of BlackJAX and NumPyro on the targets in JAX, where a step is a transition.
KERNELS = ("jax_kernels:Hmc", "jax_kernels:Nuts", "jax_kernels:NumpyroNuts")
CLAIMS = {"": None, "True": True}
#: Steps of a run; for samplers of which a step is five transitions, as many transitions.
_STEPS, _BLOCKS = 500, {"blackjax-nuts": 100, "numpyro-nuts": 100}
RESAMPLED = 2000


def questions_of(named: str) -> list[Question]:
    name, _, claim = named.partition("=")
    exact = CLAIMS.get(claim, claim)
    file, _, kernel = name.partition(":")
    if kernel:
        return sampler_questions(f"{Path(__file__).with_name(file)}.py:{kernel}", Effort(), exact=exact)  # type: ignore[arg-type]
    effort = Effort(steps=_BLOCKS.get(name, _STEPS))
    return sampler_questions(registry.algorithms()[name].target, effort, exact=exact)  # type: ignore[arg-type]


def runs(store: Path, samplers: Sequence[str], seeds: range) -> None:
    store.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for seed in seeds:
        for named in samplers:
            file = store / f"{named} {seed}.json"
            if file.is_file():
                continue
            kept: dict[str, dict[str, list[float]]] = {}

            def keep(question: Question, values: Values, kept: dict[str, dict[str, list[float]]] = kept) -> None:
                kept[question.name] = {name: list(found) for name, found in values.items()}

            started = time.process_time()
            result = check(questions_of(named), seed=seed, keep=keep)
            red = [f"{t.question} {t.metric} p={t.p_value:.1e}: {t.reason}" for t in result.red]
            document = {"cpu_s": round(time.process_time() - started, 1), "tests": len(result.tests), "red": red}
            file.write_text(json.dumps({**document, "values": kept}))
            print(named, seed, document, flush=True)


def resampled(named: str, documents: Sequence[Mapping[str, dict[str, dict[str, list[float]]]]], runs: int) -> int:
    """How many of the runs drawn from the replicates of a sampler are red."""
    questions, rng = questions_of(named), np.random.default_rng(1)
    threshold = Plan().threshold(sum(len(q.expected()) for q in questions))
    red = np.zeros(runs, dtype=bool)
    for question in questions:
        expected = dict(question.expected())
        values = [v for d in documents if _asked(v := d["values"][question.name])]
        if not values:
            continue
        first = {name: np.concatenate([v[name][: Plan().stages[0]] for v in values]) for name in expected}
        red |= red_runs(Pool(question, expected, first), threshold, rng, runs)
    return int(red.sum())


def _asked(values: Mapping[str, list[float]]) -> bool:
    """Whether a run could ask the question: precision, only where double precision is near the truth."""
    return not all(np.isnan(v).all() for v in values.values())


def report(store: Path, to: Path) -> None:
    by_sampler: dict[str, list[dict[str, object]]] = {}
    for file in sorted(store.glob("*.json")):
        by_sampler.setdefault(file.stem.rpartition(" ")[0], []).append(json.loads(file.read_text()))
    total = sum(map(len, by_sampler.values()))
    each = -(-RESAMPLED // len(by_sampler))
    rows, alarms, again = [], 0, 0
    for named, documents in by_sampler.items():
        red = sum(bool(d["red"]) for d in documents)
        drawn = resampled(named, documents, each)  # type: ignore[arg-type]
        alarms, again = alarms + red, again + drawn
        cpu = np.median([d["cpu_s"] for d in documents])  # type: ignore[arg-type]
        tests = max(int(d["tests"]) for d in documents)  # type: ignore[call-overload]
        rows.append(f"| {named} | {tests} | {len(documents)} | {red} | {each} | {drawn} | {cpu:.1f} |")
    bounds = [stats.binomtest(k, n).proportion_ci().high for k, n in ((alarms, total), (again, each * len(rows)))]
    lines = [
        "# Right samplers and `parvibench check`",
        "",
        "Made by `python tests/studies/right_samplers.py`. A sampler is given by its place, with its default settings, 500",
        "iterations (transitions) and 50 chains; behind `=` stands what it claims of its kernel where its class does not.",
        "`jax_kernels` holds kernels of BlackJAX and NumPyro at fixed step lengths, with 200 transitions.",
        "",
        f"{total} runs with fresh seeds, {alarms} red (95%: at most {bounds[0]:.1e}); {each * len(rows)} runs resampled from",
        f"their replicates, {again} red (95%: at most {bounds[1]:.1e}, given these replicates; a question is drawn from the",
        "runs that could ask it).",
        "",
        "| sampler | tests | runs | red | resampled | red | CPU s, median |",
        "|---|---:|---:|---:|---:|---:|---:|",
        *rows,
        "",
        f"Not run: {', '.join(missing)}."
        if (missing := [s for s in (*SAMPLERS, *KERNELS) if s not in by_sampler])
        else "",
        "",
        *(f"- {named}: {d['red']}" for named, documents in by_sampler.items() for d in documents if d["red"]),
    ]
    to.write_text("\n".join(lines).rstrip() + "\n")
    print(to.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("runs")
    run.add_argument("store", type=Path)
    run.add_argument("samplers", nargs="*")
    run.add_argument("--seeds", type=int, default=10)
    tell = commands.add_parser("report")
    tell.add_argument("store", type=Path)
    tell.add_argument("to", type=Path)
    options = parser.parse_args()
    if options.command == "runs":
        runs(options.store, options.samplers or SAMPLERS, range(1, 1 + options.seeds))
    else:
        report(options.store, options.to)


if __name__ == "__main__":
    main()
