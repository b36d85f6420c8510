"""The references of the posteriors against the reference draws of posteriordb, which are of Stan's NUTS.

    PARVIBENCH_POSTERIORDB=COPY/posterior_database PARVIBENCH_DATA_DIR=data \\
        python tests/studies/stan_draws.py [TASK...]

COPY is a checkout of posteriordb; the extra `stan` must be installed. Our rows become parameters by Stan's own transform, so that a wrong
order or transform of coordinates shows as well. Compared are means, squares about the common mean, and both 5% tails of every
parameter. All z are those of independent draws: ours are thinned from chains whose ESS is above 10,000, theirs to the least of their
ESS. Both the largest |z| and the sum of z^2 are judged by 2,000 permutations of the pooled rows, which needs no independence of the
parameters; a posterior agrees where both p-values are at least 1% divided by the number of posteriors.
"""

import sys

import numpy as np
from arviz_stats.base import array_stats
from model_references import STAN

from parvibench.core import registry
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


def judge(task: str, name: str) -> tuple[str, int, int, int, float, float, float]:
    """A row of the table: task, parameters, our rows, Stan's draws, largest abs z, p of it and of the sum of z^2."""
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
    return task, len(names), len(rows), len(theirs), z, p_largest, p_sum


def main() -> int:
    """Compare and print rows of a table; exit code 1 where one disagrees."""
    known, worse = pairs(), 0
    limit = 0.01 / len(wanted := sys.argv[1:] or [*known])
    for task in wanted:
        *head, z, p, q = judge(task, known[task])
        worse += min(p, q) < limit
        print("|", *(f"{v} |" for v in head), f"{z:.2f} | {p:.3f} | {q:.3f} |", flush=True)
    print(f"Limit of p for {len(wanted)} posteriors at 1%: {limit:.5f}")
    return int(worse > 0)


if __name__ == "__main__":
    sys.exit(main())
