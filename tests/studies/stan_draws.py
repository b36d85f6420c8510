"""The references of the posteriors against the reference draws of posteriordb, which are of Stan's NUTS.

    PARVIBENCH_POSTERIORDB=COPY/posterior_database PARVIBENCH_DATA_DIR=data \\
        python tests/studies/stan_draws.py [TASK...] --markdown FILE

COPY is a checkout of posteriordb; the extra `stan` must be installed. Our rows become parameters by Stan's own transform, so that a wrong
order or transform of coordinates shows as well. Compared are means, squares about the common mean, and both 5% tails of every
parameter. All z are those of independent draws: ours are thinned from chains whose ESS is above 10,000, theirs to the least of their
ESS. Both the largest |z| and the sum of z^2 are judged by 2,000 permutations of the pooled rows, which needs no independence of the
parameters; a posterior agrees where both p-values are at least 1% divided by the number of posteriors.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from arviz_stats.base import array_stats
from model_references import STAN

from parvibench.core import registry
from parvibench.core.errors import ParVIBenchError
from parvibench.targets import posteriordb

PERMUTATIONS = 2000


def pairs() -> dict[str, str]:
    """Our task -> posterior of posteriordb, of those with reference draws and a reference of our own chains."""
    found = {posteriordb.native_of(n): n for n in posteriordb.names() if posteriordb.posterior(n).draws}
    return {
        task: name for task, name in sorted(found.items()) if task not in ("", *STAN) and registry.has_reference(task)
    }


def columns(values: dict) -> dict[str, np.ndarray]:
    """Parameters (n, ...) as columns with Stan's names, indices from 1."""
    found = {}
    for name, array in values.items():
        array = np.asarray(array)
        for index in np.ndindex(array.shape[1:]):
            place = f"[{','.join(str(i + 1) for i in index)}]" if index else ""
            found[name + place] = array[(slice(None), *index)]
    return found


def statistics(rows: np.ndarray) -> np.ndarray:
    """What is averaged, (n, 4 k): values, squares about the mean, and whether a value is in a 5% tail."""
    centred = rows - rows.mean(0)
    low, high = np.quantile(rows, [0.05, 0.95], axis=0)
    return np.concatenate([centred, centred**2, rows < low, rows > high], axis=1)


def compared(ours: np.ndarray, theirs: np.ndarray, seed: int = 0) -> tuple[float, float, float]:
    """Largest |z| of all averages, and p-values of it and of the sum of z^2."""
    pooled = statistics(np.concatenate([ours, theirs]))
    pooled = (pooled - pooled.mean(0)) / pooled.std(0)
    n, total = len(ours), len(pooled)
    generator = np.random.default_rng(seed)

    def z(chosen: np.ndarray) -> np.ndarray:
        """The difference of two means is a multiple of one of them, as the pooled mean is 0."""
        return pooled[chosen].mean(0) * total / (total - n) / np.sqrt(1 / n + 1 / (total - n))

    found = z(np.arange(n))
    others = np.array([z(generator.permutation(total)[:n]) for _ in range(PERMUTATIONS)])
    largest, sums = np.abs(others).max(1), (others**2).sum(1)
    p = [(1 + (null >= value).sum()) / (1 + PERMUTATIONS) for null, value in
         ((largest, np.abs(found).max()), (sums, (found**2).sum()))]  # fmt: skip
    return float(np.abs(found).max()), *map(float, p)


def judge(task: str, name: str) -> dict[str, object]:
    """One row of the table."""
    stan = registry.load_task(f"posteriordb:{name}")
    draws = stan.given_draws()
    chains = dict(zip(draws.names, np.moveaxis(draws.values, -1, 0), strict=True))  # (chains, draws) each
    rows = registry.load_task(task).reference().draws.double()
    ours = columns(stan.constrain(rows, generated=True))
    names = [n for n in chains if n in ours]
    ess = min(float(array_stats.ess(chains[n], chain_axis=0, draw_axis=1)) for n in names)
    every = max(1, int(np.ceil(chains[names[0]].size / ess - 0.05)))
    theirs = np.stack([chains[n][:, ::every].ravel() for n in names], 1)
    z, p_largest, p_sum = compared(np.stack([ours[n] for n in names], 1), theirs)
    return {
        "task": task, "posterior": name, "parameters": len(names), "ours": len(rows), "Stan's": len(theirs),
        "largest z": z, "p of it": p_largest, "p of the sum": p_sum,
    }  # fmt: skip


def main() -> int:
    """Compare, print, write; exit code 1 where one disagrees."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*")
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    known = pairs()
    wanted = {t: known[t] for t in options.tasks or known}
    rows = []
    for task, name in wanted.items():
        try:
            rows.append(judge(task, name))
        except ParVIBenchError as error:
            print(f"{task}: {error}", file=sys.stderr)
            continue
        print({k: round(v, 4) if isinstance(v, float) else v for k, v in rows[-1].items()}, flush=True)
    limit = 0.01 / len(rows)
    lines = ["| task | posterior | parameters | rows ours | rows Stan's | largest abs z | p | p of the sum of z² | verdict |",
             "|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    worse = 0
    for row in rows:
        agrees = min(row["p of it"], row["p of the sum"]) >= limit
        worse += not agrees
        *head, z, p, q = row.values()
        lines.append(
            f"| {' | '.join(map(str, head))} | {z:.2f} | {p:.3f} | {q:.3f} | {'agrees' if agrees else 'differs'} |"
        )
    text = "\n".join(lines) + f"\n\nLimit of p for {len(rows)} posteriors at 1%: {limit:.5f}.\n"
    if options.markdown:
        options.markdown.write_text(text, encoding="utf-8")
    print(text)
    return int(worse > 0)


if __name__ == "__main__":
    sys.exit(main())
