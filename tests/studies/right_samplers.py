"""False alarms of the questions about samplers: runs of right samplers with fresh seeds, and runs resampled from them.

    python tests/studies/right_samplers.py runs STORE [NAME[=CLAIM] ...] [--seeds 10]    runs that are not in STORE yet
    python tests/studies/right_samplers.py runs STORE jax_kernels:Nuts --seeds 10        likewise, of a kernel in JAX
    python tests/studies/right_samplers.py runs STORE baseline                           likewise, of cells against a baseline
    python tests/studies/right_samplers.py report STORE TO                               the page on them

A run asks one sampler, given by its place, all questions, as ``parvibench check -a module:Class`` does; of ``baseline``, the
cells of the suites ``ci`` and ``ci-networks`` against a baseline of the store, whose power against shifts is measured as
well. A run's replicates are stored; a resampled run draws the stages of every question from those of all runs of its sampler.
"""

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from markdown_tables import table
from numpy.typing import NDArray
from scipy import stats

from parvibench.checks import rounds
from parvibench.checks.baseline import Baseline, make
from parvibench.checks.baseline import questions as baseline_questions
from parvibench.checks.evidence import bound_p_value, law_p_values
from parvibench.checks.question import Bound, Expected, Law, Question, Values, measure
from parvibench.checks.questions import sampler_questions
from parvibench.checks.questions.of_sampler import Effort
from parvibench.checks.rounds import Plan
from parvibench.checks.summaries import joined
from parvibench.core import registry
from parvibench.harness.suite.cells import expand
from parvibench.harness.suite.suite import load_suite

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


Array = NDArray[np.float64]
#: Shifts of a statistic against the baseline, in its standard deviations, and the share of statistics that are shifted.
SHIFTS, SHIFTED = (0.5, 1.0, 1.5, 2.0), 0.1


def questions_of(named: str, store: Path) -> Sequence[Question]:
    if named == "baseline":
        return _against_baseline(store / "baseline")
    name, _, claim = named.partition("=")
    exact = CLAIMS.get(claim, claim)
    file, _, kernel = name.partition(":")
    if kernel:
        return sampler_questions(f"{Path(__file__).with_name(file)}.py:{kernel}", Effort(), exact=exact)  # type: ignore[arg-type]
    effort = Effort(steps=_BLOCKS.get(name, _STEPS))
    return sampler_questions(registry.algorithms()[name].target, effort, exact=exact)  # type: ignore[arg-type]


def key(question: Question) -> str:
    """Of its values in a run's file."""
    return f"{question.name}, {question.algorithm} {question.circumstances}".strip()


def _against_baseline(file: Path) -> Sequence[Question]:
    cells = [c for suite in ("ci", "ci-networks") for c in expand(load_suite(suite)) if not c.missing_needs()]
    if not file.is_file():  # made at the first run
        make(cells, seed=0, date="").write(file)
    asked = baseline_questions(Baseline.load(file), cells)
    assert not asked.new + asked.incomparable, asked
    return asked.questions


def runs(store: Path, samplers: Sequence[str], seeds: range) -> None:
    store.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for seed in seeds:
        for named in samplers:
            file = store / f"{named} {seed}.json"
            if file.is_file():
                continue
            asked, kept = questions_of(named, store), defaultdict[int, list[Values]](list)

            def measured(*work: Any, kept: dict[int, list[Values]] = kept) -> Iterator[tuple[int, Values | str]]:
                for i, values in measure(*work):
                    kept[i] += [] if isinstance(values, str) else [values]
                    yield i, values

            started = time.process_time()
            with mock.patch.object(rounds, "measure", measured):
                result = rounds.check(asked, seed=seed)
            red = [f"{t.question} {t.metric} p={t.p_value:.1e}: {t.reason}" for t in result.red]
            document = {"cpu_s": round(time.process_time() - started, 1), "tests": len(result.tests), "red": red}
            values = {key(question): joined(kept[i]) for i, question in enumerate(asked)}
            file.write_text(json.dumps({**document, "values": values}))
            print(named, seed, document, flush=True)


def resampled(
    named: str, store: Path, documents: Sequence[Mapping[str, dict[str, dict[str, list[float]]]]], runs: int
) -> tuple[int, Array]:
    """How many of the runs drawn from the replicates of a sampler are red, and the shares of shifts that are detected."""
    questions, rng = questions_of(named, store), np.random.default_rng(1)
    threshold = Plan().threshold(sum(len(q.expected()) for q in questions))
    red, caught = np.zeros(runs, dtype=bool), []
    for question in questions:
        expected = question.expected()
        values = [v for d in documents if _asked(v := d["values"][key(question)])]
        if not values:
            continue
        first = {name: np.concatenate([v[name][: Plan().stages[0]] for v in values]) for name in expected}
        red |= red_runs(expected, first, threshold, rng, runs)
        for name, e in expected.items() if named == "baseline" else ():
            spread = float(np.std(e.values)) if isinstance(e, Law) else 0.0
            if 0 < spread < np.inf and rng.random() < SHIFTED:
                moved = [{name: first[name] + size * spread} for size in SHIFTS]
                caught.append([red_runs({name: e}, x, threshold, rng, 1)[0] for x in moved])
    return int(red.sum()), np.mean(caught, axis=0) if caught else np.empty(0)


def red_runs(
    expected: Mapping[str, Expected], fresh: Mapping[str, Array], threshold: float, rng: np.random.Generator, runs: int
) -> NDArray[np.bool_]:
    """Which of the runs whose stages are drawn from clean replicates of a question find it red."""
    plan, size = Plan(), len(next(iter(fresh.values())))
    red, undecided = np.zeros(runs, dtype=bool), np.arange(runs)
    if size <= 1:  # what no seed changes is measured once
        return red
    order = np.argsort(rng.random((runs, size)), axis=1)
    for total in plan.stages:
        if not len(undecided):
            break
        rows = order[undecided][:, : min(total, size)]
        p = np.column_stack([_p_values(e, fresh[name], rows) for name, e in expected.items()])
        red[undecided] |= (p <= threshold).any(1)
        undecided = undecided[(p.min(1) * p.shape[1] < plan.doubt) & ~red[undecided]]
    return red


def _p_values(expected: Expected, x: Array, rows: NDArray[np.int64]) -> Array:
    """p-values, (runs,), of the replicates in rows (runs, n)."""
    if isinstance(expected, Law):
        law = np.broadcast_to(expected.values[:, None], (len(expected.values), len(rows)))
        return law_p_values(expected.snapped(x)[rows].T, law)
    if isinstance(expected, Bound):
        return np.array([bound_p_value(x[r], expected.limit) for r in rows])
    return np.ones(len(rows))  # fixed: the same in every replicate, or the real runs were red


def _asked(values: Mapping[str, list[float]]) -> bool:
    """Whether a run could ask the question: precision, only where double precision is near the truth."""
    return not all(np.isnan(v).all() for v in values.values())


def report(store: Path, to: Path) -> None:
    by_sampler: dict[str, list[dict[str, object]]] = {}
    for file in sorted(store.glob("*.json")):
        by_sampler.setdefault(file.stem.rpartition(" ")[0], []).append(json.loads(file.read_text()))
    total = sum(map(len, by_sampler.values()))
    each = -(-RESAMPLED // len(by_sampler))
    rows, shifts, alarms, again = [], [], 0, 0
    for named, documents in by_sampler.items():
        red = sum(bool(d["red"]) for d in documents)
        drawn, power = resampled(named, store, documents, each)  # type: ignore[arg-type]
        alarms, again = alarms + red, again + drawn
        cpu = np.median([d["cpu_s"] for d in documents])  # type: ignore[arg-type]
        tests = max(int(d["tests"]) for d in documents)  # type: ignore[call-overload]
        rows.append((named, tests, len(documents), red, each, drawn, f"{cpu:.1f}"))
        shifts += [(f"{size:g}", f"{share:.0%}") for size, share in zip(SHIFTS, power, strict=False)]
    bounds = [stats.binomtest(k, n).proportion_ci().high for k, n in ((alarms, total), (again, each * len(rows)))]
    head = ["sampler", "tests", "runs", "red", "resampled", "red again", "CPU s, median"]
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
        *table(head, rows, head[1:]),
        "",
        *(
            ["Shifts of one statistic of a cell against its baseline:", "", *table(["shift, sd", "caught"], shifts), ""]
            if shifts
            else []
        ),
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
