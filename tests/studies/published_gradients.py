"""Gradients until the error of second moments is low on `brownian-32`: ours and those of the MAMS paper's program.

    OMP_NUM_THREADS=1 python tests/studies/published_gradients.py [--chains 128] [--steps 4000] [--markdown FILE]

Published: Robnik, Cohn-Gordon & Seljak (2025), arXiv:2503.01707, table 1, here from the files of the authors' repository
reubenharry/sampler-benchmarks, folder sampler-comparison/MAMS_PAPER_2025/table1/brownian_motion (512 chains, tuned for 5,000 steps each,
not counted). Their rule, which is applied here too: b^2 = (mean of f along a chain - E f)^2 / Var f, for f = x or x^2 in the
parameters of the model (scales, not their logarithms), averaged over the parameters, or the largest of them; the median over chains; the last
step at which it is above 0.01, times the mean number of gradients a step. A perfect sampler needs about 46 steps for the
median of a single parameter. E and Var are those of 200,000 exact draws.

Intervals resample our chains, widened for the noise of 512 of theirs; a published number outside its interval differs.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import Generator, Tensor

from parvibench.core.algorithm import take_steps
from parvibench.core.registry import load_algorithm, load_task

LOW = 0.01
#: (method, statistic, over parameters) -> gradients.
PUBLISHED = {
    ("nuts", "x^2", "largest"): 29424.1, ("nuts", "x^2", "average"): 5786.8,
    ("nuts", "x", "largest"): 32294.1, ("nuts", "x", "average"): 6533.5,
    ("adjusted-mclmc", "x^2", "largest"): 13528.3, ("adjusted-mclmc", "x^2", "average"): 2797.5,
    ("adjusted-mclmc", "x", "largest"): 15428.1, ("adjusted-mclmc", "x", "average"): 2975.0,
}  # fmt: skip
THEIR_CHAINS = 512
#: method -> steps of tuning, and steps from one stored state to the next: adjusted MCLMC's are single leapfrogs.
STEPS = {"nuts": (1000, 1), "adjusted-mclmc": (5000, 8)}


def parameters(x: Tensor) -> Tensor:
    """The model's: scales in place of their logarithms."""
    return torch.cat([x[..., :2].exp(), x[..., 2:]], -1)


def chains(method: str, n: int, steps: int) -> tuple[Tensor, float]:
    """States (T, C, D) after the tuning, and gradients from one to the next, a chain."""
    task, algorithm = load_task("brownian-32"), load_algorithm(method)
    problem = task.problem(1, 0, dtype=torch.float64, particles=n, full_batch=True)
    warmup, every = STEPS[method]
    settings = algorithm.make_settings({"warmup_steps": warmup})
    kept, before = [], 0.0
    with torch.no_grad():
        state = algorithm.init(problem, settings, problem.streams, 4 * warmup)
        for step, (now, _) in enumerate(take_steps(algorithm.step, problem, settings, state)):
            if step == warmup:
                before = problem.meter.charged
            elif step > warmup and (step - warmup) % every == 0:
                kept.append(parameters(now.x[0]).clone())
            if len(kept) == steps:
                break
    return torch.stack(kept), (problem.meter.charged - before) / n / steps


def errors(states: Tensor, truth: Tensor) -> dict[tuple[str, str], np.ndarray]:
    """(statistic, over parameters) -> b^2 of every chain along its path, (T, C)."""
    found = {}
    count = torch.arange(1, len(states) + 1, dtype=torch.float64).view(-1, 1, 1)
    for name, power in (("x", 1), ("x^2", 2)):
        wanted = truth**power
        b2 = ((states**power).cumsum(0) / count - wanted.mean(0)) ** 2 / wanted.var(0)
        found[name, "average"], found[name, "largest"] = b2.mean(-1).numpy(), b2.amax(-1).numpy()
    return found


def last_above(b2: np.ndarray) -> float:
    """Steps until the median over chains stays low; infinite where it does not."""
    above = np.flatnonzero(np.median(b2, axis=1) > LOW)
    return np.inf if len(above) and above[-1] == len(b2) - 1 else float(above[-1] + 1 if len(above) else 1)


def main() -> None:
    """Run, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chains", type=int, default=128)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    truth = parameters(load_task("brownian-32").exact(200_000, Generator().manual_seed(1)).double())
    lines = [
        "| method | moment | parameters | published | ours | interval | verdict |",
        "|---|---|---|---|---|---|---|",
    ]
    generator = np.random.default_rng(0)
    for method in dict.fromkeys(m for m, *_ in PUBLISHED):
        states, cost = chains(method, options.chains, options.steps)
        for (statistic, over), b2 in errors(states, truth).items():
            published = PUBLISHED[method, statistic, over]
            ours = cost * last_above(b2)
            again = [cost * last_above(b2[:, generator.integers(b2.shape[1], size=b2.shape[1])]) for _ in range(400)]
            wider = np.sqrt(1 + options.chains / THEIR_CHAINS)
            low, high = (ours * (q / ours) ** wider for q in np.quantile(again, [0.025, 0.975]))
            verdict = "agrees" if low <= published <= high else "differs"
            lines.append(
                f"| {method} | {statistic} | {over} | {published:,.0f} | {ours:,.0f} | {low:,.0f} to {high:,.0f} | {verdict} |"
            )
            print(lines[-1], flush=True)
        print(f"{method}: {cost:.1f} gradients a step", flush=True)
    if options.markdown:
        options.markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
